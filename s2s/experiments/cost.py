"""What a comparison will cost, told before it begins: measurements, time and disk."""

from collections.abc import Sequence
from dataclasses import dataclass

from s2s.experiments.contest import Cell, Contest, Experiment
from s2s.experiments.running import kept, machine_here
from s2s.run.manifest import code

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

    Where the clock or the memory of one machine is looked at, what another one measured, or another s2s, is no company
    for them: if any is new, those are to be measured, too. One that failed is none: it may always fail.
    """
    folder = contest.cells_of(experiment.name)
    tried = {cell: one for cell in cells if (one := kept(folder, cell))}
    before = {cell: one for cell, one in tried.items() if not one.failed}
    if experiment.alone and len(tried) < len(cells):
        here = machine_here(experiment.precision_in(contest))
        before = {cell: one for cell, one in before.items() if (one.machine, one.code) == (here, code())}
    final = {cell for cell, one in tried.items() if one.failed and one.final}
    # in their order: rounds are told apart by it
    return [cell for cell in cells if cell not in {*before, *final}]


def expected(experiment: Experiment, cell: Cell, beside: int) -> float:
    """By how many seconds the comparison becomes longer, where so many are measured beside each other."""
    return cell.seconds if experiment.alone else cell.seconds / beside


def cost(experiment: Experiment, contest: Contest, cells: Sequence[Cell], beside: int) -> Cost:
    """What of an experiment's measurements is still to be done, see `expected`."""
    new = missing(experiment, contest, cells)
    seconds = sum(expected(experiment, cell, beside) for cell in new)
    return Cost(experiment.name, len(cells), len(new), seconds, experiment.alone)


def ahead(experiment: Experiment, contest: Contest, beside: int) -> float:
    """The seconds of `cost`, of all measurements of an experiment."""
    return cost(experiment, contest, experiment.cells(contest), beside).seconds


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
