"""Analyse the growth of memory with length: exponents, peaks, and the size of the decoder's state."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from s2s.comparison.claims import traits_of
from s2s.comparison.questions.memory.claims import TrainingPeak, cache_grows, needs_square
from s2s.comparison.reporting import Value, axis, figure, filled, series, stopped, table, verdict
from s2s.comparison.results import Figure, Series, Verdict
from s2s.comparison.spec import Analysis, Comparison, Trial
from s2s.comparison.speed_benchmark import assess_count
from s2s.comparison.workload import AS_BUILT, EXPLICIT, End
from s2s.evaluation.inference import Slope, growth, long_slope

SOURCE = 32
"""Source length at which the decoder's state is measured."""
SHORTEST = 1
"""Length whose peak is subtracted before the fit: a GPU's workspaces for recurrent layers do not depend on length."""
FITTED_FROM = 0.25
"""Share of the greatest length from which on exponents are fitted: below, weights and layers dominate."""
_MIB = 2**20
_WORK = {
    "training": "Peak memory of a forward and backward pass",
    "inference": "Peak memory of a forward pass without gradients, with teacher forcing",
}


@dataclass(frozen=True)
class Peak:
    """Peak memory in one form at one length; `what` is `training` or `inference`."""

    form: str
    what: str
    n: int
    bytes: int


@dataclass(frozen=True)
class StateSize:
    """Bytes of the decoder's state after n tokens, and bytes of the source that each step reads."""

    n: int
    state: int
    context: int


@dataclass(frozen=True)
class MemoryUse:
    """Measurement of one candidate."""

    peaks: list[Peak]
    states: list[StateSize]
    notes: list[End]

    @property
    def forms(self) -> list[str]:
        """Measured forms, in order."""
        return list(dict.fromkeys(peak.form for peak in self.peaks))

    def bytes_by_length(self, form: str, what: str) -> dict[int, int]:
        """Peaks by length, without `SHORTEST`."""
        return {p.n: p.bytes for p in self.peaks if (p.form, p.what) == (form, what) and p.n != SHORTEST}

    def shortest(self, form: str) -> int | None:
        """Peak of inference at `SHORTEST`; None in comparisons that did not measure it."""
        found = (p.bytes for p in self.peaks if (p.form, p.what, p.n) == (form, "inference", SHORTEST))
        return next(found, None)

    def exponent(self, form: str, what: str, share: float = FITTED_FROM) -> Slope | None:
        """Exponent of the length-dependent part of the peak; None below three lengths.

        The peak of inference at `SHORTEST` is subtracted in training, too: the backward pass of a single token
        allocates gradients of all weights, which the peak of a long text does not contain.
        """
        peaks, least = self.bytes_by_length(form, what), self.shortest(form) or 0
        added = {n: peak - least for n, peak in peaks.items() if peak > least}
        return long_slope(list(added), list(added.values()), share * max(peaks)) if added else None


Models = Mapping[str, MemoryUse]


def analyse(comparison: Comparison, measured: Mapping[Trial, MemoryUse]) -> Analysis:
    """Compare the exponents of training memory."""
    named = {trial.model: own for trial, own in measured.items()}
    models = {model: named[model] for model in comparison.models if model in named}
    peaks = ((model, p.form, p.what, p.n, p.bytes) for model, own in models.items() for p in own.peaks)
    states = ((model, s.n, s.state, s.context) for model, own in models.items() for s in own.states)
    ends = ((model, end.form, end.n, end.why) for model, own in models.items() for end in own.notes)
    fitted = ("model", "form", "pass", "from n", "to n", "b", "R²", "largest error (%)", "b of the last two lengths")
    held = ("model", "generated tokens", "state (bytes)", "read at every step (bytes)")
    return Analysis(
        findings=[_verdict(model, models) for model in models],
        figures=_figures(models),
        tables=filled(
            table(
                "exponents",
                f"Exponent b of {_quantity(models.values())} memory ~ n^b, and quality of the fit",
                fitted,
                _exponents(models),
            ),
            table("peaks", "Peak memory", ("model", "form", "pass", "n", "bytes"), peaks),
            table("states", f"Decoder's state of one hypothesis, after a source of {SOURCE} tokens", held, states),
            stopped(("model", "form", "first n not measured"), ends),
        ),
        seeds=[comparison.seeds[0]],
        claims=[
            needs_square(
                traits_of(comparison), _training_peaks(models, AS_BUILT), _training_peaks(models, EXPLICIT.name)
            ),
            cache_grows(traits_of(comparison), {m: {s.n: s.state for s in own.states} for m, own in models.items()}),
        ],
    )


def _training_peaks(models: Models, form: str) -> dict[str, TrainingPeak]:
    found = {}
    for model, own in models.items():
        if slope := own.exponent(form, "training"):
            n, peak = list(own.bytes_by_length(form, "training").items())[-1]
            found[model] = TrainingPeak(n, peak / _MIB, slope)
    return found


def _quantity(measured: Iterable[MemoryUse]) -> str:
    known = all(own.shortest(AS_BUILT) is not None for own in measured)
    return "length-dependent peak" if known else "peak"


def _exponents(models: Models) -> Iterator[Sequence[Value]]:
    for model, own in models.items():
        for form, what in ((form, what) for form in own.forms for what in _WORK):
            if s := own.exponent(form, what):
                yield model, form, what, s.first, s.last, s.exponent, s.r2, 100 * s.residual, s.local


def _verdict(model: str, models: Models) -> Verdict | None:
    measured = models[model]
    slope = measured.exponent(AS_BUILT, "training")
    if slope is None:
        return None
    n, peak = list(measured.bytes_by_length(AS_BUILT, "training").items())[-1]
    facts: dict[str, float | str] = {
        f"peak in training at n = {n:,} (MiB)": float(f"{peak / _MIB:.3g}"),
        "R²": round(slope.r2, 4),
        "exponent of the last two lengths": round(slope.local, 2),
    }
    for form in measured.forms:
        if form != AS_BUILT and (other := measured.exponent(form, "training")):
            facts[f"exponent, {form}"] = round(other.exponent, 2)
    states = measured.states
    if len(states) > 2 and any(each.state for each in states):
        facts["growth of the decoder's state"] = growth([s.n for s in states], [s.state for s in states]).law
    own = _doublings(models, AS_BUILT, "training")
    others = {
        "inference": [_doublings(models, AS_BUILT, "inference")],
        "all lengths": [_doublings(models, AS_BUILT, "training", 0)],
    }
    # explicit attention is a variation only if the candidate or its rival has that form
    rival = max((name for name in own if name != model), key=own.__getitem__, default=model)
    if any(EXPLICIT.name in models[name].forms for name in (model, rival)):
        others["explicit attention"] = [_doublings(models, EXPLICIT.name, "training")]
    found = replace(assess_count(model, own, others), facts=facts)
    quantity = f"exponent of {_quantity([measured])} training memory, from n = {slope.first:,.0f} to {slope.last:,.0f}"
    return verdict("memory", model, slope.exponent, "", quantity, found, "training-memory")


def _doublings(models: Models, form: str, what: str, share: float = FITTED_FROM) -> dict[str, float]:
    """One over the growth factor of memory when the length doubles, by model (as built if it lacks the form)."""
    slopes = {m: own.exponent(form if form in own.forms else AS_BUILT, what, share) for m, own in models.items()}
    return {model: 2**-slope.exponent for model, slope in slopes.items() if slope}


def _figures(models: Models) -> list[Figure]:
    length, memory = axis("length n", "tokens", log=True), axis("peak memory", "MiB", log=True)
    slopes = (
        "Peak of the allocator, without weights and their gradients. When n doubles, memory doubles at a slope of 1 "
        "and is four times as large at a slope of 2."
    )

    def lines(what: str) -> list[Series]:
        curves = [(m, form, own.bytes_by_length(form, what)) for m, own in models.items() for form in own.forms]
        return [
            series(f"{m}, {form}", m, list(peaks), [peak / _MIB for peak in peaks.values()])
            for m, form, peaks in curves
            if peaks
        ]

    states = {model: own.states for model, own in models.items() if any(each.state for each in own.states)}
    return [
        *(figure(f"{what}-memory", title, (length, memory), lines(what), slopes) for what, title in _WORK.items()),
        figure(
            "decoding-state",
            "Size of the decoder's state",
            (axis("generated tokens", "tokens", log=True), axis("state of one hypothesis", "KiB", log=True)),
            [series(m, m, [each.n for each in own], [each.state / 2**10 for each in own]) for m, own in states.items()],
            "A cache of keys and values grows with each token; a recurrent state does not.",
        ),
    ]
