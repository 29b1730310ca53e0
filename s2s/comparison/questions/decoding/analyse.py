"""Analyse decoding speed: cost of a token, its growth with source and target length, and the fastest candidate."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from s2s.comparison.reporting import Interval, Value, axis, figure, filled, series, stopped, table, verdict
from s2s.comparison.results import Figure, Series, Verdict
from s2s.comparison.spec import Analysis, Comparison, Measured, Trials
from s2s.comparison.speed_benchmark import (
    SpeedBenchmark,
    at_best,
    by_round,
    fastest_place,
    machine_table,
    over_rounds,
    pairs_table,
    references,
    rivals,
)
from s2s.evaluation.inference import Estimate, long_slope, mean

# both lengths of the sentence at which models are ranked, and the one that is fixed while the other varies
TYPICAL = 32

# each round's measurement, by model and batch
Timed = Mapping[tuple[str, int], Mapping[int, Measured]]


@dataclass(frozen=True)
class Curve:
    """Times against a length."""

    words: str  # which time against which length
    points: str  # key of the measurements
    length: str  # key of the length in each of them
    seconds: str  # key of the time

    def of(self, rounds: Mapping[int, Measured], place: str) -> dict[int, dict[int, float]]:
        """Seconds by length and round, at a place."""
        found: dict[int, dict[int, float]] = {}
        for i, one in rounds.items():
            for point in (point for held in one["places"] if held["place"] == place for point in held[self.points]):
                found.setdefault(point[self.length], {})[i] = point[self.seconds]
        return found

    def fastest(self, rounds: Mapping[int, Measured]) -> dict[int, dict[int, float]]:
        """Seconds by length and round, each length at the place that is fastest for it."""
        at = {place: self.of(rounds, place) for place in rivals(_places(rounds))}
        watched_at = {place: references(rounds, place) for place in at}
        found = {}
        for length in sorted({length for times in at.values() for length in times}):
            speeds = {place: {i: 1 / s for i, s in times.get(length, {}).items()} for place, times in at.items()}
            found[length] = at[fastest_place(speeds, watched_at)][length]
        return found

    def slope(self, rounds: Mapping[int, Measured], place: str) -> tuple[float, float, Estimate] | None:
        """Between which lengths, and the exponent there over rounds; None where there are too few lengths."""
        times = self.of(rounds, place)
        whole = [i for i in rounds if times and all(i in own for own in times.values())]
        slopes = [long_slope(list(times), [own[i] for own in times.values()]) for i in whole]
        found = [slope for slope in slopes if slope]
        return (found[0].first, found[0].last, mean([s.exponent for s in found])) if found else None


_CURVES = (
    Curve("whole time against source n", "sources", "n", "seconds"),
    Curve("reading against source n", "sources", "n", "reading"),
    Curve("whole time against target m", "targets", "m", "seconds"),
    Curve("a late token against target m", "targets", "m", "last"),
)
_BY_SOURCE, _, _BY_TARGET, _LATE = _CURVES


def part(rows: int) -> str:
    """Prefix of the trials' part for a batch size."""
    return f"batch-{rows}-round"


def analyse(comparison: Comparison, measured: Trials) -> Analysis:
    """Milliseconds for a token, how they grow, and who is fastest."""
    batches = sorted({int(trial.part.split("-")[1]) for trial in measured})
    timed = {
        (model, rows): own
        for rows in batches
        for model in comparison.models
        if (own := by_round(measured, model, part(rows)))
    }
    benchmarks = _benchmarks(timed)
    title = (
        "Measured exponent b of time ~ length^b, interval over rounds; the textbook's O(n²p + m²p + nmp) says 2 and 2"
    )
    slopes = (
        (*key, place, curve.words, *slope)
        for key, own in timed.items()
        for place in _places(own)
        for curve in _CURVES
        if (slope := curve.slope(own, place))
    )
    heads = ("model", "batch", "place", "of", "from", "to", Interval("b", lambda row: row[6], 3))
    return Analysis(
        findings=[_verdict(model, timed, benchmarks) for model in comparison.models],
        figures=_figures(timed),
        tables=filled(
            table("exponents", title, heads, slopes),
            pairs_table("How many times as fast models write as one another", benchmarks),
            table("tokens", "Times over rounds", _TOKENS, _tokens(timed)),
            machine_table({(m, str(rows)): own for (m, rows), own in timed.items()}, ("model", "batch")),
            stopped(("model", "batch", "place", "length of the", "not measured from"), _notes(timed)),
        ),
        seeds=[comparison.seeds[0]],
    )


def _benchmarks(timed: Timed) -> dict[str, SpeedBenchmark]:
    """Output tokens a second as models are ranked by them, first, and all variations."""
    if not timed:
        return {}
    names = _places(next(iter(timed.values())))

    def benchmark(rows: int, curve: Curve, length: int, places: Sequence[str]) -> SpeedBenchmark:
        own = {model: rounds for (model, batch), rounds in timed.items() if batch == rows}
        tokens = rows * (length if curve.length == "m" else TYPICAL)

        def speeds(rounds: Mapping[int, Measured], place: str) -> dict[int, float]:
            return {i: tokens / seconds for i, seconds in curve.of(rounds, place).get(length, {}).items()}

        return SpeedBenchmark.between(
            {model: {place: speeds(rounds, place) for place in places} for model, rounds in own.items()},
            {model: {place: references(rounds, place) for place in places} for model, rounds in own.items()},
        )

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
    # everybody at the same place
    return benchmarks | {name: benchmark(rows, _BY_TARGET, TYPICAL, [name]) for name in names if [name] != every}


def _places(rounds: Mapping[int, Measured]) -> list[str]:
    """Compute placements of a candidate, one thread first."""
    return list(next(iter(rounds.values()))["references"])


def _verdict(model: str, timed: Timed, benchmarks: Mapping[str, SpeedBenchmark]) -> Verdict | None:
    benchmark, *_ = [*benchmarks.values(), None]
    if benchmark is None or not benchmark.speeds.get(model) or (model, 1) not in timed:
        return None
    found, (_, *others) = benchmark.assess(model), benchmarks
    sides = (("source", _BY_SOURCE), ("target", _BY_TARGET))
    slopes = ((side, curve.slope(timed[model, 1], benchmark.places[model])) for side, curve in sides)
    facts = {f"exponent of time in the {side}'s length": round(slope[2].value, 2) for side, slope in slopes if slope}
    cost = over_rounds([1000 / speed for speed in benchmark.counted(model)])
    quantity = f"time of an output token, batch 1, source and target of {TYPICAL} tokens"
    quantity += at_best(list(benchmark.references[model]))
    kept = benchmark.robustness(model, {name: benchmarks[name] for name in others})
    found = replace(found, facts={**found.facts, **facts}, variations=kept)
    return verdict("decoding cost", model, cost, "ms/token", quantity, found, "by-target")


def _figures(timed: Timed) -> list[Figure]:
    cost = axis("time of an output token", "ms", log=True)
    source, target = axis("source length n", "tokens", log=True), axis("target length m", "tokens", log=True)
    best = at_best(_places(next(iter(timed.values())))) if timed else ""
    over = "Geometric means over rounds; intervals (95 %): Student's over rounds."
    over = f"{best and f'At each length a model is timed{best[1:]}. '}{over}"
    whole = f"Whole time of a translation, reading included, over its tokens. {over}"
    return [
        figure(
            "by-target",
            f"An output token against the length of the target, at a source of {TYPICAL} tokens",
            (target, cost),
            _lines(timed, _BY_TARGET),
            whole,
        ),
        figure(
            "by-source",
            f"An output token against the length of the source, at a target of {TYPICAL} tokens",
            (source, cost),
            _lines(timed, _BY_SOURCE),
            whole,
        ),
        figure(
            "late-tokens",
            "A late token alone: the mean of the last half of the target, without reading",
            (target, cost),
            _lines(timed, _LATE),
            f"Level for a recurrent state; what looks back at all earlier tokens rises. {over}",
        ),
    ]


def _lines(timed: Timed, curve: Curve) -> list[Series]:
    """Milliseconds for a token."""

    def each(length: int, rounds: Mapping[int, float]) -> Estimate:
        tokens = 1 if curve is _LATE else length if curve.length == "m" else TYPICAL
        return over_rounds([1000 * seconds / tokens for seconds in rounds.values()])

    return [
        series(f"{model}, batch {rows}", model, list(times), [each(*time) for time in times.items()])
        for (model, rows), own in timed.items()
        if (times := curve.fastest(own))
    ]


_TOKENS = (
    "model",
    "batch",
    "place",
    "source n",
    "target m",
    Interval("ms for a step", lambda row: row[5], 4),
    "rounds",
)


def _tokens(timed: Timed) -> Iterator[tuple]:
    for (model, batch), own in timed.items():
        for place, curve in ((p, c) for p in _places(own) for c in (_BY_SOURCE, _BY_TARGET)):
            for length, rounds in curve.of(own, place).items():
                n, m = (length, TYPICAL) if curve is _BY_SOURCE else (TYPICAL, length)
                steps = over_rounds([1000 * seconds / m for seconds in rounds.values()])
                yield model, batch, place, n, m, steps, len(rounds)


def _notes(timed: Timed) -> Sequence[Sequence[Value]]:
    notes = (
        (*key, held["place"], note["length"], note["n"], note["why"])
        for key, own in timed.items()
        for one in own.values()
        for held in one["places"]
        for note in held["notes"]
    )
    return list({note[:5]: note for note in notes}.values())
