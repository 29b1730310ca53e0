"""Paired tests between candidates over seeds, with Holm correction, and the validity checks of trained candidates."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from s2s.comparison.runs import LearningCurve, TrainedRun
from s2s.comparison.spec import RateChoice
from s2s.evaluation.differences import paired
from s2s.evaluation.gates import POINTS, Assessment, Gate, converged, failed, rate_inside
from s2s.evaluation.inference import Estimate, holm, mean

WITHOUT_A_SEED = "any one seed left out"
"""Variation in which an outcome must stay whichever seed is left out; it counts once for all seeds."""


@dataclass(frozen=True)
class Evidence:
    """Difference between two candidates: the second minus the first."""

    seeds: int  # number of seeds that both have
    over_seeds: Estimate  # the difference, second minus first
    p: float | None  # the paired t-test's p-value; None below three seeds
    test: str = ""  # test of the examples of one seed; empty without one
    test_p: float | None = None  # its p-value; None without one
    seed: int | None = None  # seed of the two runs of this test; None without one


Pairs = Mapping[tuple[str, str], Evidence]
"""Evidence by first and second model."""


def excludes_zero(estimate: Estimate) -> bool:
    """True if the confidence interval excludes zero."""
    return estimate.low is not None and estimate.high is not None and not estimate.low <= 0 <= estimate.high


def seeds_in_words(count: int) -> str:
    """Return `1 seed`, `3 seeds`."""
    return "1 seed" if count == 1 else f"{count} seeds"


def against(
    model: str,
    values: Mapping[str, float],
    pairs: Pairs,
    unit: str,
    best: Callable[..., str],
    checks: Mapping[str, Sequence[Gate]],
) -> Assessment:
    """Compare a model's value with the best of the others, by paired tests with a common Holm correction.

    Args:
        model: The candidate.
        values: Value of each model.
        pairs: Differences of all pairs; of logarithms if the unit starts with `times`.
        unit: Unit of the difference.
        best: `max` if high values are good, `min` if low ones are.
        checks: Validity checks of each model; empty if there are none.
    """
    others = [name for name in values if (name, model) in pairs or (model, name) in pairs]
    if not others:
        return Assessment("", reasons=("no other model was measured with the same seed",))
    other = best(others, key=lambda name: values[name])
    for name in (model, other):
        if closed := failed(checks.get(name, ())):
            still = all(gate.name == "converged" for gate in closed) and name == model
            reasons = tuple(gate.sentence if name == model else f"{name}: {gate.sentence}" for gate in closed)
            return Assessment("still learning" if still else "not measurable", other, reasons=reasons)
    turned = (other, model) not in pairs
    pair = corrected(pairs)[(model, other) if turned else (other, model)]
    ends = (pair.over_seeds.value, pair.over_seeds.low, pair.over_seeds.high)
    value, low, high = ends if not turned else (None if end is None else -end for end in (ends[0], ends[2], ends[1]))
    if unit.startswith("times"):
        value, low, high = (None if end is None else math.exp(end) for end in (value, low, high))
    facts = {} if pair.test_p is None or pair.p is None else {f"p ({pair.test}, one seed)": float(f"{pair.test_p:.2g}")}
    p, test = (pair.test_p, f"{pair.test}, Holm") if pair.p is None else (pair.p, "paired t-test over seeds, Holm")
    difference = None if value is None else Estimate(value, low, high)
    return Assessment("", other, difference, unit, p, test if p is not None else "", facts=facts)


def gates_of_training(runs: Mapping[int, TrainedRun], points: float = POINTS) -> list[Gate]:
    """Check that the mean loss over seeds has converged, and that the learning rate lies inside its grid.

    Args:
        runs: Runs by seed.
        points: See `converged`.
    """
    return [converged(*mean_curve(runs), points), *gates_of_rate(runs)]


def gates_of_rate(runs: Mapping[int, TrainedRun]) -> list[Gate]:
    """Check that the learning rate lies inside its grid; empty if no rate was chosen."""
    rate = next(iter(runs.values())).rate
    return [gate_of_rate(rate)] if rate else []


def gate_of_rate(rate: RateChoice) -> Gate:
    """Check that the learning rate lies inside the grid that was searched."""
    return rate_inside(rate.chosen, sorted({*rate.tried, *(each for each, _ in rate.whole)}), rate.inside)


def mean_curve(runs: Mapping[int, LearningCurve], values: str = "losses") -> tuple[list[float], list[float]]:
    """Return tokens and values at each validation, means over seeds.

    Args:
        runs: Runs by seed; validations that not all of them have are left out.
        values: Attribute of the runs.
    """
    count = min(len(getattr(run, values)) for run in runs.values())
    tokens, means = (
        np.mean([getattr(run, each)[:count] for run in runs.values()], axis=0) for each in ("tokens", values)
    )
    return tokens.tolist(), means.tolist()


def corrected(pairs: Pairs) -> Pairs:
    """Return the pairs with p-values corrected for their number (Holm 1979).

    Each model is compared with the best of the others, chosen by the same measurements. Without correction, one of many
    equal models would often be called worse than the one that is best by chance.
    """
    for name in ("p", "test_p"):
        known = {models: p for models, pair in pairs.items() if (p := getattr(pair, name)) is not None}
        after = dict(zip(known, holm(list(known.values())), strict=True))
        pairs = {models: replace(pair, **{name: after.get(models)}) for models, pair in pairs.items()}
    return pairs


def difference(first: Mapping[int, float], second: Mapping[int, float]) -> Evidence | None:
    """Return the paired difference (second minus first) over common seeds; None without a common seed."""
    both = [seed for seed in first if seed in second]
    if not both:
        return None
    found = paired([first[seed] for seed in both], [second[seed] for seed in both])
    over_seeds = found.estimate() if found else mean([second[seed] - first[seed] for seed in both])
    return Evidence(len(both), over_seeds, found.p() if found and len(both) > 2 else None)


def percent(values: Sequence[float]) -> Estimate:
    """Return the mean of shares over seeds, with Student's interval cut off at 0 and 100."""
    average = mean(values)
    if average.low is None or average.high is None:
        return average
    return Estimate(average.value, max(0.0, average.low), min(100.0, average.high))


def listed(words: Sequence[str]) -> str:
    """Return `a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""
