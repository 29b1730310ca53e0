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
        score: Value of `validation.metric`; higher is better, so error rates and losses are negated.
        loss: Mean validation loss.
    """

    update: int
    score: float
    loss: float

    @property
    def rank(self) -> tuple[float, float]:
        """Sort key, higher is better: the score, then the lower loss if scores are equal."""
        return self.score, -self.loss


def count_without_improvement(validations: Sequence[Validation]) -> int:
    """Count the validations since the best one, for early stopping.

    A validation with the score of the best one and a lower loss is an improvement.

    Args:
        validations: Validations in the order of their steps.

    Returns:
        The count; training stops when it reaches `validation.patience`.

    Example:
        >>> scores = (10.0, 12.0, 11.0, 11.5)
        >>> count_without_improvement([Validation(step, score, loss=1.0) for step, score in enumerate(scores)])
        2
    """
    ranks = [validation.rank for validation in validations]
    return len(ranks) - 1 - ranks.index(max(ranks)) if ranks else 0


def is_stuck_at_zero(validations: Sequence[Validation]) -> bool:
    """Return True if exactly the last two scores are 0 while the loss falls.

    BLEU, for example, stays 0 for targets of fewer than four words and then cannot rank checkpoints. The result is
    False again at the third validation, so that advice is printed once.

    Args:
        validations: Validations in the order of their steps.

    Example:
        >>> is_stuck_at_zero([Validation(100, 0.0, loss=5.0), Validation(200, 0.0, loss=4.0)])
        True
    """
    zeros = 0
    for validation in reversed(validations):
        if validation.score != 0:
            break
        zeros += 1
    return zeros == 2 and validations[-1].loss < validations[-2].loss
