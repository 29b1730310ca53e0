"""What an output token costs: greedy generation against the lengths of source and target."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from s2s.experiments.contest import Contest, Experiment, Measured, Scale, Task, check_translates
from s2s.experiments.growth import compared, long_slope, round_figures
from s2s.experiments.timing import Marks, median, ratio, reference, undisturbed
from s2s.experiments.workload import VOCABULARY, Form, built, fitting, generated, out_of_memory, texts
from s2s.models.contract import Seq2Seq
from s2s.results import Axis, Figure, Finding, Result, Series, Table

# both lengths of the sentence at which models are ranked, and the one that is fixed while the other varies
TYPICAL = 32
_WARM_UPS = 1


@dataclass(frozen=True)
class Sizes:
    """How much is measured, for one batch.

    Attributes:
        rows: sources that are translated at once.
        sources: lengths of the source, at a target of 32 tokens.
        targets: lengths of the target, at a source of 32 tokens; one run to the longest has all of them in it.
        repetitions: of each, at least.
    """

    rows: int
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    repetitions: int


_TARGETS = (8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
SIZES: dict[Scale, tuple[Sizes, ...]] = {
    "quick": (
        Sizes(1, (16, 32, 64, 128, 256, 512, 1024), _TARGETS[:9], 10),
        Sizes(64, (16, 32, 64, 128, 256), _TARGETS[:7], 10),
    ),
    "standard": (
        Sizes(1, (16, 32, 64, 128, 256, 512, 1024, 2048), _TARGETS, 20),
        Sizes(64, (16, 32, 64, 128, 256, 512), _TARGETS[:11], 10),
    ),
}


class Decoding(Experiment):
    """Seconds for an output token, against the lengths of source and target, for one source and for 64 at once."""

    name = "decoding"
    question = "What does an output token cost?"
    rows = ("decoding cost",)
    translates = True
    alone = True

    def tasks(self, contest: Contest) -> list[Task]:
        """One for each model and batch; models in turn."""
        return [
            Task(model, f"batch-{sizes.rows}", seconds=5 if sizes.rows == 1 else 12)
            for sizes in contest.sizes(SIZES)
            for model in contest.models
        ]

    def measure(self, contest: Contest, task: Task) -> Measured:
        """Seconds of every repetition."""
        sizes = next(sizes for sizes in contest.sizes(SIZES) if task.part == f"batch-{sizes.rows}")
        longest, device = max(*sizes.sources, *sizes.targets), contest.computer.device
        model = built(contest, contest.contestant(task.model), Form(), longest, device).eval()
        check_translates(model, task.model)
        found: Measured = {
            "rows": sizes.rows,
            "reference": reference(device),
            "sources": [],
            "targets": [],
            "notes": [],
        }
        with undisturbed(), torch.inference_mode():
            _by_target(found, model, sizes, device)
            _by_source(found, model, sizes, device)
        return found

    def conclude(self, contest: Contest, measured: Mapping[Task, Measured]) -> Result:
        """Milliseconds for a token, how they grow, and who is fastest."""
        found = {
            (model, rows): its
            for rows in sorted({its["rows"] for its in measured.values()})
            for model in contest.models
            for task, its in measured.items()
            if task.model == model and its["rows"] == rows
        }
        singles = {model: its for (model, rows), its in found.items() if rows == 1}
        cells = [_cell(model, singles) for model in singles]
        tables = [_exponent_table(found), _token_table(found), _machine_table(found), _notes_table(found)]
        return Result(
            experiment=self.name,
            question=self.question,
            method=_METHOD.format(
                vocabulary=VOCABULARY,
                typical=TYPICAL,
                repetitions=min(sizes.repetitions for sizes in contest.sizes(SIZES)),
            ),
            limits=_LIMITS,
            models=contest.models,
            seeds=[contest.seeds[0]],
            findings=[cell for cell in cells if cell is not None],
            figures=_figures(found),
            tables=[table for table in tables if table.rows],
        )


def _by_target(found: Measured, model: Seq2Seq, sizes: Sizes, device: torch.device) -> None:
    """Each repetition is one run to the longest target; shorter ones are its beginnings."""
    targets = fitting(model, sizes.targets)
    if len(targets) < len(sizes.targets):
        found["notes"].append({"length": "target", "n": sizes.targets[len(targets)], "why": _TOO_LONG})
    if not targets:
        return
    runs = [_run(model, sizes.rows, TYPICAL, targets[-1], device) for _ in range(_WARM_UPS + sizes.repetitions)]
    for m in targets:
        totals = [sum(seconds[: m + 1]) for seconds in runs[_WARM_UPS:]]
        # the last tokens of the run, where the past is longest
        last = [sum(seconds[m // 2 + 1 : m + 1]) / (m - m // 2) for seconds in runs[_WARM_UPS:]]
        found["targets"].append({"m": m, "seconds": round_figures(totals), "last": round_figures(last)})


def _by_source(found: Measured, model: Seq2Seq, sizes: Sizes, device: torch.device) -> None:
    """The source is read anew for each length and repetition."""
    for n in sizes.sources:
        if not fitting(model, (n,)):
            found["notes"].append({"length": "source", "n": n, "why": _TOO_LONG})
            return
        try:
            count = _WARM_UPS + sizes.repetitions
            runs = [_run(model, sizes.rows, n, TYPICAL, device) for _ in range(count)][_WARM_UPS:]
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            found["notes"].append({"length": "source", "n": n, "why": "memory ran out"})
            return
        totals, reading = [sum(seconds) for seconds in runs], [seconds[0] for seconds in runs]
        found["sources"].append({"n": n, "seconds": round_figures(totals), "reading": round_figures(reading)})


_TOO_LONG = "the model reads no texts of this length"


def _run(model: Seq2Seq, rows: int, source: int, target: int, device: torch.device) -> list[float]:
    """Seconds of reading the source, and of each output token."""
    pairs = texts(rows, source, target, device)
    marks = Marks(device)
    marks.mark()
    for _ in generated(model, pairs, marks.mark):
        marks.mark()
    return marks.seconds()


def _total(its: Measured, m: int) -> list[float]:
    """Seconds of a whole run from a source of 32 tokens to m; empty where it was not measured."""
    return next((point["seconds"] for point in its["targets"] if point["m"] == m), [])


def _cell(model: str, singles: Mapping[str, Measured]) -> Finding | None:
    totals = {other: _total(its, TYPICAL) for other, its in singles.items()}
    totals = {other: seconds for other, seconds in totals.items() if seconds}
    if model not in totals:
        return None
    own = median([1000 * seconds / TYPICAL for seconds in totals[model]])
    # the speed, so that more is better
    ratios = {other: ratio(seconds, totals[model]) for other, seconds in totals.items() if other != model}
    parts = [compared(ratios, "as fast as", "the speed of"), *_in_words(singles[model])]
    return Finding(
        row="decoding cost",
        model=model,
        value=own.value,
        low=own.low,
        high=own.high,
        unit="ms/token",
        quantity=f"time of an output token, batch 1, source and target of {TYPICAL} tokens",
        verdict="; ".join(parts),
        figure="by-target",
    )


def _in_words(its: Measured) -> list[str]:
    """How the time of a translation grows with both lengths."""
    words = []
    for what, lengths, curve in (("source", "n", its["sources"]), ("target", "m", its["targets"])):
        slope = long_slope([point[lengths] for point in curve], [median(point["seconds"]).value for point in curve])
        if slope is not None:
            words.append(f"{lengths}^{slope.exponent.value:.2f} in the {what}'s length")
    return [f"a translation's time grows as {' and '.join(words)}"] if words else []


def _figures(found: Mapping[tuple[str, int], Measured]) -> list[Figure]:
    axis = Axis(label="time of an output token", unit="ms", log=True)

    def lines(key: str, length: str, part: str) -> list[Series]:
        return [
            _line(f"{model}, batch {rows}", model, its[key], length, part)
            for (model, rows), its in found.items()
            if its[key]
        ]

    figures = [
        Figure(
            name="by-target",
            title=f"An output token against the length of the target, at a source of {TYPICAL} tokens",
            x=Axis(label="target length m", unit="tokens", log=True),
            y=axis,
            series=lines("targets", "m", "seconds"),
            caption="Whole time of a translation, reading included, over its tokens. Intervals of medians, 95 %.",
        ),
        Figure(
            name="by-source",
            title=f"An output token against the length of the source, at a target of {TYPICAL} tokens",
            x=Axis(label="source length n", unit="tokens", log=True),
            y=axis,
            series=lines("sources", "n", "seconds"),
            caption="Whole time of a translation, reading included, over its tokens. Intervals of medians, 95 %.",
        ),
        Figure(
            name="late-tokens",
            title="A late token alone: the mean of the last half of the target, without reading",
            x=Axis(label="target length m", unit="tokens", log=True),
            y=axis,
            series=lines("targets", "m", "last"),
            caption="Level for a recurrent state; what looks back at all earlier tokens rises. Intervals of medians.",
        ),
    ]
    return [figure for figure in figures if figure.series]


def _line(label: str, model: str, points: Sequence[Measured], length: str, part: str) -> Series:
    """Milliseconds for a token: medians with their intervals."""
    middle = []
    for point in points:
        tokens = 1 if part == "last" else point["m"] if length == "m" else TYPICAL
        middle.append(median([1000 * seconds / tokens for seconds in point[part]]))
    return Series(
        label=label,
        model=model,
        x=[float(point[length]) for point in points],
        y=[m.value for m in middle],
        low=[m.low for m in middle],
        high=[m.high for m in middle],
    )


Row = list[str | float | int | None]


def _exponent_table(found: Mapping[tuple[str, int], Measured]) -> Table:
    rows: list[Row] = []
    kinds = [
        ("whole time against source n", "sources", "n", "seconds"),
        ("reading against source n", "sources", "n", "reading"),
        ("whole time against target m", "targets", "m", "seconds"),
        ("a late token against target m", "targets", "m", "last"),
    ]
    for (model, batch), its in found.items():
        for words, key, length, part in kinds:
            lengths = [point[length] for point in its[key]]
            slope = long_slope(lengths, [median(point[part]).value for point in its[key]])
            if slope is not None:
                value = slope.exponent
                rows.append([model, batch, words, slope.first, slope.last, value.value, value.low, value.high])
    return Table(
        name="exponents",
        title="Measured exponent b of time ~ length^b; the textbook's O(n²p + m²p + nmp) says 2 and 2 for attention",
        columns=["model", "batch", "of", "from", "to", "b", "low", "high"],
        rows=rows,
    )


def _token_table(found: Mapping[tuple[str, int], Measured]) -> Table:
    rows: list[Row] = []
    for (model, batch), its in found.items():
        for point in its["sources"]:
            seconds = median(point["seconds"])
            rows.append([model, batch, point["n"], TYPICAL, *_per_token(seconds.value, TYPICAL, batch)])
        for point in its["targets"]:
            seconds = median(point["seconds"])
            rows.append([model, batch, TYPICAL, point["m"], *_per_token(seconds.value, point["m"], batch)])
    return Table(
        name="tokens",
        title="Medians",
        columns=["model", "batch", "source n", "target m", "ms for a step", "output tokens/s"],
        rows=rows,
    )


def _per_token(seconds: float, steps: int, batch: int) -> tuple[float, float]:
    return 1000 * seconds / steps, batch * steps / seconds


def _machine_table(found: Mapping[tuple[str, int], Measured]) -> Table:
    return Table(
        name="machine",
        title="The machine while each model was measured: if it was the same, so are these",
        columns=["model", "batch", "reference product, ms"],
        rows=[[model, batch, 1000 * its["reference"]] for (model, batch), its in found.items()],
    )


def _notes_table(found: Mapping[tuple[str, int], Measured]) -> Table:
    return Table(
        name="ends",
        title="Where a measurement ended before the longest length, and why",
        columns=["model", "batch", "length of the", "not measured from", "reason"],
        rows=[
            [model, batch, note["length"], note["n"], note["why"]]
            for (model, batch), its in found.items()
            for note in its["notes"]
        ],
    )


_METHOD = """Models of equal size read random sources without padding and write greedily: one token, its scores over a
vocabulary of {vocabulary:,}, the best of them fed back, and so on, in fp32. The length is forced: an end of sentence
ends nothing, so all models write as much. Time is that of the whole translation, reading included, divided by its
steps; a late token is the mean of the last half of the steps, without reading.

Where the source varies, the target has {typical} tokens, and the other way round. Each figure is the median of
{repetitions} or more repetitions after a warm-up; intervals of medians lie between two of the repetitions (order
statistics, 95 % or more). Exponents are slopes of a line through the logarithms over the longer half of the lengths,
their intervals from its residuals; short targets are the beginnings of the runs to the longest one, so their times are
not independent.

The textbook gives O(n²p + m²p + nmp) for a Transformer of p layers: n² for reading, m² for looking back, nm for looking
at the source. Products with weights, which it leaves out, grow with n and m alone, and every step has a price of its
own, whatever the length; so measured exponents are smaller until lengths are much larger than widths."""

_LIMITS = """Generation is sequential for every model: no form of training's parallelism helps here. Beam search and
unequal lengths, which cost the same extra work for all models, are left out. Intervals tell of repetitions on this
machine, not of other machines or widths; whether the machine was the same for all models is shown by its reference
product."""

EXPERIMENT = Decoding()
