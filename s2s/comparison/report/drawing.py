"""Write the report of a comparison or a reproduction from its saved results: figures, CSV, LaTeX, TensorBoard, HTML."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
from tensorboard.compat.proto.summary_pb2 import Summary as Entries  # pyright: ignore[reportAttributeAccessIssue]
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from s2s.comparison import reproduced
from s2s.comparison.report import claims
from s2s.comparison.report.figures import Drawing, drawn
from s2s.comparison.report.numbers import csv_name, csv_text, figure_csv
from s2s.comparison.report.page import Pictures, page, reproduction_page
from s2s.comparison.report.table import CSV, HEAD, TEX, matrix, table_as_latex, table_rows
from s2s.comparison.results import RESULT, Result, Summary, read_result, read_summary
from s2s.errors import UserError
from s2s.files import COMPARISON, check_outermost, check_unlinked, identify_folder, write_atomically

PAGE = "report.html"
_BOARD = "tensorboard"
_LARGEST = 1e300


def draw(folder: Path) -> Path:
    """Write the report of a comparison, finished or not.

    Args:
        folder: The folder that `s2s compare` made.

    Returns:
        The path of the page.

    Raises:
        UserError: The folder has no comparison, or one of its files is damaged.
    """
    summary, names, results = kept_comparison(folder)
    check_unlinked(folder)
    pictures: dict[tuple[str, str], list[Drawing]] = {}
    for result in results:
        place = folder / result.experiment
        for figure in result.figures:
            drawing = drawn(figure, names)
            write_atomically(place / f"{figure.name}.png", drawing.png)
            write_atomically(place / f"{figure.name}.svg", drawing.svg)
            write_atomically(place / f"{figure.name}.pdf", drawing.pdf)
            write_atomically(place / csv_name(result, figure), figure_csv(figure))
            linear = [drawn(figure, names, linear=True)] if figure.x.log or figure.y.log else []
            pictures[result.experiment, figure.name] = [drawing, *linear]
        for table in result.tables:
            write_atomically(place / csv_name(result, table), csv_text(table.columns, table.rows))
    _write_board(folder / _BOARD, results, pictures)
    lines = matrix(summary, names, results)
    write_claims(folder, summary, names, results)
    write_atomically(folder / CSV, csv_text(HEAD, table_rows(lines)))
    write_atomically(folder / TEX, table_as_latex(lines, names, f"{', '.join(names)}: {summary.command}"))
    write_atomically(folder / PAGE, page(summary, names, results, pictures))
    return folder / PAGE


def write_claims(folder: Path, summary: Summary, names: Sequence[str], results: Sequence[Result]) -> None:
    """Write `claims.csv` of a comparison; remove an older one if its results decide no claim.

    Args:
        folder: Folder to write to.
        summary: Summary of the comparison.
        names: Candidates.
        results: Finished results.
    """
    if rows := claims.claim_rows(names, results):
        write_atomically(folder / claims.CSV, csv_text(claims.HEAD, claims.csv_rows(rows, summary.command)))
    else:
        (folder / claims.CSV).unlink(missing_ok=True)


def claims_in_words(folder: Path) -> list[str]:
    """Return a line for each claim that a comparison decides, or one on why it decides none; see `draw`."""
    summary, names, results = kept_comparison(folder)
    lines = claims.claim_lines(claims.claim_rows(names, results))
    return lines or [line for line in [claims.explain_absence(summary, results)] if line]


def draw_reproduction(folder: Path) -> Path:
    """Write the page of a reproduction.

    Args:
        folder: The folder of its `reproduction.json`.

    Returns:
        The path of the page.

    Raises:
        UserError: The file is damaged.
    """
    write_atomically(folder / PAGE, reproduction_page(reproduced.read(folder / reproduced.RESULT)))
    return folder / PAGE


def kept_comparison(folder: Path) -> tuple[Summary, list[str], list[Result]]:
    """Read a comparison.

    Returns:
        The summary, the candidates in the order of the command, and the finished results.

    Raises:
        UserError: The folder has no comparison, or one of its files is damaged.
    """
    check_outermost(folder)
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
    names = dict.fromkeys([*summary.models, *(model for result in results for model in result.models)])
    return summary, list(names), results


def kept_results(folder: Path, summary: Summary) -> Iterator[Result]:
    """Read the finished results of a comparison, those that its command asks for first.

    Raises:
        UserError: A file is damaged.
    """
    there = sorted(path.parent.name for path in folder.glob(f"*/{RESULT}"))
    for name in dict.fromkeys([*summary.experiments, *there]):
        path = folder / name / RESULT
        if path.is_file():
            result = read_result(path)
            if wrong := _inconsistencies(result, name):
                raise UserError(
                    f"cannot be drawn: {'; '.join(wrong)}",
                    where=str(path),
                    remedy="run the comparison again with s2s compare --resume",
                )
            yield result


def _inconsistencies(result: Result, folder: str) -> list[str]:
    wrong = [] if folder == result.experiment else [f"it belongs to the question {result.experiment!r}"]
    for parts in (result.figures, result.tables):
        names = [part.name for part in parts]
        wrong += [f"{name!r} occurs twice" for name in sorted({n for n in names if names.count(n) > 1})]
    for figure in result.figures:
        where = f"figure {figure.name!r}"
        values: list[tuple[str, Sequence[float | str | None] | None]] = []
        for one in figure.series:
            if any(len(each) != len(one.x) for each in (one.y, one.low, one.high) if each is not None):
                wrong.append(f"{where}: {one.label!r} does not have one value for each position")
            values += [(one.label, each) for each in (one.x, one.y, one.low, one.high)]
        values += [(mark.label, [mark.at]) for mark in figure.marks]
        for one in figure.heatmaps:
            values += [(one.label, row) for row in one.values]
            if len(one.values) != len(one.rows) or any(len(row) != len(one.columns) for row in one.values):
                wrong.append(f"{where}: the size of {one.label!r} differs from the numbers of its row and column names")
        far = (label for label, row in values for v in row or () if isinstance(v, float | int) and abs(v) > _LARGEST)
        wrong += [f"{where}: a value of {label!r} exceeds the limit of an axis (1e300)" for label in dict.fromkeys(far)]
    for table in result.tables:
        if any(len(row) != len(table.columns) for row in table.rows):
            wrong.append(f"table {table.name!r}: a row does not have one cell for each column")
    return wrong


def _write_board(board: Path, results: Sequence[Result], pictures: Pictures) -> None:
    """Write pictures, curves and the table for TensorBoard, without torch, in place of old files."""
    before = list(board.glob("events.out.tfevents.*"))
    writer = EventFileWriter(str(board))
    now = time.time()
    try:
        for result in results:
            for tag, step, value in _entries(result, pictures):
                if isinstance(value, bytes):
                    # the first block of a PNG file has width and height
                    width, height = (int.from_bytes(value[at : at + 4], "big") for at in (16, 20))
                    image = Entries.Image(height=height, width=width, colorspace=4, encoded_image_string=value)
                    entry = Entries.Value(tag=tag, image=image)
                else:
                    entry = Entries.Value(tag=tag, simple_value=value)
                writer.add_event(Event(wall_time=now, step=step, summary=Entries(value=[entry])))
    finally:
        writer.close()
    for old in before:
        old.unlink()


def _entries(result: Result, pictures: Pictures) -> Iterator[tuple[str, int, float | bytes]]:
    """Yield tag, step and value of each entry of TensorBoard."""
    for finding in result.findings:
        if finding.value is not None:
            yield f"classroom table/{finding.row}/{finding.model}", 0, finding.value
    for figure in result.figures:
        tag = f"{result.experiment}/{figure.name}"
        yield tag, 0, pictures[result.experiment, figure.name][0].png
        for one in figure.series:
            points = [(x, y) for x, y in zip(one.x, one.y, strict=True) if y is not None and not isinstance(x, str)]
            steps = [round(x) for x, _ in points]
            # consecutive numbers if rounding would merge points
            steps = steps if len(set(steps)) == len(steps) else range(len(steps))
            yield from ((f"{tag}/{one.label}", step, y) for step, (_, y) in zip(steps, points, strict=True))
