"""Factors per step with their intervals, spectra, and what they predict."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from s2s.evaluation.inference import Estimate, mean, rank_correlation
from s2s.experiments.contest import Cells, Conclusion, Contest
from s2s.experiments.gradients.figures import ALL, Seen, alike, average, figures, middle
from s2s.experiments.gradients.paths import GOOD_FIT, brief, factor, half_life
from s2s.experiments.presenting import Column, Interval, Value, filled, finding, table
from s2s.experiments.verdicts import LEVEL, percent
from s2s.results import Finding, Result, Table

FACTORS = "gradient-factors"
_WHEN = {"initial": "initialisation", "trained": "after training"}
_OF = {"inputs": "input", "states": "state"}
_SPECTRAL = ("spectral norm, mean", "spectral norm, largest", "spectral radius, mean")
_GROWTH, _FITTED = "exp(λ) per step", "fitted factor (state)"
_LEFT = "left at the largest distance / at 1"
# below, no rank correlation could be significant
_FEWEST = 4

# the fit of one kind of gradient to one set of weights
Fit = Mapping[str, Any]


def conclude(contest: Contest, measured: Cells) -> Conclusion:
    """Factors per step with their intervals, spectra, and how training went."""
    seen = Seen(contest.models, measured)
    return Conclusion(
        findings=[_finding(seen, model) for model in seen.models],
        figures=figures(seen),
        tables=filled(_factors(seen), _jacobians(seen), _paths(seen), _layers(seen), _normalisation(seen)),
    )


def factor_of(fits: Sequence[Fit]) -> Estimate | None:
    """The factor per step, with an interval over sets of weights, or over texts where there is one set."""
    by_text = [[slope for slope in fit["slopes"] if slope is not None] for fit in fits]
    by_text = [slopes for slopes in by_text if slopes]
    if not by_text:
        return None
    return factor(by_text[0] if len(by_text) == 1 else [sum(slopes) / len(slopes) for slopes in by_text])


def _fit(fits: Sequence[Fit]) -> Estimate | None:
    """The mean R² of those that have one."""
    values = [fit["fit"] for fit in fits if fit["fit"] is not None]
    return mean(values) if values else None


def _left(fits: Sequence[Fit]) -> Estimate | None:
    """The geometric mean of what is left of those that have it; nought where anything is."""
    values = [fit["left"] for fit in fits if fit["left"] is not None]
    if not values:
        return None
    return factor([math.log(value) for value in values]) if min(values) > 0 else Estimate(0.0, None, None)


def _finding(seen: Seen, model: str) -> Finding | None:
    """The cell of a model that was measured at its initial weights."""
    before = seen.fits(model, "initial", "inputs")
    if not before:
        return None
    at, said = factor_of(before), verdict(factor_of(before), before)
    fits = seen.fits(model, "trained", "inputs")
    later, fit, left = factor_of(fits), _fit(fits), _left(fits)
    if later and fit and left and left.value:
        factorial = _falls_by_a_factor(later, fit, max(fit["span"] for fit in fits))
        said += f"; after training {f'{later.value:.3f} per step' if factorial else f'{left.value:.2g} times'}"
    quantity = "factor of the gradient with respect to an input, per step of distance, at initialisation"
    value = at and Estimate(*map(brief, (at.value, at.low, at.high)))  # pyright: ignore[reportArgumentType]
    return finding("vanishing and exploding gradients", model, value, "per step", quantity, said, "input-gradients")


def verdict(at: Estimate | None, fits: Sequence[Fit]) -> str:
    """What becomes of a gradient on its way, in words: from the factor per step and the fits of each set of weights."""
    span, reach = max(fit["span"] for fit in fits), max(fit["reach"] for fit in fits)
    if reach < span:
        return f"nothing arrives from more than {reach} steps back"
    left, fit = _left(fits), _fit(fits)
    if at is None or left is None or fit is None:
        return "too few distances with a gradient for a factor"
    if at.low is None or at.high is None:
        return f"factor {at.value:.3f}; too few initialisations for a verdict"
    if not _falls_by_a_factor(at, fit, span):
        how = "hardly changes" if 0.5 < left.value < 2 else "changes, but not by a factor per step"
        return f"{how}: distance {span} has {left.value:.2g} times what distance 1 has (R² {fit.value:.2f})"
    if at.high < 1:
        return f"vanishes: half is left after {math.log(0.5) / math.log(at.value):.1f} steps"
    if at.low > 1:
        return f"explodes: doubles every {math.log(2) / math.log(at.value):.1f} steps"
    return "neither vanishes nor explodes: 1 is within the interval"


def _falls_by_a_factor(at: Estimate, fit: Estimate, span: int) -> bool:
    """Whether a factor per step describes it: the line fits, and all steps together at least halve or double."""
    return fit.value >= GOOD_FIT and abs(math.log(at.value)) * (span - 1) >= math.log(2)


def _factors(seen: Seen) -> Table:
    columns = [
        *map(Column, ("model", "when", "with respect to")),
        Interval("factor per step", "at", brief),
        Column("half-life (steps)", lambda row: row["at"] and half_life(row["at"].value), brief),
        Column("R²", lambda row: row["fit"] and row["fit"].value, brief),
        Column(_LEFT, lambda row: row["left"] and row["left"].value, brief),
        Column("reach (steps)", lambda row: max(fit["reach"] for fit in row["fits"])),
        Column("largest distance (steps)", lambda row: row["fits"][0]["span"]),
        Column("sets of weights", lambda row: len(row["fits"])),
    ]
    rows = [
        {"model": model, "when": when, "with respect to": to, "fits": fits}
        | {"at": factor_of(fits), "fit": _fit(fits), "left": _left(fits)}
        for model in seen.models
        for part, when in _WHEN.items()
        for of, to in _OF.items()
        if (fits := seen.fits(model, part, of))
    ]
    return table(FACTORS, "What is left of a gradient per step of distance", columns, rows)


def _jacobians(seen: Seen) -> Table:
    rows = [
        {"model": model, "when": when, **_spectrum(seen, model, part)}
        for model in seen.models
        for part, when in _WHEN.items()
        if seen.weights(model, part)
    ]
    columns = [
        *map(Column, ("model", "when", "numbers in the state")),
        *(Column(head, digits=brief) for head in _SPECTRAL),
        Interval(_GROWTH, digits=brief),
        Column(_FITTED, digits=brief),
    ]
    title = (
        "The recurrent Jacobian ∂s′/∂s; gradients can grow by no more than its norm per step, and in the long "
        "run go by the Lyapunov exponent λ"
    )
    return table("jacobian", title, columns, rows)


def _spectrum(seen: Seen, model: str, part: str) -> dict[str, Any]:
    """What the Jacobians of all sets of weights are like, by column."""
    there = [each["jacobian"] for each in seen.weights(model, part) if each["jacobian"] is not None]
    if not there:
        return dict.fromkeys((*_SPECTRAL, _GROWTH, _FITTED)) | {"numbers in the state": "no fixed-size state"}
    # an exponent that is no number is minus infinity: all is forgotten
    growth = [average([x for x in one["lyapunov"] if x is not None]) for one in there]
    known = [value for value in growth if value is not None]
    fitted = factor_of(seen.fits(model, part, "states"))
    return {
        "numbers in the state": there[0]["size"],
        _SPECTRAL[0]: average([average(one["norm"]) for one in there]),
        _SPECTRAL[1]: max(value for one in there for value in one["norm"]),
        _SPECTRAL[2]: average([average(one["radius"] or []) for one in there]),
        _GROWTH: factor(known) if known else Estimate(0.0, None, None),
        _FITTED: fitted and fitted.value,
    }


def _paths(seen: Seen) -> Table:
    rows = []
    for model in seen.models:
        shares = []
        for paths in (maps["paths"] for maps in seen.maps(model) if "attention" in maps["paths"]):
            attention, summary = (sum(map(sum, paths[name])) for name in ("attention", "summary"))
            if attention + summary > 0:
                shares.append(100 * attention / (attention + summary))
        if shares:
            rows.append((model, percent(shares), len(shares)))
    columns = ["model", Interval("along attention (%)", lambda row: row[1], brief), Column("seeds", lambda row: row[2])]
    title = "Which way gradients go from the decoder back to the source, after training"
    return table("paths", title, columns, rows)


def _layers(seen: Seen) -> Table:
    rows = []
    for model, runs in seen.dynamics().items():
        clipped = average([100 * sum(one["clipped"]) / len(one["clipped"]) for one in runs])
        for layer in (ALL, *runs[0]["layers"]):
            norms = [one["norms"] if layer == ALL else one["layers"][layer] for one in runs]
            tenth = max(1, len(norms[0]) // 10)
            rows.append(
                (
                    model,
                    "all weights" if layer == ALL else layer,
                    average([middle(one[:tenth]) for one in norms]),
                    average([middle(one[-tenth:]) for one in norms]),
                    average([middle(one["ratios"].get(layer, [])) for one in runs]),
                    clipped if layer == ALL else None,
                )
            )
    heads = ("gradient norm, first tenth", "gradient norm, last tenth", "‖Δw‖ / ‖w‖ per update", "updates clipped (%)")
    columns = ["model", "layer", *(Column(head, lambda row, i=i: row[i], brief) for i, head in enumerate(heads, 2))]
    title = "Gradient norms and steps while learning to translate, mean over seeds of medians over updates"
    return table("training", title, columns, rows)


def _normalisation(seen: Seen) -> Table:
    rows = []
    for model in seen.models:
        for (norm, depth, warmup), runs in alike(seen.normalised(model)):
            good = [one["end"] for one in runs if one["end"] is not None]
            bad = sum(one["end"] is None or one["end"] >= one["start"] for one in runs)
            start, learned = average([one["start"] for one in runs]), f"{bad} of {len(runs)}"
            slants = average([slant(one["layers"]) for one in runs])
            rows.append((model, norm, depth, warmup, start, mean(good) if good else None, learned, slants))
    columns = [
        *("model", "norm", "layers", "warm-up (updates)", "loss before (nats)"),
        Interval("loss after (nats)", lambda row: row[5], brief),
        Column("did not learn", lambda row: row[6]),
        Column("gradient norm at initialisation, last decoder layer / first", lambda row: row[7]),
    ]
    return table("norm", "Normalisation before (pre) and after (post) each block", columns, rows)


def slant(layers: Mapping[str, float | None]) -> float | None:
    """The last layer's gradient norm over the first one's, in the last stack of numbered layers that a model has.

    Post-norm is expected to have larger gradients near the output (Xiong et al. 2020, theorem 1).
    """
    numbered = [(name.rpartition(".")[0], value) for name, value in layers.items() if name.rpartition(".")[2].isdigit()]
    if not numbered:
        return None
    stack = [value for prefix, value in numbered if prefix == numbered[-1][0]]
    return stack[-1] / stack[0] if len(stack) > 1 and stack[0] and stack[-1] is not None else None


def predicts(gradient_result: Result, long_range_result: Result) -> Table | None:
    """Whether what is left of a gradient says how far back a model learns to reach: Spearman's rank correlation.

    One row for each predictor; None where either result has nothing to say.
    """
    cells = [each for each in long_range_result.findings if each.row == "long-term dependencies"]
    memory = {each.model: each.value for each in cells if each.value is not None}
    factors = next((table for table in gradient_result.tables if table.name == FACTORS), None)
    if factors is None or not memory:
        return None
    known: list[dict[str, Any]] = [dict(zip(factors.columns, row, strict=True)) for row in factors.rows]
    rows = []
    for column, when in ((column, when) for column in ("factor per step", _LEFT) for when in _WHEN.values()):
        of_inputs = [row for row in known if (row["when"], row["with respect to"]) == (when, _OF["inputs"])]
        left = {str(row["model"]): row[column] for row in of_inputs if isinstance(row[column], float | int)}
        models = [model for model in left if model in memory]
        said = _correlated([left[model] for model in models], [memory[model] for model in models])
        rows.append((f"{column}, {when}", len(models), *said))
    title = "Does the gradient of the inputs predict the effective memory length? Spearman's ρ over models"
    return table("predicts", title, ("predictor", "models", "ρ", "p", "verdict"), rows)


def _correlated(left: list[float], memory: list[float]) -> tuple[Value, Value, str]:
    if len(left) < _FEWEST:
        return None, None, f"too few models: {len(left)}, at least {_FEWEST} are needed"
    both = rank_correlation(left, memory)
    if both is None:
        return None, None, "no correlation: all models are equal in one of them"
    words = "significant at 5 %" if both[1] < LEVEL else "no significant correlation"
    return brief(both[0]), brief(both[1]), f"{words} over {len(left)} models (p = {both[1]:.2g})"
