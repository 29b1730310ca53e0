"""Analyse the growth of memory with length."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from s2s.comparison.reporting import Value, axis, figure, filled, series, stopped, table, verdict
from s2s.comparison.results import Figure, Series, Verdict
from s2s.comparison.spec import Analysis, Comparison, Measured, Trials
from s2s.comparison.speed_benchmark import assess_count
from s2s.comparison.workload import AS_BUILT, EXPLICIT
from s2s.evaluation.inference import Slope, growth, long_slope

# the source of a state that is looked at after ever more tokens
SOURCE = 32
# what reading and writing so many tokens takes is no matter of length, and taken off before an exponent is fitted: on a
# GPU the workspaces of recurrent layers are more than a thousand tokens take
SHORTEST = 1
_MIB = 2**20
# exponents are fitted from this share of the greatest length on: before it, weights and layers weigh more than length
FITTED_FROM = 0.25
_WORK = {
    "training": "Peak memory of a forward and backward pass",
    "inference": "Peak memory of reading and writing without gradients, with the target given",
}

ByModel = Mapping[str, Measured]


def analyse(comparison: Comparison, measured: Trials) -> Analysis:
    """Exponents, and what the longest text takes."""
    named = {trial.model: own for trial, own in measured.items()}
    models = {model: named[model] for model in comparison.models if model in named}
    peaks = ((m, p["form"], p["what"], p["n"], p["bytes"]) for m, own in models.items() for p in own["peaks"])
    states = ((m, p["n"], p["state"], p["context"]) for m, own in models.items() for p in own["states"])
    notes = ((m, note["form"], note["n"], note["why"]) for m, own in models.items() for note in own["notes"])
    fitted = ("model", "form", "of", "from n", "to n", "b", "R²", "furthest peak, %", "b of the last two lengths")
    held = ("model", "tokens written", "state, bytes", "read at every step, bytes")
    return Analysis(
        findings=[_verdict(model, models) for model in models],
        figures=_figures(models),
        tables=filled(
            table(
                "exponents",
                f"Exponent b of {_what(models.values())} memory ~ n^b, and how far the peaks are from it",
                fitted,
                _slopes(models),
            ),
            table("peaks", "Peaks", ("model", "form", "of", "n", "bytes"), peaks),
            table("states", f"What decoding holds for one hypothesis, after a source of {SOURCE} tokens", held, states),
            stopped(("model", "form", "not measured from n"), notes),
        ),
        seeds=[comparison.seeds[0]],
    )


def _what(measured: Iterable[Measured]) -> str:
    known = all(SHORTEST in _peaks(own, AS_BUILT, "inference") for own in measured)
    return "what length adds to peak" if known else "peak"


def curve(measured: Measured, form: str, what: str) -> tuple[list[int], list[int]]:
    """Lengths, and the peak in bytes at each of them; without the shortest."""
    peaks = {n: peak for n, peak in _peaks(measured, form, what).items() if n != SHORTEST}
    return list(peaks), list(peaks.values())


def _peaks(measured: Measured, form: str, what: str) -> dict[int, int]:
    """Bytes by length."""
    points = (point for point in measured["peaks"] if point["form"] == form and point["what"] == what)
    return {point["n"]: point["bytes"] for point in points}


def _forms(measured: Measured) -> list[str]:
    return list(dict.fromkeys(point["form"] for point in measured["peaks"]))


def _exponent(measured: Measured, form: str, what: str, share: float = FITTED_FROM) -> Slope | None:
    lengths, peaks = curve(measured, form, what)
    # in training, too, that of inference: a token's backward pass makes a gradient of all weights, a long text's peak
    # has none yet. Comparisons kept before the shortest was measured have the exponents of whole peaks
    least = _peaks(measured, form, "inference").get(SHORTEST, 0)
    added = {n: peak - least for n, peak in zip(lengths, peaks, strict=True) if peak > least}
    return long_slope(list(added), list(added.values()), share * lengths[-1]) if added else None


def _slopes(models: ByModel) -> Iterator[Sequence[Value]]:
    for model, own in models.items():
        for form, what in ((form, what) for form in _forms(own) for what in _WORK):
            s = _exponent(own, form, what)
            if s:
                yield model, form, what, s.first, s.last, s.exponent, s.r2, 100 * s.residual, s.local


def _verdict(model: str, models: ByModel) -> Verdict | None:
    measured = models[model]
    slope = _exponent(measured, AS_BUILT, "training")
    if slope is None:
        return None
    lengths, peaks = curve(measured, AS_BUILT, "training")
    facts: dict[str, float | str] = {
        f"peak in training at n = {lengths[-1]:,} (MiB)": float(f"{peaks[-1] / _MIB:.3g}"),
        "R²": round(slope.r2, 4),
        "exponent of the last two lengths": round(slope.local, 2),
    }
    for form in _forms(measured):
        other = _exponent(measured, form, "training")
        if form != AS_BUILT and other is not None:
            facts[f"exponent, {form}"] = round(other.exponent, 2)
    states = measured["states"]
    if len(states) > 2 and any(point["state"] for point in states):
        facts["growth of the decoder's state"] = growth([p["n"] for p in states], [p["state"] for p in states]).law
    quantity = f"exponent of {_what([measured])} training memory, from n = {slope.first:,.0f} to {slope.last:,.0f}"
    own, others = (
        _doublings(models, AS_BUILT, "training"),
        {
            "inference": [_doublings(models, AS_BUILT, "inference")],
            "all lengths": [_doublings(models, AS_BUILT, "training", 0)],
        },
    )
    rival = max((name for name in own if name != model), key=own.__getitem__, default=model)
    # a model that has no such form is as built there, too; where neither has it, it is no other choice
    if any(EXPLICIT.name in _forms(models[name]) for name in (model, rival)):
        others["explicit attention"] = [_doublings(models, EXPLICIT.name, "training")]
    found = replace(assess_count(model, own, others), facts=facts)
    return verdict("memory", model, slope.exponent, "", quantity, found, "training-memory")


def _doublings(models: ByModel, form: str, what: str, share: float = FITTED_FROM) -> dict[str, float]:
    """One over what a doubling of the length costs, by model: higher is better."""
    forms = {model: form if form in _forms(own) else AS_BUILT for model, own in models.items()}
    slopes = {model: _exponent(own, forms[model], what, share) for model, own in models.items()}
    return {model: 2**-slope.exponent for model, slope in slopes.items() if slope}


def _figures(models: ByModel) -> list[Figure]:
    length, memory = axis("length n", "tokens", log=True), axis("peak memory", "MiB", log=True)
    slopes = (
        "Allocator's peak beyond what the weights and their gradients hold. A slope of 1 doubles with n, a "
        "slope of 2 is four times as much."
    )

    def lines(what: str) -> list[Series]:
        curves = [(m, form, *curve(own, form, what)) for m, own in models.items() for form in _forms(own)]
        return [series(f"{m}, {form}", m, x, [peak / _MIB for peak in y]) for m, form, x, y in curves if x]

    states = {model: own["states"] for model, own in models.items() if any(p["state"] for p in own["states"])}
    return [
        *(figure(f"{what}-memory", title, (length, memory), lines(what), slopes) for what, title in _WORK.items()),
        figure(
            "decoding-state",
            "What a decoder keeps from token to token",
            (axis("tokens written", "tokens", log=True), axis("state of one hypothesis", "KiB", log=True)),
            [series(m, m, [p["n"] for p in own], [p["state"] / 2**10 for p in own]) for m, own in states.items()],
            "A cache of keys and values grows with each token; a recurrent state does not.",
        ),
    ]
