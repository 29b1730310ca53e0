"""How a masked-language model is trained and measured: the cross-entropy of what stood in the masked places."""

import torch
from torch import Tensor

from s2s.data.masked_text import MaskedText
from s2s.data.masking import MaskedBatch
from s2s.models.masked_lm import MaskedLM
from s2s.training.devices import Computer
from s2s.training.loss import cross_entropy


def masked_loss(model: MaskedLM, batch: MaskedBatch) -> tuple[Tensor, Tensor]:
    """The cross-entropy of the chosen pieces of a batch, summed, in nats: to learn from and to report, the same.

    The pieces that were not chosen are read and are no part of it.
    """
    states = model(batch.source, batch.source_valid, batch.chosen)
    valid = torch.ones_like(batch.targets, dtype=torch.bool)
    return cross_entropy(states[None], model.output, batch.targets[None], valid[None])


def measure(model: MaskedLM, examples: MaskedText, computer: Computer) -> tuple[float, float, int]:
    """How well a model names the chosen pieces, dropout off; which pieces are chosen is the same each time.

    Returns:
        The loss in nats per chosen piece, the share of them whose most probable piece is the right one, in percent, and
        their number.
    """
    model.eval()
    loss, right, count = 0.0, 0, 0
    with torch.no_grad(), computer.mixed_precision():
        for rows in examples.plan(0, 0):
            batch = examples.collate(rows, 0).to(computer.device)
            found = model.log_probabilities(batch.source, batch.source_valid, batch.chosen)
            loss -= float(found.gather(1, batch.targets[:, None]).sum())
            right += int((found.argmax(1) == batch.targets).sum())
            count += batch.count
    return loss / max(1, count), 100 * right / max(1, count), count
