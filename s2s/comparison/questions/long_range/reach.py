"""Summaries of the trainings of one candidate on one task: distance reached, time to the solution, validity checks."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from s2s.comparison.spec import Measured
from s2s.evaluation.differences import Difference, Pairwise, welch
from s2s.evaluation.gates import Gate, above_chance, converged, rate_inside
from s2s.evaluation.inference import Estimate, Share, mean, wilson
from s2s.evaluation.survival import Times, kaplan_meier, log_rank_p

MARGIN = 0.5
"""Doublings of distance that nobody cares about: half of the step between two distances tested."""


@dataclass(frozen=True)
class Part:
    """A part of the question: task, form of the model, and kind of trial."""

    task: str
    form: str
    of: str = ""

    @property
    def key(self) -> str:
        """Name of its cells' part."""
        return "-".join(word for word in (self.task, self.form, self.of) if word)

    @classmethod
    def of_key(cls, key: str) -> "Part":
        """Parse a trial's part."""
        return cls(*key.split("-"))


@dataclass(frozen=True)
class TaskRuns:
    """One model's trainings of one task, by seed, and what chose their rate."""

    model: str
    part: Part
    by_seed: Mapping[int, Measured]
    rates: Measured | None = None

    @property
    def any(self) -> Measured:
        """One of them, for what is the same in all."""
        return next(iter(self.by_seed.values()))

    @property
    def max_distance(self) -> int:
        """The longest distance tested."""
        return self.any["distances"][-1]

    @property
    def trained(self) -> int:
        """The longest distance trained on."""
        return self.any["distances"][self.any["trained"] - 1]

    def accuracy(self, place: int) -> Estimate:
        """The mean over seeds at a distance, in percent, see `pooled`."""
        return pooled([(run["right"][place], run["asked"][place]) for run in self.by_seed.values()])

    def error(self) -> Estimate:
        """Wrong answers at the shortest distance, in percent."""
        right = self.accuracy(0)
        return Estimate(100 - right.value, *(None if end is None else 100 - end for end in (right.high, right.low)))

    def doublings(self, key: str = "right") -> list[float]:
        """log₂ of `half_distance`, seed by seed; what lies beyond the longest distance tested counts as that."""
        return [math.log2(half_distance(run, key)[0]) for run in self.by_seed.values()]

    def reaches(self) -> Times:
        """`half_distance`, seed by seed; what lies beyond the longest distance tested is censored there."""
        found = [half_distance(run) for run in self.by_seed.values()]
        return Times([far for far, beyond in found if not beyond], [far for far, beyond in found if beyond])

    def reach(self) -> Estimate:
        """The median of `half_distance` over seeds (Kaplan & Meier 1958); the longest distance tested is the most."""
        reaches = self.reaches()
        if not reaches.ended:
            return Estimate(*[float(self.max_distance)] * 3)
        found = kaplan_meier(reaches).median()
        ends = (None if end is None else min(float(self.max_distance), end) for end in (found.low, found.high))
        return Estimate(min(float(self.max_distance), found.value), *ends)

    def beyond(self) -> int:
        """Seeds that had not fallen half way to chance at the longest distance tested."""
        return sum(half_distance(run)[1] for run in self.by_seed.values())

    def num_solved(self) -> int:
        """Seeds that solved the task."""
        return sum(run["solved"] is not None for run in self.by_seed.values())

    def times(self) -> Times:
        """Updates to the solution; those whose budget was spent are censored, and those that failed at its end."""
        unsolved = [run for run in self.by_seed.values() if not run["solved"]]
        spent = [run["budget"] if run.get("failure") else run["updates"] for run in unsolved]
        return Times([run["solved"] for run in self.by_seed.values() if run["solved"]], spent)

    def gates(self) -> list[Gate]:
        """Validity checks of the trainings."""
        return [*self._failed(), self._above_chance(), self._over(), self.rate_gate()]

    def rate_gate(self) -> Gate:
        """Validity check: the learning rate lies inside the grid that was searched."""
        if not self.rates:
            return Gate("rate inside its grid", False, "nothing says which rates were tried")
        tried = [float(rate) for rate in self.rates["tried"]]
        return rate_inside(self.rates["best"], tried, self.rates["inside"])

    def _above_chance(self) -> Gate:
        """Over all distances trained on, as many answers right as cheating cannot have."""
        counts = [tuple(sum(run[key][: run["trained"]]) for key in ("right", "asked")) for run in self.by_seed.values()]
        cheating = self.any["cheating"][: self.any["trained"]]
        return above_chance(pooled(counts), 100 * statistics.mean(cheating))  # type: ignore[arg-type]

    def _failed(self) -> list[Gate]:
        """A closed gate where the training of any seed failed: the others may be the lucky ones."""
        failures = [reason for run in self.by_seed.values() if (reason := run.get("failure"))]
        said = f"the training of {len(failures)} of {len(self.by_seed)} seeds failed"
        return [Gate("trains", False, f"{said}: {failures[0]}")] if failures else []

    def _over(self) -> Gate:
        """Every seed has solved the task, or no longer learns where its budget was spent."""
        left = [run["looks"] for run in self.by_seed.values() if not run["solved"] and not run.get("failure")]
        if not left:
            return Gate("converged", True, "every seed has solved the task")
        looks = min(map(len, left))
        losses = np.mean([[loss for _, loss, _ in each[:looks]] for each in left], axis=0)
        found = converged([updates for updates, *_ in left[0][:looks]], losses.tolist())
        said = f"{len(left)} of {len(self.by_seed)} seeds have not solved it in {self.any['budget']:,} updates"
        return Gate(found.name, found.passed, f"{said}: {found.sentence}")


# by model, in the order of the command
Models = Mapping[str, TaskRuns]


def differences(of_all: Models) -> Pairwise:
    """Differences in the distance reached (second minus first, in doublings) of all pairs with enough seeds.

    The interval is Welch's (1947), of values censored at the longest distance; the p-value is that of the exact
    log-rank test, which accounts for censoring.
    """

    def _between(a: str, b: str) -> Difference | None:
        found = welch(of_all[a].doublings(), of_all[b].doublings())
        return found and replace(found, tested=log_rank_p(of_all[a].reaches(), of_all[b].reaches()))

    return Pairwise.of(of_all, _between)


def half_distance(run: Measured, key: str = "right") -> tuple[float, bool]:
    """Distance at which accuracy has fallen half way from its value at the shortest distance to chance: D50.

    Interpolated linearly in log distance; distance 0 counts as 1. Errors at the shortest distance do not shorten it.

    Returns:
        The distance, and whether it is censored: accuracy never fell so far up to the longest distance tested. A model
        at chance at the shortest distance has that one.
    """
    places = [math.log2(max(1, distance)) for distance in run["distances"]]
    right = [right / asked for right, asked in zip(run[key], run["asked"], strict=True)]
    above = [share - chance for share, chance in zip(right, run["baseline"], strict=True)]
    if above[0] <= 0:
        return 2.0 ** places[0], False
    for i, (before, after) in enumerate(pairwise(above)):
        if after <= above[0] / 2:
            share = (before - above[0] / 2) / (before - after)
            return 2.0 ** (places[i] + share * (places[i + 1] - places[i])), False
    return 2.0 ** places[-1], True


def pooled(counts: Sequence[tuple[int, int]]) -> Share:
    """The mean share of right answers over seeds, in percent, with an interval that doubts both examples and seeds.

    It is Wilson's over all answers or Student's over seeds, whichever reaches further: alone, the first would take
    answers of one network for independent ones, and the second would be certain where all seeds agree. Counts are right
    and asked, seed by seed.
    """
    over_answers = wilson(sum(right for right, _ in counts), sum(asked for _, asked in counts))
    over_seeds = mean([100 * right / asked for right, asked in counts])
    ends = [end for end in (over_answers.low, over_answers.high, over_seeds.low, over_seeds.high) if end is not None]
    return Share(over_seeds.value, max(0.0, min(ends)), min(100.0, max(ends)))
