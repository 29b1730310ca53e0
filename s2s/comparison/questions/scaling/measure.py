"""Train models at several sizes, each at the best learning rate for its size."""

import functools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from s2s.comparison.executor import StoredResult, load_result, run_cached
from s2s.comparison.matching import size_of, without_embeddings
from s2s.comparison.questions.scaling.analyse import MARGIN, ScalingRun, SizeTraining, analyse
from s2s.comparison.runs import prepared, shortened
from s2s.comparison.spec import Candidate, Comparison, Experiment, Measured, Scale, Trial
from s2s.comparison.translation import flops_per_token, resized, sizes_of, train_briefly, unigram_loss
from s2s.comparison.tuning import TRIAL_SEED, loss_of, short_training
from s2s.comparison.tuning_search import HIGHEST, LOWEST, TuningTrial, best_trial, inside, next_trials
from s2s.errors import UserError
from s2s.models.base import Seq2Seq, count_parameters
from s2s.recipe.schema import Section
from s2s.tasks.seq2seq import mean_loss
from s2s.tasks.source_use import source_use
from s2s.tasks.translation.recipe import Recipe
from s2s.training.device import PRECISION_NAMES

# factors for the number of parameters, tried in turn: heads do not divide every width, so few sizes are possible
_NEARBY = (1.0, 0.95, 1.05, 0.9, 1.1, 0.85, 1.15)
# updates of a short training in the search for the rate, as a share of the full training's
_TRIAL = 0.15


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurement."""

    factors: tuple[float, ...]  # sizes, as multiples of the comparison's number of parameters
    updates: float  # of each training, as a share of the recipe's
    seeds: int | None  # number of seeds; None: all


SIZES: dict[Scale, Sizes] = {
    "quick": Sizes(factors=(0.25, 0.5, 1, 2), updates=0.4, seeds=1),
    "definitive": Sizes(factors=(0.25, 0.5, 1, 2, 4), updates=1.0, seeds=2),
    "definitive on a GPU": Sizes(factors=(0.125, 0.25, 0.5, 1, 2, 4), updates=1.0, seeds=None),
}


def trials(comparison: Comparison) -> list[Trial]:
    """Return a trial for each seed, size and model; the models in turn."""
    sizes = comparison.sizes(SIZES)
    return [
        Trial(model, part_of(factor), seed)
        for seed in comparison.seeds[: sizes.seeds]
        for factor in sizes.factors
        for model in comparison.models
    ]


def measure(comparison: Comparison, trial: Trial) -> ScalingRun:
    """Train one size at its best learning rate."""
    candidate = comparison.candidate(trial.model)
    factor = next(factor for factor in comparison.sizes(SIZES).factors if part_of(factor) == trial.part)
    sizes = candidate.translation.tokenizer.sizes
    wanted = _stored_budget(comparison, trial.part)
    if wanted is None:
        wanted = budget(tuple((each.kind, each.settings) for each in comparison.candidates), sizes, factor)
    settings = resized(candidate.settings, candidate.kind, sizes, wanted)
    recipe = candidate.translation.model_copy(update={"model": settings})
    recipe = shortened(recipe, comparison.sizes(SIZES).updates)
    made = _search(comparison, candidate, recipe, trial.part)
    losses = {each: loss_of(one) for each, one in made.items()}
    best = best_trial(losses) or TuningTrial(candidate.learning_rate)
    ascending = sorted(losses.items(), key=lambda item: item[0].rate)
    return ScalingRun(
        **vars(_train(comparison, _with_rate(recipe, best.rate), trial.seed or 0)),
        factor=factor,
        wanted=wanted,
        rate=best.rate,
        rates=[(each.rate, loss) for each, loss in ascending if not each.whole],
        whole=[(each.rate, loss) for each, loss in ascending if each.whole],
        inside=best in losses and inside(best, losses),
    )


def _stored_budget(comparison: Comparison, part: str) -> int | None:
    """Return the number of parameters of stored trainings at this size; None without one.

    A model that is added to a comparison changes the budget of all models, but not stored trainings.
    """
    folder = comparison.results_folder(EXPERIMENT.name)
    stored = (load_result(folder, other) for other in trials(comparison) if other.part == part)
    return next((int(each.measured["wanted"]) for each in stored if each and each.measured), None)


def _train(comparison: Comparison, recipe: Recipe[Any], seed: int) -> SizeTraining:
    """Train a model in full."""
    data = prepared(recipe)
    sizes = sizes_of(data)
    losses: list[float] = []

    def _validate(model: Seq2Seq) -> None:
        losses.append(mean_loss(model, data.validation, recipe.batches, comparison.device_context))

    short = train_briefly(recipe, data, seed, comparison.device_context, half_way=_validate)
    _validate(short.model)
    return SizeTraining(
        parameters=count_parameters(short.model),
        inner=without_embeddings(short.model),
        width=recipe.model.model_dump().get("width"),
        updates=recipe.training.updates,
        tokens=short.tokens,
        flops=flops_per_token(recipe, sizes, data.train) * short.tokens,
        half=losses[0],
        loss=losses[-1],
        source_use=source_use(short.model, data.validation, recipe.batches, comparison.device_context),
        baseline=unigram_loss(data.train, data.validation, sizes[1]),
        seconds=short.seconds,
    )


def _search(
    comparison: Comparison, candidate: Candidate, full: Recipe[Any], part: str
) -> dict[TuningTrial, StoredResult]:
    """Search the learning rate of a size with a seed of its own: short trainings, then full ones around the best.

    The first trials are the rate of the comparison's size and its neighbours. Each is stored.
    """
    folder = comparison.results_folder(EXPERIMENT.name)
    folder.mkdir(parents=True, exist_ok=True)
    short, middle = shortened(full, _TRIAL), candidate.learning_rate
    near = [rate for rate in (middle / 2, middle, 2 * middle) if LOWEST <= rate <= HIGHEST or rate == middle]
    made: dict[TuningTrial, StoredResult] = {}

    def _tune(recipe: Recipe[Any], trial: Trial) -> Measured:
        loss, seconds = short_training(recipe, TRIAL_SEED, comparison.device_context)
        return {"loss": loss, "seconds": seconds, "updates": recipe.training.updates}

    while new := next_trials((), {each: loss_of(one) for each, one in made.items()}, 1, near):
        for each in new:
            trial = Trial(candidate.name, f"{part}-{each.part}")
            tune = partial(_tune, _with_rate(full if each.whole else short, each.rate))
            # a failed one is not repeated: it would fail again
            made[each] = load_result(folder, trial) or run_cached(
                folder, tune, trial, PRECISION_NAMES[comparison.device_context.precision]
            )
    return made


def _with_rate(recipe: Recipe[Any], rate: float) -> Recipe[Any]:
    return recipe.model_copy(update={"training": recipe.training.model_copy(update={"learning_rate": rate})})


def part_of(factor: float) -> str:
    """Return a size's name among the trials: `size-25` is a quarter of the comparison's parameters."""
    return f"size-{factor * 100:g}".replace(".", "-")


@functools.cache
def budget(candidates: Sequence[tuple[str, Section]], pieces: tuple[int, int], factor: float) -> int:
    """Return the number of parameters, near `factor` times the first candidate's, that most can have within 5 %."""
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


EXPERIMENT = Experiment(
    "scaling",
    "How much does the loss fall when a model gets larger?",
    trials,
    measure,
    analyse,
    TypeAdapter(ScalingRun),
    numbers=_numbers,
)
