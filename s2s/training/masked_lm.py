"""How a masked-language model is trained: texts with masks, and the cross-entropy of what stood there."""

import torch
from torch import Tensor

from s2s.data.masking import MaskedBatch
from s2s.models.masked_lm import MaskedLM
from s2s.training.loss import cross_entropy


def masked_loss(model: MaskedLM, batch: MaskedBatch) -> tuple[Tensor, Tensor]:
    """The cross-entropy of the chosen pieces of a batch, summed, in nats: to learn from and to report, the same.

    The pieces that were not chosen are read and are no part of it.
    """
    states = model(batch.source, batch.source_valid, batch.chosen)
    valid = torch.ones_like(batch.targets, dtype=torch.bool)
    return cross_entropy(states[None], model.output, batch.targets[None], valid[None])
