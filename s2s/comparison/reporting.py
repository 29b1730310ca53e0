"""Build the tables, figures and verdicts of a result; used by all questions."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any, Generic, Literal, NamedTuple, TypeVar, cast

from s2s.comparison.results import Axis, Figure, Series, Table, Verdict
from s2s.comparison.runs import LearningCurve
from s2s.comparison.spec import M
from s2s.evaluation.differences import Difference
from s2s.evaluation.gates import Assessment, Gate
from s2s.evaluation.inference import Estimate, mean

Value = str | float | int | None
Names = TypeVar("Names", bound=str | tuple[Value, ...])
Runs = Mapping[str, Mapping[int, M]]
"""Measurements by candidate and seed."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        head: Column head, with the unit.
        value: Function of a row, or the name of a row's key or attribute (`run.exact`); None: the head is the name.
        digits: Decimal places, or a function that rounds a number; None: all digits. None values are empty cells.
    """

    head: str
    value: Callable[[Any], object] | str | None = None
    digits: int | Callable[[float], float | None] | None = None

    @property
    def heads(self) -> list[str]:
        """Column heads."""
        return [self.head]

    def cells(self, row: object) -> list[Value]:
        """Cells of a row."""
        return [self._rounded(self._value_of(row))]

    def _value_of(self, row: object) -> object:
        if callable(self.value):
            return self.value(row)
        name = self.value or self.head
        return row[name] if isinstance(row, Mapping) else attrgetter(name)(row)

    def _rounded(self, value: object) -> Value:
        if self.digits is None or not isinstance(value, int | float):
            return cast(Value, value)
        return self.digits(value) if callable(self.digits) else round(value, self.digits)


@dataclass(frozen=True)
class Interval(Column):
    """Three columns: the value of an `Estimate` or a `Difference`, and the ends of its interval.

    Attributes:
        of_what: Put in brackets after `low` and `high`, to distinguish several intervals.
    """

    of_what: str = ""

    @property
    def heads(self) -> list[str]:
        """Column heads."""
        what = f" ({self.of_what})" if self.of_what else ""
        return [self.head, f"low{what}", f"high{what}"]

    def cells(self, row: object) -> list[Value]:
        """Value and ends; empty where there is no estimate."""
        found = cast(Estimate | Difference | float | None, self._value_of(row))
        return [self._rounded(end) for end in _ends(found)]


def table(name: str, title: str, columns: Sequence[Column | str], rows: Iterable[object]) -> Table:
    """Build a table.

    Args:
        name: Name of its file.
        title: Title.
        columns: The columns; a string is the head of the column that shows a row's item at the same place.
        rows: Rows, in order.
    """
    known = [Column(each, itemgetter(i)) if isinstance(each, str) else each for i, each in enumerate(columns)]
    return Table(
        name=name,
        title=title,
        columns=[head for column in known for head in column.heads],
        rows=[[cell for column in known for cell in column.cells(row)] for row in rows],
    )


def gates_table(of_what: str, gates: Mapping[Names, Sequence[Gate]], heads: Sequence[str] = ("model", "name")) -> Table:
    """Build the table of validity checks, by candidate or by tuple of names with these `heads`."""
    rows = [
        (*([names] if isinstance(names, str) else names), gate.name, "yes" if gate.passed else "no", gate.sentence)
        for names, own in gates.items()
        for gate in own
    ]
    return table("gates", f"Validity checks of {of_what}", (*heads, "passed", "result"), rows)


def filled(*tables: Table) -> list[Table]:
    """Return the tables that have rows."""
    return [one for one in tables if one.rows]


def stopped(heads: Sequence[str], rows: Iterable[Sequence[Value]]) -> Table:
    """Build the table of measurements that ended early; the last cell of a row is the reason."""
    return table("ends", "Measurements that ended before the longest length", [*heads, "reason"], rows)


def axis(label: str, unit: str = "", log: bool = False) -> Axis:
    """Build an axis of a figure."""
    return Axis(label=label, unit=unit, log=log)


def series(
    label: str,
    model: str,
    x: Sequence[float] | Sequence[str],
    values: Sequence[Estimate | float | None],
    intervals: bool | None = None,
    reference: bool = False,
) -> Series:
    """Build a curve, or a group of bars.

    Args:
        label: Its name in the legend.
        model: The candidate, which gives the colour.
        x: Positions, or names of groups.
        values: Values at these positions.
        intervals: Whether intervals are drawn; None: if any value is an `Estimate`.
        reference: True for a baseline or a theory.
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
    """Build a figure of series; `axes` are the horizontal and the vertical one."""
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
    """Build a cell of the table of verdicts.

    Args:
        row: The table's row.
        model: The candidate.
        value: The estimate; None if there is none.
        unit: Unit of the estimate.
        quantity: What is estimated, in words.
        found: Comparison with the best of the others.
        picture: Name of the figure that shows it.
        tokens: Target tokens that the model was trained on.
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
    known = value.estimate() if isinstance(value, Difference) else value
    return (known.value, known.low, known.high) if isinstance(known, Estimate) else (known, None, None)


class Run(NamedTuple, Generic[M]):
    """A row of a table of all runs."""

    model: str
    seed: int
    run: M


def every_run(runs: Runs[M]) -> Iterator[Run[M]]:
    """Yield all runs, by candidate and seed."""
    return (Run(model, seed, run) for model, own in runs.items() for seed, run in own.items())


def first_run(runs: Mapping[int, M]) -> M:
    """Return the run of the first seed."""
    return next(iter(runs.values()))


def seed_mean(head: str, value: Callable[[Any], float | None], digits: int) -> Column:
    """Build a column of the mean of a run's value over the seeds where it is known; rows are items of `Runs`."""

    def _mean(row: tuple[str, Mapping[int, object]]) -> float | None:
        known = [each for run in row[1].values() if (each := value(run)) is not None]
        return statistics.mean(known) if known else None

    return Column(head, _mean, digits)


def score_bars(scores: Mapping[str, Callable[[Mapping[int, M]], Estimate]], runs: Runs[M], caption: str) -> Figure:
    """Build a figure with a bar of each score, in percent, of each candidate."""
    shown = [series(m, m, list(scores), [score(own) for score in scores.values()]) for m, own in runs.items()]
    return figure("scores", "Scores on the test set", (axis("metric"), axis("score", "%")), shown, caption, "bars")


def curves(
    runs: Mapping[str, Mapping[int, LearningCurve]],
    name: str,
    title: str,
    x: tuple[str, str, Axis],
    y: tuple[str, Axis],
) -> Figure:
    """Build a figure of learning curves, means over seeds.

    Args:
        runs: Runs by candidate and seed.
        name: Name of the figure; the attribute of the horizontal axis is added to it.
        title: Title; the words of the horizontal axis are added to it.
        x: Attribute of the runs, words, and axis of the training cost.
        y: Attribute of the runs and axis of the measured value.
    """
    shown = []
    for model, own in runs.items():
        # early stopping leaves some runs with fewer validations
        count = min(len(run.updates) for run in own.values())
        values = [mean([getattr(run, y[0])[i] for run in own.values()]) for i in range(count)]
        places = [statistics.mean(getattr(run, x[0])[i] for run in own.values()) for i in range(count)]
        shown.append(series(model, model, places, values, intervals=len(own) > 2))
    caption = "Means over seeds; intervals (95 %): Student's, from three seeds on."
    return figure(f"{name}-{x[0]}", f"{title} against {x[1]}", (x[2], y[1]), shown, caption)
