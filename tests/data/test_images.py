"""Images are the same from every source, and faults are reported."""

import gzip
import os
import struct
import tracemalloc
import warnings
from pathlib import Path

import datasets
import numpy as np
import pytest
from PIL import Image

from s2s.errors import UserError
from s2s.tasks.image_files import pixel_statistics, read_image
from s2s.tasks.images.data import ImageSource, read_idx
from s2s.tasks.images.recipe import ImageDataSettings

CLASSES = ("ant", "bee", "cat")


def idx(array: np.ndarray) -> bytes:
    """The format written out."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


@pytest.fixture
def pixels() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (12, 6, 6), dtype=np.uint8)


@pytest.fixture
def labels() -> np.ndarray:
    return np.arange(12) % 3


@pytest.fixture
def files(tmp_path, pixels, labels) -> Path:
    """A folder of MNIST's four files."""
    for stem, rows in (("train", slice(0, 9)), ("t10k", slice(9, 12))):
        (tmp_path / f"{stem}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(pixels[rows])))
        (tmp_path / f"{stem}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels[rows])))
    return tmp_path


@pytest.fixture
def folders(tmp_path, pixels, labels) -> Path:
    """A folder with `train` and `test`, each with a folder for each class."""
    for row, (image, label) in enumerate(zip(pixels, labels, strict=True)):
        folder = tmp_path / "pictures" / ("train" if row < 9 else "test") / CLASSES[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{row:02}.png")
    (tmp_path / "pictures" / "train" / "ant" / "notes.txt").write_text("no image")
    return tmp_path / "pictures"


def settings(**changes) -> ImageDataSettings:
    return ImageDataSettings(size=6, validation=2, **changes)


def test_idx_images_round_trip(tmp_path, pixels, labels):
    for name, content in (("plain", idx(pixels)), ("packed.gz", gzip.compress(idx(pixels)))):
        (tmp_path / name).write_bytes(content)
        assert (read_idx(tmp_path / name, "images") == pixels).all()
    (tmp_path / "labels").write_bytes(idx(labels))
    assert read_idx(tmp_path / "labels", "labels").tolist() == labels.tolist()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content + b"x", r"holds more than its head says: 12 x 6 x 6, which makes 432"),
        (lambda content: b"", r"has the magic number 0x, expected 0x00000803 for images"),
        (lambda content: b"\0\0\x0d\x03" + content[4:], r"magic number 0x00000d03"),
        (lambda content: idx(np.arange(3)), r"holds labels, not images.*the images come first"),
        (lambda content: gzip.compress(content)[:10] + b"\xff" * 40, r"cannot be read: "),
    ],
)
def test_images_damaged_idx_file_is_refused(tmp_path, pixels, damage, message):
    path = tmp_path / "some-images-ubyte"
    path.write_bytes(damage(idx(pixels)))
    with pytest.raises(UserError, match=f"(?s){message}") as caught:
        read_idx(path, "images")
    assert str(path) in str(caught.value)
    with pytest.raises(UserError, match=r"(?s)no such file.*there is some-images-ubyte"):
        read_idx(tmp_path / "other", "images")


def test_images_files_of_the_usual_names_and_pairs_of_files_are_the_same(files, pixels, labels):
    usual = ImageSource(settings(corpus="ylecun/mnist", root=str(files))).load()
    pairs = {
        split: (f"{stem}-images-idx3-ubyte.gz", f"{stem}-labels-idx1-ubyte.gz")
        for split, stem in (("train", "train"), ("test", "t10k"))
    }
    given = ImageSource(settings(corpus="files", root=str(files), **pairs)).load()
    for name in ("train", "validation", "test"):
        one, other = getattr(usual, name), getattr(given, name)
        assert (one.pixels == other.pixels).all()
        assert one.labels.tolist() == other.labels.tolist()
    assert usual.test.pixels[:, 0].tolist() == pixels[9:].tolist()
    assert usual.test.labels.tolist() == labels[9:].tolist()
    assert usual.train.names == ("0", "1", "2")


def test_images_warnings_of_pillow_are_not_shown(tmp_path):
    Image.new("RGB", (64, 64)).save(tmp_path / "a.tif", compression="tiff_lzw")
    whole = (tmp_path / "a.tif").read_bytes()
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        for size in range(8, len(whole), 16):
            (tmp_path / "a.tif").write_bytes(whole[:size])
            with pytest.raises(UserError, match="cannot be read"):
                read_image(tmp_path / "a.tif", ImageDataSettings(train="x", size=8))
    assert shown == []


def test_held_out_images_are_the_training_parts_and_no_longer_in_it(files, pixels):
    found = ImageSource(settings(root=str(files), corpus="hub", seed=7)).load()
    both = [*found.train.pixels[:, 0].tolist(), *found.validation.pixels[:, 0].tolist()]
    assert len(found.train) == 7
    assert sorted(both) == sorted(pixels[:9].tolist())
    again, other = (ImageSource(settings(root=str(files), corpus="hub", seed=seed)).load() for seed in (7, 8))
    assert (again.validation.pixels == found.validation.pixels).all()
    assert (other.validation.pixels != found.validation.pixels).any()
    three = ImageSource(ImageDataSettings(size=6, root=str(files), corpus="hub", validation=3, test=2)).load()
    parts = [getattr(three, name).pixels[:, 0].tolist() for name in ("train", "validation", "test")]
    assert [len(part) for part in parts] == [4, 3, 2]
    assert sorted([*parts[0], *parts[1], *parts[2]]) == sorted(pixels[:9].tolist())
    with pytest.raises(UserError, match=r"(?s)9 images to hold out of 9 leave no"):
        ImageSource(ImageDataSettings(size=6, root=str(files), corpus="hub", validation=9)).load()


def test_no_image_is_held_out_that_equals_one_learned_from(tmp_path, pixels):
    # each of four images three times, and once as another class
    repeated = np.concatenate([np.repeat(pixels[:4], 3, axis=0), pixels[:4]])
    classes = np.concatenate([np.repeat(np.arange(4) % 3, 3), (np.arange(4) + 1) % 3])
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(repeated))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(classes))
    for seed in range(5):
        found = ImageSource(
            ImageDataSettings(size=6, root=str(tmp_path), corpus="hub", validation=2, test=1, seed=seed)
        ).load()
        held = [image.tobytes() for part in (found.validation, found.test) for image in part.pixels]
        learned = [image.tobytes() for image in found.train.pixels]
        assert len(set(held)) == len(held) == 3
        assert not set(held) & set(learned)
        # only what equals them is missing
        assert learned == [image.tobytes() for image in repeated if image.tobytes() not in held]
    with pytest.raises(UserError, match=r"(?s)4 images to hold out of 16 leave no"):
        ImageSource(ImageDataSettings(size=6, root=str(tmp_path), corpus="hub", validation=4, test=None)).load()


def test_images_data_set_in_a_folder_is_read_anew_when_it_changes_with_its_dates_kept(tmp_path):
    path = tmp_path / "train-00000-of-00001.parquet"

    def written(value: int) -> None:
        rows = {"image": [Image.fromarray(np.full((6, 6), value, dtype=np.uint8))] * 2, "label": [0, 1]}
        features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
        datasets.Dataset.from_dict(rows, features=features).to_parquet(path)
        os.utime(path, (1_700_000_000, 1_700_000_000))

    found = []
    for value in (10, 20):
        written(value)
        read = ImageSource(settings(corpus="owner/name", root=str(tmp_path), test=None)).load_split("train")
        found.append(int(read.pixels.max()))
    assert found == [10, 20]


def test_images_folders_of_classes_hold_what_files_hold(folders, pixels, labels):
    for changes in ({"corpus": "files", "train": "train", "test": "test"}, {"corpus": "hub"}):
        found = ImageSource(settings(root=str(folders), **changes)).load_split("train")
        order = np.argsort(labels[:9], kind="stable")
        assert found.pixels[:, 0].tolist() == pixels[order].tolist()
        assert found.labels.tolist() == labels[order].tolist()
        assert found.names == CLASSES
        assert found.counts() == dict.fromkeys(CLASSES, 3)
    (folders / "test" / "ant" / "09.png").unlink()
    (folders / "test" / "ant").rmdir()
    whole = ImageSource(settings(root=str(folders), corpus="hub")).load()
    assert [whole.test.names[i] for i in whole.test.labels] == ["bee", "cat"]
    given = ImageSource(settings(root=str(folders), corpus="hub", classes=("cat", "bee", "ant"))).load_split("train")
    assert [given.names[i] for i in given.labels[::3]] == list(CLASSES)


@pytest.mark.parametrize("kind", ["declared", "numbers", "words"])
def test_images_hub_data_sets_hold_what_files_hold(tmp_path, pixels, labels, kind):
    feature = {
        "declared": datasets.ClassLabel(names=list(CLASSES)),
        "numbers": datasets.Value("int64"),
        "words": datasets.Value("string"),
    }[kind]
    values = [CLASSES[i] for i in labels] if kind == "words" else labels.tolist()
    rows = {"img": [Image.fromarray(image) for image in pixels], "kind": values}
    features = datasets.Features({"img": datasets.Image(), "kind": feature})
    datasets.Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "train-00000-of-00001.parquet")
    found = ImageSource(
        settings(corpus="owner/name", root=str(tmp_path), image="img", label="kind", test=None)
    ).load_split("train")
    assert found.pixels[:, 0].tolist() == pixels.tolist()
    assert found.labels.tolist() == labels.tolist()
    assert found.names == (("0", "1", "2") if kind == "numbers" else CLASSES)
    if kind == "declared":
        turned = settings(corpus="owner/name", root=str(tmp_path), image="img", label="kind", classes=CLASSES[::-1])
        assert ImageSource(turned).load_split("train").labels.tolist() == (2 - labels).tolist()


def test_images_grey_and_colour_and_other_sizes_are_what_pillow_makes_of_them(folders, pixels):
    file = folders / "train" / "ant" / "00.png"
    colour = (
        ImageSource(ImageDataSettings(size=4, channels=3, root=str(folders), corpus="hub"))
        .load_split("train")
        .pixels[0]
    )
    expected = Image.open(file).convert("RGB").resize((4, 4), Image.Resampling.BILINEAR)
    assert (colour == np.asarray(expected).transpose(2, 0, 1)).all()


def test_images_depth_turn_and_transparency_of_a_file_are_kept_or_refused(tmp_path, pixels):
    grey = Image.fromarray(pixels[0])
    grey.save(tmp_path / "8.png")
    Image.fromarray(pixels[0].astype(np.uint16) * 257).save(tmp_path / "16.png")
    raw = pixels[0].astype(">u2") * 257
    (tmp_path / "16.pgm").write_bytes(b"P5 %d %d 65535\n" % raw.shape[::-1] + raw.tobytes())
    Image.fromarray(pixels[0].astype(np.int32)).save(tmp_path / "32.tif")
    Image.merge("RGBA", (grey, grey, grey, Image.new("L", grey.size, 255))).save(tmp_path / "opaque.png")
    turned = Image.Exif()
    turned[0x0112] = 3
    grey.rotate(180).save(tmp_path / "turned.png", exif=turned)
    grey.save(tmp_path / "damaged-exif.png", exif=b"Exif\0\0garbage")
    expected = read_image(tmp_path / "8.png", ImageDataSettings(size=6))
    for name in ("16.png", "16.pgm", "opaque.png", "turned.png", "damaged-exif.png"):
        assert (read_image(tmp_path / name, ImageDataSettings(size=6)) == expected).all(), name
    with pytest.raises(UserError, match=r"32.tif: cannot be read: a pixel has 32 bits"):
        read_image(tmp_path / "32.tif", ImageDataSettings(size=6))
    Image.merge("RGBA", (*[Image.new("L", grey.size, 255)] * 3, grey)).save(tmp_path / "clear.png")
    with pytest.raises(UserError, match=r"clear.png: cannot be read: parts of it are transparent"):
        read_image(tmp_path / "clear.png", ImageDataSettings(size=6))


def test_idx_images_are_scaled_and_coloured_like_all_others(files, pixels):
    found = ImageSource(ImageDataSettings(size=4, channels=3, root=str(files), corpus="x")).load_split("test")
    expected = Image.fromarray(pixels[9]).resize((4, 4), Image.Resampling.BILINEAR)
    assert (found.pixels[0] == np.asarray(expected)).all()
    same = ImageSource(ImageDataSettings(size=6, channels=3, root=str(files), corpus="x")).load_split("test")
    assert (same.pixels == pixels[9:, None]).all()


def test_images_mistakes_are_named_with_their_remedy(files, folders, pixels):
    (files / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(np.arange(8))))
    with pytest.raises(UserError, match=r"(?s)has 9 images, .* has 8 labels.*two files of one set"):
        ImageSource(settings(corpus="x", root=str(files))).load()
    with pytest.raises(UserError, match=r"label 3: the number 2 is no class; the 2 classes are a, b"):
        ImageSource(settings(corpus="x", root=str(files), classes=("a", "b"))).load_split("test")
    with pytest.raises(UserError, match=r"(?s)no such folder"):
        ImageSource(settings(corpus="x", root=str(files / "nowhere"))).load()
    with pytest.raises(UserError, match=r"(?s)'cat' is no class; the 2 classes are ant, bee"):
        ImageSource(settings(corpus="x", root=str(folders), classes=("ant", "bee"))).load_split("train")
    (folders / "train" / "ant" / "00.png").write_bytes(b"torn")
    with pytest.raises(UserError, match=r"(?s)00.png: cannot be read"):
        ImageSource(settings(corpus="x", root=str(folders))).load_split("train")
    (folders / "test" / "empty").mkdir()
    with pytest.raises(UserError, match=r"(?s)empty: has no images"):
        ImageSource(settings(corpus="x", root=str(folders))).load_split("test")
    with pytest.raises(UserError, match=r"(?s)has no folders of classes; there: 00.png"):
        ImageSource(settings(corpus="files", train=str(folders / "train" / "ant"))).load_split("train")


def hub(folder: Path, labels: list, feature: object) -> Path:
    """A data set's own file, of images that do not matter."""
    rows = {"image": [Image.new("L", (6, 6), i % 256) for i in range(len(labels))], "label": labels}
    features = datasets.Features({"image": datasets.Image(), "label": feature})
    datasets.Dataset.from_dict(rows, features=features).to_parquet(folder / "train.parquet")
    return folder


NAMES = datasets.ClassLabel(names=list(CLASSES))


@pytest.mark.parametrize("classes", [None, CLASSES, CLASSES[::-1]])
@pytest.mark.parametrize(
    ("label", "said"), [(-1, "-1 is no class; the 3 classes are ant, bee, cat"), (None, "has no label")]
)
def test_image_without_a_label_is_refused_whatever_the_order_of_classes(tmp_path, label, said, classes):
    place = hub(tmp_path, [0, 1, 2, label], NAMES)
    with pytest.raises(UserError, match=f"row 4: {said}"):
        ImageSource(settings(corpus="x", root=str(place), classes=classes)).load_split("train")


@pytest.mark.parametrize(
    ("labels", "kind", "words"),
    [
        ([0, 1, None], "int64", "row 3: has no label"),
        (["ant", "bee ", "ant"], "string", "row 2: the label 'bee ' has surrounding spaces"),
        ([0.0, float("nan")], "float64", "row 2: has no label"),
    ],
)
def test_images_labels_that_are_none_are_refused(tmp_path, labels, kind, words):
    place = hub(tmp_path, labels, datasets.Value(kind))
    with pytest.raises(UserError, match=words):
        ImageSource(settings(corpus="x", root=str(place))).load_split("train")


@pytest.mark.parametrize(
    ("labels", "kind", "said"),
    [
        ([0, 1, 1_000], "int64", "would make 1,001 classes, for its numbers go up to 1,000"),
        (
            [f"img{i:04}" for i in range(1_001)],
            "string",
            "would make 1,001 classes, for it has so many words, e.g. 'img",
        ),
    ],
)
def test_images_column_of_something_else_than_classes_is_refused(tmp_path, labels, kind, said):
    place = hub(tmp_path, labels, datasets.Value(kind))
    with pytest.raises(UserError, match=rf"data.label: the label column {said}"):
        ImageSource(settings(corpus="x", root=str(place))).load_split("train")
    # as many as there may be
    place = hub(tmp_path, [0, 999], datasets.Value("int64"))
    assert len(ImageSource(settings(corpus="x", root=str(place))).load_split("train").names) == 1000


def test_images_one_class_is_no_task(tmp_path, files, folders, pixels):
    (folders.parent / "above" / "images").mkdir(parents=True)
    (folders / "train").rename(folders.parent / "above" / "images" / "train")
    high = settings(corpus="files", train=str(folders.parent / "above" / "images"), test=None)
    with pytest.raises(UserError, match=r"images are of one class, 'train'(.|\n)*folders of the classes"):
        ImageSource(high).load()
    for number in (0, 1):
        (files / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(np.full(9, number))))
        with pytest.raises(UserError, match=f"of one class, '{number}'"):
            ImageSource(settings(corpus="x", root=str(files))).load()


@pytest.mark.parametrize(
    ("labels", "kind", "names"), [([True, False], "bool", ("0", "1")), ([0.0, 1.5], "float64", ("0.0", "1.5"))]
)
def test_images_other_labels_are_numbers_or_words(tmp_path, labels, kind, names):
    place = hub(tmp_path, labels * 3, datasets.Value(kind))
    assert ImageSource(settings(corpus="x", root=str(place))).load_split("train").names == names


def test_images_hub_column_that_is_not_there_is_named(tmp_path, pixels):
    rows = {"image": [Image.fromarray(pixels[0])], "labels": [0]}
    features = datasets.Features({"image": datasets.Image(), "labels": datasets.Value("int64")})
    datasets.Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "train.parquet")
    with pytest.raises(UserError, match=r"(?s)data.label is 'label', but the columns are image, labels.*mean labels\?"):
        ImageSource(settings(corpus="x", root=str(tmp_path))).load_split("train")


def test_images_statistics_are_those_of_the_numbers_themselves():
    pixels = np.random.default_rng(1).integers(0, 256, (5000, 3, 2, 3), dtype=np.uint8)
    pixels[:, 1] //= 3
    pixels[:, 2] = 7
    mean, deviation = pixel_statistics(pixels)
    shares = pixels / 255
    assert mean == pytest.approx(shares.mean(axis=(0, 2, 3)))
    assert deviation[:2] == pytest.approx(shares.std(axis=(0, 2, 3))[:2])
    assert deviation[2] == 1


def test_idx_reader_stops_at_the_size_of_its_header(tmp_path):
    head = struct.pack(">BBBB3I", 0, 0, 8, 3, 4, 8, 8)
    path = tmp_path / "bomb.idx"
    path.write_bytes(gzip.compress(head + bytes(40_000_000)))
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match="holds more than its head says: 4 x 8 x 8"):
            read_idx(path, "images")
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def test_images_mnist_has_all_examples(real_data):
    root = real_data / "mnist"
    if not root.is_dir():
        pytest.skip(f"S2S_DATA has no mnist: {root}")
    found = ImageSource(ImageDataSettings(corpus="ylecun/mnist", root=str(root), validation=5000)).load()
    assert (len(found.train), len(found.validation), len(found.test)) == (55_000, 5_000, 10_000)
    # published counts of the test set's digits
    assert list(found.test.counts().values()) == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
