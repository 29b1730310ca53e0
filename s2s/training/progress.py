"""Progress bars on a terminal, and progress lines elsewhere."""

import io
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

Advance = Callable[[int], object]
ProgressBar = Callable[[str, int], AbstractContextManager[Advance]]
"""Function of a name and a total that returns a context manager; its value takes the number of finished parts."""

PLAIN_LINE_EVERY = 10.0
"""Seconds between two progress lines without a terminal."""
_PLAIN_WIDTH = 120


class TimestampedStream(io.TextIOBase):
    """Text stream that writes the date and time before each line, for log files."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._at_line_start = stream, True

    def write(self, text: str, /) -> int:
        """Write text, and the time at the start of each line."""
        for line in text.splitlines(keepends=True):
            now = time.strftime("%Y-%m-%d %H:%M:%S ") if self._at_line_start else ""
            self._stream.write(now + line)
            self._at_line_start = line.endswith("\n")
        return len(text)

    def flush(self) -> None:
        """Flush the underlying stream."""
        self._stream.flush()


@contextmanager
def no_progress_bar(what: str, total: int) -> Iterator[Advance]:
    """Show no progress."""
    yield lambda count: None


def progress_bar(console: Console) -> ProgressBar:
    """Return a progress bar for a terminal; elsewhere it prints occasional lines.

    Args:
        console: Console to print on.

    Returns:
        A function with the name of the work and the number of parts; see `ProgressBar`.
    """

    @contextmanager
    def shown(what: str, total: int) -> Iterator[Advance]:
        """Show progress until the context ends; a bar is then removed."""
        if console.is_terminal:
            with Progress(*bar_columns(what), console=console, transient=True) as bar:
                task = bar.add_task(what, total=total, shown="")
                yield lambda count: bar.update(task, advance=count)
            return
        done, spoke = 0, time.monotonic()

        def advance(count: int) -> None:
            """Count finished parts."""
            nonlocal done, spoke
            done += count
            if time.monotonic() - spoke > PLAIN_LINE_EVERY:
                spoke = time.monotonic()
                console.print(f"{what}: {done:,} of {total:,}", markup=False, highlight=False, soft_wrap=True)

        yield advance

    return shown


def bar_columns(what: str) -> list[ProgressColumn]:
    """Return the columns of a progress bar; a task's field `shown` precedes its times."""
    return [
        TextColumn(what),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[shown]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("·"),
        TimeRemainingColumn(),
        TextColumn("left"),
    ]


def fit_to_row(console: Console, source: str, written: str) -> str:
    """Format an input and an output, cut to one row of the terminal.

    Args:
        console: Console; without a terminal a row has 120 characters.
        source: Input of a model.
        written: Output of the model.

    Example:
        >>> fit_to_row(Console(force_terminal=False), "ein Haus", "a house")
        '    ein Haus  →  a house'
    """
    indent, arrow = "    ", "  →  "
    room = (console.width if console.is_terminal else _PLAIN_WIDTH) - len(indent + arrow)
    sides = [Text(" ".join(text.split())) for text in (source, written)]
    for side, other in (sides, sides[::-1]):
        # Space that the shorter side does not need goes to the other one.
        side.truncate(max(room // 2, room - other.cell_len), overflow="ellipsis")
    return f"{indent}{sides[0].plain}{arrow}{sides[1].plain}"
