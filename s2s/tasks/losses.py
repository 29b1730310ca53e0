"""The losses of a translator pair by pair and token by token, dropout off."""

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
    """Cross-entropy of each pair, in nats, summed over its target tokens, with dropout off."""
    losses = np.zeros(len(data))
    for rows, each, valid in token_losses(model, data, batches, device_context):
        losses[rows] = (each * valid).sum(axis=1)
    return losses


def token_losses(
    model: Seq2Seq, data: TokenizedDataset, batches: BatchSettings, device_context: DeviceContext
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Batch by batch: rows of pairs, cross-entropy of their target's pieces in nats, and which of these are real."""
    model.eval()
    longest = int(max(data.source_lengths.max(), data.target_lengths.max()))
    with torch.no_grad(), device_context.mixed_precision():
        for rows in make_batches(data.source_lengths, data.target_lengths, max(batches.tokens, longest), 0, 0):
            batch = collate(*data.rows(rows), rows).to(device_context.device)
            scores = model.logits(batch.source, batch.source_valid, batch.target_in).float()
            each = nn.functional.cross_entropy(scores.transpose(1, 2), batch.target_out, reduction="none")
            yield rows, each.cpu().double().numpy(), batch.target_valid.cpu().numpy()
