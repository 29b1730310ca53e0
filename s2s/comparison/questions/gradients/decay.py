"""Decay of a gradient with distance: a factor per step for each set of weights, and its mean over sets."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from s2s.evaluation.inference import Estimate, mean

Outcome = Literal["vanishes", "explodes", "neither"]
Norms = Float[np.ndarray, "batch distance"]

# R² below which an exponential does not describe the curve
_GOOD_FIT = 0.8


@dataclass(frozen=True)
class Decay:
    """Decay of a gradient for one set of weights."""

    slopes: list[
        float | None
    ]  # of log ‖gradient‖ per step, by text; None with a gradient at fewer than three distances
    fit: float | None  # R² of a line through the mean logarithm
    left: float | None  # norm at the largest distance over that at distance 1, geometric mean over texts
    reach: int  # the largest distance with any gradient
    span: int  # the largest distance measured

    @property
    def known_slopes(self) -> list[float]:
        """Slopes that are known."""
        return [slope for slope in self.slopes if slope is not None]

    @property
    def slope(self) -> float | None:
        """Mean over texts: log of the factor per step."""
        return sum(self.known_slopes) / len(self.known_slopes) if self.known_slopes else None


def fit_decay(norms: Norms, first: int) -> Decay:
    """Fit a line to log norms against distance, from distance 1 on.

    Args:
        norms: Norms of gradients, by text and distance.
        first: Distance of the first column; distance 0, the last input, has no step.
    """
    distances = np.arange(first, first + norms.shape[1])
    norms, distances = norms[:, distances >= 1], distances[distances >= 1]
    slopes = [_line(distances, row)[0] for row in norms]
    arrived: np.ndarray = np.any(norms > 0, axis=0)
    reach = int(distances[arrived].max()) if arrived.any() else 0
    everywhere: np.ndarray = np.all(norms > 0, axis=0)
    logs = np.log(norms[:, everywhere]).mean(axis=0)
    fit = _line(distances[everywhere], np.exp(logs))[1] if everywhere.any() else None
    left = 0.0 if len(everywhere) and not arrived[-1] else None
    if everywhere[0] and everywhere[-1]:
        left = float(np.exp(logs[-1] - logs[0]))
    return Decay(slopes, fit, left, reach, int(distances[-1]))


def _line(distances: np.ndarray, norms: np.ndarray) -> tuple[float | None, float | None]:
    """Return slope and R² of a line through the logarithms of positive norms."""
    there = norms > 0
    if there.sum() < 3:
        return None, None
    x, y = distances[there], np.log(norms[there])
    slope, intercept = np.polyfit(x, y, 1)
    spread = float(((y - y.mean()) ** 2).sum())
    explained = None if spread == 0 else 1 - float(((y - slope * x - intercept) ** 2).sum()) / spread
    return float(slope), explained


def geometric_mean(logs: Sequence[float]) -> Estimate:
    """Return exp of the mean logarithm, with Student's interval."""
    log = mean(logs)
    ends = [None if end is None else math.exp(min(end, 700.0)) for end in (log.low, log.high)]
    return Estimate(math.exp(log.value), ends[0], ends[1])


@dataclass(frozen=True)
class Decays:
    """Decay of one kind of gradient over several sets of weights, at least one."""

    fits: Sequence[Decay]

    def __len__(self) -> int:
        return len(self.fits)

    @property
    def factor(self) -> Estimate | None:
        """Factor per step, with an interval over sets of weights, or over texts with one set."""
        slopes = [fit.slope for fit in self.fits if fit.slope is not None]
        if len(slopes) == 1:
            slopes = next(fit.known_slopes for fit in self.fits if fit.known_slopes)
        return geometric_mean(slopes) if slopes else None

    @property
    def r2(self) -> Estimate | None:
        """Mean R²."""
        values = [fit.fit for fit in self.fits if fit.fit is not None]
        return mean(values) if values else None

    @property
    def left(self) -> Estimate | None:
        """Geometric mean of the remaining share at the largest distance; 0 if any is 0."""
        values = [fit.left for fit in self.fits if fit.left is not None]
        if not values:
            return None
        return geometric_mean([math.log(value) for value in values]) if min(values) > 0 else Estimate(0.0, None, None)

    @property
    def reach(self) -> int:
        """The largest distance with any gradient."""
        return max(fit.reach for fit in self.fits)

    @property
    def span(self) -> int:
        """The largest distance measured."""
        return max(fit.span for fit in self.fits)

    @property
    def is_exponential(self) -> bool:
        """True if a factor per step describes all distances.

        The gradient reaches each of them, the line fits, and all steps together at least halve or double it.
        """
        if self.factor is None or self.r2 is None or self.reach < self.span:
            return False
        return self.r2.value >= _GOOD_FIT and abs(math.log(self.factor.value)) * (self.span - 1) >= math.log(2)

    @property
    def outcome(self) -> Outcome | None:
        """Outcome over distance: `vanishes`, `explodes` or `neither`; None with too few sets of weights."""
        factor = self.factor
        if self.reach < self.span:
            return "vanishes"
        if factor is None or self.r2 is None or factor.low is None or factor.high is None:
            return None
        if not self.is_exponential:
            return "neither"
        return "vanishes" if factor.high < 1 else "explodes" if factor.low > 1 else "neither"


def half_life(factor: float) -> float | None:
    """Return the steps in which the gradient halves; None if it does not shrink."""
    return math.log(0.5) / math.log(factor) if 0 < factor < 1 else None


@dataclass(frozen=True)
class Curve:
    """Norms by distance: the median over texts, and the middle 95 % of them."""

    distance: list[float]
    median: list[float | None]
    low: list[float | None]
    high: list[float | None]


def curve_of(norms: Norms, first: int) -> Curve:
    """Return the curve of norms without NaN values; `first` is the distance of the first column."""
    with warnings.catch_warnings():
        # all values are NaN at a distance that no source reaches
        warnings.simplefilter("ignore", RuntimeWarning)
        low, median, high = np.nanquantile(norms, [0.025, 0.5, 0.975], axis=0)
    distances = [float(first + i) for i in range(norms.shape[1])]
    return Curve(distances, *([brief(value) for value in values.tolist()] for values in (median, low, high)))


def brief(value: float | None) -> float | None:
    """Round to six digits, because more differ between processors; None for NaN and infinity."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")
