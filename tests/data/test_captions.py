"""Captioned images are the same from every source, and faults are reported."""

import json
from pathlib import Path

import datasets
import numpy as np
import pytest
from PIL import Image

from s2s.errors import UserError
from s2s.tasks.captioning.data import Captioned, CaptionSource
from s2s.tasks.captioning.diagnosis import inspect_captions
from s2s.tasks.captioning.recipe import CaptionDataSettings

CAPTIONS = {
    "a.png": ("A dog, running.", "a brown dog runs"),
    "b.png": ("Two cats sleep .", "cats"),
    "c.png": ("a bird", "the bird sits"),
}
FLAT = [(name, caption) for name, several in CAPTIONS.items() for caption in several]


@pytest.fixture
def pixels() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (3, 6, 6, 3), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path, pixels) -> Path:
    """A folder with images and, beside it, their captions in each form."""
    (tmp_path / "photos").mkdir()
    for name, image in zip(CAPTIONS, pixels, strict=True):
        Image.fromarray(image).save(tmp_path / "photos" / name)
    (tmp_path / "captions.txt").write_text("image,caption\n" + "".join(f'{n},"{c}"\n' for n, c in FLAT))
    (tmp_path / "captions.csv").write_text("image,caption\n" + "".join(f'{n},"{c}"\n' for n, c in FLAT))
    (tmp_path / "both.tsv").write_text(
        "image\tone\ttwo\n" + "".join(f"{n}\t{o}\t{t}\n" for n, (o, t) in CAPTIONS.items())
    )
    rows = [json.dumps({"image": name, "caption": caption}) for name, caption in FLAT]
    (tmp_path / "captions.jsonl").write_text("".join(f"{row}\n" for row in rows))
    tokens = [f"{name}#{i}\t{c}\n" for name, several in CAPTIONS.items() for i, c in enumerate(several)]
    # as in Flickr8k's own file, one that has no image
    (tmp_path / "Flickr8k.token.txt").write_text("".join(tokens) + "2258277193.jpg.1#0\ta man\n")
    (tmp_path / "images.txt").write_text("".join(f"{name}\n" for name in CAPTIONS))
    (tmp_path / "coco.json").write_text(json.dumps(_coco()))
    return tmp_path


def _coco() -> dict:
    numbers = {name: 100 + i for i, name in enumerate(CAPTIONS)}
    return {
        "info": {},
        "images": [{"id": number, "file_name": name} for name, number in numbers.items()],
        # in another order, and one with a line end in it
        "annotations": [{"image_id": numbers[n], "id": i, "caption": f"{c}\n"} for i, (n, c) in enumerate(FLAT)],
    }


def read(folder: Path, train, **changes) -> Captioned:
    settings = {"corpus": "files", "root": str(folder), "images": "photos", "size": 6, "train": train} | changes
    found = CaptionSource(CaptionDataSettings(**settings)).load_split("train")
    assert found is not None
    return found


ROADS = {
    "kaggle": {"train": "captions.txt"},
    "csv": {"train": "captions.csv"},
    "columns": {"train": "both.tsv", "caption": ("one", "two")},
    "jsonl": {"train": "captions.jsonl"},
    "tokens": {"train": ("Flickr8k.token.txt", "images.txt")},
    "coco": {"train": "coco.json"},
}


@pytest.mark.parametrize("road", ROADS.values(), ids=ROADS)
def test_every_form_of_a_table_gives_the_same_images_and_captions(folder, pixels, road):
    found = read(folder, **road)
    assert dict(zip(found.names, found.captions, strict=True)) == CAPTIONS
    assert (found.pixels == pixels.transpose(0, 3, 1, 2)).all()


def test_captions_list_chooses_images_in_its_order(folder, pixels):
    (folder / "images.txt").write_text("c.png\n\na.png\n")
    found = read(folder, ("captions.csv", "images.txt"))
    assert found.names == ("c.png", "a.png")
    assert found.captions == (CAPTIONS["c.png"], CAPTIONS["a.png"])
    assert (found.pixels == pixels[[2, 0]].transpose(0, 3, 1, 2)).all()


@pytest.mark.parametrize("form", ["a list of captions", "a row each", "two columns"])
def test_captions_data_sets_own_files_are_read_as_from_the_hub(tmp_path, folder, pixels, form):
    images = [Image.fromarray(image) for image in pixels]
    several = list(CAPTIONS.values())
    if form == "a list of captions":
        rows = {"image": images, "caption": [list(each) for each in several]}
    elif form == "a row each":
        rows = {"image": [i for i in images for _ in range(2)], "caption": [c for each in several for c in each]}
    else:
        rows = {"image": images, "one": [one for one, _ in several], "two": [two for _, two in several]}
    (tmp_path / "own").mkdir()
    datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image()).to_parquet(tmp_path / "own/train.parquet")
    columns = ("one", "two") if form == "two columns" else "caption"
    settings = CaptionDataSettings(corpus="some/set", root=str(tmp_path / "own"), size=6, caption=columns)
    found = CaptionSource(settings).load_split("train")
    assert found.captions == tuple(CAPTIONS.values())
    assert (found.pixels == pixels.transpose(0, 3, 1, 2)).all()
    with pytest.raises(UserError, match=r"(?s)data.caption is 'capture', but the columns are image"):
        CaptionSource(settings.model_copy(update={"caption": "capture"})).load_split("train")


@pytest.mark.parametrize("cells", [[1, 2], [{"a": 1}, {"a": 2}]])
def test_captions_column_that_holds_no_images_is_named(tmp_path, cells):
    rows = {"image": cells, "caption": ["one", "two"]}
    datasets.Dataset.from_dict(rows).to_parquet(tmp_path / "train.parquet")
    settings = CaptionDataSettings(corpus="some/set", root=str(tmp_path), size=6)
    with pytest.raises(
        UserError, match=r"(?s)data.image is 'image', which holds .*int64.* and no images.*set data.image"
    ):
        CaptionSource(settings).load_split("train")


def test_captions_cell_without_bytes_and_path_is_named(tmp_path):
    rows = {"image": [{"bytes": None, "path": None}], "caption": ["one"]}
    datasets.Dataset.from_dict(rows).to_parquet(tmp_path / "train.parquet")
    with pytest.raises(UserError, match="has no image"):
        CaptionSource(CaptionDataSettings(corpus="some/set", root=str(tmp_path), size=6)).load_split("train")


def test_captions_no_image_is_held_out_that_equals_one_learned_from(tmp_path, pixels):
    # each of six images under three names
    images = np.random.default_rng(2).integers(0, 256, (6, 6, 6), dtype=np.uint8)
    rows = ["image,caption"]
    for number, image in enumerate(np.repeat(images, 3, axis=0)):
        Image.fromarray(image).save(tmp_path / f"{number}.png")
        rows.append(f"{number}.png,caption {number}")
    (tmp_path / "all.csv").write_text("\n".join(rows) + "\n")
    for seed in range(4):
        settings = CaptionDataSettings(
            corpus="files", root=str(tmp_path), train="all.csv", validation=2, test=1, seed=seed, size=6, channels=1
        )
        found = CaptionSource(settings).load()
        held = [image.tobytes() for part in (found.validation, found.test) for image in part.pixels]
        learned = {image.tobytes() for image in found.train.pixels}
        assert len(set(held)) == 3
        assert not set(held) & learned
        assert len(found.train) == 9
        told = inspect_captions(found, CaptionSource(settings), "nfkc", 1)
        assert told.in_train["images"] == {"validation": 0, "test": 0}
        # the second and third name of each image that stays, by their rows in the file
        again = [row for row in (int(Path(name).stem) + 1 for name in found.train.names) if (row - 1) % 3]
        listed = ", ".join(map(str, again[:5]))
        assert f"6 images of train (rows {listed} …) equal an earlier one" in str(told)


def _without(folder: Path, key: str, row: int, change) -> None:
    whole = _coco()
    change(whole[key][row])
    (folder / "coco.json").write_text(json.dumps(whole))


MISTAKES = {
    "missing image": (
        lambda f: (f / "photos/b.png").unlink(),
        "captions.csv",
        r"captions.csv:4: b.png: cannot be read: there is no such file",
    ),
    "torn image": (
        lambda f: (f / "photos/b.png").write_bytes(b"\x89PNG torn"),
        ("Flickr8k.token.txt", "images.txt"),
        r"Flickr8k.token.txt:3: b.png: cannot be read",
    ),
    "listed without a caption": (
        lambda f: (f / "images.txt").write_text("a.png\nd.png\n"),
        ("Flickr8k.token.txt", "images.txt"),
        r"images.txt:2: 'd.png' has no caption in .*Flickr8k.token.txt",
    ),
    "listed twice": (
        lambda f: (f / "images.txt").write_text("a.png\na.png\n"),
        ("captions.csv", "images.txt"),
        r"images.txt:2: 'a.png' is named twice",
    ),
    "unlisted image without a file": (lambda f: None, "Flickr8k.token.txt", r"txt:7: 2258277193.jpg.1: cannot be read"),
    "empty caption": (
        lambda f: (f / "captions.csv").write_text("image,caption\na.png,x\nb.png, \n"),
        "captions.csv",
        r"captions.csv:3: b.png has no caption",
    ),
    "no image": (
        lambda f: (f / "captions.csv").write_text("image,caption\n,x\n"),
        "captions.csv",
        r"captions.csv:2: names no image",
    ),
    "outside": (
        lambda f: (f / "captions.csv").write_text("image,caption\n../captions.csv,x\n"),
        "captions.csv",
        r"captions.csv:2: '../captions.csv' is no file in .*photos",
    ),
    "other columns": (
        lambda f: (f / "captions.txt").write_text("picture,caption\na.png,x\n"),
        "captions.txt",
        r"captions.txt:1: no column 'image'; columns: 'picture', 'caption'",
    ),
    "no number": (
        lambda f: (f / "Flickr8k.token.txt").write_text("a.png\tx\n"),
        "Flickr8k.token.txt",
        r"Flickr8k.token.txt:1: is 'a.png\\tx', expected image.jpg#0",
    ),
    "coco's unknown image": (
        lambda f: _without(f, "annotations", 1, lambda row: row.update(image_id=7)),
        "coco.json",
        r"coco.json annotation 2: is of image 7, which `images` does not have",
    ),
    "coco's caption": (
        lambda f: _without(f, "annotations", 0, lambda row: row.pop("caption")),
        "coco.json",
        r"coco.json: annotations.0.caption: field required",
    ),
    "coco's name": (
        lambda f: _without(f, "images", 2, lambda row: row.update(file_name=3)),
        "coco.json",
        r"coco.json: images.2.file_name: input should be a valid string, not 3",
    ),
    "no coco": (lambda f: (f / "coco.json").write_text("[]"), "coco.json", r"coco.json: input should be an object"),
    "no json": (lambda f: (f / "coco.json").write_text("{"), "coco.json", r"coco.json:1: not JSON"),
    "no table": (lambda f: None, "photos/a.png", r"a.png: is no table of captions"),
    "nothing": (lambda f: None, "nowhere.csv", r"nowhere.csv: no such file"),
    "a number": (lambda f: None, 7, r"data.train is 7; only the built-in corpus"),
}


@pytest.mark.parametrize(("spoil", "train", "message"), MISTAKES.values(), ids=MISTAKES)
def test_captions_mistakes_are_named_with_their_row(folder, spoil, train, message):
    spoil(folder)
    with pytest.raises(UserError, match=f"(?s){message}") as caught:
        read(folder, train)
    assert "→" in str(caught.value)


def test_captions_folder_that_is_not_there_is_named(folder):
    with pytest.raises(UserError, match=r"(?s)data.images: .*nowhere: there is no such folder"):
        read(folder, "captions.csv", images="nowhere")


def test_caption_inspection_reports_faults_of_a_corpus(folder):
    Image.fromarray(np.zeros((6, 6, 3), dtype=np.uint8)).save(folder / "photos/c.png")
    (folder / "captions.csv").write_text("image,caption\na.png,a dog\na.png,a  dog\nb.png,a dog\u2028\nc.png,a dog\n")
    (folder / "dev.csv").write_text("image,caption\nb.png,a dog\n")
    source = CaptionSource(
        CaptionDataSettings(
            corpus="files",
            root=str(folder),
            images="photos",
            size=6,
            train="captions.csv",
            validation="dev.csv",
            test=None,
        )
    )
    told = str(inspect_captions(source.load(), source, "nfkc", 1))
    for words in (
        "1 image of train (row 3) is of a single colour",
        "1 image of validation also occurs in train: scores will be too optimistic",
        "captions of 1 image of train with a line separator U+2028 (row 2)",
    ):
        assert words in told
    rows = {line[:28].strip(): line[28:].split() for line in told.split("\n")}
    assert rows["captions"] == ["4", "1"]
    assert rows["most of an image"] == ["2", "1"]
    assert rows["captions also in train"] == ["–", "1"]
