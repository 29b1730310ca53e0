"""Measurements one by one: each is kept in a file of its own, so that a comparison goes on where it was interrupted."""

import json
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from s2s.errors import UserError
from s2s.experiments.contest import Measured, Task
from s2s.files import write_atomically


@dataclass(frozen=True)
class Kept:
    """A measurement that is over.

    Attributes:
        measured: what it left behind; None where it failed.
        failed: why; empty where it did not.
        seconds: how long it took.
    """

    measured: Measured | None
    failed: str
    seconds: float


def keep(folder: Path, task: Task, measure: Callable[[Task], Measured]) -> Kept:
    """Makes a measurement, unless it was made before; one that failed before is tried again.

    Args:
        folder: of the experiment's measurements.
        task: which.
        measure: makes it.
    """
    path = folder / f"{task.key}.json"
    before = kept(folder, task)
    if before and not before.failed:
        return before
    started = time.perf_counter()
    try:
        found = Kept(measure(task), "", time.perf_counter() - started)
    except UserError as error:
        found = Kept(None, error.what, time.perf_counter() - started)
    except Exception as error:
        # whatever went wrong in one cell, the others are still worth measuring; its cell says why
        write_atomically(path.with_suffix(".txt"), traceback.format_exc())
        what = str(error).strip().splitlines()
        found = Kept(None, f"{type(error).__name__}: {what[0] if what else ''}", time.perf_counter() - started)
    write_atomically(path, json.dumps(asdict(found)))
    return found


def kept(folder: Path, task: Task) -> Kept | None:
    """A measurement made before; None where there is none, or its file is damaged."""
    try:
        return Kept(**json.loads((folder / f"{task.key}.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def died(folder: Path, task: Task) -> Kept:
    """Keeps that the process that made a measurement died.

    Args:
        folder: of the experiment's measurements.
        task: which.
    """
    found = Kept(None, "its process was taken down; perhaps memory ran out", 0.0)
    write_atomically(folder / f"{task.key}.json", json.dumps(asdict(found)))
    return found


class Watch:
    """Shows how far a comparison is, and how long it will take; a context manager.

    Args:
        expected: how long all measurements that are still to be made take, about, in seconds.
        console: where it is shown; a line for each measurement where it is no terminal.
    """

    def __init__(self, expected: float, console: Console) -> None:
        self._console = console
        self._expected = expected
        self._done = 0.0
        self._began = time.perf_counter()
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]} left"), console=console
        )
        self._line = self._bar.add_task("", total=self._expected or 1, left=_clock(self._expected))

    def __enter__(self) -> "Watch":
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begins(self, experiment: str, tasks: Sequence[Task]) -> None:
        """Says what is measured now."""
        if tasks:
            self._bar.update(self._line, description=f"{experiment}: {len(tasks)} to measure, {_words(tasks[0])}")

    def ends(self, experiment: str, task: Task, found: Kept, seconds: float) -> None:
        """Counts a measurement; the time left goes by how long those so far took against what was expected.

        Args:
            experiment: whose it is.
            task: which.
            found: what was measured.
            seconds: its share of what was expected.
        """
        self._done += seconds
        spent = time.perf_counter() - self._began
        left = _clock((self._expected - self._done) * spent / max(self._done, 1e-9))
        self._bar.update(self._line, completed=self._done, left=left, description=f"{experiment}: {_words(task)} done")
        state = f"FAILED: {found.failed}" if found.failed else f"{found.seconds:.0f} s"
        if found.failed or not self._console.is_terminal:
            self.say(f"{experiment}: {_words(task)}: {state} · {left} left")

    def say(self, text: str) -> None:
        """Prints a line."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def _words(task: Task) -> str:
    seed = f"seed {task.seed}" if task.seed is not None else ""
    return ", ".join(word for word in (task.model, task.part, seed) if word)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"
