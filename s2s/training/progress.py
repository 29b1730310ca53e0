"""How far something is that takes long, while nothing else is said."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

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
"""Of what is done and of how much there is, a context that takes notice of each part that is done."""

PLAIN_LINE_EVERY = 10.0
"""Seconds between two lines where there is no terminal to draw a bar on."""
_PLAIN_WIDTH = 120


@contextmanager
def no_progress_bar(what: str, total: int) -> Iterator[Advance]:
    """A meter that shows nothing."""
    yield lambda count: None


def progress_bar(console: Console) -> ProgressBar:
    """A meter that draws a bar on a terminal, and writes a line now and then elsewhere."""

    @contextmanager
    def shown(what: str, total: int) -> Iterator[Advance]:
        """Shown until the context ends; the bar then goes away."""
        if console.is_terminal:
            with Progress(*bar_columns(what), console=console, transient=True) as bar:
                task = bar.add_task(what, total=total, shown="")
                yield lambda count: bar.update(task, advance=count)
            return
        done, spoke = 0, time.monotonic()

        def advance(count: int) -> None:
            """So many more are done."""
            nonlocal done, spoke
            done += count
            if time.monotonic() - spoke > PLAIN_LINE_EVERY:
                spoke = time.monotonic()
                console.print(f"{what}: {done:,} of {total:,}", markup=False, highlight=False, soft_wrap=True)

        yield advance

    return shown


def bar_columns(what: str) -> list[ProgressColumn]:
    """What a bar consists of; a task's field `shown` stands before its times."""
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
    """What was read and what was written, cut to one row of the terminal; of 120 letters where there is none."""
    indent, arrow = "    ", "  →  "
    room = (console.width if console.is_terminal else _PLAIN_WIDTH) - len(indent + arrow)
    sides = [Text(" ".join(text.split())) for text in (source, written)]
    for side, other in (sides, sides[::-1]):
        # the shorter side leaves its room to the other
        side.truncate(max(room // 2, room - other.cell_len), overflow="ellipsis")
    return f"{indent}{sides[0].plain}{arrow}{sides[1].plain}"
