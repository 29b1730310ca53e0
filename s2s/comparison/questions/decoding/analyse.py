"""Analyse decoding speed: cost of a token, its growth with source and target length, and the fastest candidate."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from s2s.comparison.claims import estimates_of, traits_of
from s2s.comparison.questions.decoding.claims import writes_cheaply
from s2s.comparison.reporting import Interval, Value, axis, figure, filled, series, stopped, table, verdict
from s2s.comparison.results import Figure, Series, Verdict
from s2s.comparison.spec import Analysis, Comparison, Trial
from s2s.comparison.speed_benchmark import (
    EQUAL_DEPTH,
    EQUAL_DEPTH_PART,
    TYPICAL,
    SpeedBenchmark,
    TimedMeasurement,
    Times,
    at_best,
    by_round,
    exponent_over_rounds,
    fastest_times,
    machine_table,
    pairs_table,
    rivals,
)
from s2s.comparison.workload import End
from s2s.evaluation.inference import Estimate, median


@dataclass(frozen=True)
class SourceTime:
    """Seconds of translating a source of n tokens, and of encoding it."""

    n: int
    seconds: float
    reading: float


@dataclass(frozen=True)
class TargetTime:
    """Seconds until m tokens are written, and of one token in their second half."""

    m: int
    seconds: float
    last: float


@dataclass(frozen=True)
class PlaceTimes:
    """Times at one place; the other length is `TYPICAL`."""

    place: str
    sources: list[SourceTime]
    targets: list[TargetTime]
    notes: list[End]


@dataclass(frozen=True, kw_only=True)
class DecodingTimes(TimedMeasurement):
    """Measurement of one candidate in one round."""

    places: list[PlaceTimes]


Rounds = Mapping[int, DecodingTimes]
Timed = Mapping[tuple[str, int], Rounds]
"""Rounds by model and batch size."""


@dataclass(frozen=True)
class Curve:
    """A time against a length."""

    words: str
    by_target: bool  # True if the length is that of the target
    seconds: Callable[[PlaceTimes], dict[int, float]]  # by length

    def at(self, rounds: Rounds, place: str) -> Times:
        """Times at a place."""
        found: dict[int, dict[int, float]] = {}
        for i, one in rounds.items():
            for own in (own for own in one.places if own.place == place):
                for length, seconds in self.seconds(own).items():
                    found.setdefault(length, {})[i] = seconds
        return found

    def fastest(self, rounds: Rounds) -> Times:
        """Times, by length at the fastest place for it."""
        return fastest_times({place: self.at(rounds, place) for place in rivals(_places(rounds))}, rounds)


_CURVES = (
    Curve("total, against source n", False, lambda own: {each.n: each.seconds for each in own.sources}),
    Curve("encoding, against source n", False, lambda own: {each.n: each.reading for each in own.sources}),
    Curve("total, against target m", True, lambda own: {each.m: each.seconds for each in own.targets}),
    Curve("late token, against target m", True, lambda own: {each.m: each.last for each in own.targets}),
)
_BY_SOURCE, _, _BY_TARGET, _LATE = _CURVES


def part(rows: int) -> str:
    """Prefix of the trials' part for a batch size."""
    return f"batch-{rows}-round"


def analyse(comparison: Comparison, measured: Mapping[Trial, DecodingTimes]) -> Analysis:
    """Compare the cost of a token at batch size 1."""
    batches = sorted(
        {int(trial.part.split("-")[1]) for trial in measured if not trial.part.startswith(EQUAL_DEPTH_PART)}
    )
    timed = {
        (model, rows): own
        for rows in batches
        for model in comparison.models
        if (own := by_round(measured, model, part(rows)))
    }
    equally_deep = {model: own for model in comparison.models if (own := by_round(measured, model, EQUAL_DEPTH_PART))}
    benchmarks = _benchmarks(timed, equally_deep)
    title = "Exponent b of time ~ length^b, interval over rounds; 2 and 2 in the textbook's O(n²p + m²p + nmp)"
    slopes = (
        (*key, place, curve.words, *slope)
        for key, own in timed.items()
        for place in _places(own)
        for curve in _CURVES
        if (slope := exponent_over_rounds(curve.at(own, place)))
    )
    heads = ("model", "batch", "place", "time", "from", "to", Interval("b", lambda row: row[6], 3))
    ms = Interval("step (ms)", lambda row: row[5], 4)
    ends = (
        (*key, at.place, end.length, end.n, end.why)
        for key, own in timed.items()
        for one in own.values()
        for at in one.places
        for end in at.notes
    )
    findings = [_verdict(model, timed, benchmarks) for model in comparison.models]
    return Analysis(
        findings=findings,
        figures=_figures(timed),
        tables=filled(
            table("exponents", title, heads, slopes),
            pairs_table("Ratios of decoding speeds", benchmarks),
            table(
                "tokens",
                "Time of a decoding step: medians over rounds",
                ("model", "batch", "place", "source n", "target m", ms, "rounds"),
                _tokens(timed),
            ),
            machine_table({(m, str(rows)): own for (m, rows), own in timed.items()}, ("model", "batch")),
            stopped(
                ("model", "batch", "place", "length of", "first not measured"),
                {end[:5]: end for end in ends}.values(),
            ),
        ),
        seeds=[comparison.seeds[0]],
        claims=[writes_cheaply(traits_of(comparison), benchmarks, estimates_of(findings, "decoding cost"))],
    )


def _benchmarks(timed: Timed, equally_deep: Mapping[str, Rounds]) -> dict[str, SpeedBenchmark]:
    """Benchmarks of output tokens per second: the one that ranks, then all variations.

    Args:
        timed: Rounds by model and batch size.
        equally_deep: Rounds by model, with equally many layers.
    """
    if not timed:
        return {}
    names = _places(next(iter(timed.values())))

    def between(
        own: Mapping[str, Rounds], tokens: int, curve: Curve, length: int, places: Sequence[str]
    ) -> SpeedBenchmark:
        def speeds(model: str, place: str) -> dict[int, float]:
            return {i: tokens / seconds for i, seconds in curve.at(own[model], place).get(length, {}).items()}

        return SpeedBenchmark.between(own, places, speeds)

    def benchmark(rows: int, curve: Curve, length: int, places: Sequence[str]) -> SpeedBenchmark:
        own = {model: rounds for (model, batch), rounds in timed.items() if batch == rows}
        return between(own, rows * (length if curve.by_target else TYPICAL), curve, length, places)

    rows, every = min(batch for _, batch in timed), rivals(names)
    source, target = (
        max((n for (_, batch), own in timed.items() if batch == rows for n in curve.fastest(own)), default=TYPICAL)
        for curve in (_BY_SOURCE, _BY_TARGET)
    )
    benchmarks = {f"batch {rows}, {TYPICAL} tokens": benchmark(rows, _BY_TARGET, TYPICAL, every)}
    benchmarks[f"source of {source:,} tokens"] = benchmark(rows, _BY_SOURCE, source, every)
    benchmarks[f"target of {target:,} tokens"] = benchmark(rows, _BY_TARGET, target, every)
    benchmarks |= {
        f"batch {b}": benchmark(b, _BY_TARGET, TYPICAL, every) for b in sorted({b for _, b in timed}) if b != rows
    }
    if equally_deep:
        benchmarks[EQUAL_DEPTH] = between(equally_deep, TYPICAL, _BY_TARGET, TYPICAL, every)
    # all candidates at the same place
    return benchmarks | {name: benchmark(rows, _BY_TARGET, TYPICAL, [name]) for name in names if [name] != every}


def _places(rounds: Rounds) -> list[str]:
    """Compute placements of a candidate, one thread first."""
    return list(next(iter(rounds.values())).references)


def _verdict(model: str, timed: Timed, benchmarks: Mapping[str, SpeedBenchmark]) -> Verdict | None:
    benchmark = next(iter(benchmarks.values()), None)
    if benchmark is None or not benchmark.speeds.get(model) or (model, 1) not in timed:
        return None
    found, (_, *others) = benchmark.assess(model), benchmarks
    facts = {
        f"exponent of time against {side} length": round(slope[2].value, 2)
        for side, curve in (("source", _BY_SOURCE), ("target", _BY_TARGET))
        if (slope := exponent_over_rounds(curve.at(timed[model, 1], benchmark.places[model])))
    }
    cost = median([1000 / speed for speed in benchmark.counted(model)])
    quantity = f"time per output token, batch 1, source and target of {TYPICAL} tokens"
    quantity += at_best(list(benchmark.references[model]))
    kept = benchmark.robustness(model, {name: benchmarks[name] for name in others})
    found = replace(found, facts={**found.facts, **facts}, variations=kept)
    return verdict("decoding cost", model, cost, "ms/token", quantity, found, "by-target")


def _figures(timed: Timed) -> list[Figure]:
    cost = axis("time per output token", "ms", log=True)
    source, target = axis("source length n", "tokens", log=True), axis("target length m", "tokens", log=True)
    best = at_best(_places(next(iter(timed.values())))) if timed else ""
    over = "Medians over rounds; intervals (95 %): of order statistics over rounds."
    over = f"{best and f'At each length a model is timed{best[1:]}. '}{over}"
    whole = f"Time of the whole translation, with encoding, divided by its tokens. {over}"

    def lines(curve: Curve) -> list[Series]:
        shown = []
        for (model, rows), own in timed.items():
            if times := curve.fastest(own):
                # Each step writes a token of every sentence of the batch.
                tokens = {n: rows * (1 if curve is _LATE else n if curve.by_target else TYPICAL) for n in times}
                ms = [median([1000 * s / tokens[n] for s in each.values()]) for n, each in times.items()]
                shown.append(series(f"{model}, batch {rows}", model, list(times), ms))
        return shown

    return [
        figure(
            "by-target",
            f"Time per output token against target length, with a source of {TYPICAL} tokens",
            (target, cost),
            lines(_BY_TARGET),
            whole,
        ),
        figure(
            "by-source",
            f"Time per output token against source length, with a target of {TYPICAL} tokens",
            (source, cost),
            lines(_BY_SOURCE),
            whole,
        ),
        figure(
            "late-tokens",
            "Time of a late token: mean over the last half of the target, without encoding",
            (target, cost),
            lines(_LATE),
            f"Constant for a recurrent state; rising for attention to all earlier tokens. {over}",
        ),
    ]


def _tokens(timed: Timed) -> Iterator[tuple[Value | Estimate, ...]]:
    for (model, batch), own in timed.items():
        for place, curve in ((p, c) for p in _places(own) for c in (_BY_SOURCE, _BY_TARGET)):
            for length, rounds in curve.at(own, place).items():
                n, m = (TYPICAL, length) if curve.by_target else (length, TYPICAL)
                steps = median([1000 * seconds / m for seconds in rounds.values()])
                yield model, batch, place, n, m, steps, len(rounds)
