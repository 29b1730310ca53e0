"""Measurements of `long_range`, sorted: what one model did with one task, seed by seed, and how two models differ."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from scipy import stats

from s2s.evaluation.inference import Estimate, holm, mean, paired_difference, wilson
from s2s.experiments.contest import Contest, Measured, Task

ENOUGH = 0.95


@dataclass(frozen=True)
class Trials:
    """One model's measurements of one task, by seed.

    Attributes:
        model: whose.
        name: the task's.
        by_seed: what was measured.
    """

    model: str
    name: str
    by_seed: dict[int, Measured]

    @property
    def any(self) -> Measured:
        """One of them, for what is the same in all."""
        return next(iter(self.by_seed.values()))

    def accuracies(self, place: int) -> dict[int, float]:
        """Share of right answers at a distance, by seed."""
        return {seed: found["right"][place] / found["asked"][place] for seed, found in self.by_seed.items()}

    def accuracy(self, place: int) -> Estimate:
        """The mean over seeds at a distance, see `pooled`."""
        counts = [(found["right"][place], found["asked"][place]) for found in self.by_seed.values()]
        return pooled(counts)

    def inside(self) -> list[float]:
        """Share of right answers over all trained distances, seed by seed."""
        return [within(found) for found in self.by_seed.values()]

    def successes(self) -> int:
        """Seeds at which 95 % of the answers at trained distances were right."""
        return sum(value >= ENOUGH for value in self.inside())

    def memories(self) -> list[int]:
        """The effective memory length, seed by seed."""
        return [memory(found) for found in self.by_seed.values()]

    def steps(self) -> float | None:
        """Median of the updates to 99 %; None where half of the seeds or more never came to it."""
        found = statistics.median_high([run["solved"] or float("inf") for run in self.by_seed.values()])
        return None if found == float("inf") else found


def within(found: Measured) -> float:
    """Share of right answers over all trained distances."""
    return sum(found["right"][: found["trained"]]) / sum(found["asked"][: found["trained"]])


def memory(found: Measured) -> int:
    """The effective memory length: the largest distance with 95 % right there and at all shorter ones; 0 if none."""
    reached = 0
    for distance, right, asked in zip(found["distances"], found["right"], found["asked"], strict=True):
        if right < ENOUGH * asked:
            break
        reached = distance
    return reached


def pooled(counts: Sequence[tuple[int, int]]) -> Estimate:
    """The mean share of right answers over seeds, with an interval that doubts both examples and seeds.

    It is Wilson's over all answers or Student's over seeds, whichever reaches further: alone, the first would take
    answers of one network for independent ones, and the second would be certain where all seeds agree.

    Args:
        counts: right and asked, seed by seed.
    """
    over_answers = wilson(sum(right for right, _ in counts), sum(asked for _, asked in counts), whole=1)
    over_seeds = mean([right / asked for right, asked in counts])
    ends = [end for end in (over_answers.low, over_answers.high, over_seeds.low, over_seeds.high) if end is not None]
    return Estimate(over_seeds.value, max(0.0, min(ends)), min(1.0, max(ends)))


Sorted = dict[tuple[str, str], Trials]


def sort(contest: Contest, measured: Mapping[Task, Measured], order: Sequence[str]) -> Sorted:
    """By task and model, in the order of the experiment and of the command, whatever the order of the measurements."""
    found: Sorted = {}
    for name in order:
        for model in contest.models:
            own = {task.seed or 0: m for task, m in measured.items() if (task.part, task.model) == (name, model)}
            if own:
                found[name, model] = Trials(model, name, dict(sorted(own.items())))
    return found


def of_task(trials: Sorted, name: str) -> list[Trials]:
    """All models' measurements of a task."""
    return [found for (of, _), found in trials.items() if of == name]


def success_rate(found: Trials) -> Estimate:
    """Share of seeds that succeed, with Wilson's interval."""
    return wilson(found.successes(), len(found.by_seed), whole=1)


def difference_of(first: Trials, second: Trials, place: int) -> tuple[Estimate, float | None]:
    """By how much the second is more accurate at a distance, over the seeds that both had, and the p-value of that.

    The p-value is None with fewer than three seeds.
    """
    one, two = first.accuracies(place), second.accuracies(place)
    both = [seed for seed in one if seed in two]
    if not both:
        return Estimate(0.0, None, None), None
    return paired_difference([one[seed] for seed in both], [two[seed] for seed in both])


def corrected_p(trials: Sequence[Trials], place: int) -> dict[frozenset[str], float]:
    """The p-values of all pairs of models at a distance, see `difference_of`, corrected for their number (Holm 1979).

    Args:
        trials: of one task, model by model.
        place: of the distance.
    """
    found = {frozenset((a.model, b.model)): difference_of(a, b, place)[1] for a, b in combinations(trials, 2)}
    known = {models: p for models, p in found.items() if p is not None}
    return dict(zip(known, holm(list(known.values())), strict=True))


def fisher(first: Trials, second: Trials, place: int) -> float:
    """Whether these trained networks differ; whether their architectures do, only seeds can tell."""
    table = []
    for found in (first, second):
        right = sum(run["right"][place] for run in found.by_seed.values())
        table.append([right, sum(run["asked"][place] for run in found.by_seed.values()) - right])
    test: Any = stats.fisher_exact(table)
    return float(test.pvalue)
