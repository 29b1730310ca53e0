"""Intervals, fits and tests that experiments share (scipy)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval; the ends are None where too little was measured for one."""

    value: float
    low: float | None
    high: float | None


def mean(values: Sequence[float]) -> Estimate:
    """The mean over seeds, with Student's interval; none below two values."""
    array = np.asarray(values, dtype=float)
    centre = float(array.mean())
    if len(array) < 2:
        return Estimate(centre, None, None)
    half = float(stats.t.ppf(0.975, len(array) - 1) * array.std(ddof=1) / math.sqrt(len(array)))
    return Estimate(centre, centre - half, centre + half)


def exponent(x: Sequence[float], y: Sequence[float]) -> Estimate:
    """The b of y = a xᵇ: the slope of a line through the logarithms, with its interval from the residuals."""
    if max(y) == min(y):
        # of a level line scipy says that nothing is known of its slope
        return Estimate(0.0, 0.0, 0.0)
    line: Any = stats.linregress(np.log(x), np.log(y))
    if len(x) < 3:
        return Estimate(float(line.slope), None, None)
    half = float(stats.t.ppf(0.975, len(x) - 2) * line.stderr)
    return Estimate(float(line.slope), float(line.slope) - half, float(line.slope) + half)


def share(successes: int, trials: int) -> Estimate:
    """A success rate with Wilson's interval (Wilson 1927)."""
    found: Any = stats.binomtest(successes, trials).proportion_ci(0.95, method="wilson")
    return Estimate(successes / trials, float(found.low), float(found.high))


def paired_difference(first: Sequence[float], second: Sequence[float]) -> tuple[Estimate, float | None]:
    """The mean difference `second - first` over seeds that both had, and the p-value of a paired t-test.

    The p-value is None below three pairs: so few say nothing.
    """
    differences = [b - a for a, b in zip(first, second, strict=True)]
    estimate = mean(differences)
    if len(differences) < 3:
        return estimate, None
    if max(differences) == min(differences):
        return estimate, 1.0 if differences[0] == 0 else 0.0
    test: Any = stats.ttest_rel(second, first)
    return estimate, float(test.pvalue)
