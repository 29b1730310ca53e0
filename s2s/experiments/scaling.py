"""What does a larger model gain? Validation loss against parameters and against compute."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from s2s.errors import UserError
from s2s.experiments.contest import Contest, Experiment, Measured, Scale, Task
from s2s.experiments.matching import size_of
from s2s.experiments.scaling_findings import conclude
from s2s.experiments.short_training import prepared
from s2s.experiments.translation import flops_per_token, resized, schooled, sizes_of, unigram_loss
from s2s.experiments.whole_runs import seconds_for, shortened
from s2s.models.contract import parameter_count
from s2s.recipe.schema import Section
from s2s.results import Result
from s2s.training.translation import mean_loss

# tried in turn, since heads do not divide every width: small models are far apart in size
_NEARBY = (1.0, 0.95, 1.05, 0.9, 1.1, 0.85, 1.15)


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        factors: sizes, as multiples of the comparison's number of parameters.
        updates: of each training, as a share of the recipe's.
        seeds: how many of them; None: all.
    """

    factors: tuple[float, ...]
    updates: float
    seeds: int | None


SIZES: dict[Scale, Sizes] = {
    "quick": Sizes(factors=(0.25, 0.5, 1, 2), updates=0.4, seeds=1),
    "standard": Sizes(factors=(0.25, 0.5, 1, 2), updates=0.3, seeds=1),
    "standard on a GPU": Sizes(factors=(0.125, 0.25, 0.5, 1, 2, 4), updates=1.0, seeds=None),
}


class Scaling(Experiment):
    """Short trainings of the same model at several sizes."""

    name = "scaling"
    question = "What does a larger model gain?"
    rows = ("scalability",)
    translates = True

    def tasks(self, contest: Contest) -> list[Task]:
        """One for each seed, size and model; the models in turn."""
        sizes = contest.sizes(SIZES)
        return [
            Task(each.name, part_of(factor), seed, seconds=seconds_for(each.recipe, sizes.updates))
            for seed in contest.seeds[: sizes.seeds]
            for factor in sizes.factors
            for each in contest.contestants
        ]

    def measure(self, contest: Contest, task: Task) -> Measured:
        """The validation loss of one size after as many updates as all others have.

        Raises:
            NotForThisModel: the model cannot translate.
            UserError: it cannot have that size, or the training failed.
        """
        sizes = contest.sizes(SIZES)
        contestant = contest.contestant(task.model)
        factor = next(factor for factor in sizes.factors if part_of(factor) == task.part)
        pieces = contestant.recipe.tokenizer.sizes
        wanted = budget(_named(contest), pieces, factor)
        settings = resized(contestant.settings, contestant.name, pieces, wanted)
        recipe = contestant.recipe.model_copy(update={"model": settings})
        recipe = shortened(recipe, sizes.updates)
        data = prepared(recipe)
        found = schooled(recipe, data, task.seed or 0, contest.computer)
        flops = flops_per_token(recipe, sizes_of(data), data.train)
        return {
            "factor": factor,
            "wanted": wanted,
            "parameters": parameter_count(found.model),
            "width": settings.model_dump().get("width"),
            "updates": recipe.training.updates,
            "tokens": found.tokens,
            "flops": flops * found.tokens,
            "loss": mean_loss(found.model, data.validation, recipe.batches, contest.computer),
            "baseline": unigram_loss(data.train, data.validation, pieces[1]),
            "seconds": found.seconds,
        }

    def conclude(self, contest: Contest, measured: Mapping[Task, Measured]) -> Result:
        """Power laws, and whether one model gains more than another."""
        return conclude(self, contest, measured)


def part_of(factor: float) -> str:
    """A size's name among the tasks: `size-25` is a quarter of the comparison's parameters."""
    return f"size-{factor * 100:g}".replace(".", "-")


def _named(contest: Contest) -> tuple[tuple[str, Section], ...]:
    return tuple((contestant.name, contestant.settings) for contestant in contest.contestants)


@functools.cache
def budget(contestants: Sequence[tuple[str, Section]], pieces: tuple[int, int], factor: float) -> int:
    """The number of parameters near a multiple of the contestants' that most of them can have within 5 %.

    Args:
        contestants: names and settings; the first one's size is the measure.
        pieces: sizes of the vocabularies of source and target.
        factor: the multiple.
    """
    kind, settings = contestants[0]
    middle = factor * size_of(kind, settings, *pieces)
    best, most = round(middle), -1
    for near in _NEARBY:
        able = sum(_has(settings, kind, pieces, round(near * middle)) for kind, settings in contestants)
        if able > most:
            best, most = round(near * middle), able
        if most == len(contestants):
            break
    return best


def _has(settings: Section, kind: str, pieces: tuple[int, int], parameters: int) -> bool:
    try:
        resized(settings, kind, pieces, parameters)
    except UserError:
        return False
    return True


EXPERIMENT = Scaling()
