"""Ranking of validations, for the best checkpoint and for early stopping."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Validation:
    """The result of a validation.

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
        """Sort key, higher is better: the score, and the lower loss where scores are equal."""
        return self.score, -self.loss


def count_without_improvement(validations: Sequence[Validation]) -> int:
    """Count the validations since the best one, for early stopping.

    A validation with the score of the best one and a lower loss is an improvement.

    Args:
        validations: In the order of their updates.
    """
    ranks = [validation.rank for validation in validations]
    return len(ranks) - 1 - ranks.index(max(ranks)) if ranks else 0


def is_stuck_at_zero(validations: Sequence[Validation]) -> bool:
    """Check whether the score has been 0 at exactly the last two validations, while the loss fell.

    BLEU, for example, stays 0 on targets of fewer than four words, and then it cannot rank checkpoints. It is false
    again at the third validation, so that advice is printed once.
    """
    zeros = 0
    for validation in reversed(validations):
        if validation.score != 0:
            break
        zeros += 1
    return zeros == 2 and validations[-1].loss < validations[-2].loss
