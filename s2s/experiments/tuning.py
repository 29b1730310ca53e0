"""Which learning rate suits a model: the same few are tried for each, with the same short training."""

from collections.abc import Mapping
from dataclasses import dataclass

from s2s.experiments.contenders import RATES, TUNING_SHARE, tuned
from s2s.experiments.contest import Contest, Experiment, Measured, Task
from s2s.experiments.disciplines import discipline_of
from s2s.experiments.running import Kept
from s2s.experiments.short_training import short_training
from s2s.experiments.whole_runs import seconds_for
from s2s.results import Result


@dataclass(frozen=True)
class Tried:
    """What tuning found for a model.

    Attributes:
        losses: validation loss by rate; None where training failed.
        seconds: what it cost.
        seconds_per_update: of training; None where it failed.
    """

    losses: dict[float, float | None]
    seconds: float
    seconds_per_update: float | None


class Tuning(Experiment):
    """Not an experiment of its own: its measurements choose each model's rate before the others begin."""

    name = "tuning"
    question = "Which learning rate suits each model?"
    rows = ()

    def tasks(self, contest: Contest) -> list[Task]:
        """A short training for each model and rate."""
        return [
            Task(each.name, part=f"rate-{i}", seconds=seconds_for(each.recipe, TUNING_SHARE))
            for each in contest.contestants
            for i in range(len(RATES))
        ]

    def measure(self, contest: Contest, task: Task) -> Measured:
        """The validation loss after a short training at one rate."""
        rate = RATES[int(task.part.removeprefix("rate-"))]
        recipe = tuned(contest.contestant(task.model).recipe, rate)
        loss, seconds = short_training(discipline_of(recipe), recipe, contest.seeds[0], contest.computer)
        return {"rate": rate, "loss": loss, "seconds": seconds, "updates": recipe.training.updates}

    def conclude(self, contest: Contest, measured: Mapping[Task, Measured]) -> Result:
        """Nothing beyond what the fairness part of the report says of each contender."""
        return Result(
            experiment=self.name, question=self.question, method="", models=contest.models, seeds=[], findings=[]
        )


def tried(found: Mapping[Task, Kept], model: str) -> Tried:
    """What the measurements say of a model."""
    mine = {RATES[int(task.part.removeprefix("rate-"))]: each for task, each in found.items() if task.model == model}
    good = [each.measured for each in mine.values() if each.measured]
    return Tried(
        losses={rate: each.measured["loss"] if each.measured else None for rate, each in mine.items()},
        seconds=sum(each.seconds for each in mine.values()),
        seconds_per_update=min((m["seconds"] / m["updates"] for m in good), default=None),
    )


EXPERIMENT = Tuning()
