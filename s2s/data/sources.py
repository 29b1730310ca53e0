"""Data sources for pairs, texts and images: files, folders, Hugging Face hub.

Each task has a subclass of `Source`; `Source.load` returns a `Corpus` with the splits train, validation and test.
Validation and test splits are named by the recipe or held out of the training data. Held-out splits have distinct
examples, and no duplicate of a held-out example stays in the training data.
"""

import difflib
import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
from jaxtyping import Bool, Int

from s2s.data import text_files
from s2s.data.caching import build_once, cache_rows, convert_cached, name_of_folder
from s2s.data.text_files import Columns
from s2s.errors import UserError
from s2s.files import is_disk_full
from s2s.recipe.schema import LONGEST_WORD, PlainTextSettings, SourceSettings, TextSettings

if TYPE_CHECKING:
    import datasets

ALIASES = {"validation": ("validation", "valid", "val", "dev")}
"""File names under which a split may be found in a folder."""
MOST_CLASSES = 1000
"""Most distinct labels; more suggest that the label column is wrong."""
SHOWN_NAMES = 20


R = TypeVar("R", bound="Split")


class Split(Protocol):
    """Protocol of a set of examples that can be counted and indexed."""

    def __len__(self) -> int:
        """Return the number of examples."""
        ...

    def select(self: R, indices: np.ndarray, /) -> R:
        """Return the examples of these rows, in that order."""
        ...


Part = TypeVar("Part", bound=Split)
Part_co = TypeVar("Part_co", bound=Split, covariant=True)
Settings = TypeVar("Settings", bound=SourceSettings)


@dataclass(frozen=True)
class Corpus(Generic[Part_co]):
    """Splits of a corpus; `test` is None if the recipe names none."""

    train: Part_co
    validation: Part_co
    test: Part_co | None

    def splits(self) -> dict[str, Part_co]:
        """Return the existing splits by name."""
        return {f.name: part for f in fields(self) if (part := getattr(self, f.name)) is not None}


class Source(ABC, Generic[Settings, Part]):
    """Source of the examples of one task, described by the recipe's `data` section (`settings`)."""

    item_name: ClassVar[str] = "examples"
    inputs: ClassVar[str] = ""  # plural noun for the inputs, if it is not `item_name`
    section: ClassVar[str] = "data"  # recipe section that names the splits
    in_order: ClassVar[bool] = True  # whether held-out examples keep the order of the training data

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @abstractmethod
    def read(self, name: str, split: str | tuple[str, str], train: Part | None) -> Part:
        """Read one split: a file, a pair of files or a name, as the recipe gives it; it must have examples."""

    @abstractmethod
    def keys(self, part: Part) -> Iterable[Hashable]:
        """Return a key for each example: equal keys mean duplicates."""

    def keys_with_targets(self, part: Part) -> Iterable[Hashable] | None:
        """Return keys of input and target together; None if targets are not compared."""
        return None

    @abstractmethod
    def digest(self, part: Part) -> str:
        """Return a digest of a split's examples and their order, independent of paths."""

    def digest_of_all(self, part: Part) -> str:
        """Return a digest of the examples and their metadata, if a subclass has any."""
        return self.digest(part)

    def held_out(self, name: str, part: Part) -> dict[str, str]:
        """Return the digest of a held-out split by name; empty if it is not held out."""
        return {f"held_out_{name}": self.digest(part)} if isinstance(getattr(self.settings, name), int) else {}

    def usable_mask(self, part: Part) -> Bool[np.ndarray, " examples"]:
        """Return a mask of the examples that may be held out, shape `(examples,)`; default: all."""
        return np.ones(len(part), dtype=bool)

    def classes(self, part: Part) -> Int[np.ndarray, " examples"]:
        """Return the class number of each example, shape `(examples,)`; held-out splits are stratified by it."""
        return np.zeros(len(part), dtype=np.int64)

    def load_split(self, name: str, train: Part | None = None) -> Part | None:
        """Read one split; None if the recipe names none, or if it is held out of the training data."""
        import datasets

        # Progress bars of Arrow's conversions would disturb those of the run.
        datasets.disable_progress_bars()
        split = getattr(self.settings, name)
        return None if split is None or isinstance(split, int) else self.read(name, split, train)

    def load(self) -> Corpus[Part]:
        """Read all splits; those given as a number are held out of the training data."""
        train = self.load_split("train")
        parts = {name: self.load_split(name, train) for name in ("validation", "test")}
        sizes = {
            name: size
            for name, part in parts.items()
            if part is None and isinstance(size := getattr(self.settings, name), int)
        }
        if train is None or (parts["validation"] is None and "validation" not in sizes):
            raise UserError("data.train and data.validation must be set", remedy="name a file or a split")
        if sizes:
            rest, held = self._held_out(train, sizes)
            parts |= {name: train.select(rows) for name, rows in held.items()}
            train = train.select(rest)
        return Corpus(train, parts["validation"], parts["test"])  # type: ignore[arg-type]

    def _held_out(
        self, train: Part, sizes: Mapping[str, int]
    ) -> tuple[Int[np.ndarray, " rest"], dict[str, Int[np.ndarray, " held"]]]:
        """Draw held-out splits; return the rows that stay, and those of each split."""
        usable, wanted = self.usable_mask(train), sum(sizes.values())
        hashed = hashes(self.keys(train))
        order = np.random.default_rng(self.settings.seed).permutation(len(usable))
        order = order[usable[order]]
        _, first = np.unique(hashed[order], return_index=True)
        candidates = order[np.sort(first)]
        held = [candidates[rows] for rows in stratified(self.classes(train)[candidates], list(sizes.values()))]
        chosen = np.concatenate(held)
        rest = np.flatnonzero(~np.isin(hashed, hashed[chosen]))
        if len(chosen) < wanted or not len(rest):
            raise UserError(
                f"{wanted:,} {self.item_name} to hold out of {len(usable):,} leave no training data",
                where=", ".join(f"data.{name}: {size}" for name, size in sizes.items()),
                remedy="hold out fewer",
            )
        return rest, {name: np.sort(rows) if self.in_order else rows for name, rows in zip(sizes, held, strict=True)}

    def folder(self, of_what: str) -> Path:
        """Return the folder `data.root`, which must exist."""
        root = Path(self.settings.root or "")
        if not root.is_dir():
            what = "there is no such folder"
            raise UserError(what, where=f"data.root: {root}", remedy=f"name the folder of the {of_what}")
        return root


def digest_of(*columns: Iterable[str]) -> str:
    """Digest columns of text, one after the other, independent of paths."""
    digest = hashlib.blake2b(digest_size=16)
    for column in columns:
        for text in column:
            digest.update(text.encode() + b"\n")
    return digest.hexdigest()


def digest_of_arrays(arrays: Iterable[np.ndarray]) -> str:
    """Digest the bytes of arrays joined end to end, wherever they are divided."""
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def validate_label(label: str, where: str) -> str:
    """Return a label, unless it is empty, too long, or has spaces around it or invisible characters."""
    if not label:
        raise UserError("has no label", where=where, remedy="label the row, or delete it")
    if len(label) > LONGEST_WORD:
        what = f"the label {label[:40]!r} … has {len(label):,} characters (maximum: {LONGEST_WORD:,})"
        raise UserError(what, where=where, remedy="fix the row, or set data.label to the column of the labels")
    if label != label.strip() or not label.isprintable():
        whole = "; for a whole file use e.g. dos2unix" if label.endswith("\r") else ""
        what = f"the label {label!r:.60} has surrounding spaces or invisible characters"
        raise UserError(what, where=where, remedy=f"fix the row{whole}")
    return label


def count_classes(labels: Int[np.ndarray, " examples"], classes: Sequence[str]) -> dict[str, int]:
    """Count the examples of each class, by class name."""
    return dict(zip(classes, np.bincount(labels, minlength=len(classes)).tolist(), strict=True))


@dataclass(frozen=True)
class RowFormat:
    """Conversion of the rows of a table or hub data set to the columns of a task."""

    columns: text_files.Columns  # columns to read
    word: str  # name of the conversion, to distinguish results made from the same file
    kinds: Mapping[str, str]  # resulting columns and their `datasets` types
    # function of (cells, row number, place for messages) that returns the resulting row
    row: Callable[[Sequence[str], int, str], dict[str, Any]]

    @property
    def name(self) -> str:
        """Cache key of the conversion."""
        quoting = self.columns.quoting
        return f"{self.word} {self.columns.names}" + (f" quoting {quoting}" if quoting else "")


def from_table(path: Path, reading: RowFormat) -> "datasets.Dataset":
    """Read the rows of a table file, cached."""
    text_files.check_there(path)

    def rows() -> Iterator[dict[str, Any]]:
        for number, cells in text_files.table_cells(path, reading.columns):
            yield reading.row(cells, number, text_files.place(path, number))

    return cache_rows(rows, (path,), reading.name, reading.kinds)


def from_hub(
    settings: SourceSettings, split: str, reading: RowFormat
) -> tuple["datasets.Dataset", "datasets.Features"]:
    """Read the rows of a hub data set, cached; return them and the data set's own features."""
    dataset = hub_split(settings, split)

    def take(rows: Mapping[str, list[Any]], numbers: list[int]) -> dict[str, list[Any]]:
        made = []
        for number, *values in zip(numbers, *rows.values(), strict=True):
            where = f"{settings.corpus} {split} row {number + 1}"
            cells = text_files.checked_cells(dict(zip(rows, values, strict=True)), reading.columns, where)
            made.append(reading.row(cells, number + 1, where))
        return {name: [row[name] for row in made] for name in reading.kinds}

    return convert_cached(dataset, take, reading.name, reading.kinds), dataset.features


def hub_split(settings: SourceSettings, split: str, folder: Path | None = None) -> "datasets.Dataset":
    """Load a split of a hub data set, or of the files in `folder`."""
    import datasets
    from datasets import config
    from datasets.exceptions import DatasetsError

    corpus = str(folder or settings.corpus)
    name = name_of_folder(corpus, settings.config or "")

    def make(place: Path | None) -> datasets.Dataset:
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
    """Return the first file of a folder with this stem and one of several endings, compressed or not."""
    names = (stem + kind + packed for kind in kinds for packed in text_files.COMPRESSIONS)
    return next((folder / name for name in names if (folder / name).is_file()), None)


def missing_split_error(root: Path, what: str, remedy: str) -> UserError:
    """Build the error for a folder without the files of a split; it lists the files."""
    names = sorted(path.name for path in root.iterdir())
    there = f"{', '.join(names[:SHOWN_NAMES]) or 'nothing'}{' …' if names[SHOWN_NAMES:] else ''}"
    return UserError(f"{what}; files: {there}", where=f"data.root: {root}", remedy=remedy)


def not_a_table_error(name: str, split: str, remedy: str) -> UserError:
    """Build the error for a file that is not a table."""
    return UserError(
        f"is no table ({', '.join(text_files.TABLES)}; plain, .gz or .xz)", f"data.{name}: {split}", remedy
    )


def split_table(source: Source, name: str, split: str) -> Path | None:
    """Return the table of a split of texts; None if the split comes from the hub."""
    if source.settings.corpus != "files" and source.settings.root is None:
        return None
    path: Path | None = Path(split)
    if source.settings.corpus != "files":
        root = source.folder("tables")
        path = next((found for stem in ALIASES.get(split, (split,)) if (found := usual_file(root, stem))), None)
        if path is None:
            kinds = ", ".join(text_files.TABLES)
            held_out = ", or hold texts out of the training data: data.validation=1000" if name == "validation" else ""
            raise missing_split_error(
                root,
                f"no table for the split {split!r}: looked for {split} with {kinds} (plain, .gz or .xz)",
                f"name the split by the beginning of its file: data.{name}=BEGINNING{held_out}",
            )
    if text_files.table_kind(path) is None:
        raise not_a_table_error(name, split, "name a table, or a hub data set with data.corpus")
    return path


def text_columns(settings: TextSettings, local: str | tuple[str, ...] | None = None) -> tuple[str, ...]:
    """Return the columns that make up a text, in the order in which they are joined."""
    columns = local or settings.text
    return (columns,) if isinstance(columns, str) else columns


def join_texts(texts: Sequence[str]) -> str:
    """Join the texts of several columns with spaces, without empty ones.

    Example:
        >>> join_texts(["A title", "", "and a body"])
        'A title and a body'
    """
    return " ".join(text for text in texts if text)


def stratified(classes: Int[np.ndarray, " candidates"], sizes: Sequence[int]) -> tuple[Int[np.ndarray, " held"], ...]:
    """Draw disjoint stratified splits of given sizes, as ascending positions in `classes`.

    Each class has about its share of the candidates in each split. A class with more candidates than there are splits
    has at least one in each split and one in the rest, as far as the sizes allow (larger classes first). A smaller
    class is missing from the first splits; its last candidate stays in the rest as long as there are others.

    Example:
        >>> import numpy as np
        >>> validation, test = stratified(np.array([0, 0, 1, 0, 0, 1, 0, 1, 0]), [3, 2])
        >>> validation, test
        (array([0, 1, 2]), array([3, 5]))
    """
    left, parts = np.arange(len(classes)), []
    for number, size in enumerate(sizes):
        # Reserve one candidate of each class for each later split, and one for the rest.
        chosen = np.sort(left[np.argsort(_priorities(classes[left], len(sizes) - number), kind="stable")[:size]])
        parts.append(chosen)
        left = np.setdiff1d(left, chosen)
    return tuple(parts)


def _priorities(classes: Int[np.ndarray, " left"], reserved: int) -> np.ndarray:
    """Return sort keys: one of each class, then in proportion, reserved ones last."""
    order = np.argsort(classes, kind="stable")
    _, starts, counts = np.unique(classes[order], return_index=True, return_counts=True)
    size = np.empty(len(classes), dtype=np.int64)
    rank = np.empty(len(classes), dtype=np.int64)
    size[order] = np.repeat(counts, counts)
    rank[order] = np.arange(len(classes)) - np.repeat(starts, counts)
    keys = np.where(rank == 0, 1 / size - 2, (rank + 0.5) / np.maximum(size, 1))
    return np.where(rank >= size - reserved, 2 + keys, keys)


Hashes = Int[np.ndarray, " rows"]


def hashes(keys: Iterable[Hashable]) -> Hashes:
    """Hash keys to 64-bit integers; of ten million keys, two collide with probability 3 in a million."""
    return np.fromiter(map(hash, keys), np.int64)


def repeated(hashed: Hashes) -> Int[np.ndarray, " copies"]:
    """Return the rows, from 0, whose hash also occurs in an earlier row.

    Example:
        >>> repeated(hashes(["a", "b", "a", "a"]))
        array([2, 3])
    """
    _, first = np.unique(hashed, return_index=True)
    return np.setdiff1d(np.arange(len(hashed)), first)


def count_overlap(corpus: Corpus[Part], keys: Callable[[Part], Iterable[Hashable]]) -> dict[str, int]:
    """Count the validation and test examples that also occur in the training data, by split."""
    learned, parts = hashes(keys(corpus.train)), corpus.splits()
    del parts["train"]
    return {name: int(np.isin(hashes(keys(part)), learned).sum()) for name, part in parts.items()}


@dataclass(frozen=True)
class TrainOverlap:
    """Number of examples of a split (`seen` of `total`) that also occur in the training data.

    `seen_with_target` counts those that occur there with the same target; None if targets are not compared.
    """

    split: str
    inputs: str
    digest: str
    total: int
    seen: int
    seen_with_target: int | None

    def __str__(self) -> str:
        same = "" if self.seen_with_target is None else f" ({self.seen_with_target:,} with the same target)"
        return (
            f"{self.seen:,} of {self.total:,} {self.split} {self.inputs} occur in the training data{same}: "
            "the scores are too optimistic; remove them from the training data"
        )


def train_overlaps(source: Source[Any, Part], corpus: Corpus[Part]) -> list[TrainOverlap]:
    """Count the examples of each split other than train that also occur in the training data."""
    parts, seen = corpus.splits(), count_overlap(corpus, source.keys)
    whole: dict[str, int] = {}
    if any(seen.values()) and source.keys_with_targets(corpus.train) is not None:
        whole = count_overlap(corpus, lambda part: source.keys_with_targets(part) or ())
    inputs = source.inputs or source.item_name
    return [
        TrainOverlap(
            name, inputs, source.digest(parts[name]), len(parts[name]), count, whole.get(name) if count else None
        )
        for name, count in seen.items()
    ]


# Values that pandas reads as missing, except the empty cell.
_SPELLINGS = "#N/A|#N/A N/A|#NA|-1.#IND|-1.#QNAN|-NaN|-nan|1.#IND|1.#QNAN|<NA>|N/A|NA|NULL|NaN|None|n/a|nan|null|NaT"
MISSING = frozenset(_SPELLINGS.split("|"))
_LISTED = 8


def missing_label_lines(counts: Mapping[str, int], item_name: str) -> list[str]:
    """Return a warning for labels that look like a missing value, in a list of one or none.

    Example:
        >>> missing_label_lines({"neg": 5, "pos": 4}, "texts")
        []
        >>> missing_label_lines({"neg": 5, "nan": 4}, "texts")[0].partition(":")[0]
        "4 texts have the label 'nan', which looks like a missing label"
    """
    missing = {label: count for label, count in counts.items() if label in MISSING and count}
    if not missing:
        return []
    shown = " and ".join(f"{count:,} {item_name} have the label {label!r}" for label, count in missing.items())
    others = [label for label in counts if label not in MISSING]
    floats = all(re.fullmatch(r"-?\d+\.0", label) for label in others)
    because = f" (because of it, pandas writes the others as floats, such as {others[0]})" if others and floats else ""
    names = json.dumps(list(counts), ensure_ascii=False) if len(counts) <= _LISTED else '["NAME", "NAME"]'
    looks = "each looks" if missing.keys() - {next(iter(missing))} else "which looks"
    return [
        f"{shown}, {looks} like a missing label{because}: remove these rows, or declare the classes: "
        f"data.classes={names}"
    ]


def missing_text_lines(examples: Iterable[tuple[str, ...]], item_name: str) -> list[str]:
    """Return a warning for examples with a text that looks like a missing value, or no line.

    Example:
        >>> missing_text_lines([("one", "eins"), ("two", "nan")], "pairs")
        ["1 pairs have 'nan' as a text, which looks like a missing value: remove these rows unless it is meant"]
    """
    count, first = 0, ""
    for texts in examples:
        if found := [text for text in texts if text in MISSING]:
            count, first = count + 1, first or found[0]
    more = " or the like" if count > 1 else ""
    meant = "which looks like a missing value: remove these rows unless it is meant"
    return [f"{count:,} {item_name} have {first!r}{more} as a text, {meant}"] if count else []


TEXT = {"text": "string"}


class TextSource(Source[PlainTextSettings, "datasets.Dataset"]):
    """Plain texts in the column `text`, stored by Arrow on disk.

    Training texts that are also in a held-out split are removed.
    """

    item_name: ClassVar[str] = "texts"

    def read(self, name: str, split: str | tuple[str, str], train: "datasets.Dataset | None") -> "datasets.Dataset":
        """Read a split from a table or from a data set on the hub."""
        settings, path = self.settings, split_table(self, name, str(split))
        local = settings.local.text if path is not None and settings.corpus != "files" else None
        columns = Columns(text_columns(settings, local), "data.text", quoting=settings.quoting)
        reading = RowFormat(columns, "texts", TEXT, lambda cells, number, where: {"text": join_texts(cells)})
        found = from_hub(settings, str(split), reading)[0] if path is None else from_table(path, reading)
        if not len(found):
            raise UserError(f"data.{name} has no texts", remedy="check the file, or name another one")
        return found

    def keys(self, part: "datasets.Dataset") -> Iterable[Hashable]:
        return part["text"]

    def digest(self, part: "datasets.Dataset") -> str:
        return digest_of(part["text"])
