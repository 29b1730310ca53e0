"""The gradient noise scale (McCandlish et al. 2018, "An Empirical Model of Large-Batch Training", appendix A).

The gradient of n items is that of all, G, plus noise; were items drawn independently, its squared length would be
|G|² + S/n in the mean, with S the trace of the covariance of one item's gradient. Of the micro-batches of an update and
of the whole update both sides are known, so both numbers are estimated without bias. B_simple = S / |G|² is the number
of items at which noise and gradient are equally long: updates from far fewer are mostly noise, and those from far more
learn little more than from that many.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from s2s.errors import UserError


@dataclass(frozen=True)
class Noise:
    """What one update says: estimates without bias, either of which may be below zero.

    Attributes:
        spread: S, of one item.
        square: |G|², of the gradient of all items there are.
    """

    spread: float
    square: float


def estimate_noise(counts: Sequence[int], squares: Sequence[float], whole: float) -> Noise:
    """The estimates of an update of several micro-batches.

    Args:
        counts: items of each; two micro-batches or more, none of them empty.
        squares: squared lengths of each one's mean gradient over its own items.
        whole: squared length of the mean gradient over all items.
    """
    inverse = sum(1 / count for count in counts) / len(counts)
    spread = (sum(squares) / len(squares) - whole) / (inverse - 1 / sum(counts))
    return Noise(spread, whole - spread / sum(counts))


def noise_scale(noises: Sequence[Noise]) -> float | None:
    """B_simple in items by several updates: the ratio of the means, whose noise is less than that of the ratios.

    None where the mean of |G|² is not above zero: then more updates are needed.
    """
    square = sum(noise.square for noise in noises)
    return sum(noise.spread for noise in noises) / square if square > 0 else None


def check_several_micro_batches(batches: Sequence[int]) -> None:
    """Refuses to measure noise where no update has several micro-batches; `batches` are those of each update.

    Raises:
        UserError: that is so.
    """
    if all(count < 2 for count in batches):
        raise UserError(
            "an update has one batch only: between batches there is nothing to compare",
            where="training.noise_scale",
            remedy="let an update learn from two batches or more: lower batches.tokens, or what gives a batch its "
            "size, and set training.tokens_per_update or training.examples_per_update to what it was",
        )
