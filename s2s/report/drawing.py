"""From a comparison's folder to its report, by the saved files alone."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from s2s.errors import UserError
from s2s.files import write_atomically
from s2s.report.board import write_board
from s2s.report.figures import drawn
from s2s.report.numbers import csv_name, figure_csv, table_csv
from s2s.report.page import Picture, Side, page
from s2s.results import COMPARISON, RESULT, Figure, Result, Summary, read_result, read_summary

PAGE = "report.html"
_LARGEST = 1e300


def draw(folder: Path) -> Path:
    """Draws figures, tables of numbers, TensorBoard's files and the page of a comparison, finished or not.

    Args:
        folder: that `s2s compare` made.

    Returns:
        The page.

    Raises:
        UserError: it is no comparison's folder, or a file of it is damaged.
    """
    if not (folder / COMPARISON).is_file():
        raise UserError(
            f"is no comparison: it has no {COMPARISON}" if folder.is_dir() else "there is no such folder",
            where=str(folder),
            remedy="name a folder that s2s compare made, e.g. runs/compare-rnn-transformer",
        )
    summary = read_summary(folder / COMPARISON)
    results = list(_results(folder, summary))
    names = _models(summary, results)
    pictures: dict[tuple[str, str], Picture] = {}
    files: dict[tuple[str, str], bytes] = {}
    for result in results:
        for figure in result.figures:
            key = (result.experiment, figure.name)
            pictures[key], files[key] = _draw(folder / result.experiment, result, figure, names)
        for table in result.tables:
            write_atomically(folder / result.experiment / csv_name(result, table), table_csv(table))
    write_board(folder, results, files)
    write_atomically(folder / PAGE, page(summary, names, results, pictures))
    return folder / PAGE


def _models(summary: Summary, results: Sequence[Result]) -> list[str]:
    """All models that were compared, in the order of the command."""
    named = summary.models or [contender.model for contender in summary.contenders]
    return list(dict.fromkeys([*named, *(model for result in results for model in result.models)]))


def _results(folder: Path, summary: Summary) -> Iterator[Result]:
    """What is finished: what the command asked for in its order, then what else is there."""
    there = sorted(path.parent.name for path in folder.glob(f"*/{RESULT}"))
    for name in dict.fromkeys([*summary.experiments, *there]):
        path = folder / name / RESULT
        if path.is_file():
            result = read_result(path)
            _check(path, result)
            yield result


def _check(path: Path, result: Result) -> None:
    """Refuses what cannot be drawn.

    Raises:
        UserError: lengths disagree, or a name is there twice.
    """
    wrong = []
    if path.parent.name != result.experiment:
        wrong.append(f"it is of {result.experiment!r}")
    for parts in (result.figures, result.tables):
        names = [part.name for part in parts]
        wrong += [f"{name!r} is there twice" for name in sorted({n for n in names if names.count(n) > 1})]
    for figure in result.figures:
        for one in figure.series:
            if any(len(values) != len(one.x) for values in (one.y, one.low, one.high) if values is not None):
                wrong.append(f"figure {figure.name!r}: the values of {one.label!r} are not as many as its places")
            if any(abs(v) > _LARGEST for vs in (one.x, one.y, one.low, one.high) for v in _numbers(vs)):
                wrong.append(f"figure {figure.name!r}: a value of {one.label!r} is beyond what an axis holds (1e300)")
        for one in figure.heatmaps:
            if any(abs(v) > _LARGEST for row in one.values for v in _numbers(row)):
                wrong.append(f"figure {figure.name!r}: a value of {one.label!r} is beyond what an axis holds (1e300)")
            if len(one.values) != len(one.rows) or any(len(row) != len(one.columns) for row in one.values):
                wrong.append(f"figure {figure.name!r}: {one.label!r} has another size than its names")
    for table in result.tables:
        if any(len(row) != len(table.columns) for row in table.rows):
            wrong.append(f"table {table.name!r}: a row is not as long as its head")
    if wrong:
        raise UserError(
            f"cannot be drawn: {'; '.join(wrong)}",
            where=str(path),
            remedy="run the comparison again with s2s compare --resume",
        )


def _numbers(values: Sequence[float | str | None] | None) -> Iterator[float]:
    return (value for value in values or () if isinstance(value, float | int))


def _draw(folder: Path, result: Result, figure: Figure, names: Sequence[str]) -> tuple[Picture, bytes]:
    """Writes a figure's files; gives what the page needs, and the PNG file."""
    drawing = drawn(figure, names)
    svg, png = drawing.svg(), drawing.png()
    (folder / f"{figure.name}.png").write_bytes(png)
    write_atomically(folder / f"{figure.name}.svg", svg)
    write_atomically(folder / csv_name(result, figure), figure_csv(figure))
    sides = [Side(svg, drawing.spots, drawing.panels, drawing.hidden)]
    if figure.x.log or figure.y.log:
        other = drawn(figure, names, linear=True)
        sides.append(Side(other.svg(), other.spots, other.panels, other.hidden))
    return Picture(tuple(sides)), png
