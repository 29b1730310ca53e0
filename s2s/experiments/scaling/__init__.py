"""Trainings of the same model at several sizes."""

import functools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from s2s.errors import UserError
from s2s.experiments.contest import Cell, Contest, Experiment, Measured, Scale
from s2s.experiments.matching import size_of
from s2s.experiments.scaling.conclude import conclude
from s2s.experiments.translating import flops_per_token, resized, schooled, sizes_of, unigram_loss
from s2s.experiments.whole_runs import prepared, seconds_for, shortened
from s2s.models.contract import parameter_count
from s2s.recipe.schema import Section
from s2s.tasks.translation.task import mean_loss

# tried in turn, since heads do not divide every width: small models are far apart in size
_NEARBY = (1.0, 0.95, 1.05, 0.9, 1.1, 0.85, 1.15)


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    factors: tuple[float, ...]  # sizes, as multiples of the comparison's number of parameters
    updates: float  # of each training, as a share of the recipe's
    seeds: int | None  # how many of them; None: all


SIZES: dict[Scale, Sizes] = {
    "quick": Sizes(factors=(0.25, 0.5, 1, 2), updates=0.4, seeds=1),
    "definitive": Sizes(factors=(0.25, 0.5, 1, 2), updates=0.3, seeds=1),
    "definitive on a GPU": Sizes(factors=(0.125, 0.25, 0.5, 1, 2, 4), updates=1.0, seeds=None),
}


def cells(contest: Contest) -> list[Cell]:
    """One for each seed, size and model; the models in turn."""
    sizes = contest.sizes(SIZES)
    return [
        Cell(each.name, part_of(factor), seed, seconds=seconds_for(each.recipe, sizes.updates))
        for seed in contest.seeds[: sizes.seeds]
        for factor in sizes.factors
        for each in contest.contestants
    ]


def measure(contest: Contest, cell: Cell) -> Measured:
    """The validation loss of one size after as many updates as all others have."""
    sizes = contest.sizes(SIZES)
    contestant = contest.contestant(cell.model)
    factor = next(factor for factor in sizes.factors if part_of(factor) == cell.part)
    pieces = contestant.recipe.tokenizer.sizes
    named = tuple((each.name, each.settings) for each in contest.contestants)
    wanted = budget(named, pieces, factor)
    settings = resized(contestant.settings, contestant.name, pieces, wanted)
    recipe = shortened(contestant.recipe.model_copy(update={"model": settings}), sizes.updates)
    data = prepared(recipe)
    short = schooled(recipe, data, cell.seed or 0, contest.computer)
    flops = flops_per_token(recipe, sizes_of(data), data.train)
    return {
        "factor": factor,
        "wanted": wanted,
        "parameters": parameter_count(short.model),
        "width": settings.model_dump().get("width"),
        "updates": recipe.training.updates,
        "tokens": short.tokens,
        "flops": flops * short.tokens,
        "loss": mean_loss(short.model, data.validation, recipe.batches, contest.computer),
        "baseline": unigram_loss(data.train, data.validation, pieces[1]),
        "seconds": short.seconds,
    }


def part_of(factor: float) -> str:
    """A size's name among the tasks: `size-25` is a quarter of the comparison's parameters."""
    return f"size-{factor * 100:g}".replace(".", "-")


@functools.cache
def budget(contestants: Sequence[tuple[str, Section]], pieces: tuple[int, int], factor: float) -> int:
    """The number of parameters near a multiple of the first contestant's that most of them can have within 5 %."""
    kind, settings = contestants[0]
    middle = factor * size_of(kind, settings, *pieces)
    best, most = round(middle), -1
    for near in _NEARBY:
        able, wanted = 0, round(near * middle)
        for kind, settings in contestants:
            with suppress(UserError):
                resized(settings, kind, pieces, wanted)
                able += 1
        if able > most:
            best, most = wanted, able
        if most == len(contestants):
            break
    return best


EXPERIMENT = Experiment("scaling", "What does a larger model gain?", cells, measure, conclude)
