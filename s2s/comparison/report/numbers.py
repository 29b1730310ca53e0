"""Format numbers, intervals and units; export figures and tables as CSV and as tables of texts."""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from s2s.comparison.results import Figure, Result, Series, Table
from s2s.files import spreadsheet_cell

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# numbers outside are written with a power of ten
_SMALL, _LARGE = 1e-3, 1e7
# narrow no-break space between a number and its unit
_JOINT = "\u202f"

Cell = str | float | int | None


def number(value: float, digits: int = 3) -> str:
    """Format a finite number: `0.93`, `1,024`, `−3.2`, `1.2 × 10⁻⁵`.

    Args:
        value: The number.
        digits: Significant digits; the integer part is never rounded, and whole numbers have no decimals.
    """
    if isinstance(value, int):
        return _signed(f"{value:,}")
    if value and not _SMALL <= abs(value) < _LARGE:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        return f"{_signed(mantissa)} × {power_of_ten(int(exponent))}"
    decimals = 0 if value.is_integer() else max(0, _decimals(value, digits))
    return _signed(f"{value:,.{decimals}f}")


def brief(value: float, digits: int = 4) -> str:
    """Format a number without trailing zeros: `0.98`, `16`."""
    text = number(value, digits)
    return text.rstrip("0").rstrip(".") if "." in text and "×" not in text else text


def fixed(value: float, decimals: int) -> str:
    """Format a number with this number of decimals; negative ones round to tens or hundreds."""
    return _signed(f"{round(value, decimals):,.{max(0, decimals)}f}")


def interval(value: float, low: float | None = None, high: float | None = None) -> str:
    """Format an estimate with its interval: `0.930 (0.910–0.950)`; see `halves`."""
    figure, ends, power = halves(value, low, high)
    return f"{figure} ({ends}){power}" if ends else f"{figure}{power}"


def halves(value: float, low: float | None = None, high: float | None = None) -> tuple[str, str, str]:
    """Format an estimate, its interval, and their common power of ten, which may be empty.

    All are rounded to the second significant digit of the interval's width: `23.5` and `21.0–25.9`, `18,400` and
    `17,500–19,200`. Whole numbers stay whole, and at most six digits are shown.
    """
    if low is None or high is None:
        ends = "" if low is high else f"from {number(low)}" if low is not None else f"up to {number(high or 0.0)}"
        return number(value), ends, ""
    largest = max(abs(value), abs(low), abs(high))
    power, scale = "", 1.0
    if largest and not _SMALL <= largest < _LARGE:
        exponent = math.floor(math.log10(largest))
        power, scale = f" × {power_of_ten(exponent)}", 10.0**exponent
    value, low, high = value / scale, low / scale, high / scale
    whole = not power and all(float(each).is_integer() for each in (value, low, high))
    most = max(0, _decimals(largest / scale, 6))
    wanted = _decimals(high - low, 2) if high > low else max(0, _decimals(largest / scale, 3))
    decimals = 0 if whole else min(wanted, most)
    figure, first, last = (fixed(each, decimals) for each in (value, low, high))
    # a dash between negative numbers looks like another minus
    return figure, f"{first}{' to ' if '−' in first + last else '–'}{last}", power


def with_unit(text: str, unit: str) -> str:
    """Join a number and its unit by a narrow no-break space."""
    return f"{text}{_JOINT}{unit}" if unit else text


def titled(label: str, unit: str) -> str:
    """Label with its unit in brackets."""
    return f"{label} [{unit}]" if label and unit else label or unit


def duration(seconds: float) -> str:
    """Format a duration: `48 s`, `3 min 20 s`, `50 min`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < 1:
        return "less than a second" if seconds > 0 else "0 s"
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours:,} h {minutes} min"
    rest = f"{whole % 60} s" if whole % 60 or not minutes else ""
    return " ".join(filter(None, [f"{minutes} min" if minutes else "", rest]))


def power_of_ten(exponent: int) -> str:
    """`10⁶`."""
    return f"10{str(exponent).translate(_SUPERSCRIPTS)}"


def _decimals(value: float, digits: int) -> int:
    # from the rounded number, so that 0.9996 with three digits is 1.00 and not 1.000
    exponent = int(f"{value:.{digits - 1}e}".split("e")[1]) if value else 0
    return digits - 1 - exponent


def _signed(text: str) -> str:
    return text.replace("-", "−") if text.strip("-0.,") else text.lstrip("-")


@dataclass(frozen=True)
class Sheet:
    """A table of texts."""

    title: str
    head: list[str]
    rows: list[list[str]]  # the first text of each is its head
    numeric: list[bool]  # True for columns of numbers


def figure_csv(figure: Figure) -> str:
    """Text of a CSV file with every value of a figure, its interval and series."""
    if figure.kind == "heatmaps":
        head = ["label", "model", "row", "column", titled(figure.y.label, figure.y.unit) or "value"]
        cells = [
            [one.label, one.model, name, column, value]
            for one in figure.heatmaps
            for name, row in zip(one.rows, one.values, strict=True)
            for column, value in zip(one.columns, row, strict=True)
        ]
        return csv_text(head, cells)
    x, y = titled(figure.x.label, figure.x.unit) or "x", titled(figure.y.label, figure.y.unit) or "y"
    head = ["label", "model", "reference", x, y, "low", "high"]
    rows = []
    for one in figure.series:
        ends = [values or [None] * len(one.x) for values in (one.low, one.high)]
        named = (one.label, one.model, "yes" if one.reference else "no")
        rows += [(*named, *point) for point in zip(one.x, one.y, *ends, strict=True)]
    return csv_text(head, rows)


def csv_name(result: Result, part: Figure | Table) -> str:
    """Name of the CSV file of a figure or table; a table with the name of a figure has another one."""
    taken = isinstance(part, Table) and part.name in {figure.name for figure in result.figures}
    return f"{part.name}-table.csv" if taken else f"{part.name}.csv"


def figure_sheets(figure: Figure) -> list[Sheet]:
    """Tables of a figure's numbers."""
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
    # the two ends of a straight guide line are no measurements
    measured = [one for one in figure.series if not (one.reference and len(one.x) == 2)]
    if any(len(set(one.x)) < len(one.x) for one in measured):
        # one line for each point if several share a place
        lines = [[one.label, _shown(x), _format_point(one, i)] for one in measured for i, x in enumerate(one.x)]
        return [Sheet("", ["", where, titled(figure.y.label, figure.y.unit)], lines, [False, True, True])]
    lines = [
        [_shown(x), *(_format_point(one, [*one.x].index(x)) if x in one.x else "" for one in measured)]
        for x in places(measured)
    ]
    head = [where, *(one.label for one in measured)]
    return [Sheet(titled(figure.y.label, figure.y.unit), head, lines, [True] * len(head))]


def table_sheet(table: Table) -> Sheet:
    """Table with formatted numbers."""
    numeric = [
        any(isinstance(row[i], int | float) for row in table.rows)
        and not any(isinstance(row[i], str) for row in table.rows)
        for i in range(len(table.columns))
    ]
    columns = [_aligned([row[i] for row in table.rows]) for i in range(len(table.columns))]
    return Sheet(table.title, table.columns, [list(row) for row in zip(*columns, strict=True)], numeric)


def _aligned(column: Sequence[Cell]) -> list[str]:
    """Format a column; fractions of similar size have the same number of decimals."""
    texts = [_shown(cell) for cell in column]
    sizes = [abs(cell) for cell in column if isinstance(cell, float) and cell]
    plain = all(isinstance(cell, float | None) for cell in column) and not any("×" in text for text in texts)
    if not plain or not sizes or max(sizes) > 100 * min(sizes):
        return texts
    decimals = max(len(text.partition(".")[2]) for text in texts)
    return [
        fixed(cell, decimals) if isinstance(cell, float) else text for cell, text in zip(column, texts, strict=True)
    ]


def places(series: Sequence[Series]) -> list[float | str]:
    """All x values of the series: numbers in order, then names."""
    xs = [x for one in series for x in one.x]
    numbers = sorted({x for x in xs if not isinstance(x, str)})
    return [*numbers, *dict.fromkeys(x for x in xs if isinstance(x, str))]


def _format_point(one: Series, place: int) -> str:
    y = one.y[place]
    if y is None:
        return "–"
    return interval(y, one.low[place] if one.low else None, one.high[place] if one.high else None)


def _shown(value: Cell) -> str:
    return "–" if value is None else value if isinstance(value, str) else brief(value)


def csv_text(head: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Text of a CSV file, with formulas of spreadsheets escaped."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(spreadsheet_cell, head))
    for row in rows:
        # 16 rather than 16.0
        plain = (int(v) if isinstance(v, float) and v.is_integer() and abs(v) < 2**53 else v for v in row)
        writer.writerow(map(spreadsheet_cell, plain))
    return text.getvalue()
