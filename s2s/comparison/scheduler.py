"""Run the missing trials of a question, and read the stored ones."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path

import torch

from s2s.comparison.cluster import Nodes
from s2s.comparison.cost import expected, missing
from s2s.comparison.executor import Progress, StoredResult, Workers, died, forget, keep, kept, machine_here
from s2s.comparison.spec import Comparison, Experiment, Trial
from s2s.run.manifest import code_version

AnyWorkers = Workers | Nodes
"""A pool that runs trials: processes of this machine, or a Ray cluster."""


def all_kept(
    experiment: Experiment,
    comparison: Comparison,
    cells: Sequence[Trial],
    progress: Progress,
    workers: AnyWorkers,
    following: Callable[[str], Sequence[Trial]] = lambda model: (),
) -> dict[Trial, StoredResult]:
    """Return the results of all trials, running those that are not stored yet.

    Args:
        experiment: the question.
        comparison: the models, and where results are stored.
        cells: the trials.
        progress: shows how far it is.
        workers: runs trials.
        following: further trials of a model, asked for when all its others have ended.
    """
    folder = comparison.results_folder(experiment.name)
    new = missing(experiment, comparison, cells)
    made = _run(experiment, comparison, cells, new, progress, workers, following)
    # where a failed trial succeeds now, its round is measured again as a whole
    if (
        again := [cell for cell in missing(experiment, comparison, cells) if cell not in made]
        if experiment.alone
        else []
    ):
        made |= _run(experiment, comparison, cells, again, progress, workers)
    # what another machine wrote a moment ago may not be seen from here yet
    return {cell: one for cell in dict.fromkeys((*cells, *new)) if (one := made.get(cell) or kept(folder, cell))}


def _run(
    experiment: Experiment,
    comparison: Comparison,
    cells: Sequence[Trial],
    new: list[Trial],
    progress: Progress,
    workers: AnyWorkers,
    following: Callable[[str], Sequence[Trial]] = lambda model: (),
) -> dict[Trial, StoredResult]:
    """Run trials; those that follow are added to `new`. Trials of rounds that must be run again are left out."""
    folder = comparison.results_folder(experiment.name)
    folder.mkdir(parents=True, exist_ok=True)
    precision = experiment.precision_in(comparison)
    failed = {cell for cell in new if (one := kept(folder, cell)) and one.failed}
    if gone := forget(folder, new):
        progress.print(f"{experiment.name}: {_again(gone, machine_here(precision))}")
    if damaged := [cell.key for cell in new if (folder / f"{cell.key}.json").exists() and not kept(folder, cell)]:
        progress.print(f"{experiment.name}: what is damaged is measured again: {', '.join(damaged)}")
    there = [one for cell in cells if new and (one := kept(folder, cell)) and not one.failed]
    older = {one.code for one in there} - {code_version()}
    if older:
        progress.print(
            f"{experiment.name}: some is of {' and '.join(sorted(older))}, the rest will be of {code_version()}"
        )
    made, apart = dict[Trial, StoredResult](), set[Trial]()
    progress.start(experiment.name, new)
    one = partial(keep, folder, partial(experiment.measure, comparison), precision=precision)
    pool = workers.alone() if experiment.alone and new else nullcontext(workers)
    with pool as running, closing(running.each(one, new)) as ends:
        for cell, given in ends:
            made[cell] = given or died(folder, cell)
            if cell in failed and not made[cell].failed:
                apart |= _forget_round(folder, cells, cell, made)
            progress.finish(experiment.name, cell, made[cell], expected(experiment, comparison, cell, workers.number))
            if all(each in made for each in new if each.model == cell.model):
                new += following(cell.model)
    return {cell: one for cell, one in made.items() if cell not in apart}


def _forget_round(folder: Path, cells: Sequence[Trial], cell: Trial, made: Mapping[Trial, StoredResult]) -> set[Trial]:
    """Delete a stale round, because timings of different sessions are not comparable. Returns the deleted trials.

    They are deleted at once, so that an interruption leaves no mixed round.
    """
    whole = [each for each in cells if each.in_round and cell.in_round and each.part == cell.part]
    there = {each for each in whole if (one := kept(folder, each)) and not one.failed}
    if there <= made.keys():
        return set()
    forget(folder, whole)
    return there & made.keys()


def _again(gone: Sequence[StoredResult], here: str) -> str:
    others = [one.machine if one.machine != here else one.code for one in gone]
    if other := [each for each in dict.fromkeys(others) if each != code_version()]:
        return f"what {' and '.join(other)} measured is measured again on this machine"
    if any(one.threads != torch.get_num_threads() for one in gone):
        return f"what was measured with another number of threads is measured again with {torch.get_num_threads()}"
    return "rounds that not all models have a part in are measured again"
