"""An experiment's measurements: those that are kept are read, and those that are not there yet are made."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path

import torch

from s2s.experiments.cluster import Nodes
from s2s.experiments.contest import Cell, Contest, Experiment
from s2s.experiments.cost import expected, missing, timed, trainings
from s2s.experiments.running import Kept, Watch, Workers, died, forget, keep, kept, machine_here
from s2s.results import UNNOTED
from s2s.run.manifest import code_version

AnyWorkers = Workers | Nodes
"""What makes measurements beside each other."""


def all_kept(
    experiment: Experiment,
    contest: Contest,
    cells: Sequence[Cell],
    watch: Watch,
    workers: AnyWorkers,
    following: Callable[[str], Sequence[Cell]] = lambda model: (),
    trains: Experiment | None = None,
) -> dict[Cell, Kept]:
    """These measurements of an experiment, and those that follow them; those that are not there yet are made.

    Args:
        experiment: whose they are.
        contest: the models, and where measurements are kept.
        cells: the first.
        watch: shows how far it is.
        workers: who makes them.
        following: those of a model that are to be made when none of its others is left.
        trains: the experiment whose models it looks at, where that one is not asked for.

    Raises:
        Late: time is over, and some are left.
    """
    folder = contest.cells_of(experiment.name)
    new = missing(experiment, contest, cells)
    made = _made(experiment, contest, cells, new, watch, workers, following, trains)
    # where one that had failed succeeds now, what others measured is no company for it
    if again := [cell for cell in missing(experiment, contest, cells) if cell not in made] if experiment.alone else []:
        watch.expect(sum(expected(experiment, cell, workers.number) for cell in again))
        made |= _made(experiment, contest, cells, again, watch, workers)
    # what another machine wrote a moment ago may not be seen from here yet
    return {cell: one for cell in dict.fromkeys((*cells, *new)) if (one := made.get(cell) or kept(folder, cell))}


def _made(
    experiment: Experiment,
    contest: Contest,
    cells: Sequence[Cell],
    new: list[Cell],
    watch: Watch,
    workers: AnyWorkers,
    following: Callable[[str], Sequence[Cell]] = lambda model: (),
    trains: Experiment | None = None,
) -> dict[Cell, Kept]:
    """These measurements, as `all_kept` makes them, but for those of rounds that must be made again.

    What follows is added to `new`.
    """
    folder = contest.cells_of(experiment.name)
    folder.mkdir(parents=True, exist_ok=True)
    precision = experiment.precision_in(contest)
    failed = {cell for cell in new if (one := kept(folder, cell)) and one.failed}
    if gone := forget(folder, new):
        watch.print_fn(f"{experiment.name}: {_again(gone, machine_here(precision))}")
    if damaged := [cell.key for cell in new if (folder / f"{cell.key}.json").exists() and not kept(folder, cell)]:
        watch.print_fn(f"{experiment.name}: what is damaged is measured again: {', '.join(damaged)}")
    there = [one for cell in cells if new and (one := kept(folder, cell)) and not one.failed]
    older = {one.code or UNNOTED for one in there} - {code_version()}
    if older:
        watch.print_fn(
            f"{experiment.name}: some is of {' and '.join(sorted(older))}, the rest will be of {code_version()}"
        )
    beside, made, apart = workers.number, dict[Cell, Kept](), set[Cell]()
    to_train = trainings(experiment, contest, new, trains, beside)
    watch.begins(experiment.name, new)
    one = partial(keep, folder, partial(experiment.measure, contest), precision=precision)
    by = workers.alone() if experiment.alone and new else nullcontext(workers)
    with by as measuring, closing(measuring.each(one, new)) as ends:
        for cell, given in ends:
            made[cell] = given or died(folder, cell)
            if cell in failed and not made[cell].failed:
                apart |= _forget_round(folder, cells, cell, made)
            took = expected(experiment, cell, beside)
            if experiment.reading in ("", cell.part):
                took += to_train.pop((cell.model, cell.seed), 0.0)
            watch.ends(experiment.name, cell, made[cell], took, timed(experiment, contest))
            if all(each in made for each in new if each.model == cell.model):
                new += following(cell.model)
            if len(made) < len(new):
                watch.check_time()
    return {cell: one for cell, one in made.items() if cell not in apart}


def _forget_round(folder: Path, cells: Sequence[Cell], cell: Cell, made: Mapping[Cell, Kept]) -> set[Cell]:
    """Takes away a round of which others were measured long before this one: a machine has its hours. Gives what went.

    So nobody takes them for neighbours, also if all is interrupted before they are measured again.
    """
    whole = [each for each in cells if each.in_round and cell.in_round and each.part == cell.part]
    there = {each for each in whole if (one := kept(folder, each)) and not one.failed}
    if there <= made.keys():
        return set()
    forget(folder, whole)
    return there & made.keys()


def _again(gone: Sequence[Kept], here: str) -> str:
    """Why measurements are made again, in words."""
    others = [one.machine if one.machine not in (here, "") else one.code or UNNOTED for one in gone]
    if other := [each for each in dict.fromkeys(others) if each != code_version()]:
        return f"what {' and '.join(other)} measured is measured again on this machine"
    if any(one.threads not in (0, torch.get_num_threads()) for one in gone):
        return f"what was measured with another number of threads is measured again with {torch.get_num_threads()}"
    return "rounds that not all models have a part in are measured again"
