"""A comparison in TensorBoard: pictures, curves and the classroom table, written without torch."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from s2s.results import Result, Series

FOLDER = "tensorboard"

# a value of TensorBoard's: what it is called, at which step, and what
Entry = tuple[str, int, float | bytes]


def write_board(folder: Path, results: Sequence[Result], pictures: Mapping[tuple[str, str], bytes]) -> Path:
    """Writes everything anew.

    Args:
        folder: the comparison's.
        results: what was found.
        pictures: PNG files by experiment and figure.

    Returns:
        The folder to give to `tensorboard --logdir`.
    """
    board = folder / FOLDER
    before = list(board.glob("events.out.tfevents.*"))
    writer = EventFileWriter(str(board))
    now = time.time()
    try:
        for tag, step, value in (entry for result in results for entry in _entries(result, pictures)):
            writer.add_event(Event(wall_time=now, step=step, summary=Summary(value=[_value(tag, value)])))
    finally:
        writer.close()
    for old in before:
        old.unlink()
    return board


def _entries(result: Result, pictures: Mapping[tuple[str, str], bytes]) -> Iterator[Entry]:
    for finding in result.findings:
        if finding.value is not None:
            yield f"classroom table/{finding.row}/{finding.model}", 0, finding.value
    for figure in result.figures:
        tag = f"{result.experiment}/{figure.name}"
        yield tag, 0, pictures[result.experiment, figure.name]
        for series in figure.series:
            yield from ((f"{tag}/{series.label}", step, y) for step, y in _curve(series))


def _curve(series: Series) -> Iterator[tuple[int, float]]:
    """Points with a number for a place; where rounding would throw places together, they are counted."""
    points = [(x, y) for x, y in zip(series.x, series.y, strict=True) if y is not None and not isinstance(x, str)]
    steps = [round(x) for x, _ in points]
    distinct = len(set(steps)) == len(steps)
    return ((steps[i] if distinct else i, y) for i, (_, y) in enumerate(points))


def _value(tag: str, value: float | bytes) -> Summary.Value:
    if not isinstance(value, bytes):
        return Summary.Value(tag=tag, simple_value=value)
    # a PNG file says how large it is in its first block
    width, height = (int.from_bytes(value[at : at + 4], "big") for at in (16, 20))
    return Summary.Value(
        tag=tag, image=Summary.Image(height=height, width=width, colorspace=4, encoded_image_string=value)
    )
