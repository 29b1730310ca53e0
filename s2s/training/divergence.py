"""Has a training gone astray though every number was finite?

Two signs, each far from anything that a training which learns shows, however short it is, whatever its task:

- Its last updates have a much higher loss than it began with, and than guessing evenly has. A model that has learned
  nothing at all stays at either; half a nat and a tenth more leave room for small batches and for dropout.
- A weight is larger than 10,000. Weights begin below 10, and Adam moves each by about the learning rate in an update:
  at a rate of 0.01 all of a million updates would have to push the same way.
"""

from pathlib import Path

from torch import nn

from s2s.errors import UserError
from s2s.training.logger import read_metrics

_LAST = 20
_LARGEST = 1e4


def check_divergence(folder: Path, model: nn.Module, guessing: float) -> None:
    """Looks at a run that has ended; `guessing` is the loss of guessing evenly, in nats per item.

    Raises:
        UserError: the training diverged.
    """
    losses = [(entry.loss, entry.count or 0) for entry in read_metrics(folder) if entry.loss is not None]
    # where an update learns from nothing, there is nothing to weigh
    items = sum(count for _, count in losses[-_LAST:])
    found = sum(loss * count for loss, count in losses[-_LAST:]) / items if items else 0.0
    if sign := is_diverged(model, found, max([guessing, *(loss for loss, _ in losses[:1])])):
        raise UserError(
            f"the training diverged: {sign}",
            where=str(folder),
            remedy="its scores say nothing; lower training.learning_rate, lengthen training.warmup or set "
            "training.clip, and train anew with --overwrite",
        )


def is_diverged(model: nn.Module, loss: float, untrained: float) -> str:
    """The sign by which a training has gone astray, see the module; empty where there is none. Losses are in nats."""
    largest = {name: float(p.detach().abs().max()) for name, p in model.named_parameters() if p.numel()}
    # what is no number is not small either
    if sick := [name for name, value in largest.items() if not value <= _LARGEST]:
        return f"a weight of {sick[0]} is {largest[sick[0]]:.2g}"
    if not loss <= untrained + max(0.5, 0.1 * untrained):
        return f"the loss ends at {loss:.2f} nats, and without training it is {untrained:.2f}"
    return ""
