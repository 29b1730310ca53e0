"""Labelled texts: reading, class numbers, tokenization and batches."""

import difflib
import math
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Bool, Int
from torch import Tensor

from s2s.data.batches import collate_sources, largest_first, split_by_budget, widths_for
from s2s.data.dataset import LabelledExamples, Plan
from s2s.data.labels import MOST_CLASSES, count_classes, missing_label_lines, validate_label
from s2s.data.sources import Corpus, Source, digest_of
from s2s.data.tables import RowFormat, from_hub, from_table, join_texts, split_table, text_columns
from s2s.data.text_files import Columns, could_be_name, place
from s2s.data.tokenized import PreparedTexts, RaggedArray, TokenizedTexts, tokenize_splits
from s2s.data.tokenizers import Tokenizer
from s2s.errors import UserError
from s2s.recipe.schema import Quoting
from s2s.tasks.classification.recipe import ClassificationRecipe, LabelledSettings, TextBatchSettings

if TYPE_CHECKING:
    import datasets

_KINDS = {"text": "string", "label": "string", "line": "int64"}
# In smaller data sets, a label that occurs once is usual.
_FEWEST = 20


@dataclass(frozen=True)
class Labelled:
    """Labelled texts of one split.

    Attributes:
        texts: Table on disk with the texts, unchanged, in the column `text`.
        labels: Class of each text, as an index of `names`.
    """

    texts: "datasets.Dataset"
    labels: Int[np.ndarray, " texts"]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, indices: Int[np.ndarray, " chosen"], /) -> "Labelled":
        """Return the texts at these indices, in this order."""
        return Labelled(self.texts.select(indices), self.labels[indices], self.names)

    def counts(self) -> dict[str, int]:
        """Return the number of texts of each class."""
        return count_classes(self.labels, self.names)


@dataclass(frozen=True)
class _Table:
    """A split as it was read: labels are still words, and each row has its place."""

    rows: "datasets.Dataset"
    place: Callable[[int], str]
    first_label: int
    names: tuple[str, ...] | None = None


class LabelledSource(Source[LabelledSettings, Labelled]):
    """Source of labelled texts.

    No text is in two splits: held-out texts are different, and removed from the training data.
    """

    item_name: ClassVar[str] = "texts"

    def read(self, name: str, split: str | tuple[str, str], train: Labelled | None) -> Labelled:
        """Read a split; classes are those that recipe or hub declare, else the labels of the training texts."""
        path = split_table(self, name, str(split))
        table = self._from_hub(str(split)) if path is None else self._from_table(path)
        if not len(table.rows):
            raise UserError(f"data.{name} has no texts", remedy="check the file, or name another one")
        if name == "train" and path is not None:
            _check_first_row(table)
        classes = train.names if train else self.settings.classes or table.names or _different_labels(table)
        return _numbered(table, classes)

    def keys(self, part: Labelled) -> Iterable[Hashable]:
        return part.texts["text"]

    def classes(self, part: Labelled) -> Int[np.ndarray, " examples"]:
        return part.labels

    def keys_with_targets(self, part: Labelled) -> Iterable[Hashable]:
        return zip(part.texts["text"], part.labels.tolist(), strict=True)

    def digest(self, part: Labelled) -> str:
        return digest_of(part.texts["text"])

    def digest_of_all(self, part: Labelled) -> str:
        """Return a hash of the texts and the names of their classes."""
        return digest_of(part.texts["text"], (part.names[number] for number in part.labels))

    def missing_labels(self, corpus: Corpus[Labelled]) -> list[str]:
        """Return warnings about training labels that look like a missing value."""
        declared = self.settings.classes or (self.settings.corpus != "files" and self.settings.root is None)
        return [] if declared else missing_label_lines(corpus.train.counts(), "training texts")

    def _from_table(self, path: Path) -> _Table:
        settings = self.settings
        local = settings.local if settings.corpus != "files" else type(settings.local)()
        reading = _reading(text_columns(settings, local.text), local.label or settings.label, settings.quoting)
        first = settings.first_label if local.first_label is None else local.first_label
        return _Table(from_table(path, reading), partial(place, path), first)

    def _from_hub(self, split: str) -> _Table:
        settings = self.settings
        rows, features = from_hub(settings, split, _reading(text_columns(settings), settings.label))
        declared = getattr((features or {}).get(settings.label), "names", None)
        names = tuple(declared) if declared else None
        return _Table(rows, lambda line: f"{settings.corpus} {split} row {line}", settings.first_label, names)


def _reading(texts: tuple[str, ...], label: str, quoting: Quoting | None = None) -> RowFormat:
    columns = Columns((*texts, label), "data.text and data.label", numbers=(label,), quoting=quoting)

    def row(cells: Sequence[str], number: int, where: str) -> dict[str, Any]:
        return {
            "text": join_texts(cells[:-1]),
            "label": validate_label(cells[-1], where),
            "line": number,
        }

    return RowFormat(columns, "labelled", _KINDS, row)


def _labels(table: _Table) -> tuple[list[str], Int[np.ndarray, " rows"]]:
    """Return the different labels, and the index of each row's label."""
    column = table.rows.data.column("label").combine_chunks().dictionary_encode()
    return column.dictionary.to_pylist(), column.indices.to_numpy(zero_copy_only=False)


def _check_first_row(table: _Table) -> None:
    """Refuse a table whose first row, the only one of its class, could be a header line."""
    words, found = _labels(table)
    first, others = table.rows[0], int((found == found[0]).sum()) - 1
    names = first["text"], words[int(found[0])]
    if not others and len(found) > _FEWEST and first["line"] == 1 and all(map(could_be_name, names)):
        raise UserError(
            f"the first line has the only label {names[1]!r} and the text {names[0]!r}: it looks like a header",
            where=table.place(1),
            remedy="name columns, not positions: data.text, data.label; if the line is an example, move it down",
        )


def _different_labels(table: _Table) -> tuple[str, ...]:
    words = _labels(table)[0]
    if len(words) == 1:
        raise UserError(
            f"the label column has only one class, {words[0]!r:.40}",
            where="data.label",
            remedy="name the column of the classes, or add texts of other classes",
        )
    if len(words) > MOST_CLASSES:
        raise UserError(
            f"the training data has {len(words):,} different labels, e.g. {words[0]!r:.40}",
            where="data.label",
            remedy="name the column of the classes, or declare them: data.classes=[NAME, NAME]",
        )
    alike: dict[str, str] = {}
    for word in words:
        other = alike.setdefault(unicodedata.normalize("NFKC", word), word)
        if other != word:
            raise UserError(
                f"two labels look alike and differ in their characters: {other!a:.60} and {word!a:.60}",
                where="data.label",
                remedy="use one of them, or declare both: data.classes=[NAME, NAME]",
            )
    numbers = all(word.isdecimal() for word in words)
    return tuple(sorted(words, key=int) if numbers else sorted(words))


def _numbered(table: _Table, classes: tuple[str, ...]) -> Labelled:
    words, found = _labels(table)
    known, accepted = {name: number for number, name in enumerate(classes)}, ""
    own = table.names or ()
    if own and (set(own) <= set(classes) or set(classes) <= set(own)):
        # Numbers refer to the data set's own order, even if names are numbers, or if the recipe has another order or
        # fewer classes.
        known = {str(number): classes.index(name) for number, name in enumerate(own) if name in classes}
        accepted = f", as a number from 0 to {len(own) - 1}"
    elif not any(name.isdecimal() for name in classes):
        known |= {str(number + table.first_label): number for number in range(len(classes))}
        last = table.first_label + len(classes) - 1
        accepted = f", by name or as a number from {table.first_label} to {last}"
    numbers = np.array([known.get(word, -1) for word in words])[found]
    wrong = np.flatnonzero(numbers < 0)
    if len(wrong):
        word = words[int(found[wrong[0]])]
        near = difflib.get_close_matches(word, classes, n=1)
        shown = ", ".join(classes[:20]) + (" …" if classes[20:] else "")
        raise UserError(
            f"label {word!r:.40} is none of the classes {shown}{accepted}",
            where=table.place(table.rows[int(wrong[0])]["line"]),
            remedy=(f"did you mean {near[0]}? " if near else "")
            + "correct the row, or look at data.label, data.classes and data.first_label",
        )
    return Labelled(table.rows.remove_columns(["label", "line"]), numbers, classes)


@dataclass(frozen=True)
class PreparedLabelled(PreparedTexts[Labelled]):
    """Labelled texts of all splits, tokenized, with their tokenizer."""

    @property
    def chance_loss(self) -> float:
        return math.log(len(self.corpus.train.names))

    def learned(self) -> Iterator[np.ndarray]:
        yield from (*self.train.arrays(), self.corpus.train.labels)


def prepare_texts(
    recipe: ClassificationRecipe, tokenizer: Tokenizer | None, print_fn: Callable[[str], None]
) -> PreparedLabelled:
    """Load and tokenize the texts of a recipe.

    Args:
        tokenizer: Tokenizer of a resumed run or of the encoder's run; None trains a new one.
    """
    source = LabelledSource(recipe.data)
    corpus = source.load()
    for line in filter(None, [corpus.note, *source.missing_labels(corpus)]):
        print_fn(line)
    if tokenizer is None:
        print_fn(f"training a tokenizer on the training texts ({recipe.tokenizer.kind})")
    texts = corpus.train.texts, corpus.validation.texts
    return PreparedLabelled(corpus, *tokenize_splits(*texts, recipe.tokenizer, tokenizer))


Lengths = Int[np.ndarray, " texts"]

# In each epoch, texts whose lengths differ by at most a token plus this share may change places.
_SPREAD = 0.05


class LabelledTexts(LabelledExamples):
    """Training examples of a text classifier, under a recipe's limits.

    Attributes:
        whole_lengths: Number of tokens of each text, special tokens included.
        lengths: Number of tokens that the model reads, at most `batches.max_length`.

    Args:
        tokens: Tokenized texts, without special tokens.
        settings: Batch size, maximum length and padding.
        begin: Prepend `BOS`, whose state represents the whole text.
        examples_per_update: Number of texts for an optimizer step; None uses one batch.
        word_dropout: Probability of dropping each token of a text (Iyyer et al. 2015, section 3.2).
        balanced: Give each epoch equally many texts of each class.
    """

    item_name: ClassVar[str] = "training texts"
    key: ClassVar[str] = "batches.rows"

    def __init__(
        self,
        tokens: TokenizedTexts,
        labels: Int[np.ndarray, " texts"],
        settings: TextBatchSettings,
        begin: bool = False,
        examples_per_update: int | None = None,
        word_dropout: float = 0.0,
        balanced: bool = False,
    ) -> None:
        self.pieces = tokens
        self.labels = labels
        self.settings = settings
        self.begin = begin
        self.examples_per_step = examples_per_update
        self.word_dropout = word_dropout
        self.balanced = balanced
        special = 1 + int(begin)
        self.longest = max(0, settings.max_length - special)
        self.whole_lengths = tokens.lengths.astype(np.int64) + special
        self.lengths = np.minimum(self.whole_lengths, self.longest + special)
        self.truncated = int(self.is_truncated.sum())

    @property
    def is_truncated(self) -> Bool[np.ndarray, " texts"]:
        """True for each text that exceeds `batches.max_length`."""
        return self.whole_lengths > self.lengths

    def make_batches(self, seed: int, epoch: int) -> Plan:
        rows = self.epoch_rows(seed, epoch)
        return [rows[batch] for batch in _plan_texts(self.lengths[rows % len(self)], self.settings, seed, epoch)]

    def read(self, rows: Int[np.ndarray, " batch"], seed: int) -> tuple[Tensor, Tensor]:
        """Return the texts, padded, and their padding mask; row and seed determine the token dropout."""
        texts = [text[: self.longest] for text in self.pieces.rows(rows % len(self))]
        if self.word_dropout:
            chances = (np.random.default_rng([seed, int(row)]) for row in rows)
            texts = [t[one.random(len(t)) >= self.word_dropout] for t, one in zip(texts, chances, strict=True)]
        lengths = np.array([len(text) for text in texts], dtype=np.int64) + 1 + int(self.begin)
        return collate_sources(texts, self.begin, int(_widths(lengths, self.settings).max(initial=1)))

    def manifest_counts(self) -> dict[str, int]:
        return {"truncated": self.truncated or 0}

    def subset(self, rows: Int[np.ndarray, " chosen"]) -> "LabelledTexts":
        return LabelledTexts(
            RaggedArray.from_rows(self.pieces.rows(rows)), self.labels[rows], self.settings, self.begin
        )

    def padding_share(self, seed: int) -> float:
        """Return the share of padding in an epoch's positions."""
        widths = _widths(self.lengths, self.settings)
        batches = [rows % len(self) for rows in self.make_batches(seed, 0)]
        positions = sum(len(rows) * int(widths[rows].max()) for rows in batches)
        return 1 - sum(int(self.lengths[rows].sum()) for rows in batches) / positions


def _widths(lengths: Lengths, settings: TextBatchSettings) -> Lengths:
    if settings.padding == "max_length":
        return np.full_like(lengths, settings.max_length)
    return widths_for(lengths, settings.max_length)


def _plan_texts(lengths: Lengths, settings: TextBatchSettings, seed: int, epoch: int) -> Plan:
    """Make the batches of an epoch: every text once, no batch over its limits.

    With `buckets`, texts are sorted by their length plus a random offset of up to one token and 5 %, drawn anew in each
    epoch: neighbors have similar lengths, but differ between epochs. With the other kinds of padding, the order is
    random. Consecutive texts form batches as large as the limits allow, and the batches are shuffled. In epoch 0 the
    most expensive batches come first, as in `s2s.data.batches.make_batches`.
    """
    if not len(lengths):
        return []
    generator = np.random.default_rng([seed % 2**64, epoch])
    noise = generator.random(len(lengths))
    sorted_by = lengths + (1 + _SPREAD * lengths) * noise if settings.padding == "buckets" else noise
    order = np.argsort(sorted_by, kind="stable")
    widths = _widths(lengths, settings)
    batches = split_by_budget(order, widths[order], settings.tokens, settings.rows)
    shuffled = [batches[i] for i in generator.permutation(len(batches))]
    return largest_first(shuffled, widths, widths) if epoch == 0 else shuffled
