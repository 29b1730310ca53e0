"""How a masked-language model is trained and measured: the cross-entropy of what stood in the masked places."""

import torch
from torch import Tensor

from s2s.data.ahead import batches_on
from s2s.data.masked_text import MaskedText
from s2s.data.masking import MaskedBatch
from s2s.models.masked_lm import MaskedLM
from s2s.training.devices import Computer
from s2s.training.loss import cross_entropy
from s2s.training.progress import Advance


def masked_loss(model: MaskedLM, batch: MaskedBatch) -> tuple[Tensor, Tensor]:
    """The cross-entropy of the chosen pieces of a batch, summed, in nats: to learn from and to report, the same.

    The pieces that were not chosen are read and are no part of it.
    """
    states = model(batch.source, batch.source_valid, batch.chosen)
    valid = torch.ones_like(batch.targets, dtype=torch.bool)
    return cross_entropy(states[None], model.output, batch.targets[None], valid[None])


def measure(
    model: MaskedLM, examples: MaskedText, computer: Computer, advance: Advance = lambda count: None
) -> tuple[float, float, int]:
    """How well a model names the chosen pieces, dropout off; which pieces are chosen is the same each time.

    Args:
        model: put into evaluation mode.
        examples: none of which is left out.
        computer: device and precision.
        advance: told how many examples were read, batch by batch.

    Returns:
        The loss in nats per chosen piece, the share of them whose most probable piece is the right one, in percent, and
        their number.
    """
    model.eval()
    sums, hits, count = [], [], 0
    with torch.no_grad(), computer.mixed_precision():
        for rows, batch in batches_on(examples, computer.device):
            found = model.log_probabilities(batch.source, batch.source_valid, batch.chosen)
            sums.append(found.gather(1, batch.targets[:, None]).sum())
            hits.append((found.argmax(1) == batch.targets).sum())
            count += batch.count
            advance(len(rows))
    loss, right = 0.0, 0
    # read at the end: to ask a GPU in between would make it stand still
    for each, found in zip(sums, hits, strict=True):
        loss -= float(each)
        right += int(found)
    return loss / max(1, count), 100 * right / max(1, count), count
