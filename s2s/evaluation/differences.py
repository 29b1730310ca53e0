"""Is one system better than another, as good, or can nobody tell? Differences over seeds, and over seeds and sentences.

A trained system is one draw of many: what seeds say of two architectures is the distance of two means against how far
the seeds of each lie apart. Student's distribution makes good that there are few of them.
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
"""Below it, what is seen is called more than chance."""
_POWER = 0.8


@dataclass(frozen=True)
class Difference:
    """A measured difference and how sure it is.

    Attributes:
        value: second minus first.
        error: its standard error; 0 where nothing was seen to vary.
        freedom: degrees of freedom of Student's distribution that its errors have.
        least_p: the smallest p-value that so few values can give without any assumption about their spread.
        tested: the p-value of a test of its own, such as one of ranks or of censored values; None: Student's.
    """

    value: float
    error: float
    freedom: float
    least_p: float = 0.0
    tested: float | None = None

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """The ends of the interval that misses the true difference in a share of `level` of the cases."""
        half = float(scipy.special.stdtrit(self.freedom, 1 - level / 2)) * self.error if self.error else 0.0
        return self.value - half, self.value + half

    def estimate(self) -> Estimate:
        """The value with its 95 % interval."""
        return Estimate(self.value, *self.interval())

    def p(self) -> float:
        """How often there would be as large a difference, in either direction, if there were none (two-sided)."""
        if self.tested is not None:
            return self.tested
        if self.never_varied:
            return self.least_p if self.value else 1.0
        return float(2 * scipy.special.stdtr(self.freedom, -abs(self.value) / self.error))

    def equivalence_p(self, margin: float) -> float:
        """How often so small a difference would be seen if the true one were as large as the margin.

        Two one-sided tests (Schuirmann 1987): the larger of the p-values of "no further below than −margin" and "no
        further above than +margin". Below 5 %, the 90 % interval lies within the margins, and the two are a tie.
        """
        nearest = margin - abs(self.value)
        if self.never_varied:
            return self.least_p if nearest > 0 else 1.0
        return float(scipy.special.stdtr(self.freedom, -nearest / self.error))

    @property
    def never_varied(self) -> bool:
        """Whether nothing but rounding was seen to vary: then the number of values alone says how sure it is."""
        # what rounding makes of equal values is equal
        return self.error <= 1e-9 * abs(self.value)

    def detectable(self, level: float = LEVEL) -> float:
        """The smallest true difference that a test with this error would find in 80 % of the cases, in its own unit.

        That a test may err in sign is left out.
        """
        limit = scipy.special.stdtrit(self.freedom, 1 - level / 2)
        return float(scipy.special.nctdtrinc(self.freedom, 1 - _POWER, limit)) * self.error


class Pairwise(dict[tuple[str, str], Difference]):
    """By the names of two systems, how much more the second has than the first; pairs without a test are missing.

    All p-values are corrected together (Holm 1979): who is compared with the best of the others is compared with a
    system that was chosen by what was measured.
    """

    @classmethod
    def of(cls, names: Iterable[str], between: Callable[[str, str], Difference | None]) -> "Pairwise":
        """All pairs of these names, in their order, between which there is a difference to be told."""
        found = {pair: between(*pair) for pair in combinations(names, 2)}
        return cls({pair: each for pair, each in found.items() if each})

    @cached_property
    def p(self) -> dict[tuple[str, str], float]:
        """The corrected p-values."""
        return dict(zip(self, holm([each.p() for each in self.values()]), strict=True))

    @property
    def level(self) -> float:
        """What the smallest of the p-values must be below: `LEVEL` shared out among them."""
        return LEVEL / max(1, len(self))

    def beside(self, one: str, other: str) -> tuple[Difference | None, float | None]:
        """How much more the one has than the other, whatever their order, and the corrected p-value; None likewise."""
        if (other, one) in self:
            return self[other, one], self.p[other, one]
        turned = self.get((one, other))
        return (replace(turned, value=-turned.value), self.p[one, other]) if turned else (None, None)


def welch(first: Sequence[float], second: Sequence[float]) -> Difference | None:
    """The difference of two means over seeds that have nothing to do with each other; None below two of either.

    Welch's test (1947): the two may vary differently, and be of different numbers.
    """
    one, two = (np.asarray(values, dtype=float) for values in (first, second))
    if min(len(one), len(two)) < 2:
        return None
    spreads = [float(_spread(values)) for values in (one, two)]
    value = float(two.mean() - one.mean())
    freedom = _freedom(spreads, [len(one) - 1, len(two) - 1])
    return Difference(value, math.sqrt(sum(spreads)), freedom, _least_p(len(one), len(two)))


def paired(first: Sequence[float], second: Sequence[float]) -> Difference | None:
    """The mean difference over what both had, such as seeds or rounds: the paired t-test; None below two pairs."""
    moved = np.subtract(second, first, dtype=float)
    if len(moved) < 2:
        return None
    # where nothing varies, what is left is that all signs agree
    return Difference(float(moved.mean()), math.sqrt(_spread(moved)), len(moved) - 1, 2.0 ** (1 - len(moved)))


def over_seeds_and_sentences(
    first: Sequence[Counts], second: Sequence[Counts], score: Callable[[np.ndarray], np.ndarray], drawn: Draws
) -> Difference | None:
    """The difference of two systems' mean scores, in doubt about seeds and about sentences; None below two seeds.

    A hierarchical bootstrap: all runs translate the same sentences, and seeds and sentences are crossed. The variance
    over sentences is that of resamples in which every run keeps its place; that over seeds is what runs of one system
    differ by. Both hold the noise of single runs on single sentences, which is therefore taken away once (Owen 2007,
    "The pigeonhole bootstrap", shows that resampling both at the same time counts it three times): it is by how much
    more runs differ in resamples than on the test set as it is.

    Args:
        first: what the score counts in each sentence, for each seed of the first system.
        second: for each seed of the second, in the same sentences; as many seeds or not.
        score: of sums of counts, row by row.
        drawn: how often each sentence is drawn, resample by resample, see `s2s.evaluation.inference.draws`.
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
    """Where nothing varies, what is left is that one of all ways to share out the runs gives this order."""
    return 2 / math.comb(first + second, first)


def _spread(values: Shaped[np.ndarray, "... seeds"]) -> Float[np.ndarray, "..."]:
    """The variance of a mean."""
    return values.var(axis=-1, ddof=1) / values.shape[-1]


def _freedom(variances: Sequence[float], freedoms: Sequence[int]) -> float:
    """The degrees of freedom of a sum of variances (Satterthwaite 1946)."""
    total = sum(variances)
    if not total:
        return float(sum(freedoms))
    return total**2 / sum(one**2 / free for one, free in zip(variances, freedoms, strict=True))
