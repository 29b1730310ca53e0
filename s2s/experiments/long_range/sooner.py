"""How soon each model learns a task, beside the best of the others: times to the solution, unsolved seeds censored."""

import math
from collections.abc import Mapping
from itertools import combinations
from typing import NamedTuple

from s2s.evaluation.gates import Judgement
from s2s.evaluation.inference import Estimate, holm, mean
from s2s.evaluation.survival import kaplan_meier, log_rank_p
from s2s.experiments.long_range.reach import Models, Part, Trials
from s2s.experiments.presenting import finding
from s2s.experiments.verdicts import LEVEL, in_words
from s2s.results import Finding

ROW = "learning long-term dependencies"


class Tested(NamedTuple):
    """Whether two models' times differ."""

    p: float  # of the log-rank test
    corrected: float  # for all pairs of the task (Holm 1979)


def tested(of_all: Models) -> dict[tuple[str, str], Tested]:
    """All pairs of models whose rates have worse ones on both sides, in the order of the command."""
    pairs = list(combinations([own for own in of_all.values() if own.rate_gate().passed], 2))
    p_values = [log_rank_p(one.times(), two.times()) for one, two in pairs]
    return {(a.model, b.model): Tested(*both) for (a, b), *both in zip(pairs, p_values, holm(p_values), strict=True)}


def median(own: Trials) -> Estimate:
    """Updates until half of the seeds have solved the task (Kaplan & Meier 1958); at most what was waited for."""
    times, budget = own.times(), float(own.any["budget"])
    if not times.ended:
        return Estimate(budget, budget, budget)
    found = kaplan_meier(times).median()
    ends = (None if end is None else min(budget, end) for end in (found.low, found.high))
    return Estimate(min(budget, found.value), *ends)


def judgement(model: str, of_all: Models) -> tuple[Judgement, str]:
    """How soon a model is beside the soonest of the others, and who that is."""
    own, pairs = of_all[model], tested(of_all)
    gate = own.rate_gate()
    rivals = [name for name, each in of_all.items() if name != model and each.rate_gate().passed]
    other = min(rivals, key=lambda name: _order(of_all[name]), default="")
    if not gate.passed:
        return Judgement("not measurable", f"not measurable: {gate.sentence}"), other
    if not other:
        return Judgement("not measurable", "no other model was measured at a rate inside of what was tried"), other
    rival = of_all[other]
    if not own.solved() + rival.solved():
        return Judgement("not measurable", f"neither it nor {other} solves the task with any seed"), other
    p = next(pairs[pair].corrected for pair in ((model, other), (other, model)) if pair in pairs)
    both = f"{_told(own)}, {other} {_told(rival)}; p = {p:.2g} (log-rank)"
    sooner = _sooner(own, rival)
    if p >= LEVEL:
        return Judgement("undecided", f"no difference from {other} to be seen: {both}"), other
    if sooner is None:
        apart = f"no further from {other} than from one look to the next, {_look(own):,} updates"
        return Judgement("undecided", f"{apart}: {both}"), other
    word = "better" if sooner else "worse"
    return Judgement(word, f"{'sooner' if sooner else 'later'} than {other}: {both}"), other


def findings(part: Part, trials: Mapping[Part, Models], others: Models) -> list[Finding]:
    """The row's cells: how soon each model learns the deciding task; and whether that is so elsewhere."""
    of_all = trials.get(part, {})
    elsewhere = {"next best rate": others} | {
        _elsewhere(part, each): models for each, models in trials.items() if each != part
    }
    found = []
    for model, own in of_all.items():
        said, other = judgement(model, of_all)
        kept = {
            name: _sooner(models[model], models[other]) is (said.standing == "better")
            for name, models in elsewhere.items()
            if said.decided and {model, other} <= models.keys() and models[model].solved() + models[other].solved()
        }
        quantity = (
            f"updates until it recalls a first symbol over up to {own.trained} others, at most (median of the seeds, "
            f"looked at every {_look(own):,}; there were no more than {own.any['budget']:,})"
        )
        said = Judgement(said.standing, said.sentence, kept)
        cell = finding(ROW, model, median(own), "updates", quantity, said, f"{part.key}-solved")
        found.append(cell.model_copy(update={"at_least": 2 * own.solved() < len(own.by_seed)}))
    return found


def _order(own: Trials) -> tuple[float, float]:
    """The sooner one is smaller: by the median, and where that is the same by the mean, unsolved ones waiting on."""
    times = own.times()
    return median(own).value, mean([*times.ended, *times.waited]).value if len(times) else math.inf


def _sooner(own: Trials, rival: Trials) -> bool | None:
    """Whether it is the sooner of the two; None where medians are one look apart, or less: that is the resolution."""
    mine, its = median(own).value, median(rival).value
    return None if abs(mine - its) <= _look(own) else mine < its


def _look(own: Trials) -> int:
    """After how many updates it is looked at whether the task is solved."""
    return next((run["looks"][0][0] for run in own.by_seed.values() if run["looks"]), own.any["budget"])


def _told(own: Trials) -> str:
    """`550 (400 to 900) updates`, `7 of 8 seeds within 3,000, median 1,550`."""
    if own.solved() == len(own.by_seed):
        return f"{in_words(median(own), 0)} updates"
    middle = f", median {in_words(median(own), 0)}" if 2 * own.solved() > len(own.by_seed) else ""
    return f"{own.solved()} of {len(own.by_seed)} seeds within {own.any['budget']:,} updates{middle}"


def _elsewhere(part: Part, other: Part) -> str:
    """A task or form by its difference from the deciding one."""
    if other.task == part.task:
        return "linear head"
    return other.task if other.form == part.form else f"{other.task} under a linear head"
