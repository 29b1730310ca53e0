"""Labelled texts: where they come from, with classes by number, and how they become pieces."""

import difflib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import datasets
import numpy as np
from jaxtyping import Int

from s2s.data.sources import Corpus, Reading, Source, count_classes, digest_of, from_hub, from_table
from s2s.data.text_files import Columns, place
from s2s.data.texts import PreparedTexts, cut, joined, split_table, text_columns
from s2s.data.tokenizers import Tokenizer
from s2s.errors import UserError
from s2s.tasks.classification.recipe import ClassificationRecipe, LabelledSettings

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
        names: of the classes, in the order of their numbers.
    """

    texts: datasets.Dataset
    labels: Int[np.ndarray, " texts"]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, indices: Int[np.ndarray, " chosen"], /) -> "Labelled":
        """The chosen texts, in that order."""
        return Labelled(self.texts.select(indices), self.labels[indices], self.names)

    def counts(self) -> dict[str, int]:
        """Texts of each class."""
        return count_classes(self.labels, self.names)


@dataclass(frozen=True)
class _Table:
    """A split as it was read: labels are still words, and each row knows where it stood."""

    rows: datasets.Dataset
    place: Callable[[int], str]
    first_label: int
    names: tuple[str, ...] | None = None


class LabelledSource(Source[LabelledSettings, Labelled]):
    """Labelled texts; those held out are different ones, and none of them is left in the training data."""

    noun: ClassVar[str] = "texts"

    def read(self, name: str, split: str | tuple[str, str], train: Labelled | None) -> Labelled:
        """A table, or a data set on the hub; the classes are those declared, else those of the training texts."""
        path = split_table(self, name, str(split))
        table = self._from_hub(str(split)) if path is None else self._from_table(path)
        if not len(table.rows):
            raise UserError(f"data.{name} has no texts", remedy="look at the file, or name another")
        classes = train.names if train else self.settings.classes or table.names or _different_labels(table)
        return _numbered(table, classes)

    def keys(self, part: Labelled) -> Iterable[Hashable]:
        """The texts, whatever their classes are."""
        return part.texts["text"]

    def digest(self, part: Labelled) -> str:
        """Of the texts, whatever their classes are called."""
        return digest_of(part.texts["text"])

    def _from_table(self, path: Path) -> _Table:
        settings = self.settings
        local = settings.local if settings.corpus != "files" else type(settings.local)()
        reading = _reading(text_columns(settings, local.text), local.label or settings.label)
        first = settings.first_label if local.first_label is None else local.first_label
        return _Table(from_table(path, reading), partial(place, path), first)

    def _from_hub(self, split: str) -> _Table:
        settings = self.settings
        rows, features = from_hub(settings, split, _reading(text_columns(settings), settings.label))
        declared = getattr((features or {}).get(settings.label), "names", None)
        names = tuple(declared) if declared else None
        return _Table(rows, lambda line: f"{settings.corpus} {split} row {line}", settings.first_label, names)


def load_labelled(settings: LabelledSettings) -> Corpus[Labelled]:
    """The labelled texts that a recipe's `data` section describes.

    Raises:
        UserError: see `Source.load`; or a label is none of the classes.
    """
    return LabelledSource(settings).load()


def _reading(texts: tuple[str, ...], label: str) -> Reading:
    columns = Columns((*texts, label), "data.text and data.label", numbers=(label,))

    def row(cells: Sequence[str], number: int, where: str) -> dict[str, Any]:
        return {"text": joined(cells[:-1]), "label": _checked(cells[-1], where), "line": number}

    return Reading(columns, "labelled", _FEATURES, row)


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
    return Labelled(table.rows.remove_columns(["label", "line"]), numbers, classes)


@dataclass(frozen=True)
class PreparedLabelled(PreparedTexts[Labelled]):
    """Everything about labelled texts that training needs."""

    def learned(self) -> Iterator[np.ndarray]:
        """The training texts as pieces, and their classes."""
        yield from (*self.train.arrays(), self.corpus.train.labels)


def prepare_texts(
    recipe: ClassificationRecipe, tokenizer: Tokenizer | None, say: Callable[[str], None]
) -> PreparedLabelled:
    """Loads and encodes the texts.

    Args:
        recipe: the resolved recipe.
        tokenizer: that of a run that continues, or that the encoder was trained with; None to train a new one.
        say: prints a line.

    Raises:
        UserError: see `load_labelled`; or `tokenizer.size` does not fit the texts.
    """
    corpus = load_labelled(recipe.data)
    if tokenizer is None:
        say(f"learning pieces from the training texts ({recipe.tokenizer.kind})")
    texts = corpus.train.texts, corpus.validation.texts
    return PreparedLabelled(corpus, *cut(*texts, recipe.tokenizer, tokenizer))
