"""Measurements: each kept in a file of its own, shown while they are made, several made beside each other.

A comparison goes on where it was interrupted. Each of the processes has one thread: models of a comparison's size gain
little from a second one, trainings beside each other do not slow each other down much, and so the number of processes
does not change what is measured.
"""

import json
import math
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar, cast

import torch
from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as RichProgress
from tqdm import tqdm

from s2s.comparison.spec import Measured, NoSuchSize, NotForThisModel, Trial
from s2s.errors import UserError
from s2s.files import is_disk_full, read_file, write_atomically
from s2s.recipe.schema import DeviceSettings
from s2s.run.manifest import code_version, processor_name
from s2s.training import cpu_affinity
from s2s.training.device import DeviceContext, setup_process

Item = TypeVar("Item")
Given = TypeVar("Given")
# each holds a model, its optimiser and a corpus
_MOST = 8
# of a GPU's memory, for each: what CUDA itself takes, and a batch's scores
_BYTES_EACH = 4 * 2**30


@dataclass(frozen=True)
class StoredResult:
    """A measurement that is over."""

    measured: Measured | None  # what it left behind; None where it failed
    failed: str  # why; empty where it did not
    seconds: float  # how long it took
    machine: str = ""  # processor, GPU and precision; empty where it failed
    code: str = ""  # version of s2s, see `s2s.run.manifest.code`
    cell: str = ""  # name of its file, without the ending; a file without it is taken for its own
    threads: int = 0  # of the process that made it; 0 where it failed

    @property
    def final(self) -> bool:
        """True if the trial succeeded, or this version of s2s would fail again."""
        return not self.failed or self.code == code_version()


def run_cached(folder: Path, measure: Callable[[Trial], object], trial: Trial, precision: str = "") -> StoredResult:
    """Makes a measurement, unless it was made before; one that failed is tried again, but where a model cannot make it.

    It is kept with the machine and the code that made it, and the precision in which they did, where there is one for
    all.
    """
    path = folder / f"{trial.key}.json"
    before = load_result(folder, trial)
    if before and before.final:
        return before
    started = time.perf_counter()
    try:
        made, here = measure(trial), machine_here(precision)
        measured = asdict(made) if is_dataclass(made) and not isinstance(made, type) else cast(Measured, made)
        seconds = time.perf_counter() - started
        ended = StoredResult(measured, "", seconds, here, code_version(), trial.key, torch.get_num_threads())
    except UserError as error:
        # where there is no room, there is none for any other measurement
        if isinstance(error.__context__, OSError) and is_disk_full(error.__context__):
            raise error.__context__ from None
        what = f"{error.where}: {error.what}" if error.where else error.what
        always = isinstance(error, NotForThisModel | NoSuchSize)
        ended = StoredResult(
            None, what, time.perf_counter() - started, code=code_version() if always else "", cell=trial.key
        )
    except Exception as error:
        if isinstance(error, OSError) and is_disk_full(error):
            raise
        # whatever went wrong in one cell, the others are still worth measuring; its cell says why
        write_atomically(path.with_suffix(".txt"), traceback.format_exc())
        what = str(error).strip().splitlines()
        said = f"{type(error).__name__}: {what[0] if what else ''}"
        ended = StoredResult(None, said, time.perf_counter() - started, cell=trial.key)
    text = json.dumps(asdict(ended))
    write_atomically(path, text)
    # as whoever reads it will find it
    return StoredResult(**json.loads(text))


def machine_here(precision: str = "") -> str:
    """The processor's name, the GPU's where torch sees one, and the precision, as `Result.machines` has them."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    return ", ".join(filter(None, [processor_name(), gpu])) + (f" ({precision})" if precision else "")


def load_result(folder: Path, trial: Trial) -> StoredResult | None:
    """A measurement made before; None where there is none, or its file is damaged, or another one's."""
    try:
        one = StoredResult(**json.loads(read_file(folder / f"{trial.key}.json")))
        whole = math.isfinite(one.seconds) and isinstance(one.measured, dict | None)
        return one if whole and one.cell in ("", trial.key) else None
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def delete_results(folder: Path, trials: Sequence[Trial]) -> list[StoredResult]:
    """Takes away measurements that succeeded, so that they are made again, and gives them."""
    gone = {trial: one for trial in trials if (one := load_result(folder, trial)) and not one.failed}
    for trial in gone:
        (folder / f"{trial.key}.json").unlink()
    return list(gone.values())


def store_crash(folder: Path, trial: Trial) -> StoredResult:
    """Keeps that the process that made a measurement died."""
    ended = StoredResult(None, "its process was taken down; perhaps memory ran out", 0.0, cell=trial.key)
    write_atomically(folder / f"{trial.key}.json", json.dumps(asdict(ended)))
    return ended


class Progress:
    """A progress bar with an estimated time remaining; a context manager.

    Time remaining = expected seconds of the remaining trials × (observed / expected seconds of the finished ones).
    Where the console is not a terminal, each finished trial prints a line instead.

    Args:
        expected: expected seconds of all trials.
        console: where the bar is drawn.
        check: called at each start and end of a trial; raises to stop the comparison.
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
            question: name of the question.
            trials: the trials to run.
        """
        self._check()
        if trials:
            self._bar.update(self._line, description=f"{question}: {len(trials)} to measure, {_words(trials[0])}")

    def finish(self, question: str, trial: Trial, result: "StoredResult", seconds: float) -> None:
        """Count a finished trial and update the time remaining.

        Args:
            question: name of the question.
            trial: the trial that ended.
            result: its stored result.
            seconds: expected seconds of the trial.
        """
        self._check()
        self._finished += seconds
        self._remaining = max(0.0, self._remaining - seconds)
        pace = (time.perf_counter() - self._began) / self._finished if self._finished else 1.0
        left = _clock(self._remaining * pace)
        self._bar.update(
            self._line, completed=self._finished, left=left, description=f"{question}: {_words(trial)} done"
        )
        if result.failed or not self._console.is_terminal:
            state = f"FAILED: {result.failed}" if result.failed else f"{result.seconds:.0f} s"
            self.print(f"{question}: {_words(trial)}: {state} · {left} left")

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


def number_for(device_context: DeviceContext) -> int:
    """Number of trials that run at the same time: one for each thread of torch, at most 8.

    A GPU is shared by as many, if each has 4 GiB of its memory: eight trainings took no longer than one
    (docs/dev/log.md). Other devices run one at a time.
    """
    if device_context.device.type not in ("cpu", "cuda"):
        return 1
    number = min(_MOST, torch.get_num_threads())
    if device_context.device.type == "cuda":
        memory = torch.cuda.get_device_properties(device_context.device).total_memory
        number = max(1, min(number, memory // _BYTES_EACH))
    return number


class Workers:
    """Makes calls in other processes, which live until the end of the context; one worker is this process itself.

    Each is prepared for the device, but for its threads: it has one.
    """

    def __init__(self, number: int, device: DeviceSettings | None = None) -> None:
        self.number = number
        self._device = (device or DeviceSettings()).model_copy(update={"threads": 1})
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "Workers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None and kind:
            # after an interruption nobody waits for what they do
            for process in multiprocessing.active_children():
                process.terminate()
        self._end()

    def __str__(self) -> str:
        return f"{self.number} beside each other"

    @contextmanager
    def exclusive(self) -> Iterator["Workers"]:
        """Gives what makes calls in this very process, while nothing else is measured; the others give back memory."""
        self._end()
        yield Workers(1)

    def _end(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)

    def map_unordered(
        self, call: Callable[[Item], Given], items: Sequence[Item]
    ) -> Generator[tuple[Item, Given | None]]:
        """Makes a call for each item; both can be pickled, where there is more than one worker.

        Args:
            call: what is made.
            items: with what; those that are added to them meanwhile are among them.

        Yields:
            An item and what the call gave, in the order in which they end; None where its process died, as it does when
            the system takes it down for its memory.
        """
        if self.number == 1:
            # a list is read to its end, wherever that is by then
            yield from ((item, call(item)) for item in items)
            return
        over: set[int] = set()
        try:
            for place, given in self._beside(call, items):
                over.add(place)
                yield items[place], given
        except BrokenProcessPool:
            # all calls end with one process; made one at a time, they tell which of them it was
            for place, item in enumerate(items):
                if place in over:
                    continue
                self._pool = None
                try:
                    yield item, next(self._beside(call, [item]))[1]
                except BrokenProcessPool:
                    yield item, None
            self._pool = None

    def _beside(self, call: Callable[[Item], Given], items: Sequence[Item]) -> Iterator[tuple[int, Given]]:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(
                self.number, mp_context=context, initializer=_prepare, initargs=(self._device,)
            )
        waiting: dict[Future[Given], int] = {}
        submitted = 0
        while waiting or submitted < len(items):
            # The processes begin when calls are submitted, and inherit what is blocked: before they can ignore an
            # interruption, which is their parent's, they import for a second.
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGHUP))
            try:
                with cpu_affinity.unpin_children():
                    # One that is handed over cannot be called back, nor a process taken down while it hands something
                    # over. Who stops reading leaves so many, which end by themselves.
                    for item in items[submitted : submitted + self.number - len(waiting)]:
                        waiting[self._pool.submit(call, item)] = submitted
                        submitted += 1
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            over, _ = wait(waiting, return_when=FIRST_COMPLETED)
            yield from ((waiting.pop(future), future.result()) for future in over)


def _prepare(device: DeviceSettings) -> None:
    """An interruption is the parent's to handle, and nothing outlives the parent."""
    cpu_affinity.restore_affinity()
    setup_process(device)
    code_version()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # the lock that progress bars would share outlives a process that is taken down, and Python warns of it
    tqdm.set_lock(threading.RLock())
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
