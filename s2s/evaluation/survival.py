"""When did it happen, where not everything was waited for? Curves, a test and a line through censored values.

A task that was not solved when its budget was spent would have been solved later, or never: all that is known is that
it took longer. Such a value is *censored*; to leave it out, or to put the budget in its place, would flatter the slow.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import special

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

    def _first(self, end: str) -> float:
        shares = (getattr(each, end) for each in self.left)
        return next((t for t, share in zip(self.times, shares, strict=True) if share <= 0.5 + 1e-12), float("inf"))


def kaplan_meier(times: Times) -> Survival:
    """The survival curve of some runs; at least one must have ended."""
    from scipy import stats

    curve: Any = stats.ecdf(stats.CensoredData(uncensored=list(times.ended), right=list(times.waited))).sf
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
    from scipy import stats

    if min(len(first), len(second)) < 2 or not len(first.ended) + len(second.ended):
        return 1.0
    if special.comb(len(first) + len(second), len(first)) > _EXACT:
        groups: Any = [stats.CensoredData(uncensored=list(t.ended), right=list(t.waited)) for t in (first, second)]
        return float(stats.logrank(*groups).pvalue)
    scores = _scores(first, second)

    def _apart(one: np.ndarray, _: np.ndarray, axis: int) -> np.ndarray:
        return np.round(np.abs(one.sum(axis=axis)), 9)

    parts = (scores[: len(first)], scores[len(first) :])
    tested = stats.permutation_test(parts, _apart, vectorized=True, n_resamples=_EXACT, alternative="greater")
    return float(tested.pvalue)


def _scores(first: Times, second: Times) -> Float[np.ndarray, " runs"]:
    """Of each run, whether it ended, less the risk of ending that it had outlived (Nelson–Aalen of all together)."""
    times = np.concatenate([first.ended, first.waited, second.ended, second.waited]).astype(float)
    ended = np.concatenate(
        [np.full(len(part), over) for t in (first, second) for part, over in ((t.ended, 1), (t.waited, 0))]
    )
    happened = np.unique(times[ended == 1])
    risks = [((times == t) & (ended == 1)).sum() / (times >= t).sum() for t in happened]
    return ended - np.array([sum(r for t, r in zip(happened, risks, strict=True) if t <= own) for own in times])


@dataclass(frozen=True)
class Line:
    """y = start + slope · x, with normal errors.

    Attributes:
        start: y at x = 0.
        slope: with the interval of the likelihood-ratio test.
        spread: standard deviation of y around the line.
    """

    start: float
    slope: Estimate
    spread: float

    def at(self, x: float) -> float:
        """The expected y."""
        return self.start + self.slope.value * x


def censored_line(x: Sequence[float], y: Sequence[float], censored: Sequence[bool]) -> Line:
    """The likeliest line where some y are known only to be larger than what is given (Tobin 1958).

    Args:
        x: at least three different values among those whose y is known.
        y: what was measured, or where measuring ended.
        censored: whether it ended.
    """
    from scipy import optimize

    data = (np.asarray(x, dtype=float), np.asarray(y, dtype=float), np.asarray(censored, dtype=bool))
    start, slope, spread, best = _likeliest(data)

    def _beyond(candidate: float) -> float:
        """Twice by how much less likely the data are with this slope, less the 95th percentile of χ²."""
        return 2 * (best - _likeliest(data, candidate)[3]) - float(special.chdtri(1, 0.05))

    step = spread / max(float(np.std(data[0])) * np.sqrt(len(data[0])), 1e-12)
    ends = []
    for way in (-1.0, 1.0):
        far = step
        while _beyond(slope + way * far) < 0:
            far *= 2
        end: Any = optimize.brentq(_beyond, slope, slope + way * far)
        ends.append(float(end))
    return Line(start, Estimate(slope, min(ends), max(ends)), spread)


def slope_p(x: Sequence[float], y: Sequence[float], censored: Sequence[bool]) -> float:
    """How often y would seem to change as much with x, in either direction, if it did not: likelihood-ratio test."""
    data = (np.asarray(x, dtype=float), np.asarray(y, dtype=float), np.asarray(censored, dtype=bool))
    gained = _likeliest(data)[3] - _likeliest(data, 0.0)[3]
    return float(special.chdtrc(1, max(0.0, 2 * gained)))


def _likeliest(
    data: tuple[np.ndarray, np.ndarray, np.ndarray], slope: float | None = None
) -> tuple[float, float, float, float]:
    """Start, slope, spread and log-likelihood of the likeliest line, or of the likeliest one with that slope."""
    from scipy import optimize

    x, y, censored = data
    middle, scale = float(x.mean()), float(x.std())
    rest = y if slope is None else y - slope * x
    columns = np.stack([np.ones_like(x), (x - middle) / scale], axis=1)[:, : 2 if slope is None else 1]
    fitted, *_ = np.linalg.lstsq(columns, rest, rcond=None)
    spread = max(float((rest - columns @ fitted).std()), 1e-6)

    def _loss(free: np.ndarray) -> tuple[float, np.ndarray]:
        """Olsen's (1978) form, in which there is one maximum: all over the spread, and the spread's inverse."""
        inverse = np.exp(free[-1])
        away = inverse * rest - columns @ free[:-1]
        seen = ~censored
        loss = 0.5 * (away[seen] ** 2).sum() - seen.sum() * free[-1] - special.log_ndtr(-away[censored]).sum()
        # of the normal distribution's tail: density over what lies beyond, without dividing two tiny numbers
        hazard = np.exp(-0.5 * away**2 - 0.5 * np.log(2 * np.pi) - special.log_ndtr(-away))
        by_away = np.where(seen, away, hazard)
        return float(loss), np.append(-by_away @ columns, by_away @ (inverse * rest) - seen.sum())

    begin = np.append(fitted / spread, -np.log(spread))
    done = optimize.minimize(_loss, begin, jac=True, method="BFGS", options={"gtol": 1e-6})
    spread = float(np.exp(-done.x[-1]))
    found = slope if slope is not None else float(done.x[1] * spread / scale)
    start = float(done.x[0] * spread) - (0.0 if slope is not None else found * middle)
    likelihood = -float(done.fun) - 0.5 * np.log(2 * np.pi) * float((~censored).sum())
    return start, found, spread, likelihood
