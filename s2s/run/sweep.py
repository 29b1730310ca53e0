"""Sweeps: a run for each combination of values and seeds, trained one after another or in several processes."""

import itertools
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from s2s.errors import UserError, counted, format_message
from s2s.recipe.page import read_value
from s2s.recipe.reading import split_sweep
from s2s.recipe.schema import TrainRecipe
from s2s.run import folder as folders
from s2s.run.tasks import read, schemas

if TYPE_CHECKING:
    from rich.console import Console

    from s2s.tasks.base import PrintFn

_MOST = 1_000


@dataclass(frozen=True)
class SweptRun:
    """A run of a sweep.

    Attributes:
        values: Value of each swept key, as on the command line.
        recipe: Recipe of the run.
        path: File of the recipe.
        words: Overrides with which this file is the recipe.
        resumed: Overrides with which an existing run is resumed; None for a new run.
    """

    values: dict[str, str]
    recipe: TrainRecipe
    path: Path
    words: tuple[str, ...]
    resumed: tuple[str, ...] | None = None

    def __str__(self) -> str:
        """The values as on the command line."""
        return " ".join("=".join(each) for each in self.values.items())

    @property
    def folder(self) -> Path:
        """Folder of the run, named after its values."""
        return folders.run_dir(self.recipe)


def plan_sweep(
    path: Path, overrides: Sequence[str], seeds: int | None, overwrite: bool, resuming: bool
) -> list[SweptRun]:
    """List the runs of a sweep.

    Args:
        path: The recipe file.
        overrides: `section.key=value` arguments; `section.key=VALUE,VALUE` names several values.
        seeds: Number of seeds of each combination; None: those of the recipe.
        overwrite: Allow replacing existing runs.
        resuming: Continue existing runs.

    Returns:
        The runs, in the order of the values; empty without several values or seeds.

    Raises:
        UserError: A recipe has mistakes, a folder is not free, or an existing run has other settings.
    """
    same, swept = split_sweep(path, overrides, schemas())
    if seeds:
        swept.append([f"seed={seed}" for seed in range(1, seeds + 1)])
    if (count := math.prod(map(len, swept))) > _MOST:
        raise UserError(f"{count:,} runs; at most {_MOST:,} are trained", "command line", "name fewer values")
    others = [word for word in same if _key(word) != "run.dir"]
    runs = list[SweptRun]()
    for values in itertools.product(*swept) if swept else ():
        words = [*others, *values]
        folder = f"{folders.run_dir(read(path, [*same, *values]))}{''.join(map(_label, values))}"
        words.append(f"run.dir={folder}")
        recipe = read(path, words)
        resumed = (
            _check_resumed(Path(folder), words[:-1]) if resuming and (Path(folder) / folders.RECIPE).exists() else None
        )
        if resumed is None:
            folders.check_free(recipe, overwrite)
        runs.append(SweptRun(dict(map(_split, values)), recipe, path, tuple(words), resumed))
    if len({_serialize_settings(run.recipe) for run in runs}) < len(runs):
        raise UserError("two runs have the same values", "command line", "name each value once")
    return runs


def train_sweep(
    runs: Sequence[SweptRun], console: "Console", overwrite: bool, precision_of: Path | None, print_fn: "PrintFn"
) -> list[Path]:
    """Train the runs one after another; resume unfinished ones and skip finished ones.

    A run that fails, such as one whose loss becomes infinite, is reported, and the next one begins.

    Args:
        precision_of: Run whose precision the runs use (`device.precision: auto`); None: the first one measures it.

    Returns:
        The folders of the runs that failed.

    Raises:
        UserError: The first run failed before it had a folder, as all would do.
    """
    from s2s.run import training
    from s2s.run.manifest import training_precision
    from s2s.training.device import setup_process

    failed, precisions = list[Path](), _SharedPrecision(runs, precision_of)
    for number, run in enumerate(runs, start=1):
        try:
            asked = None if run.resumed is None else folders.check_resumable(run.folder, run.resumed)
            finished = asked is not None and training.is_finished(run.folder, asked)
            line = f"run {number} of {len(runs)}: {run}{', finished before' if finished else ''}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
            setup_process(run.recipe.device)
            if asked is None:
                known = precisions.known() if run.recipe.device.precision == "auto" else None
                precisions.start(run)
                training.train(run.recipe, console, overwrite, precision=training_precision(known) if known else None)
            elif not finished:
                training.resume(run.folder, console, run.resumed or (), asked)
        except UserError as error:
            if number == 1 and not (run.folder / folders.RECIPE).exists():
                raise
            print_fn(format_message(str(error)))
            failed.append(run.folder)
    return failed


def train_in_processes(
    runs: Sequence[SweptRun], jobs: int, overwrite: bool, precision_of: Path | None, print_fn: "PrintFn"
) -> list[Path]:
    """Train the runs in processes of their own; resume unfinished ones and skip finished ones.

    The CPUs are divided among the processes, unless the command sets `device.threads`.

    Args:
        jobs: Number of runs that are trained at the same time.
        precision_of: Run whose precision the runs use (`device.precision: auto`); None: the first one measures it.

    Returns:
        The folders of the runs that failed.
    """
    threads = f"device.threads={max(1, (os.cpu_count() or 1) // jobs)}"
    failed, precisions = list[Path](), _SharedPrecision(runs, precision_of)
    with ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(_train_in_process, run, overwrite, threads, precisions): run for run in runs}
        try:
            for number, over in enumerate(as_completed(waiting), start=1):
                run, error = waiting[over], over.result()
                print_fn(f"{number} of {len(runs)}: {run}{': failed' if error else ''}")
                if error:
                    print_fn(error)
                    failed.append(run.folder)
        except KeyboardInterrupt:
            # The processes have heard the signal, too, and save their checkpoints; no other one starts.
            precisions.interrupted = True
            pool.shutdown(cancel_futures=True)
            raise
    return failed


class _SharedPrecision:
    """Precision of all runs of a sweep with `device.precision: auto`: the first run that trains measures it.

    Measured for each run, it could differ between seeds when the two precisions are about as fast.

    Args:
        precision_of: Run whose precision is used; None: it is measured.
    """

    def __init__(self, runs: Sequence[SweptRun], precision_of: Path | None) -> None:
        self.measuring = Lock()
        self.interrupted = False
        self._trained = [precision_of] if precision_of else [run.folder for run in runs if run.resumed is not None]

    def start(self, run: SweptRun) -> None:
        """Let a run that is about to train be one of those whose precision counts."""
        self._trained.append(run.folder)

    def known(self) -> Path | None:
        """Return a run whose precision is known; None if none has been measured."""
        from s2s.run.manifest import training_device

        return next((folder for folder in self._trained if training_device(folder)), None)


def _train_in_process(run: SweptRun, overwrite: bool, threads: str, precisions: _SharedPrecision) -> str:
    """Return the error message of a training; empty if it succeeded."""
    from s2s.run import training

    command = [str(run.path), *run.words]
    if run.resumed is not None:
        try:
            if training.is_finished(run.folder, folders.check_resumable(run.folder, run.resumed)):
                return ""
        except UserError as error:
            return format_message(str(error))
        command = [str(run.folder), "--resume", *run.resumed]
    command += [] if any(_key(word) == "device.threads" for word in command) else [threads]
    command += ["--overwrite"] if overwrite else []
    with precisions.measuring:
        if precisions.interrupted:
            return "interrupted"
        automatic = run.recipe.device.precision == "auto"
        if automatic and run.resumed is None and (known := precisions.known()):
            command += ["--precision-of", str(known)]
        replaced = _manifest_time(run.folder)
        process = subprocess.Popen(
            [sys.executable, "-m", "s2s", "train", *command, "--quiet"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        # Until the first run has measured the precision, no other one starts.
        while automatic and not precisions.known() and process.poll() is None:
            time.sleep(0.2)
            if _manifest_time(run.folder) != replaced:
                precisions.start(run)
    error = process.communicate()[1].strip()
    return (error or f"exit status {process.returncode}") if process.returncode else ""


def _manifest_time(folder: Path) -> int:
    """Return the time of a run's manifest, which is written after the precision is measured; 0 without one."""
    manifest = folder / folders.MANIFEST
    return manifest.stat().st_mtime_ns if manifest.exists() else 0


def check_all_trained(failed: Sequence[Path], count: int) -> None:
    """Raise a `UserError` that names the runs that failed, if there are any."""
    if failed:
        what = f"{len(failed)} of {counted(count, 'run')} failed: {', '.join(map(str, failed))}"
        raise UserError(what, remedy="see the messages above")


def _check_resumed(folder: Path, words: Sequence[str]) -> tuple[str, ...]:
    """Refuse a run with other settings; return the overrides that may change when it is resumed."""
    changes = tuple(word for word in words if folders.may_change_on_resume(word))
    now = folders.check_resumable(folder, changes)
    if changed := folders.changed_settings(now, read(folder / folders.RECIPE, words)):
        remedy = "replace it with --overwrite instead of --resume, or name another folder with run.dir=DIR"
        raise UserError(f"was trained with another value of {', '.join(changed)}", str(folder), remedy)
    return changes


def _serialize_settings(recipe: TrainRecipe) -> str:
    """Return all settings but the folder: `0.1` and `0.10` name the same run, in two folders."""
    return recipe.model_copy(update={"run": recipe.run.model_copy(update={"dir": None})}).model_dump_json()


def _split(word: str) -> tuple[str, str]:
    key, _, value = word.partition("=")
    return key, value


def _key(word: str) -> str:
    return word.partition("=")[0].strip()


def _label(word: str) -> str:
    """Return a value as part of a folder's name: `-lstm`, `-learning_rate0.002`."""
    key, value = _split(word)
    return f"-{value}" if isinstance(read_value(value), str) else f"-{key.rpartition('.')[2]}{value}"
