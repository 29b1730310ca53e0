"""How a gradient's norm falls with distance, in a few numbers: curves over many texts, and a factor per step."""

import math
import warnings
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import stats

from s2s.evaluation.inference import Estimate, mean

# below, an exponential does not describe the curve
GOOD_FIT = 0.8


@dataclass(frozen=True)
class Decay:
    """How a gradient falls with distance, for one set of weights.

    Attributes:
        slopes: of a line through log ‖gradient‖ against distance, one for each text; None where fewer than three
            distances have a gradient.
        fit: R², the share of the mean logarithm's variance that the line explains.
        left: the norm at the largest distance over that at distance 1, the geometric mean over texts.
        reach: the largest distance with any gradient at all.
        span: the largest distance measured.
    """

    slopes: list[float | None]
    fit: float | None
    left: float | None
    reach: int
    span: int

    @property
    def slope(self) -> float | None:
        """The mean over texts: log of the factor per step."""
        there = [slope for slope in self.slopes if slope is not None]
        return sum(there) / len(there) if there else None


def decay(norms: Float[np.ndarray, "batch distance"], first: int) -> Decay:
    """Fits norms against distance, from distance 1 on: what the last input itself gets is not handed through time.

    Args:
        norms: of gradients; nought where nothing arrives.
        first: distance of the first column.
    """
    distances = np.arange(first, first + norms.shape[1])
    norms, distances = norms[:, distances >= 1], distances[distances >= 1]
    slopes = [_line(distances, row)[0] for row in norms]
    arrived: np.ndarray = np.any(norms > 0, axis=0)
    reach = int(distances[arrived].max()) if arrived.any() else 0
    whole: np.ndarray = np.all(norms > 0, axis=0)
    logs = np.log(norms[:, whole]).mean(axis=0)
    fit = _line(distances[whole], np.exp(logs))[1] if whole.any() else None
    ends = bool(whole[0] and whole[-1])
    left = float(np.exp(logs[-1] - logs[0])) if ends else 0.0 if len(whole) and not arrived[-1] else None
    return Decay(slopes, fit, left, reach, int(distances[-1]))


def _line(distances: np.ndarray, norms: np.ndarray) -> tuple[float | None, float | None]:
    there = norms > 0
    if there.sum() < 3:
        return None, None
    x, y = distances[there], np.log(norms[there])
    slope, intercept = np.polyfit(x, y, 1)
    spread = float(((y - y.mean()) ** 2).sum())
    explained = None if spread == 0 else 1 - float(((y - slope * x - intercept) ** 2).sum()) / spread
    return float(slope), explained


def factor(slopes: list[float]) -> Estimate:
    """The factor per step, exp(mean slope), with Student's interval over the slopes."""
    log = mean(slopes)
    ends = [None if end is None else math.exp(min(end, 700.0)) for end in (log.low, log.high)]
    return Estimate(math.exp(log.value), ends[0], ends[1])


def half_life(factor: float) -> float | None:
    """Steps until half is left; None where nothing is lost."""
    return math.log(0.5) / math.log(factor) if 0 < factor < 1 else None


def curve(norms: Float[np.ndarray, "batch distance"], first: int) -> dict[str, list[float | None]]:
    """The median over texts and the middle 95 % of them, by distance; values that are not numbers do not count."""
    with warnings.catch_warnings():
        # where no source is so long, there is nothing to take a median of
        warnings.simplefilter("ignore", RuntimeWarning)
        low, median, high = np.nanquantile(norms, [0.025, 0.5, 0.975], axis=0)
    found = {"median": median, "low": low, "high": high}
    distances: list[float | None] = [float(first + i) for i in range(norms.shape[1])]
    return {"distance": distances} | {n: [brief(value) for value in v.tolist()] for n, v in found.items()}


def brief(value: float) -> float | None:
    """Six digits: more would differ between processors; None where it is no finite number."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def rank_correlation(x: list[float], y: list[float]) -> tuple[float, float] | None:
    """Spearman's ρ and its p-value; exact up to seven pairs, where the usual approximation is poor.

    None where one side has the same value throughout.
    """
    if len(set(x)) < 2 or len(set(y)) < 2:
        return None

    def _rho(order: np.ndarray) -> float:
        return float(stats.spearmanr(order, y).statistic)  # type: ignore[attr-defined]

    if len(x) > 7:
        found = stats.spearmanr(x, y)
        return float(found.statistic), float(found.pvalue)  # type: ignore[attr-defined]
    found = stats.permutation_test((np.array(x),), _rho, permutation_type="pairings", n_resamples=5040)
    return float(found.statistic), float(found.pvalue)
