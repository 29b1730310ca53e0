"""Builders of tables, figures and verdicts, used by all questions."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from operator import itemgetter
from typing import Any, Literal, TypeVar, cast

from s2s.comparison.results import Axis, Figure, Series, Table, Verdict
from s2s.comparison.spec import BySeed, Measured
from s2s.evaluation.differences import Difference
from s2s.evaluation.gates import Assessment, Gate
from s2s.evaluation.inference import Estimate, mean

Value = str | float | int | None
Runs = Mapping[str, BySeed]  # whole runs by model and seed, whatever their task
P = TypeVar("P")


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    head: str  # what stands above it, with the unit
    # gives a row's; or is its key in the row, which is the head where nothing is said
    value: Callable[[Any], Any] | str | None = None
    # so many after the point; or what shortens a number. None: all. What is unknown stays empty
    digits: int | Callable[[float], float | None] | None = None

    @property
    def heads(self) -> list[str]:
        """Column heads."""
        return [self.head]

    def cells(self, row: Any) -> list[Value]:
        """Cells of a row."""
        return [self.shortened(self.of(row))]

    def of(self, row: Any) -> Any:
        """A row's value, with all digits."""
        return self.value(row) if callable(self.value) else row[self.value or self.head]

    def shortened(self, value: Any) -> Value:
        """Rounded value."""
        if value is None or self.digits is None:
            return value
        return self.digits(value) if callable(self.digits) else round(value, self.digits)


@dataclass(frozen=True)
class Interval(Column):
    """Three columns: an `Estimate`, or a `Difference`, and its ends."""

    of_what: str = ""  # stands in brackets behind `low` and `high`; empty where nothing does

    @property
    def heads(self) -> list[str]:
        """Column heads."""
        what = f" ({self.of_what})" if self.of_what else ""
        return [self.head, f"low{what}", f"high{what}"]

    def cells(self, row: Any) -> list[Value]:
        """Value and ends; empty where there is no estimate."""
        return [self.shortened(end) for end in _ends(self.of(row))]


def table(name: str, title: str, columns: Sequence[Column | str], rows: Iterable[Any]) -> Table:
    """A table of what its columns say of each row; a text alone stands above the cell of its place in the row."""
    known = [Column(each, itemgetter(i)) if isinstance(each, str) else each for i, each in enumerate(columns)]
    return Table(
        name=name,
        title=title,
        columns=[head for column in known for head in column.heads],
        rows=[[cell for column in known for cell in column.cells(row)] for row in rows],
    )


def gates_table(of_what: str, closed: Mapping[Any, Sequence[Gate]], heads: Sequence[str] = ("model", "name")) -> Table:
    """Table of validity checks by candidate, or by tuple of names with these `heads`."""
    rows = (
        (*([of] if isinstance(of, str) else of), gate.name, "yes" if gate.passed else "no", gate.sentence)
        for of, own in closed.items()
        for gate in own
    )
    return table("gates", f"What must be true of {of_what}", (*heads, "holds", "what was found"), rows)


def filled(*tables: Table) -> list[Table]:
    """Tables that have rows."""
    return [one for one in tables if one.rows]


def stopped(heads: Sequence[str], rows: Iterable[Sequence[Value]]) -> Table:
    """A table of measurements that ended early; the last cell of a row is the reason."""
    return table("ends", "Where a measurement ended before the longest length, and why", [*heads, "reason"], rows)


def axis(label: str, unit: str = "", log: bool = False) -> Axis:
    """An axis of a figure."""
    return Axis(label=label, unit=unit, log=log)


def series(
    label: str,
    model: str,
    x: Sequence[float] | Sequence[str],
    values: Sequence[Estimate | float | None],
    intervals: bool | None = None,
    reference: bool = False,
) -> Series:
    """A curve, or a group of bars.

    `intervals` are drawn where values have them, unless something else is said: over fewer than three seeds they would
    fill the page. A `reference` is what models are compared with.
    """
    if intervals is None:
        intervals = any(isinstance(value, Estimate) for value in values)
    y, low, high = ([_ends(value)[i] for value in values] for i in range(3))
    return Series(
        label=label,
        model=model,
        x=cast("list[float] | list[str]", list(x)),
        y=y,
        low=low if intervals else None,
        high=high if intervals else None,
        reference=reference,
    )


def figure(
    name: str,
    title: str,
    axes: tuple[Axis, Axis],
    shown: Sequence[Series],
    caption: str = "",
    kind: Literal["lines", "bars", "points"] = "lines",
) -> Figure:
    """A figure of series, by its horizontal and its vertical axis; the caption says what to look for."""
    return Figure(name=name, title=title, kind=kind, x=axes[0], y=axes[1], series=list(shown), caption=caption)


def verdict(
    row: str,
    model: str,
    value: Estimate | float | None,
    unit: str,
    quantity: str,
    found: Assessment,
    picture: str,
    tokens: float | None = None,
) -> Verdict:
    """Make a cell of the table.

    Args:
        row: the table's row.
        model: the candidate.
        value: the estimate; None where there is none.
        unit: of the estimate.
        quantity: what the estimate is.
        found: how it compares with the best of the others.
        picture: name of the figure that shows it.
        tokens: target tokens that the model had learned from.
    """
    shown, low, high = _ends(value)
    difference, difference_low, difference_high = _ends(found.difference)
    return Verdict(
        row=row,
        model=model,
        value=shown,
        low=low,
        high=high,
        unit=unit,
        quantity=quantity,
        standing=found.standing,
        rival=found.rival,
        difference=difference,
        difference_low=difference_low,
        difference_high=difference_high,
        difference_unit=found.unit,
        p=found.p,
        test=found.test,
        reasons=list(found.reasons),
        facts=dict(found.facts),
        variations=dict(found.variations),
        figure=picture,
        tokens=tokens,
    )


def _ends(value: Estimate | Difference | float | None) -> tuple[float | None, float | None, float | None]:
    """A figure and the ends of its interval, as far as they are known."""
    known = value.estimate() if isinstance(value, Difference) else value
    return (known.value, known.low, known.high) if isinstance(known, Estimate) else (known, None, None)


class SeedMean(Column):
    """A column of `every_model`: the mean over the seeds for which something is known; empty where nothing is."""

    def of(self, row: Measured) -> float | None:
        """The mean of what the column's value is in each of a model's runs."""
        known = [value for run in row["runs"].values() if (value := Column.of(self, run)) is not None]
        return statistics.mean(known) if known else None


def each_pair(runs: Runs, compared: Callable[[BySeed, BySeed], P | None]) -> dict[tuple[str, str], P]:
    """`compared` of all pairs of candidates, without those that cannot be compared."""
    return {(a, b): pair for a, b in combinations(runs, 2) if (pair := compared(runs[a], runs[b]))}


def first_runs(runs: Runs) -> dict[str, Measured]:
    """Each model's run of its first seed."""
    return {model: next(iter(own.values())) for model, own in runs.items()}


def every_run(runs: Runs) -> Iterator[Measured]:
    """All runs, each with its candidate and seed."""
    return ({"model": model, "seed": seed, **run} for model, own in runs.items() for seed, run in own.items())


def every_model(runs: Runs) -> Iterator[Measured]:
    """All candidates: number of seeds, runs by seed, and the measurement of the first seed."""
    firsts = first_runs(runs)
    return ({**firsts[model], "model": model, "seeds": len(own), "runs": own} for model, own in runs.items())


def score_bars(scores: Mapping[str, Callable[[BySeed], Estimate]], runs: Runs, caption: str) -> Figure:
    """A group of bars for each score, in percent, of a model's runs."""
    shown = [series(m, m, list(scores), [score(own) for score in scores.values()]) for m, own in runs.items()]
    return figure("scores", "Scores on the test set", (axis("metric"), axis("score", "%")), shown, caption, "bars")


def curves(runs: Runs, name: str, title: str, x: tuple[str, str, Axis], y: tuple[str, Axis]) -> Figure:
    """A curve for each model: means over seeds.

    Args:
        runs: with a list of numbers, one for each validation, under the keys of both axes, and `updates`.
        name: of the figure, but for what it is drawn against.
        title: likewise.
        x: key, words and axis of what was learned from.
        y: key and axis of what was measured.
    """
    shown = []
    for model, own in runs.items():
        # a run that lost patience has fewer validations
        count = min(len(run["updates"]) for run in own.values())
        values = [mean([run[y[0]][i] for run in own.values()]) for i in range(count)]
        places = [statistics.mean(run[x[0]][i] for run in own.values()) for i in range(count)]
        shown.append(series(model, model, places, values, intervals=len(own) > 2))
    caption = "Means over seeds; intervals (95 %): Student's, from three seeds on."
    return figure(f"{name}-{x[0]}", f"{title} against {x[1]}", (x[2], y[1]), shown, caption)
