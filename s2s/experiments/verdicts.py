"""Figures, intervals and tests put into words, the same way in every cell."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from s2s.evaluation.differences import paired
from s2s.evaluation.gates import Gate, converged, rate_inside, slope_per_doubling
from s2s.evaluation.inference import Estimate, crossings, holm, mean
from s2s.experiments.contest import BySeed

# below it, a difference is called one
LEVEL = 0.05
WITHOUT_A_SEED = "any one seed left out"
"""A choice that a verdict keeps with where it does whichever seed is left out: one, however many seeds there are."""


@dataclass(frozen=True)
class Evidence:
    """How the second of two models differs from the first."""

    seeds: int  # how many both had
    over_seeds: Estimate  # the difference, second minus first
    p: float | None  # the paired t-test's p-value; None below three seeds
    test: str = ""  # what the examples of one seed were tested with; empty where they were not
    test_p: float | None = None  # its p-value; None likewise
    seed: int | None = None  # of the two runs whose examples were tested; None likewise

    def weighed(self) -> tuple[float | None, str]:
        """The p-value that decides, seeds before examples, and all tests in words."""
        over = too_few(self.seeds) if self.p is None else f"{seeds_in_words(self.seeds)}, {p_in_words(self.p)}"
        if self.test_p is None:
            return self.p, over
        tests = f"{self.test} {p_in_words(self.test_p)}" + (f" on seed {self.seed}" if self.seeds > 1 else "")
        return (self.test_p, f"{tests}; {over}") if self.p is None else (self.p, f"{over}; {tests}")


# of the first and the second model
Pairs = Mapping[tuple[str, str], Evidence]


def in_words(estimate: Estimate, digits: int = 1) -> str:
    """`3.1 (1.2 to 5.0)`."""
    value = f"{estimate.value:.{digits}f}"
    if estimate.low is None or estimate.high is None:
        return value
    return f"{value} ({estimate.low:.{digits}f} to {estimate.high:.{digits}f})"


def excludes_zero(estimate: Estimate) -> bool:
    """Whether the interval says that there is a difference at all."""
    return estimate.low is not None and estimate.high is not None and not estimate.low <= 0 <= estimate.high


def p_in_words(p: float) -> str:
    """`p < 0.001`, `p = 0.031`, `p = 0.31`."""
    if p <= 0.001:
        return "p ≤ 0.001"
    return f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def seeds_in_words(count: int) -> str:
    """`1 seed`, `3 seeds`."""
    return "1 seed" if count == 1 else f"{count} seeds"


def too_few(count: int) -> str:
    """Why there is no test over seeds; for up to two of them."""
    return f"{seeds_in_words(count)} {'is' if count == 1 else 'are'} too few for a test over seeds"


def against(
    model: str, values: Mapping[str, float], pairs: Pairs, unit: str, digits: int = 1, best: Callable[..., str] = max
) -> str:
    """How a model's figure stands to the best of the others, from the tests, `corrected`.

    `best` is `max` where a high figure is good, `min` where a low one is.
    """
    other, by, decisive, evidence = _best_other(model, values, pairs, best)
    if not other:
        return "no other model was measured at the same seed"
    if decisive is None:
        return f"{signed(by, digits)} {unit} against {other} ({evidence})"
    if decisive >= LEVEL:
        return f"no significant difference from {other}: {signed(by, digits)} {unit} ({evidence})"
    return f"{abs(by):.{digits}f} {unit} {'higher' if by > 0 else 'lower'} than {other} ({evidence})"


def times(
    model: str, values: Mapping[str, float], logarithms: Pairs, words: str, best: Callable[..., str] = max
) -> str:
    """As `against`, by how many times: `1.38 times as fast as lstm (3 seeds, p = 0.002)`; pairs are of logarithms."""
    other, by, decisive, evidence = _best_other(model, values, logarithms, best)
    if not other:
        return "no other model was measured at the same seed"
    said = f"{math.exp(by):.2f} times {words} {other} ({evidence})"
    return f"no significant difference: {said}" if decisive is not None and decisive >= LEVEL else said


def gates_of_training(runs: BySeed) -> list[Gate]:
    """What must be true of any model's whole runs: their loss, on average, has stopped falling, at a rate inside."""
    rate = next(iter(runs.values())).get("rate")
    closed = [converged(*mean_curve(runs))]
    return [*closed, gate_of_rate(rate)] if rate else closed


def gate_of_rate(rate: Mapping[str, Any]) -> Gate:
    """Whether the rate that a measurement keeps, see `Contestant.choice`, lies inside all that were tried."""
    tried = {*rate["tried"], *(each for each, _ in rate.get("whole", ()))}
    return rate_inside(rate["chosen"], sorted(tried), rate["inside"])


def doublings_behind(own: BySeed, other: BySeed) -> float | None:
    """By how many doublings of its tokens a model is behind another one's last loss, if its own goes on as it falls.

    None where it does not fall, or is not behind.
    """
    (tokens, losses), (_, wanted) = map(mean_curve, (own, other))
    slope, behind = slope_per_doubling(tokens, losses), losses[-1] - wanted[-1]
    return behind / -slope if slope is not None and slope < 0 < behind else None


def mean_curve(runs: BySeed, key: str = "losses") -> tuple[list[float], list[float]]:
    """Tokens, and what is kept under a key, at each look at the validation set, on average over seeds."""
    looks = min(len(run[key]) for run in runs.values())
    tokens, values = (np.mean([run[each][:looks] for run in runs.values()], axis=0) for each in ("tokens", key))
    return tokens.tolist(), values.tolist()


def corrected(pairs: Pairs) -> Pairs:
    """The pairs with p-values corrected for how many there are (Holm 1979).

    A verdict names the best of the others, chosen by what was measured, and each model has one: without correction, one
    of many equal models would often be called worse than the luckiest.
    """
    for name in ("p", "test_p"):
        known = {models: p for models, pair in pairs.items() if (p := getattr(pair, name)) is not None}
        after = dict(zip(known, holm(list(known.values())), strict=True))
        pairs = {models: replace(pair, **{name: after.get(models)}) for models, pair in pairs.items()}
    return pairs


def _best_other(
    model: str, values: Mapping[str, float], pairs: Pairs, best: Callable[..., str]
) -> tuple[str, float, float | None, str]:
    """The best of the others that share a seed with the model, or nothing; by how much it is beaten; the tests."""
    others = [name for name in values if (name, model) in pairs or (model, name) in pairs]
    if not others:
        return "", 0.0, None, ""
    other = best(others, key=lambda name: values[name])
    turned = (other, model) not in pairs
    pair = corrected(pairs)[(model, other) if turned else (other, model)]
    return other, -pair.over_seeds.value if turned else pair.over_seeds.value, *pair.weighed()


def difference(first: Mapping[int, float], second: Mapping[int, float]) -> Evidence | None:
    """By how much the second model's figures are higher, over the seeds that both have; None without one."""
    both = [seed for seed in first if seed in second]
    if not both:
        return None
    found = paired([first[seed] for seed in both], [second[seed] for seed in both])
    over_seeds = found.estimate() if found else mean([second[seed] - first[seed] for seed in both])
    return Evidence(len(both), over_seeds, found.p() if found and len(both) > 2 else None)


def percent(values: Sequence[float]) -> Estimate:
    """The mean of shares over seeds, with Student's interval cut off where a share ends."""
    average = mean(values)
    if average.low is None or average.high is None:
        return average
    return Estimate(average.value, max(0.0, average.low), min(100.0, average.high))


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def signed(value: float, digits: int = 1) -> str:
    """`+0.3`, `-1.2`; `0.0` for what rounds to nothing, whatever its sign."""
    rounded = round(value, digits)
    return f"{rounded:+.{digits}f}" if rounded else f"{0:.{digits}f}"


def crossing_in_words(
    names: tuple[str, str], x: Sequence[float], first: Sequence[Estimate], second: Sequence[Estimate]
) -> str:
    """Who is faster below and above which length; lengths at which the two intervals overlap decide nothing."""
    sure = [i for i in range(len(x)) if _apart(first[i], second[i])]
    if not sure:
        return f"no difference to be seen between {x[0]:,.0f} and {x[-1]:,.0f}"
    faster = names[0] if first[sure[0]].value < second[sure[0]].value else names[1]
    curves = [[curve[i].value for i in sure] for curve in (first, second)]
    places = crossings([x[i] for i in sure], curves[0], curves[1])
    if not places:
        return f"none between {x[0]:,.0f} and {x[-1]:,.0f}: {faster} is faster wherever they differ"
    words = ", ".join(f"{place:,.0f}" for place in places)
    return f"{words}; {faster} is faster below {places[0]:,.0f}"


def _apart(first: Estimate, second: Estimate) -> bool:
    ends = [(e.value if e.low is None else e.low, e.value if e.high is None else e.high) for e in (first, second)]
    return ends[0][1] < ends[1][0] or ends[1][1] < ends[0][0]
