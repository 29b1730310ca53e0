"""Pictures and tables of what was counted and timed."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from s2s.comparison.paired_tests import crossing_in_words
from s2s.comparison.questions.parallelism.seen import Models, Seen, Times, brent
from s2s.comparison.reporting import Interval, Value, axis, figure, series, stopped, table
from s2s.comparison.results import Figure, Series, Table
from s2s.comparison.speed_benchmark import SpeedBenchmark, at_best, machine_table, over_rounds, pairs_table
from s2s.comparison.workload import AS_BUILT, UNFUSED
from s2s.evaluation.inference import Estimate, growth, long_slope, mean

# a bound nearer to the other one is not drawn
_VISIBLY = 0.95
_BATCHES = {"tokens": "fixed tokens", "pair": "one pair"}
_OVER_ROUNDS = "Geometric means over rounds; intervals (95 %): Student's over rounds."
_CAPTIONS = {
    "tokens": "Every batch has as many tokens: longer texts are fewer. A model that is parallel over time hardly "
    "minds; a recurrent one has fewer texts to fill the machine with.",
    "pair": "One pair at a time: the work grows with n at least.",
}


def law(counts: Mapping[int, int]) -> str:
    """Describe the growth of a count with length."""
    return str(growth(list(counts), list(counts.values()))) if len(counts) > 2 else "too few lengths for a law"


def count_figures(models: Models) -> list[Figure]:
    """Figures of counted operations."""
    length = axis("length n", "tokens", log=True)
    depths = {model: seen.counted(UNFUSED.name, "training", "depth") for model, seen in models.items()}
    ratios = {model: seen.parallelism() for model, seen in models.items()}
    return [
        figure(
            "depth",
            "How many operations of a training step must wait for each other",
            (length, axis("longest chain of dependent operations", log=True)),
            [series(model, model, list(own), list(own.values())) for model, own in depths.items() if own],
            "Forward and backward pass of one pair, counted without fused kernels. A level line: all positions "
            "are computed at once. A line that doubles with n: each waits for the one before.",
        ),
        figure(
            "work-span",
            "How much could be done at once: work over span of a training step",
            (length, axis("work / span", log=True)),
            [series(model, model, list(own), list(own.values())) for model, own in ratios.items() if own],
            "FLOPs of one pair's forward and backward pass, over those on the longest chain, each operation shared out "
            "among as many processors as it can use. Level: longer texts keep no more processors busy.",
        ),
    ]


def time_figures(models: Models) -> list[Figure]:
    """Figures of measured times."""
    length, time = axis("length n", "tokens", log=True), axis("time", "ms", log=True)
    best = at_best(next((seen.places for seen in models.values() if seen.rounds), [""]))
    gains = [
        _line(f"{model}, {place}", model, seen.gains(place), 1)
        for model, seen in models.items()
        for place in seen.places[1:]
    ]
    return [
        figure(
            "speed-up",
            "What more processors give: one pair, as built, against one thread",
            (length, axis("times as fast as with one thread", log=True)),
            [*(line for line in gains if line.y), *_bounds(models)],
            "Of processors worth p threads, Brent's theorem promises nearly p times wherever work over span is much "
            "larger than p (a lower promise is drawn): what is missing is lost by the program, not the model. "
            f"{_OVER_ROUNDS}",
        ),
        *(
            figure(
                f"time-{kind}",
                f"Time of a training step: {words}",
                (length, time),
                [
                    _line(f"{model}, {form}", model, seen.fastest(kind, form))
                    for model, seen in models.items()
                    for form in _forms(seen, kind)
                ],
                f"Forward and backward pass{best and f'{best} at that length'}. {_CAPTIONS[kind]} {_OVER_ROUNDS}",
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
        shown.append(series(f"{place}: what they are worth", "", lengths, [worth] * len(lengths), reference=True))
        for model, seen in timed.items():
            least = {n: brent(each, worth)[0] for n, each in seen.parallelism().items()}
            if least and min(least.values()) < _VISIBLY * worth:
                label = f"{model}, {place}: at least, by Brent"
                shown.append(series(label, model, list(least), list(least.values()), reference=True))
    return shown


def _forms(seen: Seen, batch: str) -> list[str]:
    points = [point for one in seen.rounds.values() for point in one["points"] if point["batch"] == batch]
    return list(dict.fromkeys(point["form"] for point in points))


def _line(label: str, model: str, values: Times, scale: float = 1000) -> Series:
    shown = [over_rounds([scale * value for value in own.values()]) for own in values.values()]
    return series(label, model, list(values), shown)


def tables(models: Models, benchmarks: Mapping[str, SpeedBenchmark]) -> list[Table]:
    """All tables; some may be empty."""
    notes = (
        (model, note["form"], _BATCHES[note["batch"]], note["place"], note["n"], note["why"])
        for model, seen in models.items()
        for one in seen.rounds.values()
        for note in one["notes"]
    )
    timed = ("model", "form", "batch", "place")
    ends = ("n", "chain", "operations")
    return [
        table(
            "growth",
            "Longest chain of dependent operations, and operations launched, counted for one pair",
            ("model", "form", "of", *ends, *ends, "the chain", "the operations"),
            _growths(models),
        ),
        table(
            "work",
            "Work and span of one pair: FLOPs in all, on the longest chain, and on it if no operation is divided",
            ("model", "of", "n", "work", "span", "work / span", "undivided span", "work / undivided span"),
            _works(models),
        ),
        table(
            "brent",
            "Brent's bounds and what was measured: one pair, forward and backward, as built",
            (
                "model",
                "place",
                "n",
                "worth threads",
                "at least",
                "at most",
                Interval("measured", lambda row: row[6], 3),
            ),
            _brents(models),
        ),
        table(
            "exponents",
            "Exponent b of time ~ n^b over the longer half of the lengths; interval over rounds",
            (*timed, "from n", "to n", Interval("b", lambda row: row[6], 3)),
            _slopes(models),
        ),
        pairs_table("How many times as fast models train as one another", benchmarks),
        table(
            "crossings",
            "Length at which the faster of two models changes: training step, as built, each where it is fastest",
            ("one", "other", "batch", "crossover length"),
            _crossings(models),
        ),
        table("times", "Times over rounds", (*timed, "n", Interval("ms", lambda row: row[5], 4)), _times(models)),
        machine_table({(model,): seen.rounds for model, seen in models.items()}, ("model",)),
        # what all rounds met is said once
        stopped((*timed, "not measured from n"), {note[:5]: note for note in notes}.values()),
    ]


def _growths(models: Models) -> Iterator[Sequence[Value]]:
    kinds = [(UNFUSED.name, "training"), (AS_BUILT, "training"), (UNFUSED.name, "generating")]
    for model, form, what in ((model, *kind) for model in models for kind in kinds):
        depths, operations = (models[model].counted(form, what, key) for key in ("depth", "count"))
        if depths:
            ends = [value for n in (min(depths), max(depths)) for value in (n, depths[n], operations[n])]
            yield model, form, what, *ends, law(depths), law(operations)


def _works(models: Models) -> Iterator[Sequence[Value]]:
    for model, what in ((model, what) for model in models for what in ("forward", "training")):
        work, span, whole = (models[model].counted(UNFUSED.name, what, key) for key in ("work", "span", "undivided"))
        for n in work:
            yield model, what, n, work[n], span[n], work[n] / span[n], whole[n], work[n] / whole[n]


def _brents(models: Models) -> Iterator[tuple]:
    for model, seen in models.items():
        parallelism = seen.parallelism()
        for place in seen.places[1:]:
            worth = seen.processors(place)
            for n, gains in seen.gains(place).items():
                bounds = brent(parallelism[n], worth) if n in parallelism else (None, None)
                yield model, place, n, worth, *bounds, over_rounds(list(gains.values()))


def _each(models: Models) -> Iterator[tuple[str, str, str, str, Times]]:
    for model, seen in models.items():
        for batch, place, form in ((b, p, f) for b in _BATCHES for p in seen.places for f in _forms(seen, b)):
            times = seen.seconds(batch, place, form)
            if times:
                yield model, form, _BATCHES[batch], place, times


def _slopes(models: Models) -> Iterator[tuple]:
    for *labels, times in _each(models):
        whole = [i for i in next(iter(times.values())) if all(i in own for own in times.values())]
        slopes = [long_slope(list(times), [own[i] for own in times.values()]) for i in whole]
        found = [slope for slope in slopes if slope]
        if found:
            yield *labels, found[0].first, found[0].last, mean([slope.exponent for slope in found])


def _crossings(models: Models) -> Iterator[Sequence[Value]]:
    for (batch, words), (first, second) in ((b, pair) for b in _BATCHES.items() for pair in combinations(models, 2)):
        a, b = (models[m].fastest(batch) for m in (first, second))
        both = sorted(a.keys() & b.keys())
        if len(both) > 1:
            times: list[list[Estimate]] = [[over_rounds(list(own[n].values())) for n in both] for own in (a, b)]
            yield first, second, words, crossing_in_words((first, second), both, times[0], times[1])


def _times(models: Models) -> Iterator[tuple]:
    for *labels, times in _each(models):
        for n, own in times.items():
            yield *labels, n, over_rounds([1000 * seconds for seconds in own.values()])
