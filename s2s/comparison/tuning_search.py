"""Search for the learning rate and the depth of a model: select the next trainings from the losses of earlier ones."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

RATES = (0.001, 0.002, 0.004, 0.008)
"""Initial grid of learning rates for every model."""
LOWEST, HIGHEST = RATES[0] / 8, RATES[-1] * 8
"""Limits of the grid, which is extended by factors of two."""
DEEPEST = 8
"""Maximum number of layers of encoder and decoder each."""

_PART = re.compile(r"(?P<whole>whole-)?(?:layers-(?P<layers>\d+)-)?rate-(?P<millionths>\d+)")
_MILLION = 1_000_000


@dataclass(frozen=True)
class TuningTrial:
    """A training of the search.

    Attributes:
        rate: Learning rate.
        layers: Number of layers of encoder and decoder each; None: the recipe's.
        whole: True for a training of full length, False for a short one.
    """

    rate: float
    layers: int | None = None
    whole: bool = False

    @property
    def part(self) -> str:
        """Part of the trial, which names its file."""
        layers = "" if self.layers is None else f"layers-{self.layers}-"
        return f"{'whole-' if self.whole else ''}{layers}rate-{round(_MILLION * self.rate)}"

    @classmethod
    def of(cls, part: str) -> "TuningTrial":
        """Parse the part of a trial."""
        found = _PART.fullmatch(part)
        if not found:
            raise ValueError(f"{part!r} is not a tuning trial")
        layers = found["layers"]
        return cls(int(found["millionths"]) / _MILLION, None if layers is None else int(layers), bool(found["whole"]))


Losses = Mapping[TuningTrial, float | None]
"""Validation loss of each trial; None if the training failed."""


def next_trials(
    depths: Sequence[int], losses: Losses, whole: int, rates: Sequence[float] | None = None
) -> list[TuningTrial]:
    """Select the next trials of a model.

    The first of these rules that yields trials applies:

    1. Short trainings: at the first depth with all `rates`, at the other depths with the best of these and its
       neighbours. If the best rate of a depth is at an end of its grid, the next rate beyond it is added.
    2. Short trainings of twice as many layers, and twice as many again while the deepest are the best.
    3. Full trainings of the `whole` best short trials, the best of each depth first. Short trainings favour few layers,
       so a depth that is worse than a deeper one in short trainings is skipped.
    4. Full trainings at half the best rate of each depth, while that is better, because short trainings favour high
       rates. A depth that is worse than another one both in short and in full trainings is skipped.
    5. If the best full training has the most layers so far: rules 1 and 3 for twice as many.

    Rules 2 to 5 apply only if `whole` is positive.

    Args:
        depths: Numbers of layers, the recipe's first; empty if the depth is fixed.
        losses: Losses of all trials so far.
        whole: Number of the best trials that are trained in full.
        rates: Rates to try first; None: `RATES`.

    Returns:
        The next trials; empty if the search is complete.
    """
    new = _usual(depths, losses, RATES if rates is None else rates)
    if new or not whole:
        return new
    return _deeper_shortly(depths, losses) or _full_trials(depths, losses, whole) or _deeper_than_best(depths, losses)


def _usual(depths: Sequence[int], losses: Losses, rates: Sequence[float]) -> list[TuningTrial]:
    for layers in depths or [None]:
        if new := _short_trials(layers, losses, rates):
            return new
        if layers in depths[:1]:
            rates = _near(_best_rate(short_ones(losses, layers)))
    return []


def _deeper_shortly(depths: Sequence[int], losses: Losses) -> list[TuningTrial]:
    for layers in deeper_than_usual(depths):
        if new := _short_trials(layers, losses, _near(_best_rate(short_ones(losses, layers // 2)))):
            return new
        if any(
            _least(short_ones(losses, n)) <= _least(short_ones(losses, layers))
            for n in _tried(depths, losses)
            if n and n < layers
        ):
            return []
    return []


def _full_trials(depths: Sequence[int], losses: Losses, whole: int) -> list[TuningTrial]:
    worth = _worth(depths, losses)
    left = {trial: loss for trial, loss in losses.items() if trial.layers in worth}
    short = sorted((trial for trial in left if not trial.whole), key=lambda trial: _order(losses[trial]))
    first = {trial.layers: trial for trial in reversed(short)}
    short.sort(key=lambda trial: first[trial.layers] is not trial)
    best = [replace(trial, whole=True) for trial in short[:whole] if losses[trial] is not None]
    new = [trial for trial in best if trial not in losses]
    return new or _trials_at_lower_rates(left)


def _worth(depths: Sequence[int], losses: Losses) -> list[int | None]:
    """Return the depths to train in full: those that are not worse than a deeper one, and the best so far.

    A depth at which all full trainings failed is ignored.
    """
    best = best_trial(losses)
    done = {n: at_depth(losses, n, whole=True).values() for n in _tried(depths, losses)}
    tried = [n for n, full in done.items() if not full or any(loss is not None for loss in full)]
    return [n for n in tried if not _is_behind(n, tried, losses) or (best and best.whole and best.layers == n)]


def _deeper_than_best(depths: Sequence[int], losses: Losses) -> list[TuningTrial]:
    best = best_trial(losses)
    layers = 2 * best.layers if best and best.whole and best.layers else 0
    if best is None or layers not in deeper_than_usual(depths):
        return []
    if new := _short_trials(layers, losses, _near(_best_rate(short_ones(losses, best.layers)))):
        return new
    tried = short_ones(losses, layers)
    first = TuningTrial(_best_rate(tried), layers, whole=True)
    return [first] if not at_depth(losses, layers, whole=True) and tried[first.rate] is not None else []


def _tried(depths: Sequence[int], losses: Losses) -> list[int | None]:
    return [*depths, *(layers for layers in deeper_than_usual(depths) if short_ones(losses, layers))] or [None]


def _is_behind(layers: int | None, depths: Sequence[int | None], losses: Losses) -> bool:
    return layers is not None and any(
        n > layers and _least(short_ones(losses, n)) < _least(short_ones(losses, layers)) for n in depths if n
    )


def _least(tried: Mapping[float, float | None]) -> float:
    return min(map(_order, tried.values()), default=math.inf)


def deeper_than_usual(depths: Sequence[int]) -> list[int]:
    """Return the numbers of layers that may be tried beyond `depths`, ascending."""
    found = []
    while depths and 2 * max([*depths, *found]) <= DEEPEST:
        found.append(2 * max([*depths, *found]))
    return found


def _short_trials(layers: int | None, losses: Losses, rates: Sequence[float]) -> list[TuningTrial]:
    """Return short trials of a depth at these rates, then beyond them while the best rate is at an end."""
    tried = short_ones(losses, layers)
    return [TuningTrial(r, layers) for r in [rate for rate in rates if rate not in tried] or _rates_beyond(tried)]


def _near(rate: float) -> list[float]:
    return [each for each in (rate / 2, rate, 2 * rate) if LOWEST <= each <= HIGHEST]


def _trials_at_lower_rates(losses: Losses) -> list[TuningTrial]:
    full = {n: at_depth(losses, n, whole=True) for n in dict.fromkeys(t.layers for t in losses if t.whole)}
    rates = {n: _best_rate(of) for n, of in full.items() if any(loss is not None for loss in of.values())}
    ends = {n: (_least(short_ones(losses, n)), _least(full[n])) for n in rates}
    ahead = [n for n in rates if not any(own[0] < ends[n][0] and own[1] < ends[n][1] for own in ends.values())]
    lower = [TuningTrial(rates[n] / 2, n, whole=True) for n in ahead]
    return [trial for trial in lower if trial.rate >= LOWEST and trial not in losses]


def best_trial(losses: Losses) -> TuningTrial | None:
    """Return the trial with the lowest loss, among full trainings if one succeeded; None if all failed."""
    for whole in (True, False):
        good = [trial for trial, loss in losses.items() if loss is not None and trial.whole == whole]
        if good:
            return min(good, key=lambda trial: _order(losses[trial]))
    return None


def inside(trial: TuningTrial, losses: Losses) -> bool:
    """Return True if the best rate of the trial's depth lies inside the rates that were tried."""
    tried, rates = short_ones(losses, trial.layers), [each.rate for each in losses if each.layers == trial.layers]
    return min(rates) < trial.rate < max(rates) and min(tried) < _best_rate(tried) < max(tried)


def grid() -> list[float]:
    """Return all learning rates of the grid search, in ascending order."""
    return [LOWEST * 2**n for n in range(round(math.log2(HIGHEST / LOWEST)) + 1)]


def from_the_middle(trial: TuningTrial) -> float:
    """Return a fictitious loss for which a middle rate and the fewest layers are the best."""
    return abs(math.log2(trial.rate / RATES[len(RATES) // 2])) + (trial.layers or 0) / 100


def short_ones(losses: Losses, layers: int | None) -> dict[float, float | None]:
    """Return the losses of the short trainings of a depth, by rate."""
    return at_depth(losses, layers, whole=False)


def at_depth(losses: Losses, layers: int | None, whole: bool) -> dict[float, float | None]:
    """Return the losses of the full or the short trainings of a depth, by rate."""
    return {trial.rate: loss for trial, loss in losses.items() if (trial.layers, trial.whole) == (layers, whole)}


def _order(loss: float | None) -> float:
    return math.inf if loss is None else loss


def _best_rate(tried: Mapping[float, float | None]) -> float:
    # If all trainings failed, the search continues from the lowest rate.
    return min(sorted(tried), key=lambda rate: _order(tried[rate]))


def _rates_beyond(tried: Mapping[float, float | None]) -> list[float]:
    best = _best_rate(tried)
    if best == min(tried) and best / 2 >= LOWEST:
        return [best / 2]
    if best == max(tried) and best * 2 <= HIGHEST:
        return [2 * best]
    return []
