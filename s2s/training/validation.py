"""Ranking of validations, for the best checkpoint and for early stopping."""

from collections.abc import Sequence
from dataclasses import dataclass

LOWER_IS_BETTER = frozenset({"loss", "ter", "cer", "wer"})
"""Metrics for which a lower value is better, so that 0 is the best."""


@dataclass(frozen=True)
class Validation:
    """Result of a validation.

    Attributes:
        update: Optimizer steps done before it.
        value: Value of `validation.metric`.
        loss: Mean validation loss in nats, which ranks equal values.
        lower_is_better: True if the metric is an error, as those in `LOWER_IS_BETTER` are.
    """

    update: int
    value: float
    loss: float
    lower_is_better: bool

    @property
    def rank(self) -> tuple[float, float]:
        """Sort key, higher is better: the value, negated if lower is better, then the negated loss."""
        return -self.value if self.lower_is_better else self.value, -self.loss


def count_without_improvement(validations: Sequence[Validation]) -> int:
    """Count the validations since the best one, for early stopping.

    A validation with the value of the best one and a lower loss is an improvement.

    Args:
        validations: Validations in the order of their steps.

    Returns:
        The count; training stops when it reaches `validation.patience`.

    Example:
        >>> bleu = (10.0, 12.0, 11.0, 11.5)
        >>> count_without_improvement([Validation(step, value, 1.0, False) for step, value in enumerate(bleu)])
        2
    """
    ranks = [validation.rank for validation in validations]
    return len(ranks) - 1 - ranks.index(max(ranks)) if ranks else 0


def is_stuck_at_zero(validations: Sequence[Validation]) -> bool:
    """Return True if exactly the last two values are 0, the worst, while the loss falls.

    BLEU, for example, stays 0 for targets of fewer than four words and then cannot rank checkpoints. The result is
    False again at the third validation, so that advice is printed once.

    Args:
        validations: Validations in the order of their steps.

    Example:
        >>> is_stuck_at_zero([Validation(100, 0.0, 5.0, False), Validation(200, 0.0, 4.0, False)])
        True
    """
    zeros = 0
    for validation in reversed(validations):
        if validation.value != 0 or validation.lower_is_better:
            break
        zeros += 1
    return zeros == 2 and validations[-1].loss < validations[-2].loss
