"""Shares of successes with intervals that hold for few trials and near the ends, too."""

import math
from dataclasses import dataclass

from scipy import special


@dataclass(frozen=True)
class Share:
    """A share of successes.

    Attributes:
        value: in percent.
        low: lower end of the 95 % interval.
        high: upper end.
    """

    value: float
    low: float
    high: float


def wilson(successes: int, trials: int) -> Share:
    """A share with Wilson's score interval (Wilson 1927), which never leaves 0 to 100 %.

    With p the share, n the trials and z the normal quantile of 97.5 %: the centre is (p + z²/2n) / (1 + z²/n), and the
    ends are z·√(p(1 − p)/n + z²/4n²) / (1 + z²/n) away from it.

    Args:
        successes: of the trials.
        trials: without any, everything from 0 to 100 % is possible.
    """
    if not trials:
        return Share(0.0, 0.0, 100.0)
    z = float(special.ndtri(0.975))
    share, scale = successes / trials, 1 + z * z / trials
    centre = (share + z * z / (2 * trials)) / scale
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials)) / scale
    # at the ends rounding could leave the interval without its own share
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == trials else centre + half
    return Share(100 * share, 100 * low, 100 * high)
