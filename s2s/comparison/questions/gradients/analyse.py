"""Factors per step with their intervals, at one initialisation and at others, spectra, and normalisation."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

from s2s.comparison.paired_tests import percent
from s2s.comparison.questions.gradients.figures import SWEPT, Seen, Turned, average, figures
from s2s.comparison.questions.gradients.paths import GOOD_FIT, Fit, brief, factor, factor_of, half_life
from s2s.comparison.questions.gradients.sweep import WORDS
from s2s.comparison.reporting import Column, Interval, filled, table, verdict
from s2s.comparison.results import Table, Verdict
from s2s.comparison.spec import Analysis, Comparison, Trials
from s2s.evaluation.differences import welch
from s2s.evaluation.gates import Assessment, converged, failed
from s2s.evaluation.inference import Estimate, holm, mean

FACTORS = "gradient-factors"
_WHEN = {"own": "initialisation", "learned": "after training"}
_OF = {"inputs": "input", "states": "state"}
_SPECTRAL = ("spectral norm, mean", "spectral norm, largest", "spectral radius, mean")
_GROWTH, _FITTED = "exp(λ) per step", "fitted factor (state)"
_LEFT = "left at the largest distance / at 1"

Way = Literal["vanishes", "explodes", "neither"]


def analyse(comparison: Comparison, measured: Trials) -> Analysis:
    """Factors per step with their intervals, by initialisation; spectra; and how normalisation learns."""
    seen = Seen(comparison.models, measured)
    return Analysis(
        findings=[_verdict(seen, model) for model in seen.models],
        figures=figures(seen),
        tables=filled(_sweep(seen), _factors(seen), _jacobians(seen), _paths(seen), _normalisation(seen)),
    )


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


def _verdict(seen: Seen, model: str) -> Verdict | None:
    """The cell of a model at its initial weights; no better and no worse than another's.

    `variations` tell with which other initialisations the gradient has the same fate.
    """
    fits = seen.fits(model, "own", "inputs")
    if not fits:
        return None
    at, left, fit, here, turned = factor_of(fits), _left(fits), _fit(fits), way(fits), seen.turned(model)
    span, reach = max(one["span"] for one in fits), max(one["reach"] for one in fits)
    facts: dict[str, float | str] = {"what becomes of it": here or "too few initialisations to tell"}
    if reach < span:
        facts["reach (steps)"] = reach
    if at is not None and has_factor(fits):
        steps = brief(abs(half_life(at.value) or 0.0)) or 0.0
        facts["half-life (steps)" if at.value < 1 else "doubles after (steps)"] = steps
    elif left is not None and fit is not None:
        facts[f"at distance {span}, times what it is at 1"] = brief(left.value) or 0.0
        facts["R²"] = round(fit.value, 2)
    facts |= _turned_facts(turned) | _trained_facts(seen, model)
    quantity = "factor of the gradient with respect to an input, per step of distance, at initialisation"
    known = at if has_factor(fits) else None
    value = known and Estimate(*map(brief, (known.value, known.low, known.high)))  # pyright: ignore[reportArgumentType]
    picture = "input-gradients" if turned is None else f"{SWEPT}-{turned.kind}"
    # the value that is the model's own is no other one
    others = {v: f for v, f in turned.fits.items() if not math.isclose(v, turned.own, rel_tol=1e-3)} if turned else {}
    others = {f"{WORDS[turned.kind]} {v:g}": way(f) for v, f in others.items()} if turned else {}
    variations = {name: there == here for name, there in others.items() if there is not None and here is not None}
    found = Assessment("" if here else "not measurable", facts=facts, variations=variations)
    return verdict("vanishing and exploding gradients", model, value, "per step", quantity, found, picture)


def _turned_facts(turned: Turned | None) -> dict[str, float | str]:
    """The range of factors that other initialisations give, and where the factor is 1."""
    factors = {v: at.value for v, fits in turned.fits.items() if (at := factor_of(fits)) is not None} if turned else {}
    if turned is None or not factors:
        return {}
    first, last, middle = min(factors), max(factors), neutral(factors)
    name = WORDS[turned.kind]
    found: dict[str, float | str] = {f"factor at {name} {v:g}": round(factors[v], 2) for v in (first, last)}
    return found | {f"neutral {name}": "none" if middle is None else float(f"{middle:.2g}")}


def neutral(factors: Mapping[float, float]) -> float | None:
    """Value at which the factor per step crosses 1, by linear interpolation; None if it never does."""
    for (low, below), (high, above) in pairwise(sorted(factors.items())):
        if (below < 1) != (above < 1):
            return low + (high - low) * (1 - below) / (above - below)
    return None


def _trained_facts(seen: Seen, model: str) -> dict[str, float | str]:
    """The factor after training, or what is left where there is none."""
    fits = seen.fits(model, "learned", "inputs")
    at, left = factor_of(fits), _left(fits)
    if at is None or left is None:
        return {}
    gates = [converged(one["history"]["tokens"], one["history"]["losses"]) for one in seen.taken(model, "learned")]
    span, reach = max(fit["span"] for fit in fits), max(fit["reach"] for fit in fits)
    found: dict[str, float | str] = {}
    if reach < span:
        found["reach after training (steps)"] = reach
    elif has_factor(fits):
        found["factor after training"] = round(at.value, 3)
    else:
        found[f"left after training, over {span} steps"] = float(f"{left.value:.2g}")
    if still := failed(gates):
        found["trained runs that still learn"] = f"{len(still)} of {len(gates)}"
    return found


def way(fits: Sequence[Fit]) -> Way | None:
    """Outcome for a gradient: vanishes, explodes or neither; None with too few initializations."""
    at, fit = factor_of(fits), _fit(fits)
    span, reach = max(one["span"] for one in fits), max(one["reach"] for one in fits)
    if reach < span:
        return "vanishes"
    if at is None or fit is None or at.low is None or at.high is None:
        return None
    if not has_factor(fits):
        return "neither"
    return "vanishes" if at.high < 1 else "explodes" if at.low > 1 else "neither"


def has_factor(fits: Sequence[Fit]) -> bool:
    """Return True if a factor per step describes all distances.

    The gradient reaches each of them, the line fits, and all steps together at least halve or double it.
    """
    at, fit = factor_of(fits), _fit(fits)
    span, reach = max(one["span"] for one in fits), max(one["reach"] for one in fits)
    if at is None or fit is None or reach < span:
        return False
    return fit.value >= GOOD_FIT and abs(math.log(at.value)) * (span - 1) >= math.log(2)


def _sweep(seen: Seen) -> Table:
    rows = [
        {"model": model, "turned": WORDS[turned.kind], "value": value, "own": turned.own, "fits": fits}
        for model in seen.models
        if (turned := seen.turned(model)) is not None
        for value, fits in turned.fits.items()
    ]
    columns = [
        Column("model"),
        Column("turned"),
        Column("value"),
        Column("the model's own", "own", brief),
        Interval("factor per step", lambda row: factor_of(row["fits"]), brief),
        Column("R²", lambda row: (fit := _fit(row["fits"])) and fit.value, brief),
        Column("what becomes of it", lambda row: way(row["fits"])),
        Column("sets of weights", lambda row: len(row["fits"])),
    ]
    return table(SWEPT, "A gradient's factor per step, by the initialisation", columns, rows)


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
    """Spectral figures of the Jacobians, by column."""
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


def _normalisation(seen: Seen) -> Table:
    """Cost of training without warm-up, for each normalization."""
    rows: list[dict[str, Any]] = []
    for model in seen.models:
        losses: dict[tuple[str, int], list[float]] = {}
        for trial, run in seen.deep(model).items():
            norm, _, warmup = trial.part.partition("-warmup-")
            losses.setdefault((norm, int(warmup)), []).append(run["loss"])
        for norm in dict.fromkeys(norm for norm, _ in losses):
            warm = max(warmup for kind, warmup in losses if kind == norm)
            without, with_it = losses.get((norm, 0), []), losses[norm, warm]
            cost = welch(with_it, without)
            rows.append(
                {"model": model, "norm": norm, "warm-up (updates)": warm, "seeds": len(with_it), "cost": cost}
                | {"without": mean(without) if without else None, "with": mean(with_it)}
            )
    compared = [row for row in rows if row["cost"] is not None]
    for row, p in zip(compared, holm([row["cost"].p() for row in compared]), strict=True):
        row["p"] = p
    columns = [
        *map(Column, ("model", "norm", "warm-up (updates)", "seeds")),
        Interval("loss without warm-up (nats)", "without", brief),
        Interval("loss with it (nats)", "with", brief),
        Interval("cost of leaving it out (nats)", "cost", brief),
        Column("p (Holm)", lambda row: row.get("p"), brief),
    ]
    return table("norm", "Normalisation before (pre) and after (post) each block of six and six layers", columns, rows)
