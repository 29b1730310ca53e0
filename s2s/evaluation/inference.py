"""Statistical inference: confidence intervals, tests and fits for shares, means over seeds and sentences.

Sentences come as counts: rows of numbers whose sums give a corpus score, whatever the metric.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import scipy
from jaxtyping import Float, Int, Shaped

RESAMPLES = 1000
_SWAPS = 5000
# Variance of rounding: counts are integers, so a smaller residual is no better fit.
_ROUNDING = 1 / 12
_AT_ONCE = 2_000_000
# What fits into a processor's cache is counted fastest.
_DRAWN_AT_ONCE = 50_000
# Largest number of values for the exact test: 8! = 40,320 permutations.
_ALL_ORDERS = 8
# The default of sacreBLEU.
_SEED = 12345

Counts = Shaped[np.ndarray, "sentences counts"]
Draws = Int[np.ndarray, "resamples sentences"]
Law = Literal["constant", "logarithmic", "linear", "power"]


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % confidence interval; the ends are None if there are too few measurements."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Share(Estimate):
    """A share of successes, in percent by default; its interval always has ends."""

    low: float
    high: float


def wilson(successes: int, trials: int, whole: float = 100.0) -> Share:
    """Compute a share with its Wilson score interval (Wilson 1927), which stays within 0 to 100 %.

    For a share p of n trials and the normal quantile z of 97.5 %, the interval is centred at (p + z²/2n) / (1 + z²/n)
    and extends z·√(p(1 − p)/n + z²/4n²) / (1 + z²/n) to both sides. `whole` is 100 for percent; without trials, the
    interval is 0 to `whole`.
    """
    if not trials:
        return Share(0.0, 0.0, whole)
    z = float(scipy.special.ndtri(0.975))
    share, scale = successes / trials, 1 + z * z / trials
    centre = (share + z * z / (2 * trials)) / scale
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials)) / scale
    # At the ends, rounding could exclude the share from its interval.
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == trials else centre + half
    return Share(whole * share, whole * low, whole * high)


def mean(values: Sequence[float]) -> Estimate:
    """Compute a mean over seeds with Student's 95 % interval, which needs two values."""
    array = np.asarray(values, dtype=float)
    centre = float(array.mean())
    if len(array) < 2:
        return Estimate(centre, None, None)
    half = float(scipy.special.stdtrit(len(array) - 1, 0.975) * array.std(ddof=1) / math.sqrt(len(array)))
    return Estimate(centre, centre - half, centre + half)


def median(values: Sequence[float], level: float = 0.95) -> Estimate:
    """Compute a median with its confidence interval from order statistics, which few disturbed values do not change.

    The interval from the d-th smallest to the d-th largest of n values covers the median with probability
    1 − 2 P(B < d), where B is binomial with n trials of 1/2, whatever the distribution. Between the two intervals
    whose coverage is nearest to `level`, the ends are interpolated (Hettmansperger & Sheather 1986).

    Args:
        values: At least one value.
        level: Coverage.

    Returns:
        The median; without an interval if even that from the smallest to the largest value covers it less often, as
        with fewer than six values at 95 %.

    Example:
        >>> median([4.0, 1.0, 3.0, 2.0, 5.0, 6.0], level=0.96875)
        Estimate(value=3.5, low=1.0, high=6.0)
    """
    x = np.sort(np.asarray(values, dtype=float))
    count, centre = len(x), float(np.median(x))
    covered = [1 - 2 * float(scipy.special.bdtr(d - 1, count, 0.5)) for d in range(1, (count + 1) // 2 + 1)]
    depth = sum(each >= level for each in covered)
    if not depth:
        return Estimate(centre, None, None)
    nearer = covered[depth] if depth < len(covered) else 0.0
    share = (covered[depth - 1] - level) / (covered[depth - 1] - nearer)
    weight = (count - depth) * share / (depth + (count - 2 * depth) * share)
    low, high = (float((1 - weight) * each[depth - 1] + weight * each[depth]) for each in (x, x[::-1]))
    return Estimate(centre, low, high)


def coin(heads: int, tosses: int) -> float:
    """Return the two-sided p-value of the exact binomial test of a fair coin."""
    # Twice the smaller tail; above 1 if both tails are equal.
    return min(1.0, 2 * float(scipy.special.bdtr(min(heads, tosses - heads), tosses, 0.5))) if tosses else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for multiple comparisons by the step-down method of Holm (1979).

    The probability of at least one false rejection among all tests is then at most the level of a single test.

    Args:
        p_values: One p-value for each test, in [0, 1].

    Returns:
        The adjusted p-values, in the same order.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    steps = np.array(p_values)[order] * np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return adjusted.tolist()


def paired_p(first: Counts, second: Counts, score: Callable[[np.ndarray], np.ndarray], swaps: int = _SWAPS) -> float:
    """Compute the p-value of paired approximate randomization (Noreen 1989; Riezler & Maxwell 2005).

    Sentence by sentence, a coin decides whether the systems swap their outputs. The p-value is the share of such swaps
    with a difference at least as large, in either direction; the smallest possible is 1 / (swaps + 1).
    """
    sums, moved = (first.sum(axis=0), second.sum(axis=0)), second - first
    generator = np.random.default_rng(_SEED)
    # A tolerance, because equal differences may differ by rounding.
    wanted = abs(float(np.subtract(*score(np.stack(sums))))) - 1e-9
    found, block = 1, max(1, _AT_ONCE // len(first))
    for start in range(0, swaps, block):
        size = (min(block, swaps - start), len(first))
        shift = (generator.integers(0, 2, size, dtype=np.int8).astype(float) @ moved).astype(moved.dtype)
        # Negated, so that NaN, as of a broken model, is no significant difference.
        found += int((~(np.abs(score(sums[1] - shift) - score(sums[0] + shift)) < wanted)).sum())
    return found / (swaps + 1)


def trend_p(rounds: Sequence[int], values: Sequence[float]) -> float:
    """Compute the p-value of a trend of values over rounds, by a permutation test.

    The test statistic is the correlation with the logarithm of the number of rounds since the first, because what
    settles changes most at first. It is exact up to eight values; beyond, Student's distribution is used. For times,
    give logarithms. Below three values, and if all are equal, the p-value is 1.
    """
    if len(values) < 3 or min(values) == max(values):
        return 1.0
    x, y = np.log(np.subtract(rounds, rounds[0]) + 1.0), np.asarray(values, dtype=float)
    if len(y) > _ALL_ORDERS:
        return float(scipy.stats.pearsonr(x, y).pvalue)
    x, y = x - x.mean(), y - y.mean()
    # A tolerance, because equal sums may differ by rounding.
    return float(np.mean(np.abs(x[_orders(len(y))] @ y) >= abs(x @ y) - 1e-12))


@cache
def _orders(count: int) -> Int[np.ndarray, "orders count"]:
    return np.array(list(itertools.permutations(range(count))), dtype=np.int8)


def drawn_rows(sentences: int, stream: int = 0) -> Iterator[Int[np.ndarray, " sentences"]]:
    """Yield, per resample, how often each sentence is drawn with replacement (Koehn 2004); always the same.

    Stream 0 draws as sacreBLEU does; give other streams to unrelated sentences.
    """
    for block in _drawn_blocks(sentences, stream):
        yield from block


def _drawn_blocks(sentences: int, stream: int) -> Iterator[Draws]:
    """Yield `drawn_rows`, many at once: the generator gives the same numbers in one call as in many."""
    generator = np.random.default_rng([_SEED, stream] if stream else _SEED)
    block = max(1, _DRAWN_AT_ONCE // max(1, sentences))
    for start in range(0, RESAMPLES, block):
        rows = min(block, RESAMPLES - start)
        chosen = generator.choice(sentences, size=(rows, sentences), replace=True)
        # Each row counts in a range of its own.
        chosen += sentences * np.arange(rows)[:, None]
        yield np.bincount(chosen.ravel(), minlength=rows * sentences).reshape(rows, sentences)


def draws(sentences: int, stream: int = 0) -> Draws:
    """Return all of `drawn_rows`; use the same draws for two systems to pair their differences."""
    return np.concatenate(list(_drawn_blocks(sentences, stream)))


def estimate(value: float, resampled: Shaped[np.ndarray, " resamples"]) -> Estimate:
    """Return a value with the 2.5th and 97.5th percentile of its resamples."""
    low, high = np.quantile(resampled, [0.025, 0.975])
    return Estimate(value, float(low), float(high))


def ratios(
    parts: Shaped[np.ndarray, " sentences"], wholes: Shaped[np.ndarray, " sentences"], drawn: Draws
) -> np.ndarray:
    """Return the ratio of two sums in each resample, such as the loss per token."""
    return (drawn @ parts) / (drawn @ wholes)


def slopes(x: Float[np.ndarray, " sentences"], y: Float[np.ndarray, " sentences"], drawn: Draws) -> np.ndarray:
    """Return the least-squares slope of each resample; 0 where all x are equal."""
    # Centered before multiplication, to avoid cancellation of large numbers.
    x, y, total = x - x.mean(), y - y.mean(), drawn.sum(axis=1)
    mean_x, mean_y = (drawn @ x) / total, (drawn @ y) / total
    spread = (drawn @ x**2) / total - mean_x**2
    joint = (drawn @ (x * y)) / total - mean_x * mean_y
    flat = spread <= 1e-12
    return np.where(flat, 0.0, joint / np.where(flat, 1.0, spread))


def exponent(x: Sequence[float], y: Sequence[float]) -> Estimate:
    """Fit the exponent b of y = a xᵇ on logarithms, with an interval from the residuals."""
    if max(y) == min(y):
        # For a constant line, scipy returns NaN.
        return Estimate(0.0, 0.0, 0.0)
    line: Any = scipy.stats.linregress(np.log(x), np.log(y))
    if len(x) < 3:
        return Estimate(float(line.slope), None, None)
    half = float(scipy.stats.t.ppf(0.975, len(x) - 2) * line.stderr)
    return Estimate(float(line.slope), float(line.slope) - half, float(line.slope) + half)


@dataclass(frozen=True)
class Growth:
    """A growth law fitted to counts."""

    law: Law  # `constant`: a; `logarithmic`: a + b log₂ n; `linear`: a + b n; `power`: a nᵇ
    start: float  # a
    rate: float  # b: by how much the count grows with each doubling, with each token; or the exponent

    def __str__(self) -> str:
        return {
            "constant": "does not grow with n",
            "logarithmic": f"grows with log n: by {self.rate:.3g} with each doubling",
            "linear": f"grows as n: by {self.rate:.3g} with each token",
            "power": f"grows as n^{self.rate:.2f}",
        }[self.law]


def growth(lengths: Sequence[int], counts: Sequence[float]) -> Growth:
    """Select the growth law with the lowest Akaike information criterion (Akaike 1974).

    Needs at least three rising lengths and positive counts. Counts that do not rise from the smallest to the largest
    length are constant.
    """
    n, y = np.asarray(lengths, dtype=float), np.asarray(counts, dtype=float)
    constant = Growth("constant", float(y.mean()), 0.0)
    if y[-1] <= y[0]:
        return constant
    scale, rate = np.exp(np.polyfit(np.log(n), np.log(y), 1)[1]), np.polyfit(np.log(n), np.log(y), 1)[0]
    linear, logarithmic = np.polyfit(n, y, 1), np.polyfit(np.log2(n), y, 1)
    laws: list[tuple[Growth, np.ndarray, int]] = [
        (constant, np.full_like(y, y.mean()), 1),
        (Growth("logarithmic", float(logarithmic[1]), float(logarithmic[0])), np.polyval(logarithmic, np.log2(n)), 2),
        (Growth("linear", float(linear[1]), float(linear[0])), np.polyval(linear, n), 2),
        (Growth("power", float(scale), float(rate)), scale * n**rate, 2),
    ]

    def _criterion(fitted: np.ndarray, free: int) -> float:
        return len(y) * math.log(max(float(((y - fitted) ** 2).mean()), _ROUNDING)) + 2 * free

    return min(laws, key=lambda law: _criterion(law[1], law[2]))[0]


@dataclass(frozen=True)
class Slope:
    """The exponent of y = a xᵇ, fitted on logarithms from x = `first` to `last`."""

    first: float
    last: float
    exponent: float
    r2: float  # share of the variance of log y that the line explains; 1 for a level line without residuals
    residual: float  # largest relative distance of a point from the line
    local: float  # slope between the last two points


def long_slope(lengths: Sequence[float], values: Sequence[float], start: float | None = None) -> Slope | None:
    """Fit the exponent over lengths from `start` on, or over the longer half; None below three.

    It has no interval, because the residuals of a curve are not random.
    """
    first = len(lengths) // 2 if start is None else sum(n < start for n in lengths)
    first = min(first, len(lengths) - 3)
    if first < 0:
        return None
    x, y = (np.log(np.asarray(each[first:], dtype=float)) for each in (lengths, values))
    slope, height = np.polyfit(x, y, 1)
    missed = y - (height + slope * x)
    spread = float(((y - y.mean()) ** 2).sum())
    r2 = 1 - float((missed**2).sum()) / spread if spread > 1e-18 else 1.0
    local = float((y[-1] - y[-2]) / (x[-1] - x[-2]))
    return Slope(lengths[first], lengths[-1], float(slope), r2, math.expm1(float(np.abs(missed).max())), local)
