"""Trainings of the same model at several sizes, each at the learning rate that suits the size."""

import functools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from s2s.comparison.executor import StoredResult, load_result, run_cached
from s2s.comparison.matching import size_of, without_embeddings
from s2s.comparison.questions.scaling.analyse import MARGIN, analyse
from s2s.comparison.runs import prepared, shortened
from s2s.comparison.spec import Candidate, Comparison, Experiment, Measured, Scale, Trial
from s2s.comparison.translation import flops_per_token, resized, sizes_of, train_briefly, unigram_loss
from s2s.comparison.tuning import TRIAL_SEED, loss_of, short_training
from s2s.comparison.tuning_search import HIGHEST, LOWEST, TuningTrial, best_trial, inside, next_trials
from s2s.errors import UserError
from s2s.models.base import Seq2Seq, count_parameters
from s2s.recipe.schema import Section
from s2s.tasks.source_use import source_use
from s2s.tasks.translation.recipe import Recipe
from s2s.tasks.translation.task import mean_loss
from s2s.training.device import PRECISION_NAMES

# tried in turn, since heads do not divide every width: small models are far apart in size
_NEARBY = (1.0, 0.95, 1.05, 0.9, 1.1, 0.85, 1.15)
# of the updates of a size's whole training: how long rates are tried, as when the models' own are chosen
_TRIAL = 0.15


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurement."""

    factors: tuple[float, ...]  # sizes, as multiples of the comparison's number of parameters
    updates: float  # of each training, as a share of the recipe's
    seeds: int | None  # how many of them; None: all


SIZES: dict[Scale, Sizes] = {
    "quick": Sizes(factors=(0.25, 0.5, 1, 2), updates=0.4, seeds=1),
    "definitive": Sizes(factors=(0.25, 0.5, 1, 2, 4), updates=1.0, seeds=2),
    "definitive on a GPU": Sizes(factors=(0.125, 0.25, 0.5, 1, 2, 4), updates=1.0, seeds=None),
}


def trials(comparison: Comparison) -> list[Trial]:
    """One for each seed, size and model; the models in turn."""
    sizes = comparison.sizes(SIZES)
    return [
        Trial(model, part_of(factor), seed)
        for seed in comparison.seeds[: sizes.seeds]
        for factor in sizes.factors
        for model in comparison.models
    ]


def measure(comparison: Comparison, cell: Trial) -> Measured:
    """The validation loss of one size, at the best of its rates."""
    candidate = comparison.candidate(cell.model)
    factor = next(factor for factor in comparison.sizes(SIZES).factors if part_of(factor) == cell.part)
    wanted, recipe = _of_size(comparison, candidate, factor)
    made = _trials(comparison, candidate, recipe, cell.part)
    losses = {trial: loss_of(one) for trial, one in made.items()}
    best = best_trial(losses) or TuningTrial(candidate.learning_rate)
    rising = sorted(losses.items(), key=lambda item: item[0].rate)
    return {
        "factor": factor,
        "wanted": wanted,
        "rate": best.rate,
        "rates": [[trial.rate, loss] for trial, loss in rising if not trial.whole],
        "whole": [[trial.rate, loss] for trial, loss in rising if trial.whole],
        "inside": best in losses and inside(best, losses),
        **_trained(comparison, _at(recipe, best.rate), cell.seed or 0),
    }


def _of_size(comparison: Comparison, candidate: Candidate, factor: float) -> tuple[int, Recipe[Any]]:
    """The number of parameters wanted of a size, and a candidate's recipe for a whole training of it."""
    pieces = candidate.translation.tokenizer.sizes
    wanted = budget(tuple((each.kind, each.settings) for each in comparison.candidates), pieces, factor)
    settings = resized(candidate.settings, candidate.kind, pieces, wanted)
    recipe = candidate.translation.model_copy(update={"model": settings})
    return wanted, shortened(recipe, comparison.sizes(SIZES).updates)


def _trained(comparison: Comparison, recipe: Recipe[Any], seed: int) -> Measured:
    """Train a model in full and measure it."""
    data = prepared(recipe)
    sizes = sizes_of(data)
    losses: list[float] = []

    def look(model: Seq2Seq) -> None:
        losses.append(mean_loss(model, data.validation, recipe.batches, comparison.device_context))

    short = train_briefly(recipe, data, seed, comparison.device_context, half_way=look)
    look(short.model)
    worth = source_use(short.model, data.validation, recipe.batches, comparison.device_context)
    return {
        "parameters": count_parameters(short.model),
        "inner": without_embeddings(short.model),
        "width": recipe.model.model_dump().get("width"),
        "updates": recipe.training.updates,
        "tokens": short.tokens,
        "flops": flops_per_token(recipe, sizes, data.train) * short.tokens,
        "half": losses[0],
        "loss": losses[-1],
        "source_use": asdict(worth) if worth else None,
        "baseline": unigram_loss(data.train, data.validation, sizes[1]),
        "seconds": short.seconds,
    }


def _trials(
    comparison: Comparison, candidate: Candidate, whole: Recipe[Any], part: str
) -> dict[TuningTrial, StoredResult]:
    """A size's trials with a seed of their own, each kept: with a share of the updates, the best of them with all.

    The first are the rate of the comparison's size and its neighbours.
    """
    folder = comparison.results_folder(EXPERIMENT.name)
    folder.mkdir(parents=True, exist_ok=True)
    share, middle = shortened(whole, _TRIAL), candidate.learning_rate
    near = [rate for rate in (middle / 2, middle, 2 * middle) if LOWEST <= rate <= HIGHEST or rate == middle]
    made: dict[TuningTrial, StoredResult] = {}
    while new := next_trials((), {trial: loss_of(one) for trial, one in made.items()}, 1, near):
        for trial in new:
            recipe = _at(whole if trial.whole else share, trial.rate)
            cell = Trial(candidate.name, f"{part}-{trial.part}")
            # one that failed would fail again
            one = partial(_trial, comparison, recipe)
            made[trial] = load_result(folder, cell) or run_cached(
                folder, one, cell, PRECISION_NAMES[comparison.device_context.precision]
            )
    return made


def _trial(comparison: Comparison, recipe: Recipe[Any], trial: Trial) -> Measured:
    loss, seconds = short_training(recipe, TRIAL_SEED, comparison.device_context)
    return {"loss": loss, "seconds": seconds, "updates": recipe.training.updates}


def _at(recipe: Recipe[Any], rate: float) -> Recipe[Any]:
    return recipe.model_copy(update={"training": recipe.training.model_copy(update={"learning_rate": rate})})


def part_of(factor: float) -> str:
    """A size's name among the tasks: `size-25` is a quarter of the comparison's parameters."""
    return f"size-{factor * 100:g}".replace(".", "-")


@functools.cache
def budget(candidates: Sequence[tuple[str, Section]], pieces: tuple[int, int], factor: float) -> int:
    """The number of parameters near a multiple of the first candidate's that most of them can have within 5 %."""
    kind, settings = candidates[0]
    middle = factor * size_of(kind, settings, *pieces)
    best, most = round(middle), -1
    for near in _NEARBY:
        able, wanted = 0, round(near * middle)
        for kind, settings in candidates:
            with suppress(UserError):
                resized(settings, kind, pieces, wanted)
                able += 1
        if able > most:
            best, most = wanted, able
        if most == len(candidates):
            break
    return best


def _numbers(comparison: Comparison) -> dict[str, object]:
    sizes = comparison.sizes(SIZES)
    return {
        "factors": ", ".join(f"{factor:g}" for factor in sizes.factors),
        "share": f"{100 * sizes.updates:g}",
        "trial": f"{100 * _TRIAL:g}",
        "margin": MARGIN,
    }


EXPERIMENT = Experiment("scaling", "What does a larger model gain?", trials, measure, analyse, numbers=_numbers)
