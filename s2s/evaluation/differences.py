"""Differences between systems over seeds and sentences: tests, intervals and equivalence.

A trained system is one draw of many, so two architectures are compared by their means over seeds, relative to the
spread of the seeds. Student's distribution accounts for their small number.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np
import scipy
from jaxtyping import Float, Shaped

from s2s.evaluation.inference import Counts, Draws, Estimate, holm

LEVEL = 0.05
"""Significance level."""
_POWER = 0.8


@dataclass(frozen=True)
class Difference:
    """A measured difference (second minus first) with its standard error."""

    value: float
    error: float  # standard error; 0 if nothing varied
    freedom: float  # degrees of freedom of Student's distribution
    least_p: float = 0.0  # smallest p-value that so few values allow without assumptions about their spread
    # p-value of another test, such as one of ranks or censored values; None: Student's t-test
    tested: float | None = None

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Return the confidence interval of level 1 − `level`."""
        half = float(scipy.special.stdtrit(self.freedom, 1 - level / 2)) * self.error if self.error else 0.0
        return self.value - half, self.value + half

    def estimate(self) -> Estimate:
        """Return the value with its 95 % interval."""
        return Estimate(self.value, *self.interval())

    def p(self) -> float:
        """Return the two-sided p-value."""
        if self.tested is not None:
            return self.tested
        if self.never_varied:
            return self.least_p if self.value else 1.0
        return float(2 * scipy.special.stdtr(self.freedom, -abs(self.value) / self.error))

    def equivalence_p(self, margin: float) -> float:
        """Return the p-value of two one-sided tests (Schuirmann 1987) that the difference is within the margin.

        Below 5 %, the 90 % interval lies within ±margin, and the systems are tied.
        """
        nearest = margin - abs(self.value)
        if self.never_varied:
            return self.least_p if nearest > 0 else 1.0
        return float(scipy.special.stdtr(self.freedom, -nearest / self.error))

    @property
    def never_varied(self) -> bool:
        """True if nothing varied except by rounding; then only the number of values limits the p-value."""
        # A tolerance, because equal values may differ by rounding.
        return self.error <= 1e-9 * abs(self.value)

    def detectable(self, level: float = LEVEL) -> float:
        """Return the smallest true difference that a test of this level detects in 80 % of cases."""
        limit = scipy.special.stdtrit(self.freedom, 1 - level / 2)
        return float(scipy.special.nctdtrinc(self.freedom, 1 - _POWER, limit)) * self.error


class Pairwise(dict[tuple[str, str], Difference]):
    """Differences by pair of names, second minus first; pairs without a test are missing.

    All p-values are Holm-corrected together, because the best of the others is chosen by the same measurements.
    """

    @classmethod
    def of(cls, names: Iterable[str], between: Callable[[str, str], Difference | None]) -> "Pairwise":
        """Compare all pairs of names, in their order."""
        found = {pair: between(*pair) for pair in combinations(names, 2)}
        return cls({pair: each for pair, each in found.items() if each})

    @cached_property
    def p(self) -> dict[tuple[str, str], float]:
        """Holm-corrected p-values."""
        return dict(zip(self, holm([each.p() for each in self.values()]), strict=True))

    @property
    def level(self) -> float:
        """The level that the smallest p-value must be below: `LEVEL` divided by the number of pairs."""
        return LEVEL / max(1, len(self))

    def compare(self, one: str, other: str) -> tuple[Difference | None, float | None]:
        """Return `one` minus `other` in whatever order, with the corrected p-value, or (None, None)."""
        if (other, one) in self:
            return self[other, one], self.p[other, one]
        turned = self.get((one, other))
        return (replace(turned, value=-turned.value), self.p[one, other]) if turned else (None, None)


def welch(first: Sequence[float], second: Sequence[float]) -> Difference | None:
    """Test the difference of two means over independent seeds by Welch's test (1947); None below two seeds."""
    one, two = (np.asarray(values, dtype=float) for values in (first, second))
    if min(len(one), len(two)) < 2:
        return None
    spreads = [float(_spread(values)) for values in (one, two)]
    value = float(two.mean() - one.mean())
    freedom = _freedom(spreads, [len(one) - 1, len(two) - 1])
    return Difference(value, math.sqrt(sum(spreads)), freedom, _least_p(len(one), len(two)))


def paired(first: Sequence[float], second: Sequence[float]) -> Difference | None:
    """Test a mean difference over pairs, such as seeds or rounds, by the paired t-test; None below two."""
    moved = np.subtract(second, first, dtype=float)
    if len(moved) < 2:
        return None
    # Without variation, the sign test remains: all signs agree.
    return Difference(float(moved.mean()), math.sqrt(_spread(moved)), len(moved) - 1, 2.0 ** (1 - len(moved)))


def trimmed(first: Sequence[float], second: Sequence[float], share: float = 0.2) -> Difference | None:
    """Test a difference over pairs by the trimmed t-test, which disturbed pairs change little; None below two.

    The mean leaves out the lowest and the highest differences, and its standard error is that of the winsorized ones
    (Yuen & Dixon 1973; Wilcox 2012, section 5.9.5): with eight pairs, one of each side.

    Args:
        first: Values of the first system.
        second: Values of the second system, in the same order.
        share: Share of the differences to leave out on each side.
    """
    moved = np.sort(np.subtract(second, first, dtype=float))
    count = len(moved)
    if count < 2:
        return None
    cut = int(share * count)
    left = moved[cut : count - cut]
    winsorized = np.clip(moved, left[0], left[-1])
    squares = float(((winsorized - winsorized.mean()) ** 2).sum())
    error = math.sqrt(squares / (len(left) * (len(left) - 1)))
    return Difference(float(left.mean()), error, len(left) - 1, 2.0 ** (1 - count))


def over_seeds_and_sentences(
    first: Sequence[Counts], second: Sequence[Counts], score: Callable[[np.ndarray], np.ndarray], drawn: Draws
) -> Difference | None:
    """Compare two systems' mean scores with uncertainty over seeds and sentences; None below two seeds.

    A hierarchical bootstrap: all runs translate the same sentences, so seeds and sentences are crossed. The variance
    over sentences comes from resamples in which every run keeps its place, that over seeds from the runs of a system.
    Both contain the noise of single runs on single sentences, which is therefore subtracted once (Owen 2007, "The
    pigeonhole bootstrap"): it is the additional spread of the runs in resamples.

    Args:
        first: For each seed of the first system, the counts of each sentence.
        second: The same for the second system; the number of seeds may differ.
        score: Function from summed counts, one row each, to scores.
        drawn: Resamples, see `s2s.evaluation.inference.draws`.
    """
    if min(len(first), len(second)) < 2:
        return None
    scores = [np.stack([score(counts.sum(axis=0)[None])[0] for counts in runs]) for runs in (first, second)]
    resampled = [np.stack([score(drawn @ counts) for counts in runs], axis=1) for runs in (first, second)]
    spreads = [float(_spread(values)) for values in scores]
    over_sentences = float((resampled[1].mean(axis=1) - resampled[0].mean(axis=1)).var(ddof=1))
    both = sum(float(_spread(values).mean()) for values in resampled)
    doubled = both - sum(spreads)
    total = max(sum(spreads) + over_sentences - doubled, sum(spreads), over_sentences)
    freedoms = [len(first) - 1, len(second) - 1, len(first[0]) - 1]
    value = float(scores[1].mean() - scores[0].mean())
    freedom = _freedom([*spreads, max(total - sum(spreads), 0.0)], freedoms)
    return Difference(value, math.sqrt(total), freedom, _least_p(len(first), len(second)))


def _least_p(first: int, second: int) -> float:
    """Return the share of all assignments of the runs that give this order, two-sided."""
    return 2 / math.comb(first + second, first)


def _spread(values: Shaped[np.ndarray, "... seeds"]) -> Float[np.ndarray, "..."]:
    """Return the variance of the mean."""
    return values.var(axis=-1, ddof=1) / values.shape[-1]


def _freedom(variances: Sequence[float], freedoms: Sequence[int]) -> float:
    """Return the degrees of freedom of a sum of variances (Satterthwaite 1946)."""
    total = sum(variances)
    if not total:
        return float(sum(freedoms))
    return total**2 / sum(one**2 / free for one, free in zip(variances, freedoms, strict=True))
