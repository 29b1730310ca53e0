"""Images with captions: tables and hub data sets, tokenization and batches."""

import itertools
import re
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt8
from pydantic import BaseModel
from torch import Tensor

from s2s.data import text_files
from s2s.data.batches import ParallelBatch, collate
from s2s.data.dataset import Examples, Plan
from s2s.data.sources import Source, digest_of, digest_of_arrays
from s2s.data.text_files import Columns, check_there
from s2s.data.tokenized import PreparedTexts, RaggedArray
from s2s.errors import UserError
from s2s.files import LARGE_BYTES
from s2s.json_files import read_json
from s2s.recipe.wording import near_files
from s2s.tasks.captioning.recipe import CaptionDataSettings, CaptionRecipe
from s2s.tasks.captioning.scenes import SPLITS, pictures, scenes
from s2s.tasks.image_files import Pixels, hub_images, read_all, read_cell

_NUMBERED = re.compile(r"(.+)#\d+")
BUILT_IN = "built-in"
_BUILT_IN_SIZES = {"train": 20_000, "validation": 500, "test": 1_000}


@dataclass(frozen=True)
class Row:
    """A caption and its place in the file, for error messages."""

    caption: str
    where: str


Table = dict[str, list[Row]]
"""Captions by name of the image, in the order of the images' first rows."""


def captions_of(path: Path, settings: CaptionDataSettings) -> Table:
    """Read the captions of a table; refuse a row without image or caption."""
    check_there(path)
    table: Table = {}
    for name, caption, where in _rows(path, settings):
        if not name.strip():
            raise UserError("names no image", where=where, remedy="correct or remove the row")
        if not caption.strip():
            raise UserError(f"{name} has no caption", where=where, remedy="correct or remove the row")
        table.setdefault(name, []).append(Row(caption, where))
    return table


def _rows(path: Path, settings: CaptionDataSettings) -> Iterator[tuple[str, str, str]]:
    """Yield image, caption and place of each row."""
    if path.suffix == ".json":
        yield from _coco(path)
        return
    kind = text_files.table_kind(path)
    if kind is None:
        formats = f"{', '.join(text_files.TABLES)} (plain, .gz or .xz), or COCO's .json"
        raise UserError("is no table of captions", where=str(path), remedy=f"name one of {formats}")
    if kind == ".txt" and "\t" in next(text_files.lines(path), ""):
        # Flickr8k.token.txt
        for number, line in enumerate(text_files.lines(path), start=1):
            name, tab, caption = line.removesuffix("\r").partition("\t")
            image = _NUMBERED.fullmatch(name)
            if not tab or image is None:
                what = f"is {line[:40]!r}, expected image.jpg#0, a tab and a caption"
                raise UserError(what, where=f"{path}:{number}", remedy="correct the line, or remove it")
            yield image[1], caption, f"{path}:{number}"
        return
    captions = (settings.caption,) if isinstance(settings.caption, str) else settings.caption
    columns = Columns((settings.image, *captions), "data.image and data.caption", quoting=settings.quoting)
    read = text_files.comma_cells if kind == ".txt" else text_files.table_cells
    for number, (name, *texts) in read(path, columns):
        for text in texts:
            yield name, text, text_files.place(path, number)


class _CocoImage(BaseModel):
    id: int | str
    file_name: str


class _CocoCaption(BaseModel):
    image_id: int | str
    caption: str


class _Coco(BaseModel):
    """The fields of COCO's captions_train2017.json that are read."""

    images: list[_CocoImage]
    annotations: list[_CocoCaption]


def _coco(path: Path) -> Iterator[tuple[str, str, str]]:
    found = read_json(path, _Coco, "name COCO's captions_train2017.json or the like", LARGE_BYTES)
    names: dict[int | str, str] = {}
    for number, image in enumerate(found.images, start=1):
        if image.id in names:
            what = f"has the id {image.id!r:.40}, as {names[image.id]} has"
            raise UserError(what, f"{path} image {number}", "correct the file")
        names[image.id] = image.file_name
    for number, each in enumerate(found.annotations, start=1):
        where = f"{path} annotation {number}"
        if each.image_id not in names:
            what = f"is of image {each.image_id!r:.40}, which `images` does not have"
            raise UserError(what, where, "correct or remove it")
        # Some of COCO's captions contain line ends.
        yield names[each.image_id], " ".join(each.caption.split()), where


@dataclass(frozen=True)
class Captioned:
    """Images of a split with their captions.

    Attributes:
        pixels: Images (images, channels, height, width), from 0 (black) to 255.
    """

    pixels: Pixels
    captions: tuple[tuple[str, ...], ...]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    def select(self, indices: Int[np.ndarray, " chosen"], /) -> "Captioned":
        """Return the images at these indices, in this order."""
        captions, names = (tuple(column[i] for i in indices) for column in (self.captions, self.names))
        return replace(self, pixels=self.pixels[indices], captions=captions, names=names)

    def first(self, count: int | None) -> "Captioned":
        """Return the first `count` images; all if None."""
        return self.select(np.arange(len(self))[:count])

    def texts(self) -> Iterator[str]:
        """Yield all captions, image by image."""
        return itertools.chain.from_iterable(self.captions)

    def digest(self) -> str:
        """Return a hash of pixels and captions, independent of file names."""
        counts = np.array([len(several) for several in self.captions], dtype=np.int64)
        return digest_of((digest_of_arrays((self.pixels, counts)),), self.texts())


class CaptionSource(Source[CaptionDataSettings, Captioned]):
    """Source of images with captions.

    No image is in two splits: held-out images are different, and removed from the training data.
    """

    item_name: ClassVar[str] = "images"

    def load_split(self, name: str, train: Captioned | None = None) -> Captioned | None:
        """Return a split; for the built-in corpus, a number is the size of the split, which is generated."""
        split = getattr(self.settings, name)
        if self.settings.corpus == BUILT_IN and split is not None:
            return _built_in(name, split, self.settings)
        if name == "train" and isinstance(split, int):
            what = f"data.train is {split}; only the built-in corpus is generated in any size"
            raise UserError(what, remedy="name a table or a split")
        return super().load_split(name, train)

    def read(self, name: str, split: str | tuple[str, str], train: Captioned | None) -> Captioned:
        """Read a split from a table of captions and its images, or from a hub data set."""
        if self.settings.corpus == "files":
            table, only = split if isinstance(split, tuple) else (split, None)
            return self._from_files(Path(table), Path(only) if only else None)
        if isinstance(split, tuple):
            raise UserError(
                f"data.{name} is a pair of files, but data.corpus is {self.settings.corpus!r}",
                remedy="set data.corpus: files",
            )
        root = self.folder("images") if self.settings.root else None
        return _from_hub(root, split, self.settings)

    def keys(self, part: Captioned) -> Iterable[Hashable]:
        """Return the pixels of each image, without captions."""
        return (image.tobytes() for image in part.pixels)

    def digest(self, part: Captioned) -> str:
        return part.digest()

    def _from_files(self, path: Path, only: Path | None) -> Captioned:
        root = Path(self.settings.root or "")
        path = root / path
        table = captions_of(path, self.settings)
        if only:
            table = _listed(table, root / only, path)
        if not table:
            raise UserError("has no captions", where=str(path), remedy="look at it, or name another")
        folder = path.parent / (self.settings.images or "")
        if not folder.is_dir():
            raise UserError("there is no such folder", f"data.images: {folder}", "name the folder of the images")
        # A table may name files of the folder, and nothing outside of it.
        for name, rows in table.items():
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise UserError(f"{name!r} is no file in {folder}", rows[0].where, "name a file relative to the folder")
        places = [f"{rows[0].where}: {name}" for name, rows in table.items()]
        pixels = read_all([folder / name for name in table], self.settings, places)
        captions = tuple(tuple(dict.fromkeys(row.caption for row in rows)) for rows in table.values())
        return Captioned(pixels, captions, tuple(table))


def _listed(table: Table, names: Path, path: Path) -> Table:
    """Select the images of a list."""
    check_there(names)
    found: Table = {}
    for number, line in enumerate(text_files.lines(names), start=1):
        name, where = line.strip(), f"{names}:{number}"
        if not name:
            continue
        if name not in table:
            near = near_files(name, list(table))
            remedy = f"did you mean {near[0]}?" if near else "remove the line, or name another table"
            raise UserError(f"{name!r} has no caption in {path}", where=where, remedy=remedy)
        if name in found:
            raise UserError(f"{name!r} is named twice", where=where, remedy="remove the line")
        found[name] = table[name]
    return found


def _from_hub(folder: Path | None, split: str, settings: CaptionDataSettings) -> Captioned:
    columns = (settings.caption,) if isinstance(settings.caption, str) else settings.caption
    wanted = (("image", settings.image), *(("caption", column) for column in columns))
    found, where = hub_images(settings, split, folder, wanted)
    images: dict[bytes, tuple[np.ndarray, str, list[str]]] = {}
    for number, row in enumerate(found.select_columns([settings.image, *columns]), start=1):
        cells, place = cast("dict[str, Any]", row), f"{where} row {number}"
        pixels = read_cell(cells[settings.image], place, settings)
        captions: list[str] = []
        for column in columns:
            cell = cells[column] if isinstance(cells[column], list) else [cells[column]]
            texts = [text for text in cell if isinstance(text, str) and text.strip()]
            if not texts or len(texts) < len(cell):
                what = f"{column} is {cells[column]!r:.60}, expected a caption or a list of captions"
                raise UserError(what, place, "remove or correct the row")
            captions += texts
        # An image in several rows has the captions of all of them.
        key = blake2b(pixels.tobytes()).digest()
        images.setdefault(key, (pixels, f"row {number}", []))[2].extend(captions)
    if not images:
        raise UserError("has no images", where=where, remedy="look at it, or name another")
    every = tuple(tuple(dict.fromkeys(texts)) for _, _, texts in images.values())
    names = tuple(name for _, name, _ in images.values())
    return Captioned(np.stack([pixels for pixels, _, _ in images.values()]), every, names)


def _built_in(name: str, split: object, settings: CaptionDataSettings) -> Captioned:
    """Generate a split of the built-in corpus; no description is in two splits."""
    if not isinstance(split, int) and split != name:
        raise UserError(
            f"data.{name} is {split!r}, but the built-in corpus is generated",
            remedy=f"set data.{name}: {_BUILT_IN_SIZES[name]}, or data.corpus: files",
        )
    size = split if isinstance(split, int) else _BUILT_IN_SIZES[name]
    found = list(itertools.islice(scenes(name, settings.seed), size))
    pixels = pictures(found, settings.size, settings.channels, (settings.seed, SPLITS.index(name)))
    names = tuple(f"{name} {number}" for number in range(1, size + 1))
    return Captioned(pixels, tuple(scene.captions() for scene in found), names)


@dataclass(frozen=True)
class PreparedCaptions(PreparedTexts[Captioned]):
    """Images of all splits, with their captions as text and as tokens."""

    def learned(self) -> Iterator[np.ndarray]:
        train = self.corpus.train
        yield train.pixels
        yield np.array([len(several) for several in train.captions], dtype=np.int64)
        yield from super().learned()


class CaptionedImages(Examples[ParallelBatch]):
    """Training examples of a captioning model: captions in random order, with images.

    Args:
        tokens: Tokenized captions, image by image.
        positions: Number of vectors that the encoder reads of an image.
        batch: Number of captions in a batch.
        max_length: Maximum length of a caption in tokens, `EOS` included.

    Raises:
        UserError: All captions are longer than `max_length`.
    """

    item_name: ClassVar[str] = "training captions"

    def __init__(self, part: Captioned, tokens: RaggedArray, positions: int, batch: int, max_length: int) -> None:
        self.part, self.pieces, self.positions, self.batch = part, tokens, positions, batch
        self.image = np.repeat(np.arange(len(part)), [len(several) for several in part.captions])
        # `EOS` counts as a token, too.
        self.kept = np.flatnonzero(tokens.lengths < max_length)
        self.num_skipped = len(self.image) - len(self.kept)
        if not len(self.kept):
            raise UserError(
                f"all {len(self.image):,} captions are longer than {max_length} tokens",
                where="batches.max_length",
                remedy="raise it",
            )

    def __len__(self) -> int:
        return len(self.image)

    def manifest_counts(self) -> dict[str, int]:
        return {"captions": len(self), "too_long": self.num_skipped}

    def make_batches(self, seed: int, epoch: int) -> Plan:
        order = self.kept[np.random.default_rng([seed % 2**64, epoch]).permutation(len(self.kept))]
        return [order[first : first + self.batch] for first in range(0, len(order), self.batch)]

    def collate(self, rows: Int[np.ndarray, " batch"], seed: int) -> ParallelBatch:
        """Make a batch of captions, padded, and their images; there is no augmentation."""
        captions = collate([[]] * len(rows), self.pieces.rows(rows), rows)
        source, valid = as_read(self.part.pixels[self.image[rows]], self.positions)
        real = captions.tokens + valid.numel()
        share = real / (captions.target_valid.numel() + valid.numel())
        return replace(captions, source=source, source_valid=valid, real_share=share)


def as_read(
    pixels: Pixels, positions: int
) -> tuple[UInt8[Tensor, "batch channels rows columns"], Bool[Tensor, "batch source"]]:
    """Return images as a tensor, and their padding mask (batch, `positions`), True everywhere."""
    valid = torch.ones(len(pixels), positions, dtype=torch.bool)
    return torch.from_numpy(np.ascontiguousarray(pixels)), valid


def positions_of(recipe: CaptionRecipe) -> int:
    """Return the number of vectors that the encoder reads of an image."""
    return (recipe.data.size // recipe.stem.size) ** 2


def all_captions_in_order(
    recipe: CaptionRecipe, part: Captioned, tokens: RaggedArray, known: int | None = None
) -> CaptionedImages:
    """Return all captions of a split, for measuring the loss."""
    longest = longest_of(tokens) if known is None else min(known, longest_of(tokens))
    return CaptionedImages(part, tokens, positions_of(recipe), recipe.batches.captions, longest)


def longest_of(tokens: RaggedArray) -> int:
    """Return the length of the longest caption in tokens, `EOS` included."""
    return int(tokens.lengths.max()) + 1
