"""What an output token costs, how that grows with the lengths of source and target, and who is fastest."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from s2s.evaluation.inference import Slope, long_slope, median, ratio_of_medians
from s2s.experiments.contest import Cells, Conclusion, Contest, Measured
from s2s.experiments.presenting import Value, axis, exponents, figure, filled, finding, series, stopped, table
from s2s.experiments.verdicts import compared
from s2s.results import Figure, Finding, Series, Table

# both lengths of the sentence at which models are ranked, and the one that is fixed while the other varies
TYPICAL = 32

# by model and batch
Timed = Mapping[tuple[str, int], Measured]


@dataclass(frozen=True)
class Curve:
    """Times against a length."""

    words: str  # which time against which length
    points: str  # key of the measurements
    length: str  # key of the length in each of them
    seconds: str  # key of the repetitions

    def slope(self, measured: Measured) -> Slope | None:
        """The exponent over the longer lengths."""
        points = measured[self.points]
        lengths = [point[self.length] for point in points]
        return long_slope(lengths, [median(point[self.seconds]).value for point in points])


_CURVES = (
    Curve("whole time against source n", "sources", "n", "seconds"),
    Curve("reading against source n", "sources", "n", "reading"),
    Curve("whole time against target m", "targets", "m", "seconds"),
    Curve("a late token against target m", "targets", "m", "last"),
)
_BY_SOURCE, _, _BY_TARGET, _LATE = _CURVES


def conclude(contest: Contest, measured: Cells) -> Conclusion:
    """Milliseconds for a token, how they grow, and who is fastest."""
    timed = {
        (model, rows): own
        for rows in sorted({own["rows"] for own in measured.values()})
        for model in contest.models
        for cell, own in measured.items()
        if cell.model == model and own["rows"] == rows
    }
    singles = {model: own for (model, rows), own in timed.items() if rows == 1}
    slopes = (((*key, curve.words), curve.slope(own)) for key, own in timed.items() for curve in _CURVES)
    title = "Measured exponent b of time ~ length^b; the textbook's O(n²p + m²p + nmp) says 2 and 2 for attention"
    notes = ((*key, note["length"], note["n"], note["why"]) for key, own in timed.items() for note in own["notes"])
    return Conclusion(
        findings=[_finding(model, singles) for model in singles],
        figures=_figures(timed),
        tables=filled(
            exponents(title, ("model", "batch", "of", "from", "to"), slopes),
            _tokens(timed),
            table(
                "machine",
                "The machine while each model was measured: if it was the same, so are these",
                ("model", "batch", "reference product, ms"),
                ((*key, 1000 * own["reference"]) for key, own in timed.items()),
            ),
            stopped(("model", "batch", "length of the", "not measured from"), notes),
        ),
        seeds=[contest.seeds[0]],
    )


def _finding(model: str, singles: Mapping[str, Measured]) -> Finding | None:
    # of a whole run from a typical source to a typical target
    totals = {
        other: point["seconds"] for other, own in singles.items() for point in own["targets"] if point["m"] == TYPICAL
    }
    if model not in totals:
        return None
    # the speed, so that more is better
    ratios = {other: ratio_of_medians(s, totals[model]) for other, s in totals.items() if other != model}
    sides = (("source", _BY_SOURCE), ("target", _BY_TARGET))
    slopes = ((side, curve, curve.slope(singles[model])) for side, curve in sides)
    words = [f"{curve.length}^{s.exponent.value:.2f} in the {side}'s length" for side, curve, s in slopes if s]
    grows = f"; a translation's time grows as {' and '.join(words)}" if words else ""
    return finding(
        "decoding cost",
        model,
        median([1000 * seconds / TYPICAL for seconds in totals[model]]),
        "ms/token",
        f"time of an output token, batch 1, source and target of {TYPICAL} tokens",
        compared(ratios, "as fast as", "the speed of") + grows,
        "by-target",
    )


def _figures(timed: Timed) -> list[Figure]:
    cost = axis("time of an output token", "ms", log=True)
    source, target = axis("source length n", "tokens", log=True), axis("target length m", "tokens", log=True)
    whole = "Whole time of a translation, reading included, over its tokens. Intervals of medians, 95 %."
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
            "Level for a recurrent state; what looks back at all earlier tokens rises. Intervals of medians.",
        ),
    ]


def _lines(timed: Timed, curve: Curve) -> list[Series]:
    """Milliseconds for a token: medians with their intervals."""

    def each(point: Measured) -> Sequence[float]:
        tokens = 1 if curve is _LATE else point["m"] if curve.length == "m" else TYPICAL
        return [1000 * seconds / tokens for seconds in point[curve.seconds]]

    return [
        series(f"{model}, batch {rows}", model, [p[curve.length] for p in points], [median(each(p)) for p in points])
        for (model, rows), own in timed.items()
        if (points := own[curve.points])
    ]


def _tokens(timed: Timed) -> Table:
    def rows() -> Iterator[Sequence[Value]]:
        for (model, batch), own in timed.items():
            lengths = [(point["n"], TYPICAL, point) for point in own["sources"]]
            for n, m, point in (*lengths, *((TYPICAL, point["m"], point) for point in own["targets"])):
                seconds = median(point["seconds"]).value
                yield model, batch, n, m, 1000 * seconds / m, batch * m / seconds

    heads = ("model", "batch", "source n", "target m", "ms for a step", "output tokens/s")
    return table("tokens", "Medians", heads, rows())
