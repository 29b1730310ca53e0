"""Labelled texts as a trainer takes them: cut to a length, of similar lengths together, padded."""

from typing import ClassVar

import numpy as np
from jaxtyping import Int
from torch import Tensor

from s2s.data.batches import collate_sources, cut_off, widths_for, worst_first
from s2s.data.encoding import Pieces
from s2s.data.examples import LabelledExamples, Plan
from s2s.tasks.classification.recipe import TextBatchSettings

Lengths = Int[np.ndarray, " texts"]

# Each epoch, texts whose lengths differ by no more than a piece and this share of them may change places.
_SPREAD = 0.05


class Chosen:
    """Some texts of a corpus.

    Args:
        pieces: the corpus.
        chosen: rows of it.
    """

    def __init__(self, pieces: Pieces, chosen: Int[np.ndarray, " chosen"]) -> None:
        self._pieces = pieces
        self._chosen = chosen
        self.lengths = pieces.lengths[chosen]

    def rows(self, indices: Int[np.ndarray, " chosen"]) -> list[np.ndarray]:
        """The pieces of the chosen texts, in that order."""
        return self._pieces.rows(self._chosen[indices])


class LabelledTexts(LabelledExamples):
    """Labelled texts under a recipe's limits.

    Args:
        pieces: of each text, without special ones.
        labels: the number of each text's class.
        settings: the recipe's `batches` section.
        begin: whether each text begins with `BOS`, whose state then stands for the whole.
        examples_per_update: texts that one update learns from; those of one batch when None.
        word_dropout: share of the pieces of a text that are left out of its batch (Iyyer et al. 2015, section 3.2).

    Attributes:
        whole_lengths: pieces of each text, special ones counted.
        lengths: those of them that are read.
    """

    noun: ClassVar[str] = "training texts"
    key: ClassVar[str] = "batches.rows"

    def __init__(
        self,
        pieces: Pieces,
        labels: Int[np.ndarray, " texts"],
        settings: TextBatchSettings,
        begin: bool = False,
        examples_per_update: int | None = None,
        word_dropout: float = 0.0,
    ) -> None:
        self.pieces = pieces
        self.labels = labels
        self.settings = settings
        self.begin = begin
        self.wanted = examples_per_update
        self.word_dropout = word_dropout
        special = 1 + int(begin)
        self.longest = max(0, settings.max_length - special)
        self.whole_lengths = pieces.lengths.astype(np.int64) + special
        self.lengths = np.minimum(self.whole_lengths, self.longest + special)
        self.truncated = int((self.whole_lengths > self.lengths).sum())

    def plan(self, seed: int, epoch: int) -> Plan:
        return plan_texts(self.lengths, self.settings, seed, epoch)

    def read(self, rows: Int[np.ndarray, " batch"], seed: int) -> tuple[Tensor, Tensor]:
        """The texts, padded; which of their pieces are left out is drawn by seed and row."""
        texts = [text[: self.longest] for text in self.pieces.rows(rows)]
        if self.word_dropout:
            texts = [self._thinned(text, seed, int(row)) for text, row in zip(texts, rows, strict=True)]
        lengths = np.array([len(text) for text in texts], dtype=np.int64) + 1 + int(self.begin)
        return collate_sources(texts, self.begin, int(_widths(lengths, self.settings).max(initial=1)))

    def _thinned(self, text: np.ndarray, seed: int, row: int) -> np.ndarray:
        return text[np.random.default_rng([seed, row]).random(len(text)) >= self.word_dropout]

    def only(self, rows: Int[np.ndarray, " chosen"]) -> "LabelledTexts":
        return LabelledTexts(Chosen(self.pieces, rows), self.labels[rows], self.settings, self.begin)

    def padding_share(self, seed: int, epoch: int = 0) -> float:
        """Share of an epoch's positions that hold padding, in [0, 1)."""
        widths = _widths(self.lengths, self.settings)
        positions = sum(len(rows) * int(widths[rows].max()) for rows in self.plan(seed, epoch))
        return 1 - int(self.lengths.sum()) / positions


def _widths(lengths: Lengths, settings: TextBatchSettings) -> Lengths:
    if settings.padding == "max_length":
        return np.full_like(lengths, settings.max_length)
    return widths_for(lengths, settings.max_length)


def plan_texts(lengths: Lengths, settings: TextBatchSettings, seed: int, epoch: int) -> Plan:
    """Which texts make which batch in an epoch: every text once, and no batch over its limits.

    In `buckets`, texts are sorted by their length and up to a piece and 5 % more, drawn anew in each epoch: so
    neighbours are of similar length, but not the same ones each time. Otherwise they are in any order. Then batches are
    cut off, each as large as the limits allow, and shuffled.

    Args:
        lengths: pieces of each text, special ones counted.
        settings: the recipe's `batches` section.
        seed: of the order; any integer.
        epoch: from 0 on. In epoch 0 the batch with most positions comes first and the one with most pairs of positions
            second: memory runs out at once or not at all.

    Returns:
        The texts of each batch, as indices into the lengths.
    """
    if not len(lengths):
        return []
    generator = np.random.default_rng([seed % 2**64, epoch])
    noise = generator.random(len(lengths))
    sorted_by = lengths + (1 + _SPREAD * lengths) * noise if settings.padding == "buckets" else noise
    order = np.argsort(sorted_by, kind="stable")
    widths = _widths(lengths, settings)
    batches = cut_off(order, widths[order], settings.tokens, settings.rows)
    shuffled = [batches[i] for i in generator.permutation(len(batches))]
    return worst_first(shuffled, widths, widths) if epoch == 0 else shuffled
