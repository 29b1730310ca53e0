"""Losses of a sequence-to-sequence model by pair and by token, without dropout."""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float
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
