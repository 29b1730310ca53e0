"""The numbers behind figures and tables: as CSV files, and as tables of the page."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from s2s.report.formatting import brief, fixed, interval, titled
from s2s.results import Figure, Result, Series, Table, spreadsheet_cell

Cell = str | float | int | None


@dataclass(frozen=True)
class Sheet:
    """A table of texts."""

    title: str  # what it shows; may be empty
    head: list[str]  # of the columns
    rows: list[list[str]]  # the first text of each is its head
    numeric: list[bool] = field(default_factory=list)  # which columns hold numbers


def figure_csv(figure: Figure) -> str:
    """Every value behind a figure, with its interval, its series and whose it is."""
    if figure.kind == "heatmaps":
        head = ["label", "model", "row", "column", titled(figure.y.label, figure.y.unit) or "value"]
        rows = [(one, *named) for one in figure.heatmaps for named in zip(one.rows, one.values, strict=True)]
        cells = [(one, name, *cell) for one, name, row in rows for cell in zip(one.columns, row, strict=True)]
        return _csv(head, [[one.label, one.model, *cell] for one, *cell in cells])
    head = [
        *("label", "model", "reference"),
        titled(figure.x.label, figure.x.unit) or "x",
        titled(figure.y.label, figure.y.unit) or "y",
        *("low", "high"),
    ]
    rows = []
    for one in figure.series:
        ends = [values or [None] * len(one.x) for values in (one.low, one.high)]
        named = (one.label, one.model, "yes" if one.reference else "no")
        rows += [(*named, *point) for point in zip(one.x, one.y, *ends, strict=True)]
    return _csv(head, rows)


def table_csv(table: Table) -> str:
    """A table with all digits."""
    return _csv(table.columns, table.rows)


def csv_name(result: Result, part: Figure | Table) -> str:
    """The file that holds a part's numbers; where a figure and a table share a name, the table gives way."""
    taken = isinstance(part, Table) and part.name in {figure.name for figure in result.figures}
    return f"{part.name}-table.csv" if taken else f"{part.name}.csv"


def figure_sheets(figure: Figure) -> list[Sheet]:
    """The numbers behind a figure as tables to read."""
    if figure.kind == "heatmaps":
        return [
            Sheet(
                one.label,
                ["", *one.columns],
                [[name, *map(_shown, row)] for name, row in zip(one.rows, one.values, strict=True)],
                [False] + [True] * len(one.columns),
            )
            for one in figure.heatmaps
        ]
    where = titled(figure.x.label, figure.x.unit)
    if any(len(set(one.x)) < len(one.x) for one in figure.series):
        # several points at one place: one line each
        lines = [[one.label, _shown(x), _at(one, i)] for one in figure.series for i, x in enumerate(one.x)]
        return [Sheet("", ["", where, titled(figure.y.label, figure.y.unit)], lines, [False, True, True])]
    lines = [
        [_shown(x), *(_at(one, one.x.index(x)) if x in one.x else "" for one in figure.series)]  # pyright: ignore[reportArgumentType]
        for x in places(figure.series)
    ]
    head = [where, *(one.label for one in figure.series)]
    return [Sheet(titled(figure.y.label, figure.y.unit), head, lines, [True] * len(head))]


def table_sheet(table: Table) -> Sheet:
    """A table to read."""
    numeric = [
        any(isinstance(row[i], int | float) for row in table.rows)
        and not any(isinstance(row[i], str) for row in table.rows)
        for i in range(len(table.columns))
    ]
    columns = [_aligned([row[i] for row in table.rows]) for i in range(len(table.columns))]
    return Sheet(table.title, table.columns, [list(row) for row in zip(*columns, strict=True)], numeric)


def _aligned(column: Sequence[Cell]) -> list[str]:
    """Texts of a column; fractions of like size have equally many decimals."""
    texts = [_shown(cell) for cell in column]
    sizes = [abs(cell) for cell in column if isinstance(cell, float) and cell]
    plain = all(isinstance(cell, float | None) for cell in column) and not any("×" in text for text in texts)
    if not plain or not sizes or max(sizes) > 100 * min(sizes):
        return texts
    decimals = max(len(text.partition(".")[2]) for text in texts)
    return [text if cell is None else fixed(cell, decimals) for cell, text in zip(column, texts, strict=True)]  # pyright: ignore[reportArgumentType]


def places(series: Sequence[Series]) -> list[float | str]:
    """Where any series has a point: numbers in their order, then names in theirs."""
    xs = [x for one in series for x in one.x]
    numbers = sorted({x for x in xs if not isinstance(x, str)})
    return [*numbers, *dict.fromkeys(x for x in xs if isinstance(x, str))]


def _at(one: Series, place: int) -> str:
    y = one.y[place]
    if y is None:
        return "–"
    return interval(y, one.low[place] if one.low else None, one.high[place] if one.high else None)


def _shown(value: Cell) -> str:
    return "–" if value is None else value if isinstance(value, str) else brief(value)


def _csv(head: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(spreadsheet_cell, head))
    for row in rows:
        # 16 rather than 16.0; both read as the same number
        plain = (int(v) if isinstance(v, float) and v.is_integer() and abs(v) < 2**53 else v for v in row)
        writer.writerow(map(spreadsheet_cell, plain))
    return text.getvalue()
