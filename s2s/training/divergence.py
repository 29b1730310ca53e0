"""Detection of divergence in runs without NaN/Inf.

There are two signs. Both are far from anything that a working training shows, for any length and task:

- The loss of the last 20 steps is much higher than at the start and than that of uniform guessing. A model that has
  learned nothing stays at one of these; the margin, the larger of 0.5 nats and 10 %, is for small batches and dropout.
- A weight is larger than 10,000. Weights start below 10, and Adam moves each one by about the learning rate in a step:
  with a rate of 0.01, a million steps would all have to go in the same direction.
"""

from pathlib import Path

from torch import nn

from s2s.errors import UserError
from s2s.training.logger import read_metrics

_LAST = 20
_LARGEST = 1e4


def check_divergence(folder: Path, model: nn.Module, guessing: float) -> None:
    """Check a finished run for divergence.

    Args:
        folder: Folder of the run.
        model: Trained model.
        guessing: Loss of uniform guessing, in nats per item.

    Raises:
        UserError: The training diverged.
    """
    losses = [(entry.loss, entry.count or 0) for entry in read_metrics(folder) if entry.loss is not None]
    # Steps without items have no weight in the mean.
    items = sum(count for _, count in losses[-_LAST:])
    found = sum(loss * count for loss, count in losses[-_LAST:]) / items if items else 0.0
    if sign := is_diverged(model, found, max([guessing, *(loss for loss, _ in losses[:1])])):
        raise UserError(
            f"the training diverged: {sign}",
            where=str(folder),
            remedy="ignore its scores; lower training.learning_rate, raise training.warmup or set training.clip, and "
            "train again with --overwrite",
        )


def is_diverged(model: nn.Module, loss: float, untrained: float) -> str:
    """Return the sign of divergence; empty if there is none.

    Args:
        model: Trained model.
        loss: Mean loss of the last steps, in nats per item.
        untrained: Loss without training, in nats per item.

    Example:
        >>> model = nn.Linear(2, 2)
        >>> is_diverged(model, loss=1.0, untrained=5.0)
        ''
        >>> is_diverged(model, loss=9.0, untrained=5.0)
        'the loss ends at 9.00 nats; without training it is 5.00'
    """
    largest = {name: float(p.detach().abs().max()) for name, p in model.named_parameters() if p.numel()}
    # Negated, so that NaN counts as too large.
    if sick := [name for name, value in largest.items() if not value <= _LARGEST]:
        return f"a weight of {sick[0]} is {largest[sick[0]]:.2g}"
    if not loss <= untrained + max(0.5, 0.1 * untrained):
        return f"the loss ends at {loss:.2f} nats; without training it is {untrained:.2f}"
    return ""
