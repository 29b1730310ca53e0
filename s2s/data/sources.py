"""Where examples come from, the same for pairs, texts and images: files, a folder of usual names, or the hub.

A part of a corpus is named, or held out of the training data: then it has different examples, and none that equals one
of them is left to learn from.
"""

import difflib
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
from jaxtyping import Bool, Int

from s2s.data import text_files
from s2s.data.caching import build_once, cache_rows, convert_cached, name_of_folder
from s2s.data.stratification import stratified
from s2s.errors import UserError
from s2s.files import is_disk_full
from s2s.recipe.schema import LONGEST_WORD, SourceSettings, TextSettings

if TYPE_CHECKING:
    import datasets

ALIASES = {"validation": ("validation", "valid", "val", "dev")}
"""The names under which a split may lie in a folder."""
MOST_CLASSES = 1000
"""More than so many different labels are none: the column is another one's."""
SHOWN_NAMES = 20


R = TypeVar("R", bound="Split")


class Split(Protocol):
    """Examples that can be counted and chosen."""

    def __len__(self) -> int:
        """The number of examples."""
        ...

    def select(self: R, indices: np.ndarray, /) -> R:
        """The chosen examples, in that order."""
        ...


Part = TypeVar("Part", bound=Split)
Settings = TypeVar("Settings", bound=SourceSettings)


@dataclass(frozen=True)
class Corpus(Generic[Part]):
    """The parts that a recipe names: what is learned from, what decides between checkpoints, and what is tested on."""

    train: Part
    validation: Part
    test: Part | None

    def parts(self) -> dict[str, Part]:
        """Those that there are, by name."""
        return {f.name: part for f in fields(self) if (part := getattr(self, f.name)) is not None}


class Source(ABC, Generic[Settings, Part]):
    """Where one task's examples come from, by the recipe's `data` section.

    Attributes:
        noun: what examples are called, in the plural.
        inputs: What their inputs are called, in the plural; `noun` where empty.
        section: of the recipe, in which a part is named.
        in_order: whether held-out examples stand in the order of the training data; as they are drawn otherwise.
    """

    item_name: ClassVar[str] = "examples"
    inputs: ClassVar[str] = ""
    section: ClassVar[str] = "data"
    in_order: ClassVar[bool] = True

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @abstractmethod
    def read(self, name: str, split: str | tuple[str, str], train: Part | None) -> Part:
        """A part that the recipe names, `train`, `validation` or `test`, as the recipe says of it.

        The training part is there if it was read before; None where this part alone is wanted.

        Raises:
            UserError: a file, column or split is missing, a file is damaged, or nothing is in it.
        """

    @abstractmethod
    def keys(self, part: Part) -> Iterable[Hashable]:
        """What is equal where examples are."""

    def keys_with_targets(self, part: Part) -> Iterable[Hashable] | None:
        """Keys that are equal where input and target are; None where they are not compared."""
        return None

    @abstractmethod
    def digest(self, part: Part) -> str:
        """What identifies the examples of a part, in their order and wherever they lie."""

    def digest_of_all(self, part: Part) -> str:
        """What identifies the examples of a part and what is to be said of them."""
        return self.digest(part)

    def held_out(self, name: str, part: Part) -> dict[str, str]:
        """What identifies the examples of a part, by a name, where they are held out of training data; else nothing."""
        return {f"held_out_{name}": self.digest(part)} if isinstance(getattr(self.settings, name), int) else {}

    def usable_mask(self, part: Part) -> Bool[np.ndarray, " examples"]:
        """Which examples may be held out."""
        return np.ones(len(part), dtype=bool)

    def classes(self, part: Part) -> Int[np.ndarray, " examples"]:
        """Class of each example: held-out parts are stratified by it. One class by default."""
        return np.zeros(len(part), dtype=np.int64)

    def part(self, name: str, train: Part | None = None) -> Part | None:
        """One part, `train`, `validation` or `test`; None where there is none, or it is held out of `train`."""
        import datasets

        # the progress of Arrow's conversions would disturb the run's own
        datasets.disable_progress_bars()
        split = getattr(self.settings, name)
        return None if split is None or isinstance(split, int) else self.read(name, split, train)

    def load(self) -> Corpus[Part]:
        """All parts.

        Raises:
            UserError: see `read`; or too little is left to learn from.
        """
        train = self.part("train")
        parts = {name: self.part(name, train) for name in ("validation", "test")}
        sizes = {
            name: size
            for name, part in parts.items()
            if part is None and isinstance(size := getattr(self.settings, name), int)
        }
        if train is None or (parts["validation"] is None and "validation" not in sizes):
            raise UserError("data.train and data.validation are needed", remedy="name a file or a split")
        if sizes:
            rest, held = self._held_out(train, sizes)
            parts |= {name: train.select(rows) for name, rows in held.items()}
            train = train.select(rest)
        return Corpus(train, parts["validation"], parts["test"])  # type: ignore[arg-type]

    def _held_out(
        self, train: Part, sizes: Mapping[str, int]
    ) -> tuple[Int[np.ndarray, " rest"], dict[str, Int[np.ndarray, " held"]]]:
        """Different examples for parts of these sizes, and the rows that stay: none that is the same as one of them."""
        usable, wanted = self.usable_mask(train), sum(sizes.values())
        # 64 bits each: two different ones of ten million share a hash with a probability of 3 in a million
        hashes = np.fromiter(map(hash, self.keys(train)), np.int64, len(usable))
        order = np.random.default_rng(self.settings.seed).permutation(len(usable))
        order = order[usable[order]]
        _, first = np.unique(hashes[order], return_index=True)
        candidates = order[np.sort(first)]
        held = [candidates[rows] for rows in stratified(self.classes(train)[candidates], list(sizes.values()))]
        chosen = np.concatenate(held)
        rest = np.flatnonzero(~np.isin(hashes, hashes[chosen]))
        if len(chosen) < wanted or not len(rest):
            raise UserError(
                f"{wanted:,} {self.item_name} to hold out of {len(usable):,} leave nothing to train on",
                where=", ".join(f"data.{name}: {size}" for name, size in sizes.items()),
                remedy="hold out fewer",
            )
        return rest, {name: np.sort(rows) if self.in_order else rows for name, rows in zip(sizes, held, strict=True)}

    def folder(self, of_what: str) -> Path:
        """The folder `data.root`, if there is one."""
        root = Path(self.settings.root or "")
        if not root.is_dir():
            what = "there is no such folder"
            raise UserError(what, where=f"data.root: {root}", remedy=f"name the folder of the {of_what}")
        return root


def digest_of(*columns: Iterable[str]) -> str:
    """What identifies columns of text, one after the other, wherever they lie."""
    digest = hashlib.blake2b(digest_size=16)
    for column in columns:
        for text in column:
            digest.update(text.encode() + b"\n")
    return digest.hexdigest()


def digest_of_arrays(arrays: Iterable[np.ndarray]) -> str:
    """What identifies arrays, joined end to end."""
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def validate_label(label: str, where: str) -> str:
    """A label as it is; two that look alike would be two classes.

    Raises:
        UserError: it is empty or too long, has a space around it, or a character that cannot be seen.
    """
    if not label:
        raise UserError("has no label", where=where, remedy="label the row, or remove it")
    if len(label) > LONGEST_WORD:
        raise UserError(
            f"the label {label[:40]!r} … has {len(label):,} characters, of {LONGEST_WORD:,} at most",
            where=where,
            remedy="mend the row, or name the column of the labels with data.label",
        )
    if label != label.strip() or not label.isprintable():
        whole = "; of a whole file, e.g. by dos2unix" if label.endswith("\r") else ""
        raise UserError(
            f"the label {label!r:.60} has a space around it or a character that cannot be seen",
            where=where,
            remedy=f"mend the row{whole}",
        )
    return label


def count_classes(labels: Int[np.ndarray, " examples"], classes: Sequence[str]) -> dict[str, int]:
    """How many examples each class has."""
    return dict(zip(classes, np.bincount(labels, minlength=len(classes)).tolist(), strict=True))


@dataclass(frozen=True)
class RowFormat:
    """How the rows of a table, or of a data set on the hub, become ours.

    Attributes:
        columns: that are read.
        word: names the result among others made of the same file.
        kinds: the columns of ours, with the name of the type of what is in them.
        row: of the cells, the row's number and its place in words: a row of ours.
    """

    columns: text_files.Columns
    word: str
    kinds: Mapping[str, str]
    row: Callable[[Sequence[str], int, str], dict[str, Any]]

    @property
    def name(self) -> str:
        """Another one is another result."""
        quoting = self.columns.quoting
        return f"{self.word} {self.columns.names}" + (f" quoting {quoting}" if quoting else "")


def from_table(path: Path, reading: RowFormat) -> "datasets.Dataset":
    """The rows of a table.

    Raises:
        UserError: it is missing or damaged, or lacks a column.
    """
    text_files.check_there(path)

    def rows() -> Iterator[dict[str, Any]]:
        """As they are asked for."""
        for number, cells in text_files.table_cells(path, reading.columns):
            yield reading.row(cells, number, text_files.place(path, number))

    return cache_rows(rows, (path,), reading.name, reading.kinds)


def from_hub(
    settings: SourceSettings, split: str, reading: RowFormat
) -> tuple["datasets.Dataset", "datasets.Features"]:
    """The rows of a data set on the hub as ours, and the columns that it has itself.

    Raises:
        UserError: it is not there, the hub cannot be reached, or a column is missing.
    """
    dataset = hub_split(settings, split)

    def take(rows: Mapping[str, list[Any]], numbers: list[int]) -> dict[str, list[Any]]:
        """Some rows, by column."""
        made = []
        for number, *values in zip(numbers, *rows.values(), strict=True):
            where = f"{settings.corpus} {split} row {number + 1}"
            cells = text_files.checked_cells(dict(zip(rows, values, strict=True)), reading.columns, where)
            made.append(reading.row(cells, number + 1, where))
        return {name: [row[name] for row in made] for name in reading.kinds}

    return convert_cached(dataset, take, reading.name, reading.kinds), dataset.features


def hub_split(settings: SourceSettings, split: str, folder: Path | None = None) -> "datasets.Dataset":
    """A split of a data set on the Hugging Face hub, or of a data set's own files in a folder.

    Raises:
        UserError: it is not there, or the hub cannot be reached.
    """
    import datasets
    from datasets import config
    from datasets.exceptions import DatasetsError

    corpus = str(folder or settings.corpus)
    name = name_of_folder(corpus, settings.config or "")

    def make(place: Path | None) -> datasets.Dataset:
        """The split, in a folder, or where data sets of the hub are."""
        return datasets.load_dataset(  # type: ignore[return-value]
            corpus, settings.config, split=split, revision=settings.revision, cache_dir=place and str(place)
        )

    try:
        return make(None) if name is None else build_once(name, make)
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if isinstance(cause, OSError) and is_disk_full(cause):
            raise OSError(cause.errno, cause.strerror, str(config.HF_DATASETS_CACHE)) from None
        near = difflib.get_close_matches(corpus, ["built-in", "homonyms", "files"], n=1)
        raise UserError(
            f"{'data set' if folder else 'Hugging Face data set'} {corpus!r}, split {split!r}: "
            f"{str(error).strip().split(chr(10))[0]}",
            where="data.root" if folder else "data.corpus",
            remedy=(f"did you mean {near[0]}? " if near else "")
            + "check name, config, revision, split and the network; or read local files with data.root=DIR",
        ) from None


def usual_file(folder: Path, stem: str, kinds: Sequence[str] = text_files.TABLES) -> Path | None:
    """A file of that name in a folder, with one of these endings, compressed or not; None where there is none."""
    names = (stem + kind + packed for kind in kinds for packed in text_files.COMPRESSIONS)
    return next((folder / name for name in names if (folder / name).is_file()), None)


def missing_split_error(root: Path, what: str, remedy: str) -> UserError:
    """What to say where a folder lacks a split's files."""
    names = sorted(path.name for path in root.iterdir())
    there = f"{', '.join(names[:SHOWN_NAMES]) or 'nothing'}{' …' if names[SHOWN_NAMES:] else ''}"
    return UserError(f"{what}; there: {there}", where=f"data.root: {root}", remedy=remedy)


def not_a_table_error(name: str, split: str, remedy: str) -> UserError:
    """What to say of a file that is no table."""
    return UserError(
        f"is no table ({', '.join(text_files.TABLES)}; plain, .gz or .xz)", f"data.{name}: {split}", remedy
    )


def split_table(source: Source, name: str, split: str) -> Path | None:
    """The table of a split of texts, as the recipe says of it; None where it comes from the hub.

    Raises:
        UserError: there is no such table.
    """
    if source.settings.corpus != "files" and source.settings.root is None:
        return None
    path = Path(split) if source.settings.corpus == "files" else _usual_table(source.folder("tables"), name, split)
    if text_files.table_kind(path) is None:
        raise not_a_table_error(name, split, "name a table, or a hub data set with data.corpus")
    return path


def _usual_table(root: Path, name: str, split: str) -> Path:
    for stem in ALIASES.get(split, (split,)):
        if path := usual_file(root, stem):
            return path
    held_out = ", or hold texts out of the training data: data.validation=1000" if name == "validation" else ""
    raise missing_split_error(
        root,
        f"no table for the split {split!r}: looked for {split} with {', '.join(text_files.TABLES)} (plain, .gz or .xz)",
        f"name the split by the beginning of its file: data.{name}=BEGINNING{held_out}",
    )


def text_columns(settings: TextSettings, local: str | tuple[str, ...] | None = None) -> tuple[str, ...]:
    """The columns that a text is joined from; those of a table may be others."""
    columns = local or settings.text
    return (columns,) if isinstance(columns, str) else columns


def join_texts(texts: Sequence[str]) -> str:
    """The text of several columns: a space between them, empty ones left out."""
    return " ".join(text for text in texts if text)
