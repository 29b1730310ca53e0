"""Labelled texts as Hugging Face data sets: from tables or from the hub, with classes by number."""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from jaxtyping import Int

from s2s.data.caching import cached, converted
from s2s.data.corpora import hub_split
from s2s.data.text_files import Columns, checked_cells, place, table_cells
from s2s.data.texts import held_out_rows, joined, several, split_table
from s2s.errors import UserError
from s2s.recipe.classification import LabelledSettings

_KEYS = "data.text and data.label"
_MOST_CLASSES = 1000
_FEATURES = datasets.Features(
    {"text": datasets.Value("string"), "label": datasets.Value("string"), "line": datasets.Value("int64")}
)


@dataclass(frozen=True)
class Labelled:
    """Texts of one split and their classes.

    Attributes:
        texts: untouched, in the column `text`; Arrow keeps them on disk.
        labels: the number of each text's class, from 0 on.
    """

    texts: datasets.Dataset
    labels: Int[np.ndarray, " texts"]

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, rows: Int[np.ndarray, " chosen"]) -> "Labelled":
        """The chosen texts, in that order."""
        return Labelled(self.texts.select(rows), self.labels[rows])


@dataclass(frozen=True)
class LabelledCorpus:
    """The splits that a recipe names.

    Attributes:
        train: what is learned from.
        validation: what decides between checkpoints.
        test: what is tested on.
        classes: their names, in the order of their numbers.
    """

    train: Labelled
    validation: Labelled
    test: Labelled | None
    classes: tuple[str, ...]

    def counts(self) -> dict[str, dict[str, int]]:
        """Texts of each class, by split."""
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: count_classes(part.labels, self.classes) for name, part in parts.items() if part is not None}


@dataclass(frozen=True)
class _Table:
    """A split as it was read: labels are still words, and each row knows where it stood."""

    rows: datasets.Dataset
    place: Callable[[int], str]
    first_label: int
    names: tuple[str, ...] | None = None


def load_labelled(settings: LabelledSettings) -> LabelledCorpus:
    """Loads the labelled texts that a recipe's `data` section describes.

    Texts held out of the training data are different ones, and none of them is left in the training data.

    Raises:
        UserError: a file, column or split is missing, a file is damaged, a label is none of the classes, or nothing is
            in a split.
    """
    table = _read(settings, "train")
    if table is None:
        raise UserError("data.train is needed", remedy="name a split or a table")
    classes = settings.classes or table.names or _different_labels(table)
    train = _numbered(table, classes)
    parts = {name: load_labelled_split(settings, name, classes) for name in ("validation", "test")}
    sizes = {name: size for name in parts if isinstance(size := getattr(settings, name), int)}
    if sizes:
        rest, held = held_out_rows(train.texts["text"], sizes, settings.seed)
        parts |= {name: train.select(rows) for name, rows in held.items()}
        train = train.select(rest)
    validation = parts["validation"]
    if validation is None:
        raise UserError("data.validation is needed", remedy="name a split, or hold texts out: data.validation=1000")
    return LabelledCorpus(train, validation, parts["test"], classes)


def load_labelled_split(settings: LabelledSettings, name: str, classes: tuple[str, ...]) -> Labelled | None:
    """One split; None where the recipe has none or holds it out of the training data.

    Args:
        settings: the recipe's `data` section.
        name: `train`, `validation` or `test`.
        classes: names of the classes.

    Raises:
        UserError: see `load_labelled`.
    """
    table = _read(settings, name)
    return None if table is None else _numbered(table, classes)


def count_classes(labels: Int[np.ndarray, " texts"], classes: Sequence[str]) -> dict[str, int]:
    """How many texts each class has."""
    return dict(zip(classes, np.bincount(labels, minlength=len(classes)).tolist(), strict=True))


def _read(settings: LabelledSettings, name: str) -> _Table | None:
    # the progress of Arrow's conversions would disturb the run's own
    datasets.disable_progress_bars()
    split = getattr(settings, name)
    if split is None or isinstance(split, int):
        return None
    path = split_table(settings, name, split)
    table = _from_hub(settings, split) if path is None else _from_table(settings, path)
    if not len(table.rows):
        raise UserError(f"data.{name} has no texts", remedy="look at the file, or name another")
    return table


def _from_table(settings: LabelledSettings, path: Path) -> _Table:
    local = settings.local if settings.corpus != "files" else type(settings.local)()
    label = local.label or settings.label
    names = (*several(local.text or settings.text), label)
    columns = Columns(names, _KEYS, numbers=(label,))

    def rows() -> Iterator[dict[str, Any]]:
        for line, (*texts, found) in table_cells(path, columns):
            yield {"text": joined(texts), "label": _checked(found, place(path, line)), "line": line}

    first = settings.first_label if local.first_label is None else local.first_label
    return _Table(cached(rows, (path,), f"labelled {names}", _FEATURES), partial(place, path), first)


def _from_hub(settings: LabelledSettings, split: str) -> _Table:
    found = hub_split(settings, split)
    where = f"{settings.corpus} {split} row "
    columns = Columns((*several(settings.text), settings.label), _KEYS, numbers=(settings.label,))

    def take(rows: Mapping[str, list[Any]], numbers: list[int]) -> dict[str, list[Any]]:
        cells = [
            checked_cells(dict(zip(rows, values, strict=True)), columns, f"{where}{number + 1}")
            for number, *values in zip(numbers, *rows.values(), strict=True)
        ]
        return {
            "text": [joined(texts) for *texts, _ in cells],
            "label": [_checked(row[-1], f"{where}{number + 1}") for number, row in zip(numbers, cells, strict=True)],
            "line": [number + 1 for number in numbers],
        }

    declared = getattr((found.features or {}).get(settings.label), "names", None)
    rows = converted(found, take, f"labelled {columns.names}", _FEATURES)
    names = tuple(declared) if declared else None
    return _Table(rows, lambda line: f"{where}{line}", settings.first_label, names)


def _checked(label: str, where: str) -> str:
    """A label as it is; two that look alike would be two classes."""
    if not label:
        raise UserError("has no label", where=where, remedy="label the row, or remove it")
    if label != label.strip() or not label.isprintable():
        whole = "; of a whole file, e.g. by dos2unix" if label.endswith("\r") else ""
        raise UserError(
            f"the label {label!r:.60} has a space around it or a character that cannot be seen",
            where=where,
            remedy=f"mend the row{whole}",
        )
    return label


def _labels(table: _Table) -> tuple[list[str], Int[np.ndarray, " rows"]]:
    """The different labels, and which of them each row has."""
    column = table.rows.data.column("label").combine_chunks().dictionary_encode()
    return column.dictionary.to_pylist(), column.indices.to_numpy(zero_copy_only=False)


def _different_labels(table: _Table) -> tuple[str, ...]:
    words = _labels(table)[0]
    if not 2 <= len(words) <= _MOST_CLASSES:
        raise UserError(
            f"the training data has {len(words):,} different labels, e.g. {words[0]!r:.40}",
            where="data.label",
            remedy="name the column of the classes, or declare them: data.classes=[NAME, NAME]",
        )
    numbers = all(word.isdecimal() for word in words)
    return tuple(sorted(words, key=int) if numbers else sorted(words))


def _numbered(table: _Table, classes: tuple[str, ...]) -> Labelled:
    words, found = _labels(table)
    known = {name: number for number, name in enumerate(classes)}
    if not any(name.isdecimal() for name in classes):
        known |= {str(number + table.first_label): number for number in range(len(classes))}
    numbers = np.array([known.get(word, -1) for word in words])[found]
    wrong = np.flatnonzero(numbers < 0)
    if len(wrong):
        word = words[int(found[wrong[0]])]
        near = difflib.get_close_matches(word, classes, n=1)
        last = table.first_label + len(classes) - 1
        number = f", by name or as a number from {table.first_label} to {last}" if str(last) in known else ""
        shown = ", ".join(classes[:20]) + (" …" if classes[20:] else "")
        raise UserError(
            f"label {word!r:.40} is none of the classes {shown}{number}",
            where=table.place(table.rows[int(wrong[0])]["line"]),
            remedy=(f"did you mean {near[0]}? " if near else "")
            + "mend the row, or look at data.label, data.classes and data.first_label",
        )
    return Labelled(table.rows.remove_columns(["label", "line"]), numbers)
