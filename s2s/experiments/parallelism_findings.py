"""What the measurements of `parallelism` say: cells and tables."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from s2s.experiments.contest import Measured
from s2s.experiments.growth import compared, crossing_in_words, growth, long_slope
from s2s.experiments.operations import continued
from s2s.experiments.timing import median, ratio
from s2s.experiments.workload import AS_BUILT
from s2s.results import Finding, Table

# the length of a usual sentence, at which models are ranked by speed
TYPICAL = 32
BATCHES = {"tokens": "fixed tokens", "rows": "fixed batch"}

Row = list[str | float | int | None]


@dataclass
class Repeated:
    """The repetitions of all rounds at one length.

    Attributes:
        rows: pairs of the batch.
        forward: seconds.
        backward: seconds.
    """

    rows: int
    forward: list[float] = field(default_factory=list)
    backward: list[float] = field(default_factory=list)

    @property
    def step(self) -> list[float]:
        """Seconds of both passes."""
        return [a + b for a, b in zip(self.forward, self.backward, strict=True)]


# by (form, batch) and length
Points = dict[tuple[str, str], dict[int, Repeated]]


@dataclass(frozen=True)
class Found:
    """All that was measured of one model.

    Attributes:
        counts: what `counted` gave; None where it failed.
        rounds: what `timed` gave, round by round.
        points: the repetitions of all rounds.
    """

    counts: Measured | None
    rounds: Sequence[Measured]
    points: Points

    def counted(self, form: str, what: str, key: str) -> tuple[list[int], list[int]]:
        """Lengths, and the depth or the operations there."""
        points = [] if self.counts is None else self.counts["points"]
        points = [point for point in points if point["form"] == form and point["what"] == what]
        return [point["n"] for point in points], [point[key] for point in points]

    def steps(self) -> dict[int, list[float]]:
        """Seconds of decoding steps by length."""
        found: dict[int, list[float]] = {}
        for point in (point for one in self.rounds for point in one["steps"]):
            found.setdefault(point["n"], []).extend(point["seconds"])
        return found

    def shares(self) -> dict[int, list[float]]:
        """Percent of the measured peak in training steps as built, with fixed tokens, by length."""
        shares: dict[int, list[float]] = {}
        flops = {} if self.counts is None else {point["n"]: point["flops"] for point in self.counts["flops"]}
        for one in self.rounds if flops else ():
            for point in one["points"]:
                if (point["form"], point["batch"]) == (AS_BUILT, "tokens"):
                    work = point["rows"] * continued(list(flops), list(flops.values()), point["n"])
                    seconds = [a + b for a, b in zip(point["forward"], point["backward"], strict=True)]
                    shares.setdefault(point["n"], []).extend(100 * work / s / one["peak"] for s in seconds)
        return shares


def gathered(counts: Measured | None, rounds: Sequence[Measured]) -> Found:
    """The rounds together."""
    points: Points = {}
    for point in (point for one in rounds for point in one["points"]):
        lengths = points.setdefault((point["form"], point["batch"]), {})
        repeated = lengths.setdefault(point["n"], Repeated(point["rows"]))
        repeated.forward += point["forward"]
        repeated.backward += point["backward"]
    return Found(counts, rounds, points)


def cells(found: Mapping[str, Found]) -> list[Finding]:
    """The three rows of the classroom table, as far as they were measured."""
    cells = []
    for model in found:
        cells += [_sequential(model, found[model]), _share(model, found[model]), _speed(model, found)]
    return [cell for cell in cells if cell is not None]


def _sequential(model: str, found: Found) -> Finding | None:
    lengths, depths = found.counted("unfused", "training", "depth")
    if not lengths:
        return None
    return Finding(
        row="sequential steps",
        model=model,
        value=depths[-1],
        unit="operations",
        quantity=f"longest chain of dependent operations, forward and backward, at n = {lengths[-1]:,}",
        verdict=f"{_law(lengths, depths)} in training; {_law(*found.counted('unfused', 'generating', 'depth'))} "
        "in generation",
        figure="depth",
    )


def _law(lengths: Sequence[int], counts: Sequence[float]) -> str:
    return str(growth(lengths, counts)) if len(lengths) > 2 else "too few lengths for a law"


def _share(model: str, found: Found) -> Finding | None:
    shares = found.shares()
    if not shares:
        return None
    shortest, longest = min(shares), max(shares)
    last = median(shares[longest])
    return Finding(
        row="parallel computation",
        model=model,
        value=last.value,
        low=last.low,
        high=last.high,
        unit="%",
        quantity=f"share of the machine's measured peak in training at n = {longest:,}",
        verdict=f"{median(shares[shortest]).value:.2g} % of the measured peak at n = {shortest}, {last.value:.2g} % at "
        f"n = {longest:,}, with as many tokens in both batches",
        figure="share",
    )


def _speed(model: str, found: Mapping[str, Found]) -> Finding | None:
    rates = {}
    for other, its in found.items():
        repeated = its.points.get((AS_BUILT, "tokens"), {}).get(TYPICAL)
        if repeated is not None:
            rates[other] = [repeated.rows * TYPICAL / seconds for seconds in repeated.step]
    if model not in rates:
        return None
    own = median(rates[model])
    ratios = {other: ratio(rates[model], rates[other]) for other in rates if other != model}
    return Finding(
        row="training speed",
        model=model,
        value=own.value,
        low=own.low,
        high=own.high,
        unit="tokens/s",
        quantity=f"target tokens a second, forward and backward, at n = {TYPICAL}",
        verdict=compared(ratios, "as fast as", "the speed of"),
        figure="time-tokens",
    )


def tables(found: Mapping[str, Found]) -> list[Table]:
    """The numbers behind and beside the figures."""
    made = [_growth_table(found), _exponent_table(found), _crossings_table(found), _time_table(found)]
    return [table for table in (*made, _machine_table(found), _notes_table(found)) if table.rows]


def _growth_table(found: Mapping[str, Found]) -> Table:
    rows: list[Row] = []
    kinds = [("unfused", "forward"), ("unfused", "training"), (AS_BUILT, "training"), ("unfused", "generating")]
    for model, its in found.items():
        for form, what in kinds:
            lengths, depths = its.counted(form, what, "depth")
            operations = its.counted(form, what, "operations")[1]
            if lengths:
                ends = [lengths[0], depths[0], operations[0], lengths[-1], depths[-1], operations[-1]]
                rows.append([model, form, what, *ends, _law(lengths, depths), _law(lengths, operations)])
    ends = ["n", "chain", "operations"]
    return Table(
        name="growth",
        title="Longest chain of dependent operations, and operations launched, counted for one pair",
        columns=["model", "form", "of", *ends, *ends, "the chain", "the operations"],
        rows=rows,
    )


def _exponent_table(found: Mapping[str, Found]) -> Table:
    rows: list[Row] = []
    for model, its in found.items():
        for (form, batch), points in its.points.items():
            parts = {
                "forward": {n: repeated.forward for n, repeated in points.items()},
                "backward": {n: repeated.backward for n, repeated in points.items()},
                "both": {n: repeated.step for n, repeated in points.items()},
            }
            rows += [[model, form, BATCHES[batch], part, *_slope(seconds)] for part, seconds in parts.items()]
        rows.append([model, AS_BUILT, BATCHES["rows"], "decoding step", *_slope(its.steps())])
    return Table(
        name="exponents",
        title="Exponent b of time ~ n^b over the longer half of the lengths",
        columns=["model", "form", "batch", "pass", "from n", "to n", "b", "low", "high"],
        rows=[row for row in rows if row[-3] is not None],
    )


def _slope(seconds: Mapping[int, Sequence[float]]) -> Row:
    slope = long_slope(list(seconds), [median(values).value for values in seconds.values()])
    if slope is None:
        return [None] * 5
    return [slope.first, slope.last, slope.exponent.value, slope.exponent.low, slope.exponent.high]


def _crossings_table(found: Mapping[str, Found]) -> Table:
    rows: list[Row] = []
    for batch, words in BATCHES.items():
        for first, second in combinations(found, 2):
            a, b = (found[model].points.get((AS_BUILT, batch), {}) for model in (first, second))
            both = sorted(a.keys() & b.keys())
            if len(both) > 1:
                times = [[median(points[n].step) for n in both] for points in (a, b)]
                rows.append([first, second, words, crossing_in_words((first, second), both, times[0], times[1])])
    return Table(
        name="crossings",
        title="Length at which the faster of two models changes: training step, as built",
        columns=["one", "other", "batch", "crossover length"],
        rows=rows,
    )


def _time_table(found: Mapping[str, Found]) -> Table:
    rows: list[Row] = []
    for model, its in found.items():
        for (form, batch), points in its.points.items():
            for n, repeated in points.items():
                middle = [1000 * median(s).value for s in (repeated.forward, repeated.backward)]
                rate = repeated.rows * n / median(repeated.step).value
                rows.append([model, form, BATCHES[batch], n, repeated.rows, *middle, rate, len(repeated.step)])
    return Table(
        name="times",
        title="Medians",
        columns=["model", "form", "batch", "n", "pairs", "forward, ms", "backward, ms", "tokens/s", "repetitions"],
        rows=rows,
    )


def _machine_table(found: Mapping[str, Found]) -> Table:
    rows: list[Row] = [
        [model, i + 1, one["peak"] / 1e9, 1000 * one["reference"]]
        for model, its in found.items()
        for i, one in enumerate(its.rounds)
    ]
    return Table(
        name="machine",
        title="The machine while each model was measured: if it was the same, so are these",
        columns=["model", "round", "measured peak, GFLOP/s", "reference product, ms"],
        rows=rows,
    )


def _notes_table(found: Mapping[str, Found]) -> Table:
    notes: Iterable[Row] = (
        [model, note["form"], BATCHES[note["batch"]], note["n"], note["why"]]
        for model, its in found.items()
        for one in its.rounds
        for note in one["notes"]
    )
    # what both rounds met is said once
    rows = list({(row[0], row[1], row[2], row[3]): row for row in notes}.values())
    return Table(
        name="ends",
        title="Where a measurement ended before the longest length, and why",
        columns=["model", "form", "batch", "not measured from n", "reason"],
        rows=rows,
    )
