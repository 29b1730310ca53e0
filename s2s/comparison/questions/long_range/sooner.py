"""Compare the time to the solution of a task; seeds that did not solve it are censored."""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

from s2s.comparison.paired_tests import LEVEL
from s2s.comparison.questions.long_range.reach import Models, Part, TaskRuns
from s2s.comparison.reporting import verdict
from s2s.comparison.results import Verdict
from s2s.evaluation.gates import Assessment
from s2s.evaluation.inference import Estimate, holm, mean
from s2s.evaluation.survival import kaplan_meier, log_rank_p

ROW = "learning long-term dependencies"


class Tested(NamedTuple):
    """P-value of a pair of candidates."""

    p: float  # of the log-rank test
    corrected: float  # for all pairs of the task (Holm 1979)


def tested(of_all: Models) -> dict[tuple[str, str], Tested]:
    """Test all pairs of candidates whose learning rates are inside their grids."""
    pairs = list(combinations([own for own in of_all.values() if own.rate_gate().passed], 2))
    p_values = [log_rank_p(one.times(), two.times()) for one, two in pairs]
    return {(a.model, b.model): Tested(*both) for (a, b), *both in zip(pairs, p_values, holm(p_values), strict=True)}


def median(own: TaskRuns) -> Estimate:
    """Updates until half of the seeds have solved the task (Kaplan & Meier 1958); at most what was waited for."""
    times, budget = own.times(), float(own.any["budget"])
    if not times.ended:
        return Estimate(budget, budget, budget)
    found = kaplan_meier(times).median()
    ends = (None if end is None else min(budget, end) for end in (found.low, found.high))
    return Estimate(min(budget, found.value), *ends)


def assess(model: str, of_all: Models) -> Assessment:
    """Compare how soon a model learns with the soonest of the others."""
    own, pairs = of_all[model], tested(of_all)
    gate = own.rate_gate()
    rivals = [name for name, each in of_all.items() if name != model and each.rate_gate().passed]
    other = min(rivals, key=lambda name: _order(of_all[name]), default="")
    if not gate.passed:
        return Assessment("not measurable", other, reasons=(gate.sentence,))
    if not other:
        reason = "no other model was measured at a rate inside of what was tried"
        return Assessment("not measurable", reasons=(reason,))
    rival = of_all[other]
    if not own.num_solved() + rival.num_solved():
        return Assessment("not measurable", other, reasons=("neither solves the task with any seed",))
    p = next(pairs[pair].corrected for pair in ((model, other), (other, model)) if pair in pairs)
    sooner = _sooner(own, rival)
    facts: dict[str, float | str] = {f"median of {other} (updates)": round(median(rival).value)}
    for name, each in ((model, own), (other, rival)):
        if each.num_solved() < len(each.by_seed):
            facts[f"seeds that solve it, {name}"] = f"{each.num_solved()} of {len(each.by_seed)}"
    found = Assessment("undecided", other, p=p, test="log-rank, Holm", facts=facts)
    if p >= LEVEL:
        return found
    if sooner is None:
        return replace(found, reasons=(f"medians are no further apart than two looks, {_look(own):,} updates",))
    return replace(found, standing="better" if sooner else "worse")


def verdicts(part: Part, trials: Mapping[Part, Models], others: Models) -> list[Verdict]:
    """The row's cells: how soon each model learns the deciding task; and whether that is so elsewhere."""
    of_all = trials.get(part, {})
    elsewhere = {"next best rate": others} | {
        _elsewhere(part, each): models for each, models in trials.items() if each != part
    }
    cells = []
    for model, own in of_all.items():
        found = assess(model, of_all)
        other = found.rival
        kept = {
            name: _sooner(models[model], models[other]) is (found.standing == "better")
            for name, models in elsewhere.items()
            if found.decided
            and {model, other} <= models.keys()
            and models[model].num_solved() + models[other].num_solved()
        }
        quantity = (
            f"updates until it recalls a first symbol over up to {own.trained} others, at most (median of the seeds, "
            f"looked at every {_look(own):,}; there were no more than {own.any['budget']:,})"
        )
        found = replace(found, variations=kept)
        cell = verdict(ROW, model, median(own), "updates", quantity, found, f"{part.key}-solved")
        cells.append(cell.model_copy(update={"at_least": 2 * own.num_solved() < len(own.by_seed)}))
    return cells


def _order(own: TaskRuns) -> tuple[float, float]:
    """The sooner one is smaller: by the median, and where that is the same by the mean, unsolved ones waiting on."""
    times = own.times()
    return median(own).value, mean([*times.ended, *times.waited]).value if len(times) else math.inf


def _sooner(own: TaskRuns, rival: TaskRuns) -> bool | None:
    """Return True if it is the sooner of the two; None within one validation interval, the resolution."""
    mine, its = median(own).value, median(rival).value
    return None if abs(mine - its) <= _look(own) else mine < its


def _look(own: TaskRuns) -> int:
    """After how many updates it is looked at whether the task is solved."""
    return next((run["looks"][0][0] for run in own.by_seed.values() if run["looks"]), own.any["budget"])


def _elsewhere(part: Part, other: Part) -> str:
    """A task or form by its difference from the deciding one."""
    if other.task == part.task:
        return "linear head"
    return other.task if other.form == part.form else f"{other.task} under a linear head"
