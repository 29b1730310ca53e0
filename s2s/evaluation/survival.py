"""Survival analysis: curves, tests and fits of censored values.

A task that was not solved within its budget takes longer, by an unknown amount: its time is *censored*. Leaving it out,
or counting it as the budget, would favour slow models.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import scipy
from jaxtyping import Float, Int

from s2s.evaluation.inference import Estimate

_EXACT = 20_000
# Least number of runs of which even all together cover their median in 95 % of the cases.
_LEAST = 6


@dataclass(frozen=True)
class Times:
    """Times of runs in which the event happened (`ended`), and of runs that stopped before it (`waited`)."""

    ended: Sequence[float]
    waited: Sequence[float] = ()

    def __len__(self) -> int:
        return len(self.ended) + len(self.waited)


@dataclass(frozen=True)
class Survival:
    """Survival curve: the share of runs without the event (Kaplan & Meier 1958) after each time.

    The 95 % intervals use Greenwood's variance on a log-log scale.
    """

    times: list[float]
    left: list[Estimate]
    runs: int

    def median(self) -> Estimate:
        """Return the time by which half of the runs have the event; infinite if they have not.

        It has no interval below six runs, for that would cover the median too rarely: for half of them with two runs.
        """

        def first(end: str) -> float:
            shares = (getattr(each, end) for each in self.left)
            return next((t for t, share in zip(self.times, shares, strict=True) if share <= 0.5 + 1e-12), float("inf"))

        if self.runs < _LEAST:
            return Estimate(first("value"), None, None)
        return Estimate(first("value"), first("low"), first("high"))

    def steps(self, first: float) -> tuple[list[float], list[float]]:
        """Return the step curve to draw from `first` on: times, and shares in percent."""
        x, y = [first], [100.0]
        for time, left in zip(self.times, self.left, strict=True):
            x, y = [*x, time, time], [*y, y[-1], 100 * left.value]
        return x, y


def kaplan_meier(times: Times) -> Survival:
    """Estimate the survival curve of runs, of which at least one had the event."""
    curve: Any = scipy.stats.ecdf(_censored(times)).sf
    with np.errstate(all="ignore"), warnings.catch_warnings():
        # The variance is undefined when no run is left; handled below.
        warnings.simplefilter("ignore", RuntimeWarning)
        bounds = curve.confidence_interval(method="log-log")
    happened = np.isin(curve.quantiles, times.ended)
    rows = np.stack([curve.probabilities, bounds.low.probabilities, bounds.high.probabilities], axis=1)[happened]
    # When no run is left, the formula gives NaN.
    left = [Estimate(share, *((0.0, share) if np.isnan(low) else (low, high))) for share, low, high in rows.tolist()]
    return Survival(curve.quantiles[happened].tolist(), left, len(times))


def median_within(times: Times, limit: float) -> Estimate:
    """Estimate the median of censored times, at most `limit` (Kaplan & Meier 1958).

    Args:
        times: Times of at least one run.
        limit: Largest time that could be measured.

    Returns:
        The median, the lower one of an even number; `limit` if more than half of the runs lie beyond it. Without an
        interval below six runs.

    Example:
        >>> median_within(Times([10.0, 20.0], [32.0]), limit=32.0)
        Estimate(value=20.0, low=None, high=None)
    """
    found = kaplan_meier(times) if times.ended else Survival([], [], len(times))
    median = found.median()
    low, high = (None if end is None else min(limit, end) for end in (median.low, median.high))
    return Estimate(min(limit, median.value), low, high)


def log_rank_p(first: Times, second: Times) -> float:
    """Return the two-sided p-value of the log-rank test (Mantel 1966).

    Exact for up to 20,000 ways to divide the runs into the groups (Peto & Peto 1972), else by the normal approximation;
    1 without events, or with a single run in a group.
    """
    if min(len(first), len(second)) < 2 or not len(first.ended) + len(second.ended):
        return 1.0
    if scipy.special.comb(len(first) + len(second), len(first)) > _EXACT:
        return float(scipy.stats.logrank(_censored(first), _censored(second)).pvalue)
    scores = _scores(first, second)
    sums = np.abs(scores[_divisions(len(scores), len(first))].sum(axis=1))
    return float(np.mean(np.round(sums, 9) >= np.round(sums[0], 9)))


@cache
def _divisions(runs: int, first: int) -> Int[np.ndarray, "ways first"]:
    """Return the runs of the first group in all ways to divide them, the measured one first."""
    return np.array(list(combinations(range(runs), first)))


def _censored(times: Times) -> Any:
    return scipy.stats.CensoredData(uncensored=list(times.ended), right=list(times.waited))


def _scores(first: Times, second: Times) -> Float[np.ndarray, " runs"]:
    """Return log-rank scores: event minus cumulative hazard (Nelson–Aalen of both groups)."""
    times = np.concatenate([first.ended, first.waited, second.ended, second.waited]).astype(float)
    ended = np.concatenate(
        [np.full(len(part), over) for t in (first, second) for part, over in ((t.ended, 1), (t.waited, 0))]
    )
    happened = np.unique(times[ended == 1])
    risks = [((times == t) & (ended == 1)).sum() / (times >= t).sum() for t in happened]
    return ended - np.array([sum(r for t, r in zip(happened, risks, strict=True) if t <= own) for own in times])


@dataclass(frozen=True)
class CensoredLine:
    """A fitted line y = a + b x with normal noise of standard deviation `spread`."""

    a: float
    b: float
    spread: float

    def at(self, x: float) -> float:
        """Return the prediction."""
        return self.a + self.b * x


def censored_line(x: Sequence[float], y: Sequence[float], beyond: Sequence[int]) -> CensoredLine | None:
    """Fit a line to censored values by maximum likelihood (Tobin 1958).

    Known values contribute their density, censored ones the probability beyond their limit. Without censored values
    this is the least-squares line.

    Args:
        x: Predictor.
        y: Measured values, or their limits.
        beyond: 0 for a known value, 1 if it is at least `y`, −1 if it is at most `y`.

    Returns:
        The line; None with fewer than three values, or if all x are equal.
    """
    at, value, side = (np.asarray(each, dtype=float) for each in (x, y, beyond))
    if len(at) < 3 or float(at.std()) == 0:
        return None
    slope, start = np.polyfit(at, value, 1)
    # The logarithm of 0 is undefined.
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
