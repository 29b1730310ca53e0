"""Corpora: splits of a source, held-out examples, digests, and the overlap with the training data.

Each task has a subclass of `Source`; `Source.load` returns a `Corpus` with the splits train, validation and test.
Validation and test splits are named by the recipe or held out of the training data. Held-out splits have distinct
examples, and no duplicate of a held-out example stays in the training data.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
from jaxtyping import Bool, Int

from s2s.errors import UserError, counted_items
from s2s.recipe.schema import SourceSettings

ALIASES = {"validation": ("validation", "valid", "val", "dev")}
"""File names under which a split may be found in a folder."""


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
    """Splits of a corpus; `test` is None if the recipe names none.

    Attributes:
        note: Training examples that were left out because they repeat held-out ones, in words; empty if none were.
        rows: By split, which rows of the file of the training data it has, from 0; only of splits that holding out
            divided. Of several corpora, by `corpus.split`.
    """

    train: Part_co
    validation: Part_co
    test: Part_co | None
    note: str = ""
    rows: Mapping[str, Int[np.ndarray, " examples"]] = field(default_factory=dict)

    def row_numbers(self, name: str, examples: int) -> list[int]:
        """Return the row of each example in the file or data set of its split, from 1; a header does not count.

        Args:
            name: Name of the split.
            examples: Number of its examples.
        """
        return (self.rows[name] + 1).tolist() if name in self.rows else list(range(1, examples + 1))

    def splits(self) -> dict[str, Part_co]:
        """Return the existing splits by name."""
        named = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: part for name, part in named.items() if part is not None}


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
        note, divided = "", dict[str, Int[np.ndarray, " examples"]]()
        if sizes:
            rest, held = self._held_out(train, sizes)
            parts |= {name: train.select(rows) for name, rows in held.items()}
            copies = len(train) - len(rest) - sum(map(len, held.values()))
            if copies:
                which = self.inputs or self.item_name
                more = f"{counted_items(copies, f'more {self.item_name}')} {'repeats' if copies == 1 else 'repeat'}"
                note = f"{more} held-out {which}: left out of training"
            train, divided = train.select(rest), {"train": rest, **held}
        return Corpus(train, parts["validation"], parts["test"], note, divided)  # type: ignore[arg-type]

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
            which, different = self.inputs or self.item_name, len(candidates)
            only = counted_items(different, f"different {which}")
            repeated = f": they have only {only}" if different < len(usable) else ""
            asked = f"{counted_items(wanted, self.item_name)} to hold out of {len(usable):,}"
            raise UserError(
                f"{asked} {'leaves' if wanted == 1 else 'leave'} no training data{repeated}",
                where=", ".join(f"data.{name}: {size}" for name, size in sizes.items()),
                remedy="hold out fewer" if different > len(sizes) else f"add {self.item_name} with other {which}",
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


def suspicious_text_lines(examples: Iterable[tuple[str, ...]], item_name: str) -> list[str]:
    """Return warnings for texts that look like missing values, and for line ends of Windows; no lines without any.

    Example:
        >>> suspicious_text_lines([("one", "eins"), ("two", "nan")], "pairs")
        ["1 pair has 'nan' as a text, which looks like a missing value: remove these rows unless it is meant"]
    """
    count, first, windows, size = 0, "", 0, 0
    for texts in examples:
        if found := [text for text in texts if text in MISSING]:
            count, first = count + 1, first or found[0]
        size, windows = size + 1, windows + texts[-1].endswith("\r")
    more = " or the like" if count > 1 else ""
    meant = "which looks like a missing value: remove these rows unless it is meant"
    have = "has" if count == 1 else "have"
    lines = [f"{counted_items(count, item_name)} {have} {first!r}{more} as a text, {meant}"] if count else []
    if windows > size / 2:
        lines.append(f"most {item_name} end with a carriage return, which is learned: convert the file, e.g. dos2unix")
    return lines
