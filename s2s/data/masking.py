"""Masked pieces: what a masked-language model learns from (Devlin et al. 2019, section 3.1).

Of each text some pieces are chosen, 15 % as published, and the model must name them. Of the chosen ones 80 % are read
as the mask piece, 10 % as a random piece, and 10 % as they are. Each epoch chooses others (Liu et al. 2019, section
4.1); which ones is a pure function of (seed, epoch, row), so to resume is arithmetic.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from s2s.data.examples import Collated
from s2s.data.labelled_batches import collate_texts
from s2s.data.tokenizers import SPECIALS
from s2s.recipe.masked_lm import MaskingSettings

Pieces = Int[np.ndarray, " pieces"]


@dataclass(frozen=True)
class MaskedBatch(Collated):
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
    """How many pieces are chosen of each text: the share, rounded, and at least one where there is any.

    Args:
        lengths: pieces of each text, without special ones.
        share: of the pieces, in (0, 1).
    """
    return np.minimum(lengths, np.maximum(1, np.rint(lengths * share).astype(np.int64)))


def mask(
    pieces: Pieces, size: int, settings: MaskingSettings, seed: int, row: int
) -> tuple[Pieces, Int[np.ndarray, " chosen"]]:
    """Chooses pieces of one text and masks them.

    Args:
        pieces: of the text, without special ones.
        size: number of pieces that the tokenizer knows, which is also the number of the mask piece.
        settings: the recipe's `masking` section.
        seed: another one in each epoch.
        row: number of the text; each draws for itself, whatever batch it is in.

    Returns:
        What the model reads, and the chosen places in rising order.
    """
    generator = np.random.default_rng([seed, row])
    count = int(chosen_counts(np.array([len(pieces)]), settings.share)[0])
    chosen = np.sort(generator.choice(len(pieces), count, replace=False, shuffle=False))
    fate = generator.random(count)
    drawn = generator.integers(len(SPECIALS), size, count)
    read = np.array(pieces)
    masked, random = fate < settings.masked, fate < settings.masked + settings.random
    read[chosen] = np.where(masked, size, np.where(random, drawn, read[chosen]))
    return read, chosen


def collate_masked(
    texts: Sequence[Pieces],
    read: Sequence[Pieces],
    chosen: Sequence[Int[np.ndarray, " chosen"]],
    indices: Sequence[int] | np.ndarray,
    begin: bool,
    width: int | None = None,
) -> MaskedBatch:
    """Makes a batch of texts.

    Args:
        texts: pieces of each text, without special ones.
        read: the same, with chosen ones masked.
        chosen: places of the chosen ones in each text.
        indices: number of each text.
        begin: whether each row begins with `BOS`.
        width: positions of a row; those of the longest when None.
    """
    source, valid = collate_texts(read, begin, width)
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


def windows(
    lengths: Int[np.ndarray, " texts"], longest: int
) -> tuple[Int[np.ndarray, " windows"], Int[np.ndarray, " windows"], Int[np.ndarray, " windows"]]:
    """Cuts long texts into windows of nearly equal length, none longer than allowed; nothing is left out.

    Args:
        lengths: pieces of each text, without special ones; texts without any give no window.
        longest: most pieces of a window.

    Returns:
        Of each window, in order: the text's number, the place of its first piece there, and how many pieces it has.
    """
    lengths = lengths.astype(np.int64)
    counts = -(-lengths // longest)
    texts = np.repeat(np.arange(len(lengths)), counts)
    number = np.arange(len(texts)) - np.repeat(np.cumsum(counts) - counts, counts)
    # window i of n begins at floor(i · length / n): lengths differ by one at most
    first = number * lengths[texts] // np.maximum(counts[texts], 1)
    last = (number + 1) * lengths[texts] // np.maximum(counts[texts], 1)
    return texts, first, last - first
