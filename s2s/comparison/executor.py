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
        code: Version of s2s; for a failed trial only if this version would fail again.
        cell: File name without extension, to detect misplaced files; empty accepts any name.
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

    @property
    def applicable(self) -> bool:
        """False if the question does not apply to the model; such a failure has the version of s2s that found it."""
        return not (self.failed and self.code)


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

    Failed trials are retried, except those that this version of s2s marks as not applicable to the model.

    Args:
        folder: Folder of the question's results.
        measure: Returns the measurement, a dataclass of JSON values.
        precision: Precision of the question, stored with the result.

    Returns:
        The stored result; a failed trial has a reason instead of a measurement.

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
    # Return the result as `load_result` would.
    return StoredResult(**json.loads(text))


def missing_trials(experiment: Experiment, comparison: Comparison, trials: Sequence[Trial]) -> list[Trial]:
    """Select the trials to run: those without a stored result, and failed ones that may succeed.

    Timing and memory results from another machine, version or thread count are not comparable: if any trial is new,
    they are measured again, too. A failed trial does not count as new. A round with a new trial is measured again.

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
    # The order is kept, because it defines rounds.
    return [trial for trial in trials if trial not in {*done, *final}]


def observed_pace(experiment: Experiment, comparison: Comparison, trials: Sequence[Trial]) -> float:
    """Return the ratio of measured to expected seconds of the successful trials that are stored; 1 without any."""
    folder = comparison.results_folder(experiment.name)
    stored = {trial: one.seconds for trial in trials if (one := load_result(folder, trial)) and not one.failed}
    expected = sum(expected_seconds(experiment, comparison, trial, 1) for trial in stored)
    return sum(stored.values()) / expected if expected else 1.0


def run_trials(
    experiment: Experiment,
    comparison: Comparison,
    trials: Sequence[Trial],
    progress: Progress,
    workers: AnyWorkers,
    following: Callable[[str], Sequence[Trial]] = lambda model: (),
) -> dict[Trial, StoredResult]:
    """Return the results of all trials of a question, running those that are not stored yet.

    Args:
        following: Returns further trials of a model when all its other trials have ended.

    Returns:
        Results by trial, in the order of the trials, including failed ones.
    """
    new = missing_trials(experiment, comparison, trials)
    question = _Question(experiment, comparison, trials, new)
    _run([question], progress, workers, following)
    if experiment.exclusive:
        # If a failed trial succeeded now, the rest of its round was deleted and is measured again.
        again = [trial for trial in missing_trials(experiment, comparison, trials) if trial not in question.results]
        if again:
            repeated = _Question(experiment, comparison, trials, again)
            _run([repeated], progress, workers)
            question.results |= repeated.results
    return question.stored()


def run_questions(
    questions: Sequence[tuple[Experiment, Sequence[Trial]]],
    comparison: Comparison,
    progress: Progress,
    workers: AnyWorkers,
    finish: Callable[[Experiment, Mapping[Trial, StoredResult]], None],
) -> None:
    """Run the missing trials of several questions in one pool, so that no process idles at the end of a question.

    Args:
        questions: Each question with its trials; none depends on another one. An exclusive question must be the only
            one.
        finish: Called for each question with its results, as `run_trials` returns them, in the order of the questions;
            trials of later questions may still run.
    """
    if any(experiment.exclusive for experiment, _ in questions):
        ((experiment, trials),) = questions
        finish(experiment, run_trials(experiment, comparison, trials, progress, workers))
        return
    waiting = [
        _Question(each, comparison, trials, missing_trials(each, comparison, trials)) for each, trials in questions
    ]

    def finish_ended() -> None:
        while waiting and waiting[0].is_finished:
            question = waiting.pop(0)
            finish(question.experiment, question.stored())

    _run(list(waiting), progress, workers, ended=finish_ended)


class _Question:
    """The missing trials of a question, and their results so far."""

    def __init__(
        self, experiment: Experiment, comparison: Comparison, trials: Sequence[Trial], missing: list[Trial]
    ) -> None:
        self.experiment = experiment
        self.comparison = comparison
        self.trials = trials
        self.missing = missing
        self.folder = comparison.results_folder(experiment.name)
        self.results: dict[Trial, StoredResult] = {}
        self._failed = {trial for trial in missing if (one := load_result(self.folder, trial)) and one.failed}

    @property
    def is_finished(self) -> bool:
        return all(trial in self.results for trial in self.missing)

    @property
    def call(self) -> Callable[[Trial], StoredResult]:
        """Function that runs a trial, for another process."""
        measure = partial(self.experiment.measure, self.comparison)
        return partial(run_cached, self.folder, measure, precision=self.experiment.precision_in(self.comparison))

    def prepare(self, print_line: Callable[[str], None]) -> None:
        """Delete the results that are measured again, and log why."""
        self.folder.mkdir(parents=True, exist_ok=True)
        name = self.experiment.name
        if stale := delete_results(self.folder, self.missing):
            print_line(
                f"{name}: {_explain_repetition(stale, machine_here(self.experiment.precision_in(self.comparison)))}"
            )
        files = {trial.key: self.folder / f"{trial.key}.json" for trial in self.missing}
        damaged = [
            trial.key for trial in self.missing if files[trial.key].exists() and not load_result(self.folder, trial)
        ]
        if damaged:
            print_line(f"{name}: damaged results are measured again: {', '.join(damaged)}")
        stored = [load_result(self.folder, trial) for trial in self.trials if self.missing]
        if older := {one.code for one in stored if one and not one.failed} - {code_version()}:
            print_line(f"{name}: some results are from {' and '.join(sorted(older))}, new ones from {code_version()}")

    def add(self, trial: Trial, result: StoredResult | None) -> StoredResult:
        """Add the result of a trial; None if its process died."""
        found = self.results[trial] = result or _store_crash(self.folder, trial)
        if trial in self._failed and not found.failed:
            for stale in _delete_round(self.folder, self.trials, trial, self.results):
                del self.results[stale]
        return found

    def stored(self) -> dict[Trial, StoredResult]:
        """Return the results of all trials, in their order."""
        # Results in memory come first: on a network file system, files of another node may not be visible yet.
        trials = dict.fromkeys((*self.trials, *self.missing))
        results = {trial: self.results.get(trial) or load_result(self.folder, trial) for trial in trials}
        return {trial: result for trial, result in results.items() if result}


@dataclass(frozen=True)
class _Job:
    """A trial of one of several questions."""

    question: int
    trial: Trial


def _run_job(calls: Sequence[Callable[[Trial], StoredResult]], job: _Job) -> StoredResult:
    return calls[job.question](job.trial)


def _run(
    questions: Sequence[_Question],
    progress: Progress,
    workers: AnyWorkers,
    following: Callable[[str], Sequence[Trial]] = lambda model: (),
    ended: Callable[[], None] = lambda: None,
) -> None:
    """Run the missing trials of questions, and those that follow. Call `ended` at the start and after each trial."""
    for question in questions:
        question.prepare(progress.print)
    jobs: list[_Job] = []
    # A training without the result of its search for a learning rate would repeat this search.
    held: dict[_Job, list[_Job]] = {}
    for place, question in enumerate(questions):
        for trial in question.missing:
            job = _Job(place, trial)
            if trial.search and trial.search in question.missing:
                held.setdefault(_Job(place, trial.search), []).append(job)
            else:
                jobs.append(job)
    first = questions[jobs[0].question if jobs else 0]
    progress.start(first.experiment.name, first.missing)
    ended()
    exclusive = any(question.experiment.exclusive for question in questions)
    pool = workers.exclusive() if exclusive and jobs else nullcontext(workers)
    run = partial(_run_job, [question.call for question in questions])
    with pool as running, closing(running.map_unordered(run, jobs)) as finished:
        for job, result in finished:
            question, trial = questions[job.question], job.trial
            found = question.add(trial, result)
            name = question.experiment.name
            seconds = expected_seconds(question.experiment, question.comparison, trial, workers.number)
            kind = "FAILED" if found.applicable else "not applicable"
            progress.finish(name, trial, found.seconds, f"{kind}: {found.failed}" if found.failed else "", seconds)
            jobs += held.pop(job, [])
            if all(each in question.results for each in question.missing if each.model == trial.model):
                more = following(trial.model)
                question.missing += more
                jobs += [_Job(job.question, each) for each in more]
            ended()


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
    """Delete a stale round, because timings of different sessions are not comparable. Return the deleted trials.

    They are deleted at once, so that an interruption leaves no mixed round.
    """
    whole = [each for each in trials if each.in_round and trial.in_round and each.part == trial.part]
    there = {each for each in whole if (one := load_result(folder, each)) and not one.failed}
    if there <= results.keys():
        return set()
    delete_results(folder, whole)
    return there & results.keys()


def _explain_repetition(stale: Sequence[StoredResult], here: str) -> str:
    sources = [one.machine if one.machine != here else one.code for one in stale]
    if other := [each for each in dict.fromkeys(sources) if each != code_version()]:
        return f"results of {' and '.join(other)} are measured again on this machine"
    if any(one.threads != torch.get_num_threads() for one in stale):
        return f"results with another number of threads are measured again with {torch.get_num_threads()}"
    return "rounds in which a model is missing are measured again"
