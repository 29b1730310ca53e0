"""Run the missing trials of a question, and read the stored ones."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path

import torch

from s2s.comparison.cluster import RayWorkers
from s2s.comparison.cost import expected_seconds, missing_trials
from s2s.comparison.executor import (
    Progress,
    StoredResult,
    Workers,
    delete_results,
    load_result,
    machine_here,
    run_cached,
    store_crash,
)
from s2s.comparison.spec import Comparison, Experiment, Trial
from s2s.run.manifest import code_version

AnyWorkers = Workers | RayWorkers
"""A pool that runs trials: processes of this machine, or a Ray cluster."""


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
        experiment: the question.
        comparison: the models, and where results are stored.
        trials: the trials.
        progress: shows how far it is.
        workers: runs trials.
        following: further trials of a model, asked for when all its others have ended.
    """
    folder = comparison.results_folder(experiment.name)
    new = missing_trials(experiment, comparison, trials)
    made = _run(experiment, comparison, trials, new, progress, workers, following)
    # where a failed trial succeeds now, its round is measured again as a whole
    if (
        again := [trial for trial in missing_trials(experiment, comparison, trials) if trial not in made]
        if experiment.exclusive
        else []
    ):
        made |= _run(experiment, comparison, trials, again, progress, workers)
    # what another machine wrote a moment ago may not be seen from here yet
    return {
        trial: one for trial in dict.fromkeys((*trials, *new)) if (one := made.get(trial) or load_result(folder, trial))
    }


def _run(
    experiment: Experiment,
    comparison: Comparison,
    trials: Sequence[Trial],
    new: list[Trial],
    progress: Progress,
    workers: AnyWorkers,
    following: Callable[[str], Sequence[Trial]] = lambda model: (),
) -> dict[Trial, StoredResult]:
    """Run trials; those that follow are added to `new`. Trials of rounds that must be run again are left out."""
    folder = comparison.results_folder(experiment.name)
    folder.mkdir(parents=True, exist_ok=True)
    precision = experiment.precision_in(comparison)
    failed = {trial for trial in new if (one := load_result(folder, trial)) and one.failed}
    if gone := delete_results(folder, new):
        progress.print(f"{experiment.name}: {_again(gone, machine_here(precision))}")
    if damaged := [
        trial.key for trial in new if (folder / f"{trial.key}.json").exists() and not load_result(folder, trial)
    ]:
        progress.print(f"{experiment.name}: what is damaged is measured again: {', '.join(damaged)}")
    there = [one for trial in trials if new and (one := load_result(folder, trial)) and not one.failed]
    older = {one.code for one in there} - {code_version()}
    if older:
        progress.print(
            f"{experiment.name}: some is of {' and '.join(sorted(older))}, the rest will be of {code_version()}"
        )
    made, apart = dict[Trial, StoredResult](), set[Trial]()
    progress.start(experiment.name, new)
    one = partial(run_cached, folder, partial(experiment.measure, comparison), precision=precision)
    pool = workers.exclusive() if experiment.exclusive and new else nullcontext(workers)
    with pool as running, closing(running.map_unordered(one, new)) as ends:
        for trial, given in ends:
            made[trial] = given or store_crash(folder, trial)
            if trial in failed and not made[trial].failed:
                apart |= _delete_round(folder, trials, trial, made)
            progress.finish(
                experiment.name, trial, made[trial], expected_seconds(experiment, comparison, trial, workers.number)
            )
            if all(each in made for each in new if each.model == trial.model):
                new += following(trial.model)
    return {trial: one for trial, one in made.items() if trial not in apart}


def _delete_round(
    folder: Path, trials: Sequence[Trial], trial: Trial, made: Mapping[Trial, StoredResult]
) -> set[Trial]:
    """Delete a stale round, because timings of different sessions are not comparable. Returns the deleted trials.

    They are deleted at once, so that an interruption leaves no mixed round.
    """
    whole = [each for each in trials if each.in_round and trial.in_round and each.part == trial.part]
    there = {each for each in whole if (one := load_result(folder, each)) and not one.failed}
    if there <= made.keys():
        return set()
    delete_results(folder, whole)
    return there & made.keys()


def _again(gone: Sequence[StoredResult], here: str) -> str:
    others = [one.machine if one.machine != here else one.code for one in gone]
    if other := [each for each in dict.fromkeys(others) if each != code_version()]:
        return f"what {' and '.join(other)} measured is measured again on this machine"
    if any(one.threads != torch.get_num_threads() for one in gone):
        return f"what was measured with another number of threads is measured again with {torch.get_num_threads()}"
    return "rounds that not all models have a part in are measured again"
