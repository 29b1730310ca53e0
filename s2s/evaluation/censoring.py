"""A line through values of which some are known only to lie beyond what was measured (Tobin 1958)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy


@dataclass(frozen=True)
class CensoredLine:
    """y = a + b x + noise, by maximum likelihood.

    Attributes:
        a: where it meets x = 0.
        b: its slope.
        spread: standard deviation of the noise.
    """

    a: float
    b: float
    spread: float

    def at(self, x: float) -> float:
        """What it predicts."""
        return self.a + self.b * x


def censored_line(x: Sequence[float], y: Sequence[float], beyond: Sequence[int]) -> CensoredLine | None:
    """The line under which what was seen is likeliest; None with fewer than three values, or one x alone.

    A value counts with its density where it is known, and with the probability of all that lies beyond where it is
    censored. Noise is normal and equally wide everywhere. Without censored values this is the line of least squares.

    Args:
        x: what is predicted from.
        y: what was measured, or the limit that it lies beyond.
        beyond: 0 where y is known, 1 where it is at least that much, −1 where it is at most that much.
    """
    at, value, side = (np.asarray(each, dtype=float) for each in (x, y, beyond))
    if len(at) < 3 or float(at.std()) == 0:
        return None
    slope, start = np.polyfit(at, value, 1)
    # a spread of nothing has no logarithm
    spread = max(float((value - start - slope * at).std()), 1e-3)

    def _unlikely(numbers: np.ndarray) -> float:
        away = (value - numbers[0] - numbers[1] * at) / math.exp(numbers[2])
        known = -0.5 * away**2 - numbers[2]
        return -float(np.where(side == 0, known, scipy.special.log_ndtr(-side * away)).sum())

    found = scipy.optimize.minimize(
        _unlikely,
        np.array([start, slope, math.log(spread)]),
        method="Nelder-Mead",
        bounds=[(None, None), (None, None), (math.log(1e-3), None)],
        options={"xatol": 1e-8, "fatol": 1e-10, "maxiter": 10_000, "maxfev": 10_000},
    )
    return CensoredLine(float(found.x[0]), float(found.x[1]), math.exp(float(found.x[2])))
