"""The numbers behind the figures of gradients, and how they are put together over seeds, weights and texts."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from s2s.evaluation.inference import Estimate, mean
from s2s.experiments.contest import Measured, Task
from s2s.experiments.gradient_decay import brief, factor, half_life
from s2s.experiments.training_dynamics import ALL
from s2s.results import Table

FACTORS = "gradient-factors"
WHEN = {"initial": "initialisation", "trained": "after training"}
OF = {"inputs": "input", "states": "state"}
# of a 95 % interval
_ENDS = ("low", "high")


def taken(measured: Mapping[Task, Measured], model: str, part: str) -> list[Measured]:
    """A model's measurements of one kind, by seed."""
    tasks = [task for task in measured if task.model == model and task.part == part]
    return [measured[task] for task in sorted(tasks, key=lambda task: task.seed or 0)]


def decays(measured: Mapping[Task, Measured], model: str, part: str, of: str) -> list[dict[str, Any]]:
    """The fits of one kind of gradient, one for each set of weights."""
    all_weights = [weights for one in taken(measured, model, part) for weights in one.get("weights", [])]
    return [weights[of] for weights in all_weights if weights[of] is not None]


def factor_of(decays: Sequence[Mapping[str, Any]]) -> Estimate | None:
    """The factor per step, with an interval over sets of weights, or over texts where there is one set."""
    by_text = [[slope for slope in one["slopes"] if slope is not None] for one in decays]
    by_text = [slopes for slopes in by_text if slopes]
    if not by_text:
        return None
    return factor(by_text[0] if len(by_text) == 1 else [sum(slopes) / len(slopes) for slopes in by_text])


def mean_of(rows: Sequence[Mapping[str, Any]], key: str, geometric: bool = False) -> Estimate | None:
    """The mean of one number over rows that have it; of its logarithm, where asked, with nought for any nought."""
    values = [row[key] for row in rows if row[key] is not None]
    if not values:
        return None
    if not geometric:
        return mean(values)
    return factor([math.log(value) for value in values]) if min(values) > 0 else Estimate(0.0, None, None)


def brief_or_none(value: float | None) -> float | None:
    """Six digits; None stays None."""
    return None if value is None else brief(value)


def tables(models: Sequence[str], measured: Mapping[Task, Measured]) -> list[Table]:
    """Factors, Jacobians, paths, layers in training, and normalisation; those without a row are left out."""
    makers = (_factors, _jacobians, _paths, _layers, _normalisation)
    return [table for maker in makers if (table := maker(models, measured)).rows]


def _factors(models: Sequence[str], measured: Mapping[Task, Measured]) -> Table:
    rows = []
    for model, part, of in ((m, p, o) for m in models for p in WHEN for o in OF):
        found = decays(measured, model, part, of)
        if not found:
            continue
        at, fit, left = factor_of(found), mean_of(found, "fit"), mean_of(found, "left", geometric=True)
        half = half_life(at.value) if at else None
        numbers = [at and at.value, at and at.low, at and at.high, half, fit and fit.value, left and left.value]
        reach = max(one["reach"] for one in found)
        rows.append([model, WHEN[part], OF[of], *map(brief_or_none, numbers), reach, found[0]["span"], len(found)])
    return Table(
        name=FACTORS,
        title="What is left of a gradient per step of distance",
        columns=[
            "model",
            "when",
            "with respect to",
            "factor per step",
            *_ENDS,
            "half-life (steps)",
            "R²",
            "left at the largest distance / at 1",
            "reach (steps)",
            "largest distance (steps)",
            "sets of weights",
        ],
        rows=rows,
    )


def _jacobians(models: Sequence[str], measured: Mapping[Task, Measured]) -> Table:
    rows: list[list[str | float | int | None]] = []
    for model, part in ((m, p) for m in models for p in WHEN):
        weights = [each for one in taken(measured, model, part) for each in one.get("weights", [])]
        if not weights:
            continue
        there = [each["jacobian"] for each in weights if each["jacobian"] is not None]
        if not there:
            rows.append([model, WHEN[part], "no fixed-size state", *[None] * 7])
            continue
        # an exponent that is no number is minus infinity: all is forgotten
        growth = [_average([x for x in one["lyapunov"] if x is not None]) for one in there]
        known = [value for value in growth if value is not None]
        growing = factor(known) if known else Estimate(0.0, None, None)
        fitted = factor_of(decays(measured, model, part, "states"))
        largest = max(value for one in there for value in one["norm"])
        numbers = [
            _average([_average(one["norm"]) for one in there]),
            largest,
            _average([_average(one["radius"] or []) for one in there]),
            growing.value,
            growing.low,
            growing.high,
            fitted.value if fitted else None,
        ]
        rows.append([model, WHEN[part], there[0]["size"], *map(brief_or_none, numbers)])
    return Table(
        name="jacobian",
        title="The recurrent Jacobian ∂s′/∂s; gradients can grow by no more than its norm per step, and in the long "
        "run go by the Lyapunov exponent λ",
        columns=[
            "model",
            "when",
            "numbers in the state",
            "spectral norm, mean",
            "spectral norm, largest",
            "spectral radius, mean",
            "exp(λ) per step",
            *_ENDS,
            "fitted factor (state)",
        ],
        rows=rows,
    )


def _average(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None


def _paths(models: Sequence[str], measured: Mapping[Task, Measured]) -> Table:
    rows = []
    for model in models:
        kept = [one["maps"]["paths"] for one in taken(measured, model, "trained") if "maps" in one]
        if not kept or "attention" not in kept[0]:
            continue
        shares = []
        for paths in kept:
            attention, summary = (sum(map(sum, paths[name])) for name in ("attention", "summary"))
            if attention + summary > 0:
                shares.append(100 * attention / (attention + summary))
        if shares:
            found = mean(shares)
            # no share lies beyond these, whatever Student's interval of two seeds says
            ends = [None if end is None else min(max(end, 0.0), 100.0) for end in (found.low, found.high)]
            rows.append([model, *map(brief_or_none, (found.value, *ends)), len(shares)])
    return Table(
        name="paths",
        title="Which way gradients go from the decoder back to the source, after training",
        columns=["model", "along attention (%)", *_ENDS, "seeds"],
        rows=rows,
    )


def _layers(models: Sequence[str], measured: Mapping[Task, Measured]) -> Table:
    rows = []
    for model in models:
        kept = [one["dynamics"] for one in taken(measured, model, "trained")]
        kept = [one for one in kept if one["losses"]]
        if not kept:
            continue
        clipped = _average([100 * sum(one["clipped"]) / len(one["clipped"]) for one in kept])
        for layer in (ALL, *kept[0]["layers"]):
            norms = [one["norms"] if layer == ALL else one["layers"][layer] for one in kept]
            ratios = [_median(one["ratios"].get(layer, [])) for one in kept]
            tenth = max(1, len(norms[0]) // 10)
            ends = [_average([_median(part(one, tenth)) for one in norms]) for part in (_first, _last)]
            numbers = [*ends, _average(ratios), clipped if layer == ALL else None]
            rows.append([model, "all weights" if layer == ALL else layer, *map(brief_or_none, numbers)])
    return Table(
        name="training",
        title="Gradient norms and steps while learning to translate, mean over seeds of medians over updates",
        columns=[
            "model",
            "layer",
            "gradient norm, first tenth",
            "gradient norm, last tenth",
            "‖Δw‖ / ‖w‖ per update",
            "updates clipped (%)",
        ],
        rows=rows,
    )


def _first(values: Sequence[float | None], count: int) -> Sequence[float | None]:
    return values[:count]


def _last(values: Sequence[float | None], count: int) -> Sequence[float | None]:
    return values[-count:]


def _median(values: Sequence[float | None]) -> float | None:
    there = sorted(value for value in values if value is not None)
    return there[len(there) // 2] if there else None


def normalised(measured: Mapping[Task, Measured], model: str) -> list[Measured]:
    """A model's trainings with either normalisation, by kind, depth and warm-up."""
    found = [one for task, one in measured.items() if task.model == model and task.part.startswith("norm-")]
    return sorted(found, key=lambda one: (one["norm"] == "post", one["depth"], one["warmup"]))


def cells(found: Sequence[Measured]) -> Iterator[tuple[tuple[str, int, int], list[Measured]]]:
    """These trainings by kind, depth and warm-up, the seeds of each together."""
    for key in dict.fromkeys((one["norm"], one["depth"], one["warmup"]) for one in found):
        yield key, [one for one in found if (one["norm"], one["depth"], one["warmup"]) == key]


def _normalisation(models: Sequence[str], measured: Mapping[Task, Measured]) -> Table:
    rows: list[list[str | float | int | None]] = []
    for model in models:
        for (norm, depth, warmup), runs in cells(normalised(measured, model)):
            good = [one["end"] for one in runs if one["end"] is not None]
            bad = sum(one["end"] is None or one["end"] >= one["start"] for one in runs)
            end = mean(good) if good else Estimate(math.nan, None, None)
            rows.append(
                [model, norm, depth, warmup, _average([one["start"] for one in runs])]
                + [brief_or_none(value) for value in (end.value, end.low, end.high)]
                + [f"{bad} of {len(runs)}", _average([slant(one["layers"]) for one in runs])]
            )
    return Table(
        name="norm",
        title="Normalisation before (pre) and after (post) each block",
        columns=[
            "model",
            "norm",
            "layers",
            "warm-up (updates)",
            "loss before (nats)",
            "loss after (nats)",
            *_ENDS,
            "did not learn",
            "gradient norm at initialisation, last decoder layer / first",
        ],
        rows=rows,
    )


def slant(layers: Mapping[str, float | None]) -> float | None:
    """The last layer's gradient norm over the first one's, in the last stack of numbered layers that a model has.

    Post-norm is expected to have larger gradients near the output (Xiong et al. 2020, theorem 1).
    """
    numbered = [(name.rpartition(".")[0], value) for name, value in layers.items() if name.rpartition(".")[2].isdigit()]
    if not numbered:
        return None
    stack = [value for prefix, value in numbered if prefix == numbered[-1][0]]
    return stack[-1] / stack[0] if len(stack) > 1 and stack[0] and stack[-1] is not None else None
