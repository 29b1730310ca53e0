"""From a comparison's folder to its report, by the saved files alone: pictures, numbers, curves, page."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
from tensorboard.compat.proto.summary_pb2 import Summary as Entries  # pyright: ignore[reportAttributeAccessIssue]
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from s2s.comparison.report.figures import Drawing, drawn
from s2s.comparison.report.numbers import csv_name, figure_csv, table_csv
from s2s.comparison.report.page import Pictures, page
from s2s.comparison.report.table import CSV, TEX, matrix, table_as_csv, table_as_latex
from s2s.comparison.results import RESULT, Figure, Result, Summary, read_result, read_summary
from s2s.errors import UserError
from s2s.files import COMPARISON, check_unlinked, identify_folder, write_atomically

PAGE = "report.html"
BOARD = "tensorboard"
_LARGEST = 1e300


def draw(folder: Path) -> Path:
    """Draws figures, tables, TensorBoard's files and the page of a comparison, finished or not.

    Gives the page in the folder that `s2s compare` made.

    Raises:
        UserError: it is no comparison's folder, or a file of it is damaged.
    """
    summary, names, results = kept_comparison(folder)
    check_unlinked(folder)
    pictures: dict[tuple[str, str], list[Drawing]] = {}
    for result in results:
        for figure in result.figures:
            pictures[result.experiment, figure.name] = _draw(folder / result.experiment, result, figure, names)
        for table in result.tables:
            write_atomically(folder / result.experiment / csv_name(result, table), table_csv(table))
    _write_board(folder / BOARD, results, pictures)
    lines = matrix(summary, names, results)
    write_atomically(folder / CSV, table_as_csv(lines))
    write_atomically(folder / TEX, table_as_latex(lines, names, f"{', '.join(names)}: {summary.command}"))
    write_atomically(folder / PAGE, page(summary, names, results, pictures))
    return folder / PAGE


def kept_comparison(folder: Path) -> tuple[Summary, list[str], list[Result]]:
    """Read a comparison: summary, candidates in the order of the command, and finished results.

    Raises:
        UserError: the folder is no comparison, or a file is damaged.
    """
    if not (folder / COMPARISON).is_file():
        what, remedy = identify_folder(folder) or ("", "")
        found = f"is {what}, but has no {COMPARISON}" if what else f"is no comparison: it has no {COMPARISON}"
        raise UserError(
            found if folder.is_dir() else "there is no such folder",
            where=str(folder),
            remedy=remedy or "name a folder that s2s compare made, e.g. runs/compare-rnn-transformer",
        )
    summary = read_summary(folder / COMPARISON)
    results = list(kept_results(folder, summary))
    return (
        summary,
        list(dict.fromkeys([*summary.models, *(model for result in results for model in result.models)])),
        results,
    )


def kept_results(folder: Path, summary: Summary) -> Iterator[Result]:
    """Read the finished results, those that the command asked for first.

    Raises:
        UserError: a file is damaged.
    """
    there = sorted(path.parent.name for path in folder.glob(f"*/{RESULT}"))
    for name in dict.fromkeys([*summary.experiments, *there]):
        path = folder / name / RESULT
        if path.is_file():
            result = read_result(path)
            _check(path, result)
            yield result


def _check(path: Path, result: Result) -> None:
    """Refuses what cannot be drawn."""
    wrong = []
    if path.parent.name != result.experiment:
        wrong.append(f"it is of {result.experiment!r}")
    for parts in (result.figures, result.tables):
        names = [part.name for part in parts]
        wrong += [f"{name!r} is there twice" for name in sorted({n for n in names if names.count(n) > 1})]
    for figure in result.figures:
        where = f"figure {figure.name!r}"
        for one in figure.series:
            if any(len(values) != len(one.x) for values in (one.y, one.low, one.high) if values is not None):
                wrong.append(f"{where}: the values of {one.label!r} are not as many as its places")
            wrong += _too_large(where, one.label, one.x, one.y, one.low, one.high)
        for mark in figure.marks:
            wrong += _too_large(where, mark.label, [mark.at])
        for one in figure.heatmaps:
            wrong += _too_large(where, one.label, *one.values)
            if len(one.values) != len(one.rows) or any(len(row) != len(one.columns) for row in one.values):
                wrong.append(f"{where}: {one.label!r} has another size than its names")
    for table in result.tables:
        if any(len(row) != len(table.columns) for row in table.rows):
            wrong.append(f"table {table.name!r}: a row is not as long as its head")
    if wrong:
        raise UserError(
            f"cannot be drawn: {'; '.join(wrong)}",
            where=str(path),
            remedy="run the comparison again with s2s compare --resume",
        )


def _too_large(where: str, label: str, *rows: Sequence[Any] | None) -> list[str]:
    numbers = (value for row in rows for value in row or () if isinstance(value, float | int))
    far = any(abs(value) > _LARGEST for value in numbers)
    return [f"{where}: a value of {label!r} is beyond what an axis holds (1e300)"] if far else []


def _draw(folder: Path, result: Result, figure: Figure, names: Sequence[str]) -> list[Drawing]:
    """Writes a figure's files; gives what the page needs."""
    drawing = drawn(figure, names)
    write_atomically(folder / f"{figure.name}.png", drawing.png)
    write_atomically(folder / f"{figure.name}.svg", drawing.svg)
    write_atomically(folder / csv_name(result, figure), figure_csv(figure))
    return [drawing, *([drawn(figure, names, linear=True)] if figure.x.log or figure.y.log else [])]


def _write_board(board: Path, results: Sequence[Result], pictures: Pictures) -> None:
    """Writes pictures, curves and the table anew for `tensorboard --logdir`, without torch."""
    before = list(board.glob("events.out.tfevents.*"))
    writer = EventFileWriter(str(board))
    now = time.time()
    try:
        for tag, step, value in (entry for result in results for entry in _entries(result, pictures)):
            writer.add_event(Event(wall_time=now, step=step, summary=Entries(value=[_value(tag, value)])))
    finally:
        writer.close()
    for old in before:
        old.unlink()


def _entries(result: Result, pictures: Pictures) -> Iterator[tuple[str, int, float | bytes]]:
    """Values of TensorBoard's: what it is called, at which step, and what."""
    for finding in result.findings:
        if finding.value is not None:
            yield f"classroom table/{finding.row}/{finding.model}", 0, finding.value
    for figure in result.figures:
        tag = f"{result.experiment}/{figure.name}"
        yield tag, 0, pictures[result.experiment, figure.name][0].png
        for one in figure.series:
            points = [(x, y) for x, y in zip(one.x, one.y, strict=True) if y is not None and not isinstance(x, str)]
            steps = [round(x) for x, _ in points]
            # where rounding would throw places together, they are counted
            steps = steps if len(set(steps)) == len(steps) else range(len(steps))
            yield from ((f"{tag}/{one.label}", step, y) for step, (_, y) in zip(steps, points, strict=True))


def _value(tag: str, value: float | bytes) -> Entries.Value:
    if not isinstance(value, bytes):
        return Entries.Value(tag=tag, simple_value=value)
    # a PNG file says how large it is in its first block
    width, height = (int.from_bytes(value[at : at + 4], "big") for at in (16, 20))
    return Entries.Value(
        tag=tag, image=Entries.Image(height=height, width=width, colorspace=4, encoded_image_string=value)
    )
