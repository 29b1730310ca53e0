"""Progress bar of a comparison, with the estimated time remaining."""

import time
from collections.abc import Callable, Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress

from s2s.comparison.spec import Trial

# Seconds in which processes start, and the share of all expected seconds after which the observed pace counts as much.
_START, _SHARE = 30.0, 0.1


class Progress:
    """A progress bar with an estimated time remaining; a context manager.

    Time remaining = expected seconds of the remaining trials × pace, where pace = (observed seconds + w) / (expected
    seconds of the finished trials + w). The weight w keeps the pace near 1 at first, when the seconds are those of the
    start of processes and of trials that have not finished.
    Where the console is not a terminal, each finished trial prints a line instead.

    Args:
        expected: Expected seconds of all trials.
        console: Console of the bar.
        check: Called at each start and end of a trial; raises to stop the comparison.
    """

    def __init__(self, expected: float, console: Console, check: Callable[[], None] = lambda: None) -> None:
        self._console = console
        self._check = check
        self._remaining, self._finished = expected, 0.0
        self._began = time.perf_counter()
        self._bar = RichProgress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]} left"), console=console
        )
        self._line = self._bar.add_task("", total=expected or 1, left=_clock(expected))

    def __enter__(self) -> "Progress":
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def expect(self, seconds: float) -> None:
        """Set the expected seconds of all remaining trials."""
        self._remaining = seconds
        self._bar.update(self._line, total=self._remaining + self._finished or 1)

    def start(self, question: str, trials: Sequence[Trial]) -> None:
        """Show which question is measured now.

        Args:
            question: Name of the question.
            trials: The trials to run.
        """
        self._check()
        if trials:
            self._bar.update(self._line, description=f"{question}: {len(trials)} trials to run, {_words(trials[0])}")

    def finish(self, question: str, trial: Trial, seconds: float, failed: str, expected: float) -> None:
        """Count a finished trial and update the time remaining.

        Args:
            question: Name of the question.
            trial: The trial that ended.
            seconds: Its duration.
            failed: Kind and reason of a failure; empty if it succeeded.
            expected: Expected seconds of the trial.
        """
        self._check()
        self._finished += expected
        self._remaining = max(0.0, self._remaining - expected)
        weight = max(_START, _SHARE * (self._remaining + self._finished))
        pace = (time.perf_counter() - self._began + weight) / (self._finished + weight)
        left = _clock(self._remaining * pace)
        self._bar.update(
            self._line, completed=self._finished, left=left, description=f"{question}: {_words(trial)} done"
        )
        if failed or not self._console.is_terminal:
            self.print(f"{question}: {_words(trial)}: {failed or f'{seconds:.0f} s'} · {left} left")

    def print(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def _words(trial: Trial) -> str:
    seed = f"seed {trial.seed}" if trial.seed is not None else ""
    return ", ".join(word for word in (trial.model, trial.part, seed) if word)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
