"""Analyse work, span, speed-up by threads, and training speed."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

from s2s.comparison.claims import traits_of
from s2s.comparison.questions.parallelism.claims import trains_faster, waits
from s2s.comparison.reporting import Interval, Value, axis, figure, filled, series, stopped, table, verdict
from s2s.comparison.results import Claim, Figure, Series, Table, Verdict
from s2s.comparison.spec import Analysis, Comparison, Trial
from s2s.comparison.speed_benchmark import (
    EQUAL_DEPTH,
    EQUAL_DEPTH_PART,
    TYPICAL,
    References,
    SpeedBenchmark,
    TimedMeasurement,
    Times,
    assess_count,
    at_best,
    by_round,
    exponent_over_rounds,
    fastest_times,
    machine_table,
    pairs_table,
    references,
    rivals,
)
from s2s.comparison.workload import AS_BUILT, UNFUSED, End
from s2s.evaluation.gates import Assessment, Gate, device_busy, machine_steady, steady_rounds
from s2s.evaluation.inference import Estimate, growth, median

# Brent's lower bound is drawn only if it is below this share of the upper bound
_VISIBLY = 0.95
_BATCHES = {"tokens": "fixed tokens", "pair": "one pair"}
_OVER_ROUNDS = "Medians over rounds; intervals (95 %): of order statistics over rounds."
_CAPTIONS = {
    "tokens": "All batches have equally many tokens, so longer texts are fewer. Models that are parallel over time "
    "lose little speed; recurrent ones have fewer texts to process in parallel.",
    "pair": "Each step has one pair, so the work grows at least as n.",
}


@dataclass(frozen=True)
class Count:
    """Counted operations of one pair of length n in one form; see `s2s.comparison.operations.Operations`.

    `what` is `forward`, `training` or `generating`.
    """

    form: str
    what: str
    n: int
    depth: int
    count: int
    work: int
    span: int
    undivided: int


@dataclass(frozen=True)
class Counts:
    """Counted operations of one candidate."""

    points: list[Count] = field(default_factory=list)


@dataclass(frozen=True)
class StepTime:
    """Seconds of a training step; `batch` is `tokens` (a fixed number of target tokens) or `pair`."""

    form: str
    batch: str
    place: str
    n: int
    rows: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class StepTimes(TimedMeasurement):
    """Times of one candidate in one round.

    Attributes:
        points: Times of training steps.
        notes: Lengths at which the measurement of a form ended.
        flops: FLOPs of a large matrix product, by place.
        products: Seconds of that product, by place; empty if it is the reference.
    """

    points: list[StepTime]
    notes: list[End]
    flops: dict[str, int]
    products: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Candidate:
    """All measurements of one candidate: counts (empty if counting failed) and times by round."""

    counts: Counts
    rounds: Mapping[int, StepTimes]

    @property
    def places(self) -> list[str]:
        """Compute placements, one thread first."""
        return list(next(iter(self.rounds.values())).references) if self.rounds else []

    def counted(self, what: str, form: str = UNFUSED.name) -> dict[int, Count]:
        """Counts by length."""
        return {each.n: each for each in self.counts.points if (each.form, each.what) == (form, what)}

    def depths(self, what: str, form: str = UNFUSED.name) -> dict[int, int]:
        """Longest chain of dependent operations by length."""
        return {n: each.depth for n, each in self.counted(what, form).items()}

    def parallelism(self) -> dict[int, float]:
        """Work over span of a training step, by length."""
        return {n: each.work / each.span for n, each in self.counted("training").items()}

    def forms(self, batch: str) -> list[str]:
        """Timed forms, in order."""
        points = (point for one in self.rounds.values() for point in one.points)
        return list(dict.fromkeys(point.form for point in points if point.batch == batch))

    def seconds(self, batch: str, place: str, form: str = AS_BUILT) -> Times:
        """Seconds of a training step, by length and round."""
        times: dict[int, dict[int, float]] = {}
        for i, one in self.rounds.items():
            for point in one.points:
                if (point.form, point.batch, point.place) == (form, batch, place):
                    times.setdefault(point.n, {})[i] = point.seconds
        return times

    def fastest(self, batch: str, form: str = AS_BUILT) -> Times:
        """Seconds of a training step, by length at the fastest place for it."""
        return fastest_times({place: self.seconds(batch, place, form) for place in rivals(self.places)}, self.rounds)

    def rows(self, batch: str) -> dict[int, int]:
        """Batch size by length."""
        return {p.n: p.rows for one in self.rounds.values() for p in one.points if p.batch == batch}

    def gains(self, place: str) -> Times:
        """Speed-up over one thread, by length and steady round."""
        alone, together = (self.seconds("pair", name) for name in (self.places[0], place))
        both = {n: alone[n].keys() & together[n].keys() for n in alone if n in together}
        steady = set(steady_rounds(*self.references_at(place).values())) or set(self.rounds)
        return {n: {i: alone[n][i] / together[n][i] for i in sorted(rounds & steady)} for n, rounds in both.items()}

    def references_at(self, place: str) -> dict[str, References]:
        """Seconds of the reference on one thread and at a place."""
        return {name: references(self.rounds, name) for name in (self.places[0], place)}

    def processors(self, place: str) -> float:
        """Speed-up of large matrix products over one thread: p in Brent's bounds."""
        flops = next(iter(self.rounds.values())).flops

        def rate(name: str) -> float:
            seconds = [[one.products[name]] if one.products else one.references[name] for one in self.rounds.values()]
            return flops[name] / min(map(min, seconds))

        return rate(place) / rate(self.places[0])


Models = Mapping[str, Candidate]


def brent(parallelism: float, processors: float) -> tuple[float, float]:
    """Bounds on the speed-up of p processors over one (Brent 1974).

    With work W and span S, the time on p processors is at least max(W/p, S) and at most W/p + S; on one it is W.

    Args:
        parallelism: W/S.
        processors: p.

    Returns:
        The lower and the upper bound.
    """
    return 1 / (1 / processors + 1 / parallelism), min(processors, parallelism)


def analyse(comparison: Comparison, measured: Mapping[Trial, Counts | StepTimes]) -> Analysis:
    """Compare sequential steps, parallelism and training speed."""
    counts = {trial.model: each for trial, each in measured.items() if isinstance(each, Counts)}
    timed = {trial: each for trial, each in measured.items() if isinstance(each, StepTimes)}
    models = {m: Candidate(counts.get(m, Counts()), by_round(timed, m)) for m in comparison.models}
    equally_deep = {
        m: Candidate(Counts(), own) for m in comparison.models if (own := by_round(timed, m, EQUAL_DEPTH_PART))
    }
    ranked = _benchmarks(models, equally_deep)
    return Analysis(
        findings=[
            found for m in models for found in (_sequential(m, models), _parallel(m, models), _speed(m, models, ranked))
        ],
        figures=[*_count_figures(models), *_time_figures(models)],
        tables=filled(*_tables(models, ranked)),
        seeds=[comparison.seeds[0]],
        claims=_claims(comparison, models, ranked),
    )


def _claims(comparison: Comparison, models: Models, benchmarks: Mapping[str, SpeedBenchmark]) -> list[Claim | None]:
    traits, whats = traits_of(comparison), ("training", "forward", "generating")
    ranked = next(iter(benchmarks.values()), None)
    busy = {model: _busy(models[model], place) for model, place in ranked.places.items()} if ranked else {}
    return [
        waits(traits, {what: {model: own.depths(what) for model, own in models.items()} for what in whats}),
        trains_faster(traits, benchmarks, busy),
    ]


def _benchmarks(models: Models, equally_deep: Models) -> dict[str, SpeedBenchmark]:
    """Benchmarks of target tokens per second: the one that ranks, then all variations.

    Args:
        models: Measurements by model.
        equally_deep: Measurements with equally many layers.
    """
    timed = {model: own for model, own in models.items() if own.rounds}
    if not timed:
        return {}
    every = rivals(next(iter(timed.values())).places)
    lengths = sorted({n for own in timed.values() for n in own.fastest("tokens")})

    def benchmark(batch: str, n: int, places: Sequence[str], timed: Models = timed) -> SpeedBenchmark:
        def speeds(model: str, place: str) -> dict[int, float]:
            seconds = timed[model].seconds(batch, place).get(n, {})
            return {i: timed[model].rows(batch)[n] * n / s for i, s in seconds.items()}

        return SpeedBenchmark.between({model: own.rounds for model, own in timed.items()}, places, speeds)

    found = {f"n = {TYPICAL}": benchmark("tokens", TYPICAL, every)}
    found |= {f"n = {n:,}": benchmark("tokens", n, every) for n in lengths if n != TYPICAL}
    found["one pair at a time"] = benchmark("pair", TYPICAL, every)
    if equally_deep:
        found[EQUAL_DEPTH] = benchmark("tokens", TYPICAL, every, equally_deep)
    # all candidates at the same place
    return found | {name: benchmark("tokens", TYPICAL, [name]) for name in every if [name] != every}


def _sequential(model: str, models: Models) -> Verdict | None:
    depths = models[model].depths("training")
    if not depths:
        return None
    longest = max(depths)
    quantity = f"longest chain of dependent operations, forward and backward, at n = {longest:,}"

    def shortness(what: str, n: int | None = None) -> dict[str, float]:
        """Return one over the depth of each candidate at a length, or at its longest.

        The number of layers does not matter here: all chains that do not grow with length count as the shortest.
        """
        known = {name: own for name, each in models.items() if (own := each.depths(what))}
        at = {name: own[n or max(own)] for name, own in known.items() if (n or max(own)) in own}
        level = {
            name
            for name in at
            if len(own := known[name]) > 2 and growth(list(own), list(own.values())).law == "constant"
        }
        shortest = min((at[name] for name in level), default=0)
        return {name: 1 / (shortest if name in level else depth) for name, depth in at.items()}

    # all other lengths are one variation: if chains keep their order, all lengths give the same outcome
    shorter = [shortness("training", n) for n in depths if n != longest]
    forms = {"forward pass alone": shortness("forward", longest), "generation": shortness("generating")}
    variations = {"other lengths": shorter} | {name: [figures] for name, figures in forms.items()}
    whats = {"chain in training": "training", "chain in generation": "generating"}
    laws = {name: _law(models[model].depths(what)) for name, what in whats.items()}
    found = replace(assess_count(model, shortness("training", longest), variations), facts=laws)
    return verdict("sequential steps", model, depths[longest], "operations", quantity, found, "depth")


def _law(counts: Mapping[int, int]) -> str:
    return str(growth(list(counts), list(counts.values()))) if len(counts) > 2 else "too few lengths for a law"


def _parallel(model: str, models: Models) -> Verdict | None:
    seen = models[model]
    own = seen.parallelism()
    if not own:
        return None
    shortest, longest = min(own), max(own)
    facts: dict[str, float | str] = {f"ratio to n = {shortest}": float(f"{own[longest] / own[shortest]:.3g}")}
    reasons = []
    for place in seen.places[1:]:
        gains = seen.gains(place)
        both = [n for n in gains if n in own and gains[n]]
        if not both:
            continue
        steady = machine_steady(seen.references_at(place))
        if not steady.passed:
            reasons.append(f"{place}: {steady.sentence}")
            continue
        n = max(both)
        gain, bounds = median(list(gains[n].values())), brent(own[n], seen.processors(place))
        facts[f"{place}, speed-up over one thread at n = {n:,}"] = round(gain.value, 2)
        facts[f"{place}, Brent's bounds"] = f"{bounds[0]:.2f} to {bounds[1]:.2f}"
    quantity = f"work over span of a training step, one pair of n = {longest:,}: FLOPs that could run in parallel"
    # more work on the same span is no advantage, so no model is better
    found = Assessment("", reasons=tuple(reasons), facts=facts)
    return verdict("parallel computation", model, own[longest], "", quantity, found, "work-span")


def _speed(model: str, models: Models, benchmarks: Mapping[str, SpeedBenchmark]) -> Verdict | None:
    benchmark = next(iter(benchmarks.values()), None)
    if benchmark is None or not benchmark.speeds.get(model):
        return None
    found, (ranked, *others) = benchmark.assess(model), benchmarks
    quantity = f"target tokens per second, forward and backward pass, {ranked}, batches of equally many tokens"
    quantity += at_best(list(benchmark.references[model]))
    # no verdict if the candidate or its rival leaves its device idle
    checks = {
        name: _busy(models[name], benchmark.places[name]) for name in (model, benchmark.best_other(model)) if name
    }
    idle = [f"{name}: {check.sentence}" for name, check in checks.items() if check and not check.passed]
    if idle:
        found = Assessment("not measurable", found.rival, reasons=tuple(idle))
    else:
        found = replace(found, variations=benchmark.robustness(model, {name: benchmarks[name] for name in others}))
    return verdict("training speed", model, benchmark.speed(model), "tokens/s", quantity, found, "time-tokens")


def _busy(seen: Candidate, place: str) -> Gate | None:
    """Check that the device is busy with the batch that ranks the models; None if it was not measured."""
    alone, together = (seen.seconds(batch, place).get(TYPICAL, {}) for batch in ("pair", "tokens"))
    if not alone or not together:
        return None
    one, many = (median(list(own.values())).value for own in (alone, together))
    return device_busy(one, many, seen.rows("tokens")[TYPICAL])


def _count_figures(models: Models) -> list[Figure]:
    length = axis("length n", "tokens", log=True)
    depths = {model: own for model, seen in models.items() if (own := seen.depths("training"))}
    ratios = {model: own for model, seen in models.items() if (own := seen.parallelism())}
    return [
        figure(
            "depth",
            "Longest chain of dependent operations in a training step",
            (length, axis("operations in the chain", log=True)),
            [series(model, model, list(own), list(own.values())) for model, own in depths.items()],
            "Forward and backward pass of one pair, counted without fused kernels. If the chain does not grow, all "
            "positions are computed in parallel. If it doubles with n, each position waits for the previous one.",
        ),
        figure(
            "work-span",
            "Available parallelism of a training step: work over span",
            (length, axis("work / span", log=True)),
            [series(model, model, list(own), list(own.values())) for model, own in ratios.items()],
            "FLOPs of the forward and backward pass of one pair, divided by those of the longest chain if each "
            "operation uses as many processors as it can. If this does not grow, longer texts cannot use more.",
        ),
    ]


def _time_figures(models: Models) -> list[Figure]:
    length, time = axis("length n", "tokens", log=True), axis("time", "ms", log=True)
    best = at_best(next((seen.places for seen in models.values() if seen.rounds), []))

    def line(label: str, model: str, values: Times, scale: float = 1000) -> Series:
        shown = [median([scale * value for value in own.values()]) for own in values.values()]
        return series(label, model, list(values), shown)

    gains = [
        line(f"{model}, {place}", model, seen.gains(place), 1)
        for model, seen in models.items()
        for place in seen.places[1:]
    ]
    return [
        figure(
            "speed-up",
            "Speed-up over one thread: one pair, as built",
            (length, axis("speed-up over one thread", log=True)),
            [*(each for each in gains if each.y), *_bounds(models)],
            "If work over span is much larger than p, the speed-up of a large matrix product, Brent's theorem "
            "guarantees nearly p (lower bounds are drawn). Any shortfall is due to the program, not the model. "
            f"{_OVER_ROUNDS}",
        ),
        *(
            figure(
                f"time-{kind}",
                f"Time of a training step: {words}",
                (length, time),
                [
                    line(f"{model}, {form}", model, seen.fastest(kind, form))
                    for model, seen in models.items()
                    for form in seen.forms(kind)
                ],
                f"Forward and backward pass{best and f' of a model{best} at that length'}. "
                f"{_CAPTIONS[kind]} {_OVER_ROUNDS}",
            )
            for kind, words in _BATCHES.items()
        ),
    ]


def _bounds(models: Models) -> list[Series]:
    """Brent's bounds on the speed-up."""
    timed = {model: seen for model, seen in models.items() if seen.rounds}
    shown = []
    for place in next(iter(timed.values())).places[1:] if timed else ():
        worth = statistics.median(seen.processors(place) for seen in timed.values())
        lengths = sorted({n for seen in timed.values() for n in seen.gains(place)})
        shown.append(series(f"{place}: p (large matrix product)", "", lengths, [worth] * len(lengths), reference=True))
        for model, seen in timed.items():
            least = {n: brent(each, worth)[0] for n, each in seen.parallelism().items()}
            if least and min(least.values()) < _VISIBLY * worth:
                label = f"{model}, {place}: Brent's lower bound"
                shown.append(series(label, model, list(least), list(least.values()), reference=True))
    return shown


def _tables(models: Models, benchmarks: Mapping[str, SpeedBenchmark]) -> list[Table]:
    timed = ("model", "form", "batch", "place")
    counted = ("n", "chain", "operations")
    times = [
        (model, form, words, place, own)
        for model, seen in models.items()
        for batch, words in _BATCHES.items()
        for place in seen.places
        for form in seen.forms(batch)
        if (own := seen.seconds(batch, place, form))
    ]
    slopes = ((*labels, *slope) for *labels, own in times if (slope := exponent_over_rounds(own)))
    means = (
        (*labels, n, median([1000 * s for s in rounds.values()])) for *labels, own in times for n, rounds in own.items()
    )
    works = (
        (model, what, n, c.work, c.span, c.work / c.span, c.undivided, c.work / c.undivided)
        for model, seen in models.items()
        for what in ("forward", "training")
        for n, c in seen.counted(what).items()
    )
    ends = (
        (model, end.form, _BATCHES[end.batch], end.place, end.n, end.why)
        for model, seen in models.items()
        for one in seen.rounds.values()
        for end in one.notes
    )
    return [
        table(
            "growth",
            "Longest chain of dependent operations, and number of launched operations, for one pair",
            ("model", "form", "pass", *counted, *counted, "growth of the chain", "growth of the operations"),
            _growths(models),
        ),
        table(
            "work",
            "Work and span of one pair, in FLOPs (undivided: without parallelism inside operations)",
            ("model", "pass", "n", "work", "span", "work / span", "undivided span", "work / undivided span"),
            works,
        ),
        table(
            "brent",
            "Brent's bounds and measured speed-up: one pair, forward and backward pass, as built",
            ("model", "place", "n", "p", "lower bound", "upper bound", Interval("measured", itemgetter(6), 3)),
            _brents(models),
        ),
        table(
            "exponents",
            "Exponent b of time ~ n^b over the longer half of the lengths; interval over rounds",
            (*timed, "from n", "to n", Interval("b", itemgetter(6), 3)),
            slopes,
        ),
        pairs_table("Ratios of training speeds", benchmarks),
        table("times", "Time of a step: medians over rounds", (*timed, "n", Interval("ms", itemgetter(5), 4)), means),
        machine_table({(model,): seen.rounds for model, seen in models.items()}, ("model",)),
        # one row for equal ends in several rounds
        stopped((*timed, "first n not measured"), {end[:5]: end for end in ends}.values()),
    ]


def _growths(models: Models) -> Iterator[Sequence[Value]]:
    kinds = [(UNFUSED.name, "training"), (AS_BUILT, "training"), (UNFUSED.name, "generating")]
    for model, form, what in ((model, *kind) for model in models for kind in kinds):
        if points := models[model].counted(what, form):
            ends = [value for n in (min(points), max(points)) for value in (n, points[n].depth, points[n].count)]
            laws = (_law({n: getattr(each, key) for n, each in points.items()}) for key in ("depth", "count"))
            yield model, form, what, *ends, *laws


def _brents(models: Models) -> Iterator[tuple[Value | Estimate, ...]]:
    for model, seen in models.items():
        parallelism = seen.parallelism()
        for place in seen.places[1:]:
            worth = seen.processors(place)
            for n, gains in seen.gains(place).items():
                bounds = brent(parallelism[n], worth) if n in parallelism else (None, None)
                yield model, place, n, worth, *bounds, median(list(gains.values()))
