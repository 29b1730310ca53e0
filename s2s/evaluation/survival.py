"""When did it happen, where not everything was waited for? Curves, and a test, of censored values.

A task that was not solved when its budget was spent would have been solved later, or never: all that is known is that
it took longer. Such a value is *censored*; to leave it out, or to put the budget in its place, would flatter the slow.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from jaxtyping import Float

from s2s.evaluation.inference import Estimate

_EXACT = 20_000


@dataclass(frozen=True)
class Times:
    """How long each of some runs took.

    Attributes:
        ended: of those in which it happened.
        waited: of those in which it did not, until nobody waited any longer.
    """

    ended: Sequence[float]
    waited: Sequence[float] = ()

    def __len__(self) -> int:
        return len(self.ended) + len(self.waited)


@dataclass(frozen=True)
class Survival:
    """Share of runs in which it has not happened yet (Kaplan & Meier 1958).

    Attributes:
        times: at which it happened in some run, rising.
        left: the share right after each, with its 95 % interval: Greenwood's variance on a log-log scale.
    """

    times: list[float]
    left: list[Estimate]

    def median(self) -> Estimate:
        """The time by which it has happened in half of the runs; infinite where it has not, and so are its ends."""
        return Estimate(*(self._first(end) for end in ("value", "low", "high")))

    def steps(self, first: float) -> tuple[list[float], list[float]]:
        """Places and shares in percent of the curve as it is drawn, from `first` on: each share holds to the next."""
        x, y = [first], [100.0]
        for time, left in zip(self.times, self.left, strict=True):
            x, y = [*x, time, time], [*y, y[-1], 100 * left.value]
        return x, y

    def _first(self, end: str) -> float:
        shares = (getattr(each, end) for each in self.left)
        return next((t for t, share in zip(self.times, shares, strict=True) if share <= 0.5 + 1e-12), float("inf"))


def kaplan_meier(times: Times) -> Survival:
    """The survival curve of some runs; at least one must have ended."""
    curve: Any = scipy.stats.ecdf(_censored(times)).sf
    with np.errstate(all="ignore"), warnings.catch_warnings():
        # said below of where it is so: where none is left
        warnings.simplefilter("ignore", RuntimeWarning)
        bounds = curve.confidence_interval(method="log-log")
    happened = np.isin(curve.quantiles, times.ended)
    rows = np.stack([curve.probabilities, bounds.low.probabilities, bounds.high.probabilities], axis=1)[happened]
    # where none is left, the formula divides nothing by nothing
    left = [Estimate(share, *((0.0, share) if np.isnan(low) else (low, high))) for share, low, high in rows.tolist()]
    return Survival(curve.quantiles[happened].tolist(), left)


def log_rank_p(first: Times, second: Times) -> float:
    """How often two groups of runs would differ as much in their times, in either direction, if they were one group.

    The log-rank test (Mantel 1966), which compares how many ended with how many were expected to, time by time. Exact
    up to 20,000 ways to share the runs out among the groups (as a sum of log-rank scores, Peto & Peto 1972); beyond
    that the usual approximation by a normal distribution. 1 where nothing ended, or either group is a single run.
    """
    if min(len(first), len(second)) < 2 or not len(first.ended) + len(second.ended):
        return 1.0
    if scipy.special.comb(len(first) + len(second), len(first)) > _EXACT:
        return float(scipy.stats.logrank(_censored(first), _censored(second)).pvalue)
    scores = _scores(first, second)

    def _apart(one: np.ndarray, _: np.ndarray, axis: int) -> np.ndarray:
        return np.round(np.abs(one.sum(axis=axis)), 9)

    parts = (scores[: len(first)], scores[len(first) :])
    tested = scipy.stats.permutation_test(parts, _apart, vectorized=True, n_resamples=_EXACT, alternative="greater")
    return float(tested.pvalue)


def _censored(times: Times) -> Any:
    return scipy.stats.CensoredData(uncensored=list(times.ended), right=list(times.waited))


def _scores(first: Times, second: Times) -> Float[np.ndarray, " runs"]:
    """Of each run, whether it ended, less the risk of ending that it had outlived (Nelson–Aalen of all together)."""
    times = np.concatenate([first.ended, first.waited, second.ended, second.waited]).astype(float)
    ended = np.concatenate(
        [np.full(len(part), over) for t in (first, second) for part, over in ((t.ended, 1), (t.waited, 0))]
    )
    happened = np.unique(times[ended == 1])
    risks = [((times == t) & (ended == 1)).sum() / (times >= t).sum() for t in happened]
    return ended - np.array([sum(r for t, r in zip(happened, risks, strict=True) if t <= own) for own in times])
