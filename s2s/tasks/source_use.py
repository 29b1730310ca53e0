"""Losses by pair and by token, and a test of a translator's use of its sources.

The loss with the right sources is compared with the loss with the sources of other sentences of about the same length.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import nn

from s2s.data.batches import collate, make_batches
from s2s.data.tokenized import TokenizedDataset
from s2s.models.base import Seq2Seq
from s2s.recipe.pairs import BatchSettings
from s2s.training.device import DeviceContext


def pair_losses(
    model: Seq2Seq, data: TokenizedDataset, batches: BatchSettings, device_context: DeviceContext
) -> Float[np.ndarray, " pairs"]:
    """Compute the cross-entropy of each pair, without dropout.

    Args:
        batches: Batch size in tokens.

    Returns:
        Cross-entropy of each pair in nats, summed over its target tokens.
    """
    losses = np.zeros(len(data))
    for rows, each, valid in token_losses(model, data, batches, device_context):
        losses[rows] = (each * valid).sum(axis=1)
    return losses


def token_losses(
    model: Seq2Seq, data: TokenizedDataset, batches: BatchSettings, device_context: DeviceContext
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Compute the cross-entropy of each target token, without dropout.

    Args:
        batches: Batch size in tokens.

    Yields:
        For each batch: rows of its pairs, cross-entropy in nats (batch, target), and the padding mask (batch, target),
        True for real tokens.
    """
    model.eval()
    longest = int(max(data.source_lengths.max(), data.target_lengths.max()))
    with torch.no_grad(), device_context.mixed_precision():
        for rows in make_batches(data.source_lengths, data.target_lengths, max(batches.tokens, longest), 0, 0):
            batch = collate(*data.rows(rows), rows).to(device_context.device)
            scores = model.logits(batch.source, batch.source_valid, batch.target_in).float()
            each = nn.functional.cross_entropy(scores.transpose(1, 2), batch.target_out, reduction="none")
            yield rows, each.cpu().double().numpy(), batch.target_valid.cpu().numpy()


@dataclass(frozen=True)
class SourceUse:
    """Value of the sources for a translator, on the same targets.

    Attributes:
        right: Loss with the right sources, in nats per target token.
        exchanged: Loss with exchanged sources, in nats per target token.
    """

    right: float
    exchanged: float
    pairs: int


def exchanged_rows(lengths: Int[np.ndarray, " pairs"], seed: int = 1) -> Int[np.ndarray, " pairs"]:
    """Return a derangement that exchanges rows of about the same length.

    Rows are sorted by length, and neighbors are swapped in pairs; an odd number ends with a cycle of three. A source of
    a different length would be recognizable by its length. Ties in length are broken at random.

    Args:
        lengths: Lengths of at least two rows.

    Returns:
        For each row, another row; every row occurs once.

    Example:
        >>> import numpy as np
        >>> exchanged_rows(np.array([3, 9, 4, 8]))
        array([2, 3, 0, 1])
    """
    order = np.lexsort((np.random.default_rng(seed).permutation(len(lengths)), lengths))
    partner = np.arange(len(lengths)) ^ 1
    if len(lengths) % 2:
        partner[-3:] = [len(lengths) - 2, len(lengths) - 1, len(lengths) - 3]
    rows = np.empty_like(order)
    rows[order] = order[partner]
    return rows


def source_use(
    model: Seq2Seq, data: TokenizedDataset, batches: BatchSettings, device_context: DeviceContext
) -> SourceUse | None:
    """Measure the losses with the right sources and with exchanged sources.

    Pairs whose exchanged source is the same text are left out.

    Args:
        data: Tokenized validation pairs.
        batches: Batch size in tokens.

    Returns:
        Both losses; None if no pair has a different source.
    """
    if len(data) < 2:
        return None
    everything = np.arange(len(data))
    sources, targets = data.rows(everything)
    others = exchanged_rows(data.source_lengths)
    kept = np.array([not np.array_equal(sources[i], sources[j]) for i, j in enumerate(others.tolist())])
    if not kept.any():
        return None
    exchanged = TokenizedDataset.from_rows([sources[j] for j in others.tolist()], targets)
    tokens = float(data.target_lengths[kept].sum())
    right, wrong = (
        float(pair_losses(model, pairs, batches, device_context)[kept].sum()) / tokens for pairs in (data, exchanged)
    )
    return SourceUse(right, wrong, int(kept.sum()))
