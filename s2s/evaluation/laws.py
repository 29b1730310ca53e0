"""Scaling laws: fits of L = E + a N⁻ᵇ, a power law above a floor.

E is the loss that remains as the size N grows, b how fast the rest decreases (Hestness et al. 2017; Hoffmann et al.
2022, equation 2).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from jaxtyping import Float

from s2s.evaluation.differences import LEVEL, Difference
from s2s.evaluation.inference import RESAMPLES, Estimate

# Exponents to try, in steps of 1 %; outside this range, a few sizes cannot distinguish them from 0 or infinity.
_STEP = 0.01
_EXPONENTS = np.exp(np.arange(math.log(0.01), math.log(5.0), _STEP))
# Number of parameters: E, a and b.
_FREE = 3
_SEED = 12345
_ONE_SIGMA = (0.158655, 0.841345)


@dataclass(frozen=True)
class Saturating:
    """A fitted law L = E + a N⁻ᵇ."""

    floor: float  # E, at least 0, in the unit of the loss
    scale: float  # a, at least 0, for sizes in units of `middle`, their geometric mean
    exponent: float  # b
    middle: float
    error: float | None  # standard error of b; None with no more points than parameters
    freedom: int  # degrees of freedom of the error
    explained: float  # R² of the log mean losses of the sizes
    misfit: float | None  # p-value of the F-test for lack of fit; None without repeated seeds, or with three sizes
    determined: bool  # False if b is at an end of the tried range, so that the points do not determine it

    def at(self, size: float) -> float:
        """Return the predicted loss of a size."""
        return self.floor + self.scale * (size / self.middle) ** -self.exponent

    def estimate(self) -> Estimate:
        """Return b with its 95 % interval by Student's distribution."""
        if self.error is None:
            return Estimate(self.exponent, None, None)
        half = float(scipy.special.stdtrit(self.freedom, 1 - LEVEL / 2)) * self.error
        return Estimate(self.exponent, self.exponent - half, self.exponent + half)


def saturating(
    sizes: Float[np.ndarray, " points"], losses: Float[np.ndarray, " points"], resamples: int = RESAMPLES
) -> Saturating | None:
    """Fit L = E + a N⁻ᵇ by least squares of relative errors; None below three different sizes.

    Points of equal size are seeds. The error of b is half the span of the middle 68 % of a bootstrap of residuals
    (Efron 1979): relative residuals, scaled by √(n/(n − 3)) for the fitted parameters, are reassigned to the points.
    Resampling points would leave too few sizes for three parameters.
    """
    places, groups = np.unique(sizes, return_inverse=True)
    count = len(sizes)
    if len(places) < _FREE:
        return None
    middle = math.exp(np.log(sizes).mean())
    powers = (sizes[None] / middle) ** -_EXPONENTS[:, None]
    weights = losses**-2.0
    best = _exactly(float(_best(losses[None], weights, powers)[0]), sizes / middle, losses, weights)
    inside = _EXPONENTS[0] < best < _EXPONENTS[-1]
    power = (sizes / middle) ** -best
    floor, scale = (float(each[0, 0]) for each in _lines(losses[None], weights, power[None])[:2])
    law = floor + scale * power
    relative = (losses - law) / law
    error, freedom = None, count - _FREE
    if freedom > 0:
        generator = np.random.default_rng(_SEED)
        dealt = (relative - relative.mean()) * math.sqrt(count / freedom)
        drawn = law * (1 + generator.choice(dealt, (resamples, count)))
        again = np.quantile(_best(drawn, weights, powers), _ONE_SIGMA)
        error = float(again[1] - again[0]) / 2
    means = np.array([losses[groups == i].mean() for i in range(len(places))])
    fitted = np.array([law[groups == i][0] for i in range(len(places))])
    logs = np.log(means)
    spread = float(((logs - logs.mean()) ** 2).sum())
    explained = 1 - float(((logs - np.log(fitted)) ** 2).sum()) / spread if spread else 0.0
    seeds = np.bincount(groups)
    misfit = _lack_of_fit(losses / law, means / fitted, groups, seeds)
    return Saturating(floor, scale, best, middle, error, freedom, explained, misfit, inside and scale > 0)


def gains_more(first: Saturating, second: Saturating) -> Difference | None:
    """Return the difference of two exponents (Satterthwaite 1946); None without errors."""
    if first.error is None or second.error is None:
        return None
    variances = first.error**2, second.error**2
    total = sum(variances)
    parts = sum(one**2 / each.freedom for one, each in zip(variances, (first, second), strict=True))
    freedom = total**2 / parts if parts else first.freedom + second.freedom
    return Difference(second.exponent - first.exponent, math.sqrt(total), freedom)


def _best(
    losses: Float[np.ndarray, "curves points"],
    weights: Float[np.ndarray, " points"],
    powers: Float[np.ndarray, "exponents points"],
) -> Float[np.ndarray, " curves"]:
    """Return the exponent with the smallest error per curve, interpolated by a parabola between those tried."""
    missed = _lines(losses, weights, powers)[2]
    place = missed.argmin(axis=1)
    rows, last = np.arange(len(losses)), len(_EXPONENTS) - 1
    before, here, after = (missed[rows, np.clip(place + step, 0, last)] for step in (-1, 0, 1))
    bent = before - 2 * here + after
    inside = (bent > 0) & (place > 0) & (place < last)
    turn = np.where(inside, before - after, 0.0) / np.where(inside, 2 * bent, 1.0)
    return _EXPONENTS[place] * np.exp(turn * _STEP)


def _exactly(near: float, sizes: np.ndarray, losses: np.ndarray, weights: np.ndarray) -> float:
    """Refine the exponent with the smallest error; one at an end of the range stays."""
    if not _EXPONENTS[0] < near < _EXPONENTS[-1]:
        return near
    found: Any = scipy.optimize.minimize_scalar(
        lambda b: float(_lines(losses[None], weights, sizes[None] ** -b)[2][0, 0]),
        bounds=(near * math.exp(-2 * _STEP), near * math.exp(2 * _STEP)),
        method="bounded",
    )
    return float(found.x)


def _lines(
    losses: Float[np.ndarray, "curves points"],
    weights: Float[np.ndarray, " points"],
    powers: Float[np.ndarray, "exponents points"],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return E, a and the squared error (up to a constant) for each exponent; E and a are linear given b."""
    one, of_power, of_square = weights.sum(), powers @ weights, powers**2 @ weights
    of_loss = (losses @ weights)[:, None]
    joint = (losses * weights) @ powers.T
    scale = (one * joint - of_loss * of_power) / (one * of_square - of_power**2)
    floor = (of_loss - scale * of_power) / one
    # A negative parameter is set to 0, and the other one is fitted again.
    scale = np.where(floor < 0, joint / of_square, scale)
    floor = np.where(floor < 0, 0.0, floor)
    floor = np.where(scale < 0, of_loss / one, floor)
    scale = np.maximum(scale, 0.0)
    squares = floor**2 * one + 2 * floor * scale * of_power + scale**2 * of_square
    return floor, scale, squares - 2 * (floor * of_loss + scale * joint)


def _lack_of_fit(
    ratios: Float[np.ndarray, " points"], means: Float[np.ndarray, " sizes"], groups: np.ndarray, seeds: np.ndarray
) -> float | None:
    """Return the p-value of the F-test for lack of fit."""
    free = len(means) - _FREE, len(ratios) - len(means)
    if min(free) < 1:
        return None
    between = float((seeds * (means - 1) ** 2).sum()) / free[0]
    within = float(((ratios - means[groups]) ** 2).sum()) / free[1]
    return float(scipy.special.fdtrc(*free, between / within)) if within else 0.0
