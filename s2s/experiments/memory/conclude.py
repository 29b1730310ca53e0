"""How memory grows with length, and what the longest text takes."""

from collections.abc import Mapping

from s2s.evaluation.inference import Slope, growth, long_slope
from s2s.experiments.contest import Cells, Conclusion, Contest, Measured
from s2s.experiments.presenting import axis, exponents, figure, filled, finding, series, stopped, table
from s2s.experiments.workload import AS_BUILT
from s2s.results import Figure, Finding, Series

# the source of a state that is looked at after ever more tokens
SOURCE = 32
_MIB = 2**20
# exponents are fitted from this share of the greatest length on: before it, weights and layers weigh more than length
FITTED_FROM = 0.25
_WORK = {
    "training": "Peak memory of a forward and backward pass",
    "inference": "Peak memory of reading and writing without gradients, with the target given",
}

ByModel = Mapping[str, Measured]


def conclude(contest: Contest, measured: Cells) -> Conclusion:
    """Exponents, and what the longest text takes."""
    named = {cell.model: own for cell, own in measured.items()}
    models = {model: named[model] for model in contest.models if model in named}
    curves = [(model, form, what) for model, own in models.items() for form in _forms(own) for what in _WORK]
    peaks = ((m, p["form"], p["what"], p["n"], p["bytes"]) for m, own in models.items() for p in own["peaks"])
    states = ((m, p["n"], p["state"], p["context"]) for m, own in models.items() for p in own["states"])
    notes = ((m, note["form"], note["n"], note["why"]) for m, own in models.items() for note in own["notes"])
    slopes = (((m, form, what), _exponent(models[m], form, what)) for m, form, what in curves)
    held = ("model", "tokens written", "state, bytes", "read at every step, bytes")
    return Conclusion(
        findings=[_finding(model, own) for model, own in models.items()],
        figures=_figures(models),
        tables=filled(
            exponents("Exponent b of peak memory ~ n^b", ("model", "form", "of", "from n", "to n"), slopes),
            table("peaks", "Peaks", ("model", "form", "of", "n", "bytes"), peaks),
            table("states", f"What decoding holds for one hypothesis, after a source of {SOURCE} tokens", held, states),
            stopped(("model", "form", "not measured from n"), notes),
        ),
        seeds=[contest.seeds[0]],
    )


def curve(measured: Measured, form: str, what: str) -> tuple[list[int], list[int]]:
    """Lengths, and the peak in bytes at each of them."""
    points = [point for point in measured["peaks"] if point["form"] == form and point["what"] == what]
    return [point["n"] for point in points], [point["bytes"] for point in points]


def _forms(measured: Measured) -> list[str]:
    return list(dict.fromkeys(point["form"] for point in measured["peaks"]))


def _exponent(measured: Measured, form: str, what: str) -> Slope | None:
    lengths, peaks = curve(measured, form, what)
    return long_slope(lengths, peaks, FITTED_FROM * lengths[-1]) if lengths else None


def _finding(model: str, measured: Measured) -> Finding | None:
    slope = _exponent(measured, AS_BUILT, "training")
    if slope is None:
        return None
    lengths, peaks = curve(measured, AS_BUILT, "training")
    parts = [f"{_size(peaks[-1])} in training at n = {lengths[-1]:,}"]
    for form in _forms(measured):
        (*_, longest), (*_, peak) = curve(measured, form, "training")
        other = _exponent(measured, form, "training")
        if form != AS_BUILT and other is not None:
            parts.append(f"{form}: {_size(peak)} at n = {longest:,}, n^{other.exponent.value:.2f}")
    parts.append(_state_in_words(measured["states"]))
    quantity = f"exponent of peak training memory against length, from n = {slope.first:,.0f} to {slope.last:,.0f}"
    return finding("memory", model, slope.exponent, "", quantity, "; ".join(filter(None, parts)), "training-memory")


def _state_in_words(states: list[Measured]) -> str:
    if len(states) < 3:
        return ""
    lengths, sizes = [point["n"] for point in states], [point["state"] for point in states]
    if not any(sizes):
        return "the decoder keeps nothing"
    law = growth(lengths, sizes)
    if law.law == "constant":
        return f"the decoder's state stays at {_size(sizes[-1])}"
    if law.law == "linear":
        return f"the decoder's state grows by {_size(law.rate)} with each token"
    return f"the decoder's state {law}"


def _size(count: float) -> str:
    """A number of bytes in words."""
    for unit, factor in (("GiB", 2**30), ("MiB", _MIB), ("KiB", 2**10)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} bytes"


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
