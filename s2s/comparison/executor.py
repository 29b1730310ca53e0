"""Run the trials of a question, each cached in a JSON file, and skip those that are stored.

A comparison resumes at the first missing trial. Trials run in parallel processes with one thread each: models of a
comparison's size gain little from a second thread, and the number of processes does not change what is measured.
"""

import json
import math
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, is_dataclass
from functools import partial
from pathlib import Path
from typing import cast

import torch

from s2s.comparison.cluster import RayWorkers
from s2s.comparison.cost import expected_seconds
from s2s.comparison.progress import Progress
from s2s.comparison.spec import Comparison, Experiment, Measured, NoSuchSize, NotForThisModel, Trial
from s2s.comparison.workers import Workers
from s2s.errors import UserError
from s2s.files import is_disk_full, read_file, write_atomically
from s2s.run.manifest import code_version, processor_name

AnyWorkers = Workers | RayWorkers
"""A pool that runs trials: processes of this machine, or a Ray cluster."""


@dataclass(frozen=True)
class StoredResult:
    """Result of a finished trial, as stored.

    Attributes:
        measured: The measurement as a JSON object; None if the trial failed.
        failed: Reason of the failure; empty if the trial succeeded.
        seconds: Duration.
        machine: Processor, GPU and precision; empty if the trial failed.
        code: Version of s2s; of a failed trial only if this version would fail again.
        cell: File name without ending, so that a misplaced file is noticed; empty accepts any name.
        threads: Number of threads; 0 if the trial failed.
    """

    measured: Measured | None
    failed: str
    seconds: float
    machine: str = ""
    code: str = ""
    cell: str = ""
    threads: int = 0

    @property
    def final(self) -> bool:
        """True if the trial succeeded, or this version of s2s would fail again."""
        return not self.failed or self.code == code_version()


def machine_here(precision: str = "") -> str:
    """Return the names of the processor and the GPU, and the precision, as in `Result.machines`."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    return ", ".join(filter(None, [processor_name(), gpu])) + (f" ({precision})" if precision else "")


def load_result(folder: Path, trial: Trial) -> StoredResult | None:
    """Load a stored result; None if there is none, or the file is damaged or belongs to another trial."""
    try:
        result = StoredResult(**json.loads(read_file(folder / f"{trial.key}.json")))
        valid = math.isfinite(result.seconds) and isinstance(result.measured, dict | None)
        return result if valid and result.cell in ("", trial.key) else None
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def run_cached(folder: Path, measure: Callable[[Trial], object], trial: Trial, precision: str = "") -> StoredResult:
    """Run a trial unless its result is cached.

    Failed trials are retried, except those that this version of s2s cannot run for the model.

    Args:
        folder: Folder of the question's results.
        measure: Returns the measurement, a dataclass of JSON values.
        precision: Precision of the question, stored with the result.

    Returns:
        The result as it is stored; a failed trial has a reason in place of a measurement.

    Raises:
        OSError: The disk is full; no other trial could be stored either.
    """
    before = load_result(folder, trial)
    if before and before.final:
        return before
    path = folder / f"{trial.key}.json"
    started = time.perf_counter()
    machine, code, threads = "", "", 0
    measured, failed = None, ""
    try:
        found = measure(trial)
        measured = asdict(found) if is_dataclass(found) and not isinstance(found, type) else cast(Measured, found)
        machine, code, threads = machine_here(precision), code_version(), torch.get_num_threads()
    except UserError as error:
        if isinstance(error.__context__, OSError) and is_disk_full(error.__context__):
            raise error.__context__ from None
        failed = f"{error.where}: {error.what}" if error.where else error.what
        code = code_version() if isinstance(error, NotForThisModel | NoSuchSize) else ""
    except Exception as error:
        if isinstance(error, OSError) and is_disk_full(error):
            raise
        # A bug in one trial does not stop the others: the result records it, and a text file has the traceback.
        write_atomically(path.with_suffix(".txt"), traceback.format_exc())
        lines = str(error).strip().splitlines()
        failed = f"{type(error).__name__}: {lines[0] if lines else ''}"
    result = StoredResult(measured, failed, time.perf_counter() - started, machine, code, trial.key, threads)
    text = json.dumps(asdict(result))
    write_atomically(path, text)
    # The caller gets the result as a later reader will load it.
    return StoredResult(**json.loads(text))


def missing_trials(experiment: Experiment, comparison: Comparison, trials: Sequence[Trial]) -> list[Trial]:
    """Select the trials to run: those without a stored result, and failed ones that may succeed.

    Timing and memory results from another machine, version or thread count are not comparable: if any trial is new,
    they are measured again, too. A failed trial does not count as new. A round in which a trial is new is measured
    again.

    Returns:
        The missing trials, in their order.
    """
    folder = comparison.results_folder(experiment.name)
    tried = {trial: one for trial in trials if (one := load_result(folder, trial))}
    done = {trial: one for trial, one in tried.items() if not one.failed}
    if experiment.exclusive:
        here = machine_here(experiment.precision_in(comparison)), code_version(), torch.get_num_threads()
        new = [trial for trial in trials if trial not in tried]
        own = {trial: one for trial, one in done.items() if (one.machine, one.code, one.threads) == here}
        if new or 0 < len(own) < len(done):
            rounds = {trial.part for trial in new if trial.in_round}
            done = {trial: one for trial, one in own.items() if trial.part not in rounds}
    final = {trial for trial, one in tried.items() if one.failed and one.final}
    # The order is kept, because it tells rounds apart.
    return [trial for trial in trials if trial not in {*done, *final}]


def run_trials(
    experiment: Experiment,
    comparison: Comparison,
    trials: Sequence[Trial],
    progress: Progress,
    workers: AnyWorkers,
    following: Callable[[str], Sequence[Trial]] = lambda model: (),
) -> dict[Trial, StoredResult]:
    """Return the results of all trials, running those that are not stored yet.

    Args:
        following: Returns further trials of a model, once all its others have ended.

    Returns:
        Results by trial, in the order of the trials, including failed ones.
    """
    new = missing_trials(experiment, comparison, trials)
    results = _run(experiment, comparison, trials, new, progress, workers, following)
    if experiment.exclusive:
        # If a failed trial succeeded now, the rest of its round was deleted and is measured again.
        again = [trial for trial in missing_trials(experiment, comparison, trials) if trial not in results]
        if again:
            results |= _run(experiment, comparison, trials, again, progress, workers)
    folder = comparison.results_folder(experiment.name)
    # Results in memory come first: on a network file system, files of another node may not be visible yet.
    stored = {trial: results.get(trial) or load_result(folder, trial) for trial in dict.fromkeys((*trials, *new))}
    return {trial: result for trial, result in stored.items() if result}


def _run(
    experiment: Experiment,
    comparison: Comparison,
    trials: Sequence[Trial],
    new: list[Trial],
    progress: Progress,
    workers: AnyWorkers,
    following: Callable[[str], Sequence[Trial]] = lambda model: (),
) -> dict[Trial, StoredResult]:
    """Run trials; those that follow are appended to `new`. Trials of rounds that must be run again are left out."""
    folder = comparison.results_folder(experiment.name)
    folder.mkdir(parents=True, exist_ok=True)
    precision = experiment.precision_in(comparison)
    failed = {trial for trial in new if (one := load_result(folder, trial)) and one.failed}
    if stale := delete_results(folder, new):
        progress.print(f"{experiment.name}: {_why_again(stale, machine_here(precision))}")
    files = {trial.key: folder / f"{trial.key}.json" for trial in new}
    if damaged := [trial.key for trial in new if files[trial.key].exists() and not load_result(folder, trial)]:
        progress.print(f"{experiment.name}: damaged results are measured again: {', '.join(damaged)}")
    there = [one for trial in trials if new and (one := load_result(folder, trial)) and not one.failed]
    if older := {one.code for one in there} - {code_version()}:
        progress.print(
            f"{experiment.name}: some results are from {' and '.join(sorted(older))}, new ones from {code_version()}"
        )
    results, stale_round = dict[Trial, StoredResult](), set[Trial]()
    progress.start(experiment.name, new)
    run = partial(run_cached, folder, partial(experiment.measure, comparison), precision=precision)
    pool = workers.exclusive() if experiment.exclusive and new else nullcontext(workers)
    with pool as running, closing(running.map_unordered(run, new)) as ended:
        for trial, result in ended:
            results[trial] = result or _store_crash(folder, trial)
            if trial in failed and not results[trial].failed:
                stale_round |= _delete_round(folder, trials, trial, results)
            seconds = expected_seconds(experiment, comparison, trial, workers.number)
            found = results[trial]
            kind = "not applicable" if found.final else "FAILED"
            reason = f"{kind}: {found.failed}" if found.failed else ""
            progress.finish(experiment.name, trial, found.seconds, reason, seconds)
            if all(each in results for each in new if each.model == trial.model):
                new += following(trial.model)
    return {trial: result for trial, result in results.items() if trial not in stale_round}


def delete_results(folder: Path, trials: Sequence[Trial]) -> list[StoredResult]:
    """Delete the results of successful trials, and return them."""
    found = {trial: one for trial in trials if (one := load_result(folder, trial)) and not one.failed}
    for trial in found:
        (folder / f"{trial.key}.json").unlink()
    return list(found.values())


def _store_crash(folder: Path, trial: Trial) -> StoredResult:
    result = StoredResult(None, "its process was killed; perhaps memory ran out", 0.0, cell=trial.key)
    write_atomically(folder / f"{trial.key}.json", json.dumps(asdict(result)))
    return result


def _delete_round(
    folder: Path, trials: Sequence[Trial], trial: Trial, results: Mapping[Trial, StoredResult]
) -> set[Trial]:
    """Delete a stale round, because timings of different sessions are not comparable. Returns the deleted trials.

    They are deleted at once, so that an interruption leaves no mixed round.
    """
    whole = [each for each in trials if each.in_round and trial.in_round and each.part == trial.part]
    there = {each for each in whole if (one := load_result(folder, each)) and not one.failed}
    if there <= results.keys():
        return set()
    delete_results(folder, whole)
    return there & results.keys()


def _why_again(stale: Sequence[StoredResult], here: str) -> str:
    sources = [one.machine if one.machine != here else one.code for one in stale]
    if other := [each for each in dict.fromkeys(sources) if each != code_version()]:
        return f"results of {' and '.join(other)} are measured again on this machine"
    if any(one.threads != torch.get_num_threads() for one in stale):
        return f"results with another number of threads are measured again with {torch.get_num_threads()}"
    return "rounds in which a model is missing are measured again"
