"""Gradient noise scale (McCandlish et al. 2018, appendix A).

"An Empirical Model of Large-Batch Training". The gradient of n items is the gradient of all items, G, plus noise. With
independently drawn items its mean squared norm is |G|² + S/n, where S is the trace of the covariance of one item's
gradient. Both sides are known for the micro-batches of a step and for the whole step, so |G|² and S have unbiased
estimates. B_simple = S / |G|² is the number of items at which noise and gradient have the same norm: much smaller
batches are mostly noise, and much larger batches learn little more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from s2s.errors import UserError


@dataclass(frozen=True)
class Noise:
    """Unbiased noise estimates of one optimizer step; both may be negative.

    Attributes:
        spread: S, the trace of the covariance of one item's gradient.
        square: |G|², the squared norm of the gradient of all items.
    """

    spread: float
    square: float


def estimate_noise(counts: Sequence[int], squares: Sequence[float], whole: float) -> Noise:
    """Estimate the gradient noise from the micro-batches of one optimizer step.

    Args:
        counts: Items of each micro-batch; at least two micro-batches, none empty.
        squares: Squared norm of the mean gradient of each micro-batch.
        whole: Squared norm of the mean gradient over all items.

    Example:
        >>> estimate_noise(counts=[10, 10], squares=[3.0, 3.0], whole=2.0)
        Noise(spread=20.0, square=1.0)
    """
    inverse = sum(1 / count for count in counts) / len(counts)
    spread = (sum(squares) / len(squares) - whole) / (inverse - 1 / sum(counts))
    return Noise(spread, whole - spread / sum(counts))


def noise_scale(noises: Sequence[Noise]) -> float | None:
    """Compute the gradient noise scale B_simple of several steps.

    This is the ratio of the means of S and |G|², which has less noise than the mean of the ratios.

    Returns:
        The number of items; None if the mean of |G|² is not above zero, so that more steps are needed.

    Example:
        >>> noise_scale([Noise(spread=20.0, square=1.0), Noise(spread=40.0, square=2.0)])
        20.0
    """
    square = sum(noise.square for noise in noises)
    return sum(noise.spread for noise in noises) / square if square > 0 else None


def check_several_micro_batches(batches: Sequence[int]) -> None:
    """Check that noise can be measured: a step must have several micro-batches.

    Args:
        batches: Number of micro-batches of each optimizer step.

    Raises:
        UserError: Every step has a single micro-batch.
    """
    if all(count < 2 for count in batches):
        raise UserError(
            "an update has one batch only: between batches there is nothing to compare",
            where="training.noise_scale",
            remedy="let an update learn from two batches or more: lower batches.tokens, or what gives a batch its "
            "size, and set training.tokens_per_update or training.examples_per_update to what it was",
        )
