"""Texts with masked pieces as a trainer takes them: the examples of a masked-language model."""

from typing import ClassVar, Protocol

import numpy as np
from jaxtyping import Int

from s2s.data.batches import accumulate, plan, widths_for
from s2s.data.examples import Examples, Plan
from s2s.data.masking import MaskedBatch, collate_masked, mask, windows
from s2s.recipe.masked_lm import MaskingSettings, WindowSettings


class Texts(Protocol):
    """Texts as pieces, without special ones."""

    @property
    def lengths(self) -> Int[np.ndarray, " texts"]:
        """Pieces of each text."""
        ...

    def rows(self, indices: Int[np.ndarray, " chosen"]) -> list[np.ndarray]:
        """The pieces of the chosen texts, in that order."""
        ...


class MaskedText(Examples[MaskedBatch]):
    """The windows of a corpus of texts, masked anew in each epoch.

    A text longer than `batches.max_length` is cut into windows, so that all of it is learned from; an example is one
    window. The loss of an update is divided by the pieces to be named in it.

    Args:
        texts: the corpus.
        size: number of pieces that the tokenizer knows.
        masking: the recipe's `masking` section.
        batches: the recipe's `batches` section.
        tokens_per_update: real pieces that one update reads; those of one batch when None.
    """

    noun: ClassVar[str] = "windows of text"

    def __init__(
        self,
        texts: Texts,
        size: int,
        masking: MaskingSettings,
        batches: WindowSettings,
        tokens_per_update: int | None = None,
    ) -> None:
        self.texts = texts
        self.size = size
        self.masking = masking
        self.tokens = batches.tokens
        self.wanted = tokens_per_update
        # beside the pieces stand `EOS` and, where the recipe says so, `BOS`
        special = 1 + int(masking.begin)
        self.numbers, self.first, counts = windows(texts.lengths, batches.max_length - special)
        self.lengths = counts + special
        self.widths = widths_for(self.lengths, batches.max_length)

    def __len__(self) -> int:
        return len(self.lengths)

    def plan(self, seed: int, epoch: int) -> Plan:
        """The windows of each batch of an epoch; see `batches.plan`."""
        return plan(self.widths, self.widths, self.tokens, seed, epoch)

    def updates(self, batches: Plan) -> tuple[list[Plan], int]:
        """The batches of each update; see `batches.accumulate`."""
        if self.wanted is None:
            return [[rows] for rows in batches], 1
        return accumulate(batches, self.lengths, self.wanted)

    def collate(self, rows: Int[np.ndarray, " batch"], seed: int) -> MaskedBatch:
        """The windows, masked: each by a chance of its own, whatever batch it is in."""
        texts = self.window(rows)
        masked = [
            mask(text, self.size, self.masking, seed, row) for text, row in zip(texts, rows.tolist(), strict=True)
        ]
        read, chosen = [pieces for pieces, _ in masked], [places for _, places in masked]
        return collate_masked(texts, read, chosen, rows, self.masking.begin, int(self.widths[rows].max(initial=1)))

    def window(self, rows: Int[np.ndarray, " chosen"]) -> list[np.ndarray]:
        """The pieces of the chosen windows."""
        special = 1 + int(self.masking.begin)
        first, last = self.first[rows], self.first[rows] + self.lengths[rows] - special
        whole = self.texts.rows(self.numbers[rows])
        return [text[i:j] for text, i, j in zip(whole, first.tolist(), last.tolist(), strict=True)]
