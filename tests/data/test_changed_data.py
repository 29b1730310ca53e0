"""Caches of data are used only while the data and the code that made them are unchanged."""

import json
import os

import datasets
import pytest
from datasets import config
from datasets.exceptions import DatasetGenerationError

from s2s.data import caching, text_files
from s2s.data.pairs import PairSource, load_split
from s2s.data.tables import TextSource
from s2s.recipe.schema import PlainTextSettings
from s2s.tasks.classification.data import LabelledSource
from s2s.tasks.classification.recipe import LabelledSettings
from s2s.tasks.translation.recipe import DataSettings


def _pairs(dataset) -> list[tuple[str, str]]:
    return list(zip(dataset["source"], dataset["target"], strict=True))


@pytest.mark.parametrize("kind", ["lines", "table", "folder"])
def test_cache_changed_text_of_the_same_size_and_date_is_read_anew(tmp_path, kind):
    def written(word: str) -> None:
        for name, text in (
            ("a.en", f"a {word}\n"),
            ("a.de", "x\n"),
            ("a.tsv", f"en\tde\na {word}\tx\n"),
            ("hub/train.jsonl", json.dumps({"en": f"a {word}", "de": "x"}) + "\n"),
        ):
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            os.utime(path, (1_700_000_000, 1_700_000_000))

    root = str(tmp_path)
    data = {
        "lines": DataSettings(corpus="files", root=root, train=("a.en", "a.de")),
        "table": DataSettings(corpus="files", root=root, train="a.tsv"),
        "folder": DataSettings(corpus=str(tmp_path / "hub"), train="train"),
    }[kind]
    for word in ("dog", "pig"):
        written(word)
        assert _pairs(load_split(data, "train")) == [(f"a {word}", "x")]


def test_hub_cache_of_an_older_version_is_rebuilt(tmp_path, monkeypatch):
    (tmp_path / "train.jsonl").write_text('{"text": "a dog", "label": "x", "en": "a dog", "de": "ein Hund"}\n' * 2)
    folder = str(tmp_path)
    cells = text_files.checked_cells
    for source, column in (
        (PairSource(DataSettings(corpus=folder)), lambda part: part["source"]),
        (TextSource(PlainTextSettings(corpus=folder)), lambda part: part["text"]),
        (LabelledSource(LabelledSettings(corpus=folder, classes=("x", "X"))), lambda part: part.texts["text"]),
    ):
        with monkeypatch.context() as patch:
            assert column(source.load_split("train"))[0] == "a dog"
            patch.setattr(text_files, "checked_cells", lambda *given: tuple(c.upper() for c in cells(*given)))
            patch.setattr(caching, "package_version", lambda name: "the next one")
            assert column(source.load_split("train"))[0] == "A DOG"


def test_hub_cache_reports_a_full_disk(monkeypatch):
    def fill(*_words: object, **_options: object) -> None:
        raise DatasetGenerationError("An error occurred while generating the dataset") from OSError(28, "No space left")

    monkeypatch.setattr(datasets, "load_dataset", fill)
    with pytest.raises(OSError, match="No space left") as refused:
        load_split(DataSettings(corpus="x/y", train="train"), "train")
    assert refused.value.filename == str(config.HF_DATASETS_CACHE)
