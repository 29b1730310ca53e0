"""What a comparison will cost, told before it begins: measurements, time and disk."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from s2s.experiments.contest import Cell, Contest, Experiment
from s2s.experiments.running import Kept, kept, machine_here
from s2s.experiments.whole_runs import is_there
from s2s.run.manifest import code_version

Run = tuple[str, int | None]
"""A model's name and a seed."""
# a whole run leaves its best and its last checkpoint, each with weights, their average and two moments, in fp32
_BYTES = 2 * 5 * 4


@dataclass(frozen=True)
class Cost:
    """Of one experiment."""

    name: str
    cells: int  # all measurements
    missing: int  # those that are still to be made
    seconds: float  # that these take by the clock, beside each other as far as that is allowed
    alone: bool  # whether it is not


def missing(experiment: Experiment, contest: Contest, cells: Sequence[Cell]) -> list[Cell]:
    """Which of the cells are still to be measured: those that no file holds, and those that failed but may succeed.

    Where the clock or the memory of one machine is looked at, what another one measured, or another s2s, or other
    threads, is no company for them: if any is new, those are to be measured, too. One that failed is none, before it
    succeeds: it may always fail. A round that somebody has no part in yet is measured anew by all.
    """
    folder = contest.cells_of(experiment.name)
    tried = {cell: one for cell in cells if (one := kept(folder, cell))}
    before = {cell: one for cell, one in tried.items() if not one.failed}
    if experiment.alone:
        new = [cell for cell in cells if cell not in tried]
        own = {cell: one for cell, one in before.items() if _of_here(one, experiment.precision_in(contest))}
        if new or 0 < len(own) < len(before):
            rounds = {cell.part for cell in new if cell.in_round}
            before = {cell: one for cell, one in own.items() if cell.part not in rounds}
    final = {cell for cell, one in tried.items() if one.failed and one.final}
    # in their order: rounds are told apart by it
    return [cell for cell in cells if cell not in {*before, *final}]


def _of_here(one: Kept, precision: str) -> bool:
    """Whether a measurement was made by this machine and this code, with as many threads as there would be now."""
    same = (one.machine, one.code) == (machine_here(precision), code_version())
    return same and one.threads in (0, torch.get_num_threads())


def expected(experiment: Experiment, cell: Cell, beside: int) -> float:
    """By how many seconds the comparison becomes longer, where so many are measured beside each other."""
    return cell.seconds if experiment.alone else cell.seconds / beside


def trainings(
    experiment: Experiment, contest: Contest, new: Sequence[Cell], trains: Experiment | None, beside: int
) -> dict[Run, float]:
    """The models that new measurements look at and train themselves, as nobody has: how much longer each makes it all.

    Args:
        experiment: which.
        contest: the models, and where runs are kept.
        new: its measurements that are still to be made.
        trains: the experiment whose models it looks at, where that one is not asked for.
        beside: how many measure beside each other.
    """
    if trains is None:
        return {}
    looked_at = {(cell.model, cell.seed) for cell in new if experiment.reading in ("", cell.part)}
    return {
        (run.model, run.seed): expected(trains, run, beside)
        for run in trains.cells(contest)
        if (run.model, run.seed) in looked_at and not is_there(contest.folder, run.model, run.seed)
    }


def cost(
    experiment: Experiment,
    contest: Contest,
    cells: Sequence[Cell],
    beside: int,
    trains: Experiment | None = None,
    counted: set[Run] | None = None,
) -> Cost:
    """What of an experiment's measurements is still to be done, see `expected`.

    Args:
        experiment: which.
        contest: the models, and where measurements are kept.
        cells: the experiment's.
        beside: how many measure beside each other.
        trains: see `trainings`.
        counted: trainings that another experiment will have made; those of this one are added.
    """
    new, counted = missing(experiment, contest, cells), set[Run]() if counted is None else counted
    seconds = sum(expected(experiment, cell, beside) for cell in new)
    more = trainings(experiment, contest, new, trains, beside)
    seconds += sum(long for run, long in more.items() if run not in counted)
    counted.update(more)
    return Cost(experiment.name, len(cells), len(new), seconds, experiment.alone)


def timed(experiment: Experiment, contest: Contest) -> bool:
    """Whether an experiment's expected seconds are by what the models' trials took on this machine."""
    return experiment.paced and all(each.pace for each in contest.contestants)


def ahead(
    experiment: Experiment,
    contest: Contest,
    beside: int,
    trains: Experiment | None = None,
    counted: set[Run] | None = None,
) -> float:
    """The seconds of `cost`, of all measurements of an experiment."""
    return cost(experiment, contest, experiment.cells(contest), beside, trains, counted).seconds


def disk(contest: Contest) -> int:
    """Bytes that the trained models take, at most: a whole run for each model and seed."""
    return _BYTES * len(contest.seeds) * sum(each.parameters for each in contest.contestants)


def told(costs: Sequence[Cost], runs: int, processes: int) -> str:
    """The costs of all experiments in words, one a line, and their sum.

    Args:
        costs: of all, the choosing of rates and depths first.
        runs: bytes of disk that trained models take.
        processes: how many measure beside each other.
    """
    lines = [
        f"{each.name}: {each.missing} measurements, {about(each.seconds)}{', one after another' if each.alone else ''}"
        for each in costs
        if each.missing
    ]
    new, there = sum(each.missing for each in costs), sum(each.cells - each.missing for each in costs)
    whole = about(sum(each.seconds for each in costs))
    known = f"; {there} are kept" if there else ""
    space = f", and {runs / 1e9:.1f} GB of disk at most" if runs else ""
    # which rates are tried depends on those before
    more = "; a model whose best rate or depth is at an end of those tried adds trials" if costs[0].missing else ""
    beside = f", {processes} beside each other" if processes > 1 else ""
    return "\n".join([*lines, f"in all {new} measurements{beside}: {whole}{space}{known}{more}"])


def about(seconds: float) -> str:
    """A time that nobody knows for certain: `about 3 h 50 min`."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than a minute"
    hours, rest = divmod(minutes, 60)
    return f"about {hours} h {rest} min" if hours else f"about {minutes} min"
