"""Checks of labelled texts and images by `s2s data check`."""

import datasets
import numpy as np

from s2s.data.sources import Corpus
from s2s.tasks.classification.data import Labelled
from s2s.tasks.classification.diagnosis import inspect_labelled
from s2s.tasks.images.data import Images, ImageSource
from s2s.tasks.images.diagnosis import inspect_images
from s2s.tasks.images.recipe import ImageDataSettings

_SPREAD = ("  of the shortest", "  of the middle one", "  of the longest")


def _part(rows: list[tuple[str, int]]) -> Labelled:
    texts = datasets.Dataset.from_dict({"text": [text for text, _ in rows]})
    return Labelled(texts, np.array([label for _, label in rows]), ("a", "b"))


def test_labelled_inspection_sound_texts_are_counted_and_nothing_is_said_of_them():
    train = _part([(f"text {number} here", number % 2) for number in range(20)])
    found = inspect_labelled(Corpus(train, _part([("another one", 0), ("a third", 1)]), None), 1)
    rows = found.splits["train"].rows
    assert [rows[name] for name in ("a", "b")] == [10, 10]
    assert [rows[name] for name in ("words", *_SPREAD)] == [60, 3, 3, 3]
    assert list(found.splits) == ["train", "validation"]
    assert len(found.spots) == 10
    assert all(train.texts[int(spot.split()[0]) - 1]["text"] in spot for spot in found.spots)
    assert "nothing suspicious found" in str(found)


def test_labelled_inspection_names_rows_of_faulty_texts():
    rows = [(f"text {number}", 0) for number in range(30)]
    rows += [("text 3", 1), ("text 4", 0), ("  ", 0), ("bad \ufffd", 1)]
    test = _part([("text 7", 1), ("new", 0), ("text 8", 0)])
    found = inspect_labelled(Corpus(_part(rows), _part([("x", 0)]), test), 1)
    rows = found.splits["train"].rows
    assert rows["repeated with another class"] == 1
    assert rows["repeated texts"] == 2
    assert rows["empty texts"] == 1
    assert found.in_train == {"texts": {"validation": 0, "test": 2}}
    shown = str(found)
    for words in (
        "1 text of train is empty (row 33)",
        "1 text of train (row 31) has another class than the same one before",
        "1 text of train with a replacement character U+FFFD (row 34)",
        "class b has 2 training texts, the largest one 32: look at macro-F1",
        "2 texts of test also occur in train",
        "no texts of validation are of class b: no validation score measures it",
        "2 texts of train are repeated",
    ):
        assert words in shown


def _images(*pictures: tuple[int, int]) -> Images:
    """Images of 4 by 4 pixels, each drawn by a seed, of one class each."""
    pixels = [np.random.default_rng(seed).integers(0, 256, (1, 4, 4), dtype=np.uint8) for seed, _ in pictures]
    return Images(np.stack(pixels), np.array([label for _, label in pictures]), ("a", "b"))


def test_labelled_inspection_sound_images_are_counted_and_nothing_is_said_of_them():
    train = _images(*((seed, seed % 2) for seed in range(20)))
    found = inspect_images(Corpus(train, _images((30, 0), (31, 1)), None), ImageSource(ImageDataSettings(size=4)))
    assert [found.splits["train"].rows[name] for name in ("a", "b")] == [10, 10]
    assert len(found.spots) == 10
    assert "nothing suspicious found" in str(found)


def test_labelled_inspection_names_rows_of_faulty_images():
    train = _images(*((seed, 0) for seed in range(30)), (3, 1), (4, 0), (40, 1))
    train.pixels[32] = 7
    source = ImageSource(ImageDataSettings(size=4, mean=(127.5,), deviation=(70.0,)))
    shown = str(inspect_images(Corpus(train, _images((50, 0)), _images((7, 1), (51, 0))), source))
    for words in (
        "1 image of train (row 31) has another class than the same one before",
        "1 image of train (row 33) is of a single colour",
        "class b has 2 training images, the largest one 31: look at macro-F1",
        "1 image of test also occurs in train",
        "2 images of train are repeated",
        "no images of validation are of class b: no validation score measures it",
        "data.mean says 127.500: shares of white",
    ):
        assert words in shown
