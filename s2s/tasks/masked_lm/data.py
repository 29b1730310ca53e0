"""Training examples of a masked language model (Devlin et al. 2019, section 3.1).

In each text some tokens are chosen, 15 % as published, for the model to predict. Of the chosen tokens, 80 % are
replaced by the mask token, 10 % by a random token, and 10 % stay unchanged. Each epoch chooses other tokens (dynamic
masking, Liu et al. 2019, section 4.1). The choice is a pure function of (seed, epoch, row), so that a resumed run needs
no saved state.
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
    """Texts with masked tokens, padded with `PAD`.

    The loss is the mean over the chosen tokens.

    Attributes:
        source: Input tokens (batch, source); each row ends with `EOS`.
        source_valid: Padding mask (batch, source), True for real tokens.
        chosen: Positions of the chosen tokens in the flattened `source`, row after row.
        targets: Original tokens at these positions.
    """

    source: Int[Tensor, "batch source"]
    source_valid: Bool[Tensor, "batch source"]
    chosen: Int[Tensor, " chosen"]
    targets: Int[Tensor, " chosen"]


def chosen_counts(lengths: Int[np.ndarray, " rows"], share: float) -> Int[np.ndarray, " rows"]:
    """Return the number of tokens to choose in each text."""
    return np.minimum(lengths, np.maximum(1, np.rint(lengths * share).astype(np.int64)))


def mask(
    tokens: Row, size: int, settings: MaskingSettings, seed: int, row: int
) -> tuple[Row, Int[np.ndarray, " chosen"]]:
    """Choose tokens of one text and mask them.

    Args:
        tokens: Tokens of the text, without special tokens.
        size: Size of the vocabulary, which is the id of the mask token.
        settings: Shares of chosen, masked and random tokens.
        row: Row of the text, which makes the choice independent of its batch.

    Returns:
        Input tokens, and the chosen positions in rising order.

    Example:
        >>> import numpy as np
        >>> read, chosen = mask(np.arange(10, 20), 100, MaskingSettings(share=0.2), seed=1, row=0)
        >>> read.tolist(), chosen.tolist()
        ([10, 11, 12, 13, 14, 100, 16, 17, 18, 19], [4, 5])
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
    """Make a batch of masked texts."""
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
    """Windows of texts, masked anew in each epoch.

    A text longer than `batches.max_length` is cut into windows, so that no part is lost; an example is one window. The
    loss of an optimizer step is the mean over its chosen tokens.

    Args:
        size: Size of the vocabulary, which is the id of the mask token.
        masking: Shares of chosen, masked and random tokens.
        batches: Batch size and window length.
        tokens_per_update: Approximate number of tokens for an optimizer step; None uses one batch.
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
        # Each window has `EOS` and, if the recipe says so, `BOS`.
        special = 1 + int(masking.begin)
        self.numbers, self.first, counts = windows(texts.lengths, batches.max_length - special)
        self.lengths = counts + special
        self.widths = widths_for(self.lengths, batches.max_length)

    def __len__(self) -> int:
        return len(self.lengths)

    def manifest_counts(self) -> dict[str, int]:
        return {"windows": len(self)}

    def make_batches(self, seed: int, epoch: int) -> Plan:
        """Make the batches of an epoch, as in `s2s.data.batches.make_batches`."""
        return make_batches(self.widths, self.widths, self.tokens, seed, epoch)

    def accumulation_steps(self, batches: Plan) -> int:
        if self.wanted is None:
            return super().accumulation_steps(batches)
        return count_accumulation_steps(batches, self.lengths, self.wanted)

    def collate(self, rows: Int[np.ndarray, " batch"], seed: int) -> MaskedBatch:
        """Mask windows and make a batch; the masks do not depend on the batch."""
        texts = self.window(rows)
        masked = [
            mask(text, self.size, self.masking, seed, row) for text, row in zip(texts, rows.tolist(), strict=True)
        ]
        read, chosen = [tokens for tokens, _ in masked], [places for _, places in masked]
        return collate_masked(texts, read, chosen, rows, self.masking.begin, int(self.widths[rows].max(initial=1)))

    def window(self, rows: Int[np.ndarray, " chosen"]) -> list[np.ndarray]:
        """Return the tokens of windows, without special tokens."""
        special = 1 + int(self.masking.begin)
        first, last = self.first[rows], self.first[rows] + self.lengths[rows] - special
        whole = self.texts.rows(self.numbers[rows])
        return [text[i:j] for text, i, j in zip(whole, first.tolist(), last.tolist(), strict=True)]
