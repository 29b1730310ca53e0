"""What grows how with length, who is faster where, and how much of the machine is in use."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from s2s.evaluation.inference import Slope, growth, long_slope, median, ratio_of_medians
from s2s.experiments.contest import Cells, Conclusion, Contest, Measured
from s2s.experiments.instruments import continued
from s2s.experiments.presenting import Value, axis, exponents, figure, filled, finding, series, stopped, table
from s2s.experiments.verdicts import compared, crossing_in_words
from s2s.experiments.workload import AS_BUILT
from s2s.results import Figure, Finding, Series, Table

# the length of a usual sentence, at which models are ranked by speed
TYPICAL = 32
_BATCHES = {"tokens": "fixed tokens", "rows": "fixed batch"}
_INTERVALS = "Intervals of medians, 95 %."
_CAPTIONS = {
    "tokens": "Every batch has as many tokens: longer texts are fewer. A model that is parallel over time hardly "
    "minds; a recurrent one has fewer texts to fill the machine with.",
    "rows": "Every batch has as many texts, so the work grows with n at least.",
}

# repetitions by length
Repetitions = Mapping[int, Sequence[float]]


@dataclass
class Repeated:
    """The repetitions of all rounds at one length."""

    rows: int  # pairs of the batch
    forward: list[float] = field(default_factory=list)  # seconds
    backward: list[float] = field(default_factory=list)  # seconds

    @property
    def step(self) -> list[float]:
        """Seconds of both passes."""
        return [a + b for a, b in zip(self.forward, self.backward, strict=True)]


class Seen:
    """All that was measured of one model: operations and their chains, unless counting failed; times round by round."""

    def __init__(self, counts: Measured | None, rounds: Sequence[Measured]) -> None:
        self._counts = counts or {"points": [], "flops": []}
        self.rounds = rounds
        # the repetitions of all rounds, by form and batch and by length
        self.points: dict[tuple[str, str], dict[int, Repeated]] = {}
        for point in (point for one in rounds for point in one["points"]):
            lengths = self.points.setdefault((point["form"], point["batch"]), {})
            repeated = lengths.setdefault(point["n"], Repeated(point["rows"]))
            repeated.forward += point["forward"]
            repeated.backward += point["backward"]

    def counted(self, form: str, what: str, key: str) -> tuple[list[int], list[int]]:
        """Lengths, and the depth or the operations there."""
        points = [point for point in self._counts["points"] if (point["form"], point["what"]) == (form, what)]
        return [point["n"] for point in points], [point[key] for point in points]

    def seconds(self, form: str, batch: str, part: str = "step") -> Repetitions:
        """Of `forward`, `backward`, or of both passes, by length."""
        return {n: getattr(repeated, part) for n, repeated in self.points.get((form, batch), {}).items()}

    def steps(self) -> Repetitions:
        """Seconds of decoding steps by length."""
        steps: dict[int, list[float]] = {}
        for point in (point for one in self.rounds for point in one["steps"]):
            steps.setdefault(point["n"], []).extend(point["seconds"])
        return steps

    def shares(self) -> Repetitions:
        """Percent of the measured peak in training steps as built, with fixed tokens, by length."""
        shares: dict[int, list[float]] = {}
        flops = {point["n"]: point["flops"] for point in self._counts["flops"]}
        for one in self.rounds if flops else ():
            for point in one["points"]:
                if (point["form"], point["batch"]) == (AS_BUILT, "tokens"):
                    work = point["rows"] * continued(list(flops), list(flops.values()), point["n"])
                    seconds = [a + b for a, b in zip(point["forward"], point["backward"], strict=True)]
                    shares.setdefault(point["n"], []).extend(100 * work / s / one["peak"] for s in seconds)
        return shares


Models = Mapping[str, Seen]


def conclude(contest: Contest, measured: Cells) -> Conclusion:
    """What grows how, who is faster where, and how much of the machine is in use."""
    models = {}
    for model in contest.models:
        own = {cell.part: part for cell, part in measured.items() if cell.model == model}
        models[model] = Seen(own.pop("depth", None), list(own.values()))
    cells = [(_sequential(model, seen), _share(model, seen), _speed(model, models)) for model, seen in models.items()]
    return Conclusion(
        findings=[cell for of_model in cells for cell in of_model],
        figures=[*_count_figures(models), *_time_figures(models)],
        tables=filled(*_tables(models)),
        seeds=[contest.seeds[0]],
    )


def _sequential(model: str, seen: Seen) -> Finding | None:
    lengths, depths = seen.counted("unfused", "training", "depth")
    if not lengths:
        return None
    quantity = f"longest chain of dependent operations, forward and backward, at n = {lengths[-1]:,}"
    laws = [_law(*seen.counted("unfused", what, "depth")) for what in ("training", "generating")]
    verdict = f"{laws[0]} in training; {laws[1]} in generation"
    return finding("sequential steps", model, depths[-1], "operations", quantity, verdict, "depth")


def _law(lengths: Sequence[int], counts: Sequence[float]) -> str:
    return str(growth(lengths, counts)) if len(lengths) > 2 else "too few lengths for a law"


def _share(model: str, seen: Seen) -> Finding | None:
    shares = seen.shares()
    if not shares:
        return None
    shortest, longest = min(shares), max(shares)
    last = median(shares[longest])
    verdict = (
        f"{median(shares[shortest]).value:.2g} % of the measured peak at n = {shortest}, {last.value:.2g} % at "
        f"n = {longest:,}, with as many tokens in both batches"
    )
    quantity = f"share of the machine's measured peak in training at n = {longest:,}"
    return finding("parallel computation", model, last, "%", quantity, verdict, "share")


def _speed(model: str, models: Models) -> Finding | None:
    rates = {}
    for other, seen in models.items():
        repeated = seen.points.get((AS_BUILT, "tokens"), {}).get(TYPICAL)
        if repeated is not None:
            rates[other] = [repeated.rows * TYPICAL / seconds for seconds in repeated.step]
    if model not in rates:
        return None
    ratios = {other: ratio_of_medians(rates[model], rates[other]) for other in rates if other != model}
    quantity = f"target tokens a second, forward and backward, at n = {TYPICAL}"
    verdict = compared(ratios, "as fast as", "the speed of")
    return finding("training speed", model, median(rates[model]), "tokens/s", quantity, verdict, "time-tokens")


def _count_figures(models: Models) -> list[Figure]:
    def lines(form: str, what: str, key: str, ending: str = "") -> list[Series]:
        curves = [(model, *seen.counted(form, what, key)) for model, seen in models.items()]
        return [series(f"{model}{ending}", model, x, y) for model, x, y in curves if x]

    length, chain = axis("length n", "tokens", log=True), axis("longest chain of dependent operations", log=True)
    return [
        figure(
            "depth",
            "How many operations of a training step must wait for each other",
            (length, chain),
            lines("unfused", "training", "depth"),
            "Forward and backward pass of one pair, counted without fused kernels. A level line: all positions "
            "are computed at once. A line that doubles with n: each waits for the one before.",
        ),
        figure(
            "depth-generating",
            "How many must wait when each token is chosen after the one before: sequential for every model",
            (length, chain),
            lines("unfused", "generating", "depth"),
            "Greedy generation of n tokens from n tokens.",
        ),
        figure(
            "operations",
            "Operations launched in a training step",
            (length, axis("operations", log=True)),
            lines("unfused", "training", "operations", ", unfused")
            + lines(AS_BUILT, "training", "operations", ", as built"),
            "As built, a fused kernel is one operation, whatever goes on inside it: it hides its own loop.",
        ),
    ]


def _time_figures(models: Models) -> list[Figure]:
    length, time = axis("length n", "tokens", log=True), axis("time", "ms", log=True)
    forms = [(model, seen, *point) for model, seen in models.items() for point in seen.points]
    built = [(model, seen.seconds, form) for model, seen, form, batch in forms if (form, batch) == (AS_BUILT, "rows")]

    def passes(part: str) -> list[Series]:
        return [_line(f"{model}, {part}", model, seconds(form, "rows", part)) for model, seconds, form in built]

    return [
        *(
            figure(
                f"time-{kind}",
                f"Time of a training step at {words}",
                (length, time),
                [_line(f"{m}, {form}", m, seen.seconds(form, kind)) for m, seen, form, batch in forms if batch == kind],
                f"Forward and backward pass. {_CAPTIONS[kind]} {_INTERVALS}",
            )
            for kind, words in _BATCHES.items()
        ),
        figure(
            "passes",
            "Forward and backward pass apart, at fixed batch, as built",
            (length, time),
            passes("forward") + passes("backward"),
            _INTERVALS,
        ),
        figure(
            "decoding-step",
            "Time of one decoding step after n tokens, at fixed batch",
            (length, time),
            [_line(model, model, steps) for model, seen in models.items() if (steps := seen.steps())],
            "A recurrent state is as large after a thousand tokens as after one; a cache of keys and values is "
            f"read whole at each step. {_INTERVALS}",
        ),
        figure(
            "share",
            "Share of the machine's measured peak in training, at fixed tokens",
            (length, axis("share of peak", "%", log=True)),
            [_line(model, model, shares, 1) for model, seen in models.items() if (shares := seen.shares())],
            "Matrix products per second over the rate of the fastest large product. Large batches of short texts "
            f"(left) hide recurrence. {_INTERVALS}",
        ),
    ]


def _line(label: str, model: str, values: Repetitions, scale: float = 1000) -> Series:
    """Medians with their intervals, by length."""
    return series(label, model, list(values), [median([scale * value for value in each]) for each in values.values()])


def _tables(models: Models) -> list[Table]:
    notes = (
        (model, note["form"], _BATCHES[note["batch"]], note["n"], note["why"])
        for model, seen in models.items()
        for one in seen.rounds
        for note in one["notes"]
    )
    machine = (
        (model, i + 1, one["peak"] / 1e9, 1000 * one["reference"])
        for model, seen in models.items()
        for i, one in enumerate(seen.rounds)
    )
    ends, timed = ("n", "chain", "operations"), ("model", "form", "batch")
    return [
        table(
            "growth",
            "Longest chain of dependent operations, and operations launched, counted for one pair",
            ("model", "form", "of", *ends, *ends, "the chain", "the operations"),
            _growths(models),
        ),
        exponents(
            "Exponent b of time ~ n^b over the longer half of the lengths",
            (*timed, "pass", "from n", "to n"),
            _slopes(models),
        ),
        table(
            "crossings",
            "Length at which the faster of two models changes: training step, as built",
            ("one", "other", "batch", "crossover length"),
            _crossings(models),
        ),
        table(
            "times",
            "Medians",
            (*timed, "n", "pairs", "forward, ms", "backward, ms", "tokens/s", "repetitions"),
            _times(models),
        ),
        table(
            "machine",
            "The machine while each model was measured: if it was the same, so are these",
            ("model", "round", "measured peak, GFLOP/s", "reference product, ms"),
            machine,
        ),
        # what both rounds met is said once
        stopped((*timed, "not measured from n"), {note[:4]: note for note in notes}.values()),
    ]


def _growths(models: Models) -> Iterator[Sequence[Value]]:
    kinds = [("unfused", "forward"), ("unfused", "training"), (AS_BUILT, "training"), ("unfused", "generating")]
    for model, form, what in ((model, *kind) for model in models for kind in kinds):
        lengths, depths = models[model].counted(form, what, "depth")
        operations = models[model].counted(form, what, "operations")[1]
        if lengths:
            ends = [value for i in (0, -1) for value in (lengths[i], depths[i], operations[i])]
            yield model, form, what, *ends, _law(lengths, depths), _law(lengths, operations)


def _slopes(models: Models) -> Iterator[tuple[Sequence[Value], Slope | None]]:
    parts: dict[str, str] = {"forward": "forward", "backward": "backward", "both": "step"}
    for model, seen in models.items():
        for form, batch in seen.points:
            for words, part in parts.items():
                yield (model, form, _BATCHES[batch], words), _slope(seen.seconds(form, batch, part))
        yield (model, AS_BUILT, _BATCHES["rows"], "decoding step"), _slope(seen.steps())


def _slope(seconds: Repetitions) -> Slope | None:
    return long_slope(list(seconds), [median(values).value for values in seconds.values()])


def _crossings(models: Models) -> Iterator[Sequence[Value]]:
    for (batch, words), (first, second) in ((b, pair) for b in _BATCHES.items() for pair in combinations(models, 2)):
        a, b = (models[model].seconds(AS_BUILT, batch) for model in (first, second))
        both = sorted(a.keys() & b.keys())
        if len(both) > 1:
            times = [[median(seconds[n]) for n in both] for seconds in (a, b)]
            yield first, second, words, crossing_in_words((first, second), both, times[0], times[1])


def _times(models: Models) -> Iterator[Sequence[Value]]:
    for model, seen in models.items():
        for (form, batch), points in seen.points.items():
            for n, repeated in points.items():
                middle = [1000 * median(s).value for s in (repeated.forward, repeated.backward)]
                rate = repeated.rows * n / median(repeated.step).value
                yield model, form, _BATCHES[batch], n, repeated.rows, *middle, rate, len(repeated.step)
