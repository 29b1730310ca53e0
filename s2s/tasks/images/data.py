"""Labelled images in memory: IDX files, folders of images, and hub data sets.

Pixels are stored as bytes, which takes a quarter of the memory of fp32. IDX is the format of MNIST (LeCun et al. 1998),
plain or compressed with gzip: two zero bytes, the type of the numbers, the number of dimensions; then each dimension's
size as a big-endian 32-bit number; then the numbers.
"""

import gzip
import io
import math
import zlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
from jaxtyping import Int, UInt8

from s2s.data.labels import MOST_CLASSES, count_classes, validate_label
from s2s.data.sources import ALIASES, Source, digest_of_arrays
from s2s.errors import UserError, check_regular
from s2s.tasks.image_files import Pixels, hub_images, image_files, pixels_of, read_all, read_cell
from s2s.tasks.images.recipe import ImageDataSettings

# File names of MNIST, and of all data sets in its format.
_IDX_STEMS = {"train": "train", "test": "t10k"}
# IDX: the type code of bytes, and the content by number of dimensions. No gzip file expands by more than this factor.
_BYTES = 0x08
_MOST_PACKED = 1_032
_KINDS = {1: "labels", 3: "images"}


@dataclass(frozen=True)
class Images:
    """Labelled images of one split.

    Attributes:
        pixels: Images (images, channels, height, width), from 0 (black) to 255.
        labels: Class of each image, as an index of `names`.
    """

    pixels: Pixels
    labels: Int[np.ndarray, " images"]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, indices: Int[np.ndarray, " chosen"], /) -> "Images":
        """Return the images at these indices, in this order."""
        return replace(self, pixels=self.pixels[indices], labels=self.labels[indices])

    def counts(self) -> dict[str, int]:
        """Return the number of images of each class."""
        return count_classes(self.labels, self.names)

    def digest(self) -> str:
        """Return a hash of pixels and classes, independent of file names."""
        return digest_of_arrays((self.pixels, self.labels))


class ImageSource(Source[ImageDataSettings, Images]):
    """Source of labelled images.

    No image is in two splits: held-out images are different, and removed from the training data.
    """

    item_name: ClassVar[str] = "images"

    def read(self, name: str, split: str | tuple[str, str], train: Images | None) -> Images:
        """Read a split from IDX files, a folder of class folders, or a hub data set."""
        found = self._found(name, split, train)
        if name == "train" and len(np.unique(found.labels)) < 2:
            what = f"all training images are of one class, {found.names[found.labels[0]]!r}"
            raise UserError(what, f"data.train: {split}", "name the folder that contains the folders of the classes")
        return found

    def _found(self, name: str, split: str | tuple[str, str], train: Images | None) -> Images:
        settings, names = self.settings, train.names if train else self.settings.classes
        root = Path(settings.root or "")
        if isinstance(split, tuple):
            if settings.corpus != "files":
                raise UserError(
                    f"data.{name} is a pair of files, but data.corpus is {settings.corpus!r}",
                    remedy="set data.corpus: files",
                )
            return _from_idx(root / split[0], root / split[1], settings, names)
        if settings.corpus == "files":
            return _from_folder(root / split, settings, names)
        if not settings.root:
            return _from_hub(None, split, settings, names)
        root = self.folder("images")
        if files := idx_files(root, split):
            return _from_idx(*files, settings, names)
        folder = next((root / alias for alias in ALIASES.get(split, (split,)) if class_folders(root / alias)), None)
        # Otherwise the folder may have the data set's own files.
        return _from_folder(folder, settings, names) if folder else _from_hub(root, split, settings, names)

    def load_split(self, name: str, train: Images | None = None) -> Images | None:
        if name == "train" and isinstance(self.settings.train, int):
            raise UserError(
                f"data.train is {self.settings.train}", remedy="name a split, a folder or a pair of IDX files"
            )
        return super().load_split(name, train)

    def keys(self, part: Images) -> Iterable[Hashable]:
        return (image.tobytes() for image in part.pixels)

    def classes(self, part: Images) -> Int[np.ndarray, " examples"]:
        return part.labels

    def keys_with_targets(self, part: Images) -> Iterable[Hashable]:
        return zip(self.keys(part), part.labels.tolist(), strict=True)

    def digest(self, part: Images) -> str:
        return part.digest()


def idx_files(folder: Path, split: str) -> tuple[Path, Path] | None:
    """Return the IDX files of a split, by their usual names."""
    stem = _IDX_STEMS.get(split, split)
    for ending in ("", ".gz"):
        images, labels = (folder / f"{stem}-{kind}{ending}" for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"))
        if images.is_file():
            return images, labels
    return None


def _from_idx(images: Path, labels: Path, settings: ImageDataSettings, names: tuple[str, ...] | None) -> Images:
    pixels, numbers = read_idx(images, "images"), read_idx(labels, "labels")
    if len(pixels) != len(numbers):
        what = f"{images} has {len(pixels):,} images, {labels} has {len(numbers):,} labels"
        raise UserError(what, remedy="name the two files of one set")
    _check_some(len(pixels), str(images))
    names = names or tuple(str(number) for number in range(int(numbers.max()) + 1))
    if numbers.max() >= len(names):
        first = int((numbers >= len(names)).argmax())
        raise _unknown_class(f"the number {numbers[first]}", names, f"{labels}, label {first + 1}")
    if pixels.shape[1:] == (settings.size, settings.size):
        shaped = np.repeat(pixels[:, None], settings.channels, axis=1)
    else:
        from PIL.Image import fromarray

        shaped = np.stack([pixels_of(fromarray(image), settings) for image in pixels])
    return Images(shaped, numbers.astype(np.int64), names)


def _from_folder(folder: Path, settings: ImageDataSettings, names: tuple[str, ...] | None) -> Images:
    classes = class_folders(folder)
    if not classes:
        there = sorted(path.name for path in folder.iterdir())[:10] if folder.is_dir() else []
        what = "has no folders of classes" + (f"; there: {', '.join(there)}" if there else "")
        what = what if folder.is_dir() else "there is no such folder"
        raise UserError(
            what, str(folder), "put the images of each class into a folder of the class's name: train/cat/1.png"
        )
    names = names or tuple(path.name for path in classes)
    files, labels = [], []
    for path in classes:
        if path.name not in names:
            raise _unknown_class(repr(path.name), names, str(path))
        found = image_files(path)
        _check_some(len(found), str(path))
        files += found
        labels += [names.index(path.name)] * len(found)
    return Images(read_all(files, settings), np.array(labels, dtype=np.int64), names)


def class_folders(folder: Path) -> list[Path]:
    """Return the subfolders of a folder, one for each class."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _from_hub(folder: Path | None, split: str, settings: ImageDataSettings, names: tuple[str, ...] | None) -> Images:
    columns = (("image", settings.image), ("label", settings.label))
    found, where = hub_images(settings, split, folder, columns)
    _check_some(len(found), where)
    labels, names = _numbered(list(found[settings.label]), found.features[settings.label], names, where)
    pixels = [
        read_cell(cast("Any", row)[settings.image], f"{where}, row {number}", settings)
        for number, row in enumerate(found, start=1)
    ]
    return Images(np.stack(pixels), labels, names)


def _numbered(
    values: list[Any], feature: Any, names: tuple[str, ...] | None, where: str
) -> tuple[Int[np.ndarray, " images"], tuple[str, ...]]:
    """Return class numbers and names; words are looked up, or sorted and numbered."""
    own = getattr(feature, "names", None)
    for row, value in enumerate(values, start=1):
        if value is None or value != value:
            raise UserError("has no label", where=f"{where}, row {row}", remedy="label the row, or delete it")
        # -1, which marks unknown classes in some data sets, would index from the end.
        if own and value not in range(len(own)):
            raise _unknown_class(repr(value), own, f"{where}, row {row}")
    if own and names and tuple(own) != names:
        # The same classes in another order, or fewer classes: the names decide.
        values, own = [own[value] for value in values], None
    if all(isinstance(value, int) for value in values):
        if not (names or own):
            _check_number(max(values) + 1, f"its numbers go up to {max(values):,}")
        names = names or tuple(own or map(str, range(max(values) + 1)))
        numbers: Mapping[Any, int] = {number: number for number in range(len(names))}
    else:
        values = [validate_label(str(value), f"{where}, row {row}") for row, value in enumerate(values, start=1)]
        different = set(values)
        if not names:
            _check_number(len(different), f"it has so many words, e.g. {values[0]!r:.40}")
        names = names or tuple(sorted(different))
        numbers = {name: number for number, name in enumerate(names)}
    for row, value in enumerate(values):
        if value not in numbers:
            raise _unknown_class(repr(value), names, f"{where}, row {row + 1}")
    return np.array([numbers[value] for value in values], dtype=np.int64), names


def _check_number(classes: int, why: str) -> None:
    """Refuse a label column that would make too many classes."""
    if classes > MOST_CLASSES:
        raise UserError(
            f"the label column would make {classes:,} classes, for {why}",
            where="data.label",
            remedy="name the column of the classes, or declare them: data.classes=[NAME, NAME]",
        )


def _unknown_class(found: str, names: Sequence[str], where: str) -> UserError:
    shown = ", ".join(names[:12]) + (" …" if len(names) > 12 else "")
    return UserError(
        f"{found} is no class; the {len(names)} classes are {shown}",
        where=where,
        remedy="correct the label, or name all classes in data.classes",
    )


def _check_some(count: int, where: str) -> None:
    if not count:
        raise UserError("has no images", where=where, remedy="look at it, or name another")


def read_idx(path: Path, kind: str) -> UInt8[np.ndarray, "..."]:
    """Read an IDX file of images or labels."""
    dimensions = 3 if kind == "images" else 1
    check_regular(path, "name an IDX file")
    first = 4 + 4 * dimensions
    try:
        # The content decides, not the file extension: some servers decompress files.
        with path.open("rb") as raw, gzip.open(raw) if _packed(raw) else nullcontext(raw) as file:
            sizes = _sizes(path, file.read(first), dimensions)
            # Only as many bytes as the header declares are read, however far a small file may expand.
            return _numbers(path, file, sizes)
    except FileNotFoundError:
        there = sorted(p.name for p in path.parent.glob("*ubyte*"))
        raise UserError(
            "no such file", where=str(path), remedy=f"there is {', '.join(there)}" if there else "check the path"
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        raise _wrong(path, f"cannot be read: {error}") from None


def _packed(raw: io.BufferedIOBase) -> bool:
    magic = raw.read(2)
    raw.seek(0)
    return magic == b"\x1f\x8b"


def _sizes(path: Path, head: bytes, dimensions: int) -> tuple[int, ...]:
    magic, wanted = head[:4], bytes([0, 0, _BYTES, dimensions])
    if magic != wanted:
        other = next((kind for d, kind in _KINDS.items() if magic == bytes([0, 0, _BYTES, d])), None)
        if other:
            raise UserError(
                f"holds {other}, not {_KINDS[dimensions]}",
                where=str(path),
                remedy="the images come first: [images, labels]",
            )
        raise _wrong(path, f"has the magic number 0x{magic.hex()}, expected 0x{wanted.hex()} for {_KINDS[dimensions]}")
    if len(head) < 4 + 4 * dimensions:
        raise _wrong(path, f"ends after {len(head)} bytes, within its head")
    return tuple(np.frombuffer(head, ">u4", dimensions, 4).astype(np.int64).tolist())


def _numbers(path: Path, file: io.BufferedIOBase, sizes: tuple[int, ...]) -> np.ndarray:
    promised, shape = math.prod(sizes), " x ".join(map(str, sizes))
    if promised > _MOST_PACKED * path.stat().st_size:
        raise _wrong(path, f"is too small for what its head says: {shape}, which makes {promised:,} bytes")
    content = file.read(promised)
    if len(content) < promised:
        raise _wrong(path, f"holds {len(content):,} numbers; its head says {shape}, which makes {promised:,}")
    if file.read(1):
        raise _wrong(path, f"holds more than its head says: {shape}, which makes {promised:,} numbers")
    return np.frombuffer(content, np.uint8).reshape(sizes)


def _wrong(path: Path, what: str) -> UserError:
    return UserError(what, where=str(path), remedy="fetch the file again, or name an IDX file of bytes")
