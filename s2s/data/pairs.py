"""Pairs of source and target as a trainer takes them: the examples of translation."""

from typing import ClassVar

import numpy as np
from jaxtyping import Int

from s2s.data.batches import Batch, accumulate, collate, plan
from s2s.data.encoding import Encoded
from s2s.data.examples import Examples, Plan
from s2s.errors import UserError
from s2s.recipe.schema import BatchSettings


class Pairs(Examples[Batch]):
    """The pairs of a corpus under a recipe's limits.

    Args:
        data: the pairs as pieces.
        batches: the recipe's `batches` section.
        tokens_per_update: target tokens that one update learns from; `batches.tokens` when None.

    Raises:
        UserError: all pairs are longer than `batches.max_length`.
    """

    noun: ClassVar[str] = "training pairs"

    def __init__(self, data: Encoded, batches: BatchSettings, tokens_per_update: int | None = None) -> None:
        self.data = data
        self.tokens = batches.tokens
        self.wanted = tokens_per_update or batches.tokens
        self.kept, self.left_out = data.within(batches.max_length)
        if not len(self.kept):
            raise UserError(
                f"all {len(data):,} training pairs are longer than {batches.max_length} pieces",
                where="batches.max_length",
                remedy="raise it",
            )

    def __len__(self) -> int:
        return len(self.data)

    def plan(self, seed: int, epoch: int) -> Plan:
        """The rows of each batch of an epoch; see `batches.plan`."""
        sources, targets = self.data.source_lengths[self.kept], self.data.target_lengths[self.kept]
        return [self.kept[rows] for rows in plan(sources, targets, self.tokens, seed, epoch)]

    def updates(self, batches: Plan) -> tuple[list[Plan], int]:
        """The batches of each update; see `batches.accumulate`."""
        return accumulate(batches, self.data.target_lengths, self.wanted)

    def collate(self, rows: Int[np.ndarray, " batch"], seed: int) -> Batch:
        """The pairs, padded; nothing is drawn at random."""
        return collate(*self.data.rows(rows), rows)


def every_pair(data: Encoded, batches: BatchSettings) -> Pairs:
    """All pairs, however long, to measure a loss: a batch may then hold more tokens than the recipe says."""
    longest = int(max(data.source_lengths.max(), data.target_lengths.max()))
    limits = {"tokens": max(batches.tokens, longest), "max_length": longest}
    return Pairs(data, batches.model_copy(update=limits))
