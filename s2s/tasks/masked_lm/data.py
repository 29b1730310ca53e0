"""Texts, and their masked pieces: what a masked-language model learns from (Devlin et al. 2019, section 3.1).

Of each text some pieces are chosen, 15 % as published, and the model must name them. Of the chosen ones 80 % are read
as the mask piece, 10 % as a random piece, and 10 % as they are. Each epoch chooses others (Liu et al. 2019, section
4.1); which ones is a pure function of (seed, epoch, row), so to resume is arithmetic.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from s2s.data.batches import collate_sources, count_accumulation_steps, make_batches, widths_for, windows
from s2s.data.dataset import BaseBatch, Examples, Plan
from s2s.data.tokenized import TokenizedTexts
from s2s.data.tokenizers import SPECIAL_TOKENS
from s2s.tasks.masked_lm.recipe import MaskingSettings, WindowSettings

Row = Int[np.ndarray, " pieces"]


@dataclass(frozen=True)
class MaskedBatch(BaseBatch):
    """Texts with some of their pieces masked, padded with `PAD`; the loss is divided by the chosen pieces.

    Attributes:
        source: what the model reads, each row ending with `EOS`.
        source_valid: True where a piece is real.
        chosen: places of the chosen pieces in the flattened `source`, row after row.
        targets: what stood at these places.
    """

    source: Int[Tensor, "batch source"]
    source_valid: Bool[Tensor, "batch source"]
    chosen: Int[Tensor, " chosen"]
    targets: Int[Tensor, " chosen"]


def chosen_counts(lengths: Int[np.ndarray, " rows"], share: float) -> Int[np.ndarray, " rows"]:
    """How many pieces are chosen of each text: the share, in (0, 1), rounded, and at least one where there is any."""
    return np.minimum(lengths, np.maximum(1, np.rint(lengths * share).astype(np.int64)))


def mask(
    tokens: Row, size: int, settings: MaskingSettings, seed: int, row: int
) -> tuple[Row, Int[np.ndarray, " chosen"]]:
    """Chooses pieces of one text and masks them.

    Each text, which has no special pieces, draws for itself by its row; `size` is the number of the mask piece.

    Returns:
        What the model reads, and the chosen places in rising order.
    """
    generator = np.random.default_rng([seed, row])
    count = int(chosen_counts(np.array([len(tokens)]), settings.share)[0])
    chosen = np.sort(generator.choice(len(tokens), count, replace=False, shuffle=False))
    fate = generator.random(count)
    drawn = generator.integers(len(SPECIAL_TOKENS), size, count)
    read = np.array(tokens)
    masked, random = fate < settings.masked, fate < settings.masked + settings.random
    read[chosen] = np.where(masked, size, np.where(random, drawn, read[chosen]))
    return read, chosen


def collate_masked(
    texts: Sequence[Row],
    read: Sequence[Row],
    chosen: Sequence[Int[np.ndarray, " chosen"]],
    indices: Sequence[int] | np.ndarray,
    begin: bool,
    width: int | None = None,
) -> MaskedBatch:
    """Makes a batch of texts, without special pieces, by what is read of them and the chosen places."""
    source, valid = collate_sources(read, begin, width)
    flat = [number * source.shape[1] + int(begin) + places for number, places in enumerate(chosen)]
    targets = [text[places] for text, places in zip(texts, chosen, strict=True)]
    nothing = np.empty(0, np.int64)
    tokens = int(valid.sum())
    return MaskedBatch(
        indices=torch.from_numpy(np.array(indices, dtype=np.int64)),
        count=sum(len(places) for places in chosen),
        tokens=tokens,
        real_share=tokens / max(1, valid.numel()),
        source=source,
        source_valid=valid,
        chosen=torch.from_numpy(np.concatenate([nothing, *flat])),
        targets=torch.from_numpy(np.concatenate([nothing, *targets])),
    )


class MaskedText(Examples[MaskedBatch]):
    """The windows of a corpus of texts, masked anew in each epoch.

    A text longer than `batches.max_length` is cut into windows, so that all of it is learned from; an example is one
    window. The loss of an update is divided by the pieces to be named in it. An update reads `tokens_per_update` real
    pieces, or those of one batch when None.
    """

    item_name: ClassVar[str] = "windows of text"

    def __init__(
        self,
        texts: TokenizedTexts,
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

    def make_batches(self, seed: int, epoch: int) -> Plan:
        """The windows of each batch of an epoch; see `batches.plan`."""
        return make_batches(self.widths, self.widths, self.tokens, seed, epoch)

    def accumulation_steps(self, batches: Plan) -> int:
        if self.wanted is None:
            return super().accumulation_steps(batches)
        return count_accumulation_steps(batches, self.lengths, self.wanted)

    def collate(self, rows: Int[np.ndarray, " batch"], seed: int) -> MaskedBatch:
        """The windows, masked: each by a chance of its own, whatever batch it is in."""
        texts = self.window(rows)
        masked = [
            mask(text, self.size, self.masking, seed, row) for text, row in zip(texts, rows.tolist(), strict=True)
        ]
        read, chosen = [tokens for tokens, _ in masked], [places for _, places in masked]
        return collate_masked(texts, read, chosen, rows, self.masking.begin, int(self.widths[rows].max(initial=1)))

    def window(self, rows: Int[np.ndarray, " chosen"]) -> list[np.ndarray]:
        """The pieces of the chosen windows."""
        special = 1 + int(self.masking.begin)
        first, last = self.first[rows], self.first[rows] + self.lengths[rows] - special
        whole = self.texts.rows(self.numbers[rows])
        return [text[i:j] for text, i, j in zip(whole, first.tolist(), last.tolist(), strict=True)]
