"""Grid search for the learning rate and the depth of a model: selects the next short trainings from earlier losses."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

# What every model is tried at first. Where the lowest or the highest of its rates is the best, half or twice of it is
# tried, too, as far as these limits.
RATES = (0.001, 0.002, 0.004, 0.008)
LOWEST, HIGHEST = RATES[0] / 8, RATES[-1] * 8
DEEPEST = 8
"""The most layers on each side that a model is tried with."""

_PART = re.compile(r"(?P<whole>whole-)?(?:layers-(?P<layers>\d+)-)?rate-(?P<millionths>\d+)")
_MILLION = 1_000_000


@dataclass(frozen=True)
class TuningTrial:
    """A training that helps to choose."""

    rate: float
    layers: int | None = None  # of encoder and decoder each; None: the recipe's
    whole: bool = False  # as long as the recipe says, not a share of it

    @property
    def part(self) -> str:
        """Name of its cell's part."""
        layers = "" if self.layers is None else f"layers-{self.layers}-"
        return f"{'whole-' if self.whole else ''}{layers}rate-{round(_MILLION * self.rate)}"

    @classmethod
    def of(cls, part: str) -> "TuningTrial":
        """The trial of a cell's part."""
        found = _PART.fullmatch(part)
        if not found:
            raise ValueError(f"{part!r} is no trial")
        layers = found["layers"]
        return cls(int(found["millionths"]) / _MILLION, None if layers is None else int(layers), bool(found["whole"]))


# validation loss by trial; None where training failed
Losses = Mapping[TuningTrial, float | None]


def next_trials(
    depths: Sequence[int], losses: Losses, whole: int, rates: Sequence[float] | None = None
) -> list[TuningTrial]:
    """Select the next trials; none when the best rate of each depth is inside its grid, or at a limit.

    At the first depth all `rates` are tried; at the others the best of the first and its neighbours. Where models are
    trained in full, twice as many layers are tried shortly, too, with the best rate of the depth before and its
    neighbours, and twice as many again while the deepest are the best. Then the best of each depth are trained as long
    as the recipe says, for a short training favours the shallow; and then the best of the others. Depths that are
    behind a deeper one even so are left at that. A short training favours high rates, too: at each depth the best of
    these is trained in full at half its rate, and so on while that is better, but for depths that are behind another
    one both shortly and in full. Where the best in full has as many layers as any that were tried, twice as many are
    tried in the same way.

    Args:
        depths: numbers of layers, the recipe's first; empty where depth is not to be chosen.
        losses: of all trials so far.
        whole: how many are trained in full.
        rates: what is tried first; None: `RATES`.
    """
    new = _usual(depths, losses, RATES if rates is None else rates)
    if new or not whole:
        return new
    return _deeper_shortly(depths, losses) or _in_full(depths, losses, whole) or _deeper_than_best(depths, losses)


def _usual(depths: Sequence[int], losses: Losses, rates: Sequence[float]) -> list[TuningTrial]:
    for layers in depths or [None]:
        if new := _around(layers, losses, rates):
            return new
        if layers in depths[:1]:
            rates = _near(_best_rate(short_ones(losses, layers)))
    return []


def _deeper_shortly(depths: Sequence[int], losses: Losses) -> list[TuningTrial]:
    """Short trials of more layers: a depth that is behind them needs no whole training."""
    for layers in beyond_usual(depths):
        if new := _around(layers, losses, _near(_best_rate(short_ones(losses, layers // 2)))):
            return new
        if any(_best(losses, n) <= _best(losses, layers) for n in _tried(depths, losses) if n and n < layers):
            return []
    return []


def _in_full(depths: Sequence[int], losses: Losses, whole: int) -> list[TuningTrial]:
    worth = _worth(depths, losses)
    left = {trial: loss for trial, loss in losses.items() if trial.layers in worth}
    short = sorted((trial for trial in left if not trial.whole), key=lambda trial: _order(losses[trial]))
    first = {trial.layers: trial for trial in reversed(short)}
    short.sort(key=lambda trial: first[trial.layers] is not trial)
    best = [replace(trial, whole=True) for trial in short[:whole] if losses[trial] is not None]
    new = [trial for trial in best if trial not in losses]
    return new or _below(left)


def _worth(depths: Sequence[int], losses: Losses) -> list[int | None]:
    """The depths that whole trainings are for.

    None that is behind a deeper one even in short trainings, which favour the shallow; but for the best so far. A
    depth at which all whole trainings failed is out, and none is behind it.
    """
    best = best_trial(losses)
    done = {n: at_depth(losses, n, whole=True).values() for n in _tried(depths, losses)}
    tried = [n for n, full in done.items() if not full or any(loss is not None for loss in full)]
    return [n for n in tried if not _behind(n, tried, losses) or (best and best.whole and best.layers == n)]


def _deeper_than_best(depths: Sequence[int], losses: Losses) -> list[TuningTrial]:
    """Trials of twice as many layers as the best whole training has."""
    best = best_trial(losses)
    layers = 2 * best.layers if best and best.whole and best.layers else 0
    if best is None or layers not in beyond_usual(depths):
        return []
    if new := _around(layers, losses, _near(_best_rate(short_ones(losses, best.layers)))):
        return new
    tried = short_ones(losses, layers)
    first = TuningTrial(_best_rate(tried), layers, whole=True)
    return [first] if not at_depth(losses, layers, whole=True) and tried[first.rate] is not None else []


def _tried(depths: Sequence[int], losses: Losses) -> list[int | None]:
    return [*depths, *(layers for layers in beyond_usual(depths) if short_ones(losses, layers))] or [None]


def _behind(layers: int | None, depths: Sequence[int | None], losses: Losses) -> bool:
    return layers is not None and any(n > layers and _best(losses, n) < _best(losses, layers) for n in depths if n)


def _best(losses: Losses, layers: int) -> float:
    return _least(short_ones(losses, layers))


def _least(tried: Mapping[float, float | None]) -> float:
    return min(map(_order, tried.values()), default=math.inf)


def beyond_usual(depths: Sequence[int]) -> list[int]:
    """The numbers of layers that may be tried beyond the usual ones, rising."""
    found = []
    while depths and 2 * max([*depths, *found]) <= DEEPEST:
        found.append(2 * max([*depths, *found]))
    return found


def _around(layers: int | None, losses: Losses, rates: Sequence[float]) -> list[TuningTrial]:
    """Short trials of a depth at these rates, and then beyond them while the best is at an end."""
    tried = short_ones(losses, layers)
    return [TuningTrial(r, layers) for r in [rate for rate in rates if rate not in tried] or _beyond(tried)]


def _near(rate: float) -> list[float]:
    return [each for each in (rate / 2, rate, 2 * rate) if LOWEST <= each <= HIGHEST]


def _below(losses: Losses) -> list[TuningTrial]:
    """The best whole training of each depth once more at half its rate, unless that was done or none learned.

    A depth that is behind another one in short trainings and in full, each at its own best rate, is left at that.
    """
    full = {n: at_depth(losses, n, whole=True) for n in dict.fromkeys(t.layers for t in losses if t.whole)}
    rates = {n: _best_rate(of) for n, of in full.items() if any(loss is not None for loss in of.values())}
    ends = {n: (_least(short_ones(losses, n)), _least(full[n])) for n in rates}
    ahead = [n for n in rates if not any(own[0] < ends[n][0] and own[1] < ends[n][1] for own in ends.values())]
    lower = [TuningTrial(rates[n] / 2, n, whole=True) for n in ahead]
    return [trial for trial in lower if trial.rate >= LOWEST and trial not in losses]


def best_trial(losses: Losses) -> TuningTrial | None:
    """The trial with the lowest loss, among whole trainings where one of them learned; None where none did."""
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
    """A loss as if a rate in the middle, and the fewest layers, were the best."""
    return abs(math.log2(trial.rate / RATES[len(RATES) // 2])) + (trial.layers or 0) / 100


def short_ones(losses: Losses, layers: int | None) -> dict[float, float | None]:
    """Losses of the short trials of a depth, by rate."""
    return at_depth(losses, layers, whole=False)


def at_depth(losses: Losses, layers: int | None, whole: bool) -> dict[float, float | None]:
    """Losses of the full or the short trainings of a depth, by rate."""
    return {trial.rate: loss for trial, loss in losses.items() if (trial.layers, trial.whole) == (layers, whole)}


def _order(loss: float | None) -> float:
    return math.inf if loss is None else loss


def _best_rate(tried: Mapping[float, float | None]) -> float:
    # of rates at which all trainings fail, the lowest is the one to go on from
    return min(sorted(tried), key=lambda rate: _order(tried[rate]))


def _beyond(tried: Mapping[float, float | None]) -> list[float]:
    best = _best_rate(tried)
    if best == min(tried) and best / 2 >= LOWEST:
        return [best / 2]
    if best == max(tried) and best * 2 <= HIGHEST:
        return [2 * best]
    return []
