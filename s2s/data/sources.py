"""Data sources for pairs, texts and images: files, folders, Hugging Face hub.

Each task has a subclass of `Source`; `Source.load` returns a `Corpus` with the splits train, validation and test.
Validation and test splits are named by the recipe or held out of the training data. Held-out splits have distinct
examples, and no duplicate of a held-out example stays in the training data.
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
        """Return the chosen examples, in that order."""
        ...


Part = TypeVar("Part", bound=Split)
Part_co = TypeVar("Part_co", bound=Split, covariant=True)
Settings = TypeVar("Settings", bound=SourceSettings)


@dataclass(frozen=True)
class Corpus(Generic[Part_co]):
    """Splits of a corpus.

    Attributes:
        train: Training examples.
        validation: Examples for validation, which selects the checkpoint.
        test: Test examples; None if the recipe names none.
    """

    train: Part_co
    validation: Part_co
    test: Part_co | None

    def parts(self) -> dict[str, Part_co]:
        """Return the existing splits by name."""
        return {f.name: part for f in fields(self) if (part := getattr(self, f.name)) is not None}


class Source(ABC, Generic[Settings, Part]):
    """Source of the examples of one task, described by the recipe's `data` section.

    Args:
        settings: The recipe's `data` section.

    Attributes:
        item_name: Plural noun for the examples.
        inputs: Plural noun for their inputs; empty if it is `item_name`.
        section: Recipe section that names the splits.
        in_order: Whether held-out examples keep the order of the training data; otherwise they are in random order.
    """

    item_name: ClassVar[str] = "examples"
    inputs: ClassVar[str] = ""
    section: ClassVar[str] = "data"
    in_order: ClassVar[bool] = True

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @abstractmethod
    def read(self, name: str, split: str | tuple[str, str], train: Part | None) -> Part:
        """Read one split.

        Args:
            name: `train`, `validation` or `test`.
            split: File, pair of files, or name of a split, as the recipe gives it.
            train: The training split if it was read before; None if only this split is wanted.

        Returns:
            The examples of the split.

        Raises:
            UserError: A file, column or split is missing, a file is damaged, or it has no examples.
        """

    @abstractmethod
    def keys(self, part: Part) -> Iterable[Hashable]:
        """Return a key for each example, for deduplication: equal keys mean duplicates.

        Args:
            part: Examples of a split.

        Returns:
            Hashable keys, in the order of the examples.
        """

    def keys_with_targets(self, part: Part) -> Iterable[Hashable] | None:
        """Return keys of input and target together; None if targets are not compared.

        Args:
            part: Examples of a split.

        Returns:
            Hashable keys, in the order of the examples, or None.
        """
        return None

    @abstractmethod
    def digest(self, part: Part) -> str:
        """Return a digest of a split's examples and their order, independent of paths.

        Args:
            part: Examples of a split.

        Returns:
            Digest in hexadecimal digits.
        """

    def digest_of_all(self, part: Part) -> str:
        """Return a digest of the examples of a split and of their metadata.

        Args:
            part: Examples of a split.

        Returns:
            The same as `digest`, unless a subclass has metadata.
        """
        return self.digest(part)

    def held_out(self, name: str, part: Part) -> dict[str, str]:
        """Return the digest of a held-out split by name; empty if it is not held out.

        Args:
            name: `validation` or `test`.
            part: Examples of the split.

        Returns:
            `{"held_out_NAME": digest}`, or an empty dict.
        """
        return {f"held_out_{name}": self.digest(part)} if isinstance(getattr(self.settings, name), int) else {}

    def usable_mask(self, part: Part) -> Bool[np.ndarray, " examples"]:
        """Return a mask of the examples that may be held out, shape `(examples,)`.

        Args:
            part: Training examples.

        Returns:
            True for each example that may be held out; by default for all.
        """
        return np.ones(len(part), dtype=bool)

    def classes(self, part: Part) -> Int[np.ndarray, " examples"]:
        """Return the class of each example, by which held-out splits are stratified.

        By default all examples have one class.

        Args:
            part: Training examples.

        Returns:
            Class numbers, shape `(examples,)`.
        """
        return np.zeros(len(part), dtype=np.int64)

    def part(self, name: str, train: Part | None = None) -> Part | None:
        """Read one split.

        Args:
            name: `train`, `validation` or `test`.
            train: The training split, if it was read before.

        Returns:
            The split; None if the recipe names none, or if it is held out of the training data.
        """
        import datasets

        # Progress bars of Arrow's conversions would disturb those of the run.
        datasets.disable_progress_bars()
        split = getattr(self.settings, name)
        return None if split is None or isinstance(split, int) else self.read(name, split, train)

    def load(self) -> Corpus[Part]:
        """Read all splits; those given as a number are held out of the training data.

        Returns:
            The corpus.

        Raises:
            UserError: A split cannot be read (see `read`), or too few training examples remain.
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
        """Draw held-out splits of these sizes.

        Returns:
            The rows that stay in the training data, none a duplicate of a held-out example, and the rows of each split.
        """
        usable, wanted = self.usable_mask(train), sum(sizes.values())
        # With 64-bit hashes, the probability of a collision among ten million examples is 3 in a million.
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
        """Return the folder `data.root`.

        Args:
            of_what: Plural noun for what the folder holds, for the message.

        Returns:
            The path of the folder.

        Raises:
            UserError: There is no such folder.
        """
        root = Path(self.settings.root or "")
        if not root.is_dir():
            what = "there is no such folder"
            raise UserError(what, where=f"data.root: {root}", remedy=f"name the folder of the {of_what}")
        return root


def digest_of(*columns: Iterable[str]) -> str:
    """Compute a digest of columns of text, one after the other, independent of paths.

    Args:
        columns: Columns of text.

    Returns:
        Digest in hexadecimal digits.
    """
    digest = hashlib.blake2b(digest_size=16)
    for column in columns:
        for text in column:
            digest.update(text.encode() + b"\n")
    return digest.hexdigest()


def digest_of_arrays(arrays: Iterable[np.ndarray]) -> str:
    """Compute a digest of arrays joined end to end.

    Args:
        arrays: Arrays, whose bytes are joined; their boundaries do not matter.

    Returns:
        Digest in hexadecimal digits.
    """
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def validate_label(label: str, where: str) -> str:
    """Return a label unchanged if it is well-formed.

    Invisible characters are refused, because two labels that look alike would be two classes.

    Args:
        label: The label.
        where: Place of the label, for messages.

    Returns:
        The label.

    Raises:
        UserError: The label is empty or too long, is surrounded by spaces, or has an unprintable character.
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
    """Count the examples of each class.

    Args:
        labels: Class number of each example.
        classes: Class names.

    Returns:
        Number of examples by class name.
    """
    return dict(zip(classes, np.bincount(labels, minlength=len(classes)).tolist(), strict=True))


@dataclass(frozen=True)
class RowFormat:
    """Conversion of the rows of a table or hub data set to the columns of a task.

    Attributes:
        columns: Columns to read.
        word: Name of the conversion, to distinguish results made from the same file.
        kinds: Resulting columns and their `datasets` types.
        row: Function of (cells, row number, place for messages) that returns the resulting row.
    """

    columns: text_files.Columns
    word: str
    kinds: Mapping[str, str]
    row: Callable[[Sequence[str], int, str], dict[str, Any]]

    @property
    def name(self) -> str:
        """Cache key of the conversion."""
        quoting = self.columns.quoting
        return f"{self.word} {self.columns.names}" + (f" quoting {quoting}" if quoting else "")


def from_table(path: Path, reading: RowFormat) -> "datasets.Dataset":
    """Read the rows of a table, cached.

    Args:
        path: Table file.
        reading: Conversion of the rows.

    Returns:
        The converted rows.

    Raises:
        UserError: The file is missing or damaged, or lacks a column.
    """
    text_files.check_there(path)

    def rows() -> Iterator[dict[str, Any]]:
        for number, cells in text_files.table_cells(path, reading.columns):
            yield reading.row(cells, number, text_files.place(path, number))

    return cache_rows(rows, (path,), reading.name, reading.kinds)


def from_hub(
    settings: SourceSettings, split: str, reading: RowFormat
) -> tuple["datasets.Dataset", "datasets.Features"]:
    """Read the rows of a split of a data set on the Hugging Face hub.

    Args:
        settings: The recipe's `data` section.
        split: Name of the split.
        reading: Conversion of the rows.

    Returns:
        The converted rows, cached, and the columns of the data set itself.

    Raises:
        UserError: The data set is not found, the hub cannot be reached, or a column is missing.
    """
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
    """Load a split of a data set on the Hugging Face hub.

    Args:
        settings: The recipe's `data` section.
        split: Name of the split.
        folder: Folder with the files of a data set, read instead of the hub.

    Returns:
        The rows of the split, unconverted.

    Raises:
        UserError: The data set or split is not found, or the hub cannot be reached.
    """
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
    """Find a file by name in a folder, with one of several endings, compressed or not.

    Args:
        folder: Folder to search.
        stem: File name without ending.
        kinds: Endings, in order of preference.

    Returns:
        The first file found, or None.
    """
    names = (stem + kind + packed for kind in kinds for packed in text_files.COMPRESSIONS)
    return next((folder / name for name in names if (folder / name).is_file()), None)


def missing_split_error(root: Path, what: str, remedy: str) -> UserError:
    """Build the error for a folder that lacks the files of a split.

    Args:
        root: The folder; its file names are listed in the message.
        what: Message.
        remedy: Remedy.

    Returns:
        The error, to be raised by the caller.
    """
    names = sorted(path.name for path in root.iterdir())
    there = f"{', '.join(names[:SHOWN_NAMES]) or 'nothing'}{' …' if names[SHOWN_NAMES:] else ''}"
    return UserError(f"{what}; there: {there}", where=f"data.root: {root}", remedy=remedy)


def not_a_table_error(name: str, split: str, remedy: str) -> UserError:
    """Build the error for a file that is not a table.

    Args:
        name: `train`, `validation` or `test`.
        split: The recipe's value for it.
        remedy: Remedy.

    Returns:
        The error, to be raised by the caller.
    """
    return UserError(
        f"is no table ({', '.join(text_files.TABLES)}; plain, .gz or .xz)", f"data.{name}: {split}", remedy
    )


def split_table(source: Source, name: str, split: str) -> Path | None:
    """Return the table of a split of texts.

    Args:
        source: Data source.
        name: `train`, `validation` or `test`.
        split: The recipe's value for it: a file, or the name of a split.

    Returns:
        Path of the table; None if the split comes from the hub.

    Raises:
        UserError: There is no such table.
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
    """Return the columns that make up a text.

    Args:
        settings: The recipe's `data` section.
        local: Columns to use instead, such as those of a table.

    Returns:
        Names of the columns, in the order in which they are joined.
    """
    columns = local or settings.text
    return (columns,) if isinstance(columns, str) else columns


def join_texts(texts: Sequence[str]) -> str:
    """Join the texts of several columns with spaces, without empty ones.

    Example:
        >>> join_texts(["A title", "", "and a body"])
        'A title and a body'
    """
    return " ".join(text for text in texts if text)


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
            raise UserError(f"data.{name} has no texts", remedy="look at the file, or name another")
        return found

    def keys(self, part: "datasets.Dataset") -> Iterable[Hashable]:
        return part["text"]

    def digest(self, part: "datasets.Dataset") -> str:
        return digest_of(part["text"])
