"""Each model's learning rate and depth: short trainings, until the best rate is at no end of those that were tried.

They have a seed of their own: the best of several trainings is a lucky one, too, and none that is scored may be it.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from s2s.comparison import tasks
from s2s.comparison.candidate_names import file_name
from s2s.comparison.executor import StoredResult, load_result
from s2s.comparison.matching import match_parameters, non_width_settings
from s2s.comparison.results import CandidateSummary
from s2s.comparison.runs import history, shortened, stopwatch
from s2s.comparison.spec import Analysis, Candidate, ComparedRecipe, Comparison, Experiment, Measured, R, Scale, Trial
from s2s.comparison.tasks import trainer_of, validation_loss, whole_run
from s2s.comparison.tuning_search import (
    TuningTrial,
    at_depth,
    best_trial,
    beyond_usual,
    from_the_middle,
    grid,
    inside,
    next_trials,
    short_ones,
)
from s2s.evaluation.gates import LEARNING, slope_per_doubling
from s2s.recipe.reading import dump
from s2s.training.device import DeviceContext

TRIAL_SEED = 0
"""Of all trials that choose something: no repetition has it."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the search."""

    share: float  # of the updates that a whole training has
    whole: int  # how many of the best are trained in full


SIZES: dict[Scale, Sizes] = {
    "quick": Sizes(share=0.25, whole=0),
    "lecture": Sizes(share=0.15, whole=2),
    "definitive": Sizes(share=0.15, whole=2),
}
# The settings that say how deep a model is; one that has neither is tried at its own depth alone.
_LAYERS = ("encoder_layers", "decoder_layers")
_RESIDUAL = "residual"


def depths_of(recipe: ComparedRecipe, own: Mapping[str, object]) -> tuple[int, ...]:
    """The numbers of layers that a model is tried with, its recipe's first: one, and its recipe's or two.

    Args:
        recipe: its recipe.
        own: settings that the command gives to it; where they say how deep it is, there is nothing to choose.
    """
    layers = {getattr(recipe.model, key) for key in _LAYERS if key in type(recipe.model).model_fields}
    if len(layers) != 1 or any(key in own for key in _LAYERS):
        return ()
    usual = layers.pop()
    return usual, 2 if usual == 1 else 1


def settled(recipe: ComparedRecipe, own: Mapping[str, object]) -> tuple[str, ...]:
    """Settings that trials must not choose: the command's for this model, and residual connections that it has."""
    return tuple(dict.fromkeys([*own, *([_RESIDUAL] if getattr(recipe.model, _RESIDUAL, False) else [])]))


def recipe_at(recipe: R, trial: TuningTrial, own: Collection[str] = ()) -> R:
    """The recipe with a trial's rate and depth; the width is solved for again, so that the size stays.

    More layers than the recipe's, and than two, are joined by residual connections where a model may have them: without
    them recurrent ones hardly learn (Wu et al. 2016, section 3.1), and convolutions and Transformers always have them.

    Args:
        recipe: the model's, as it came.
        trial: what to train it with.
        own: settings that stay as they are.

    Raises:
        UserError: no width gives the size.
    """
    changes: dict[str, object] = {"training": recipe.training.model_copy(update={"learning_rate": trial.rate})}
    now = {key: getattr(recipe.model, key) for key in _LAYERS if key in type(recipe.model).model_fields}
    if trial.layers is not None and any(layers != trial.layers for layers in now.values()):
        chosen: dict[str, object] = dict.fromkeys(now, trial.layers)
        if trial.layers > max(2, *now.values()) and _RESIDUAL in type(recipe.model).model_fields.keys() - {*own}:
            chosen[_RESIDUAL] = True
        model_spec, kind = tasks.model_spec(recipe), recipe.model.kind
        parameters = model_spec.parameters(kind, recipe.model)
        changes["model"] = match_parameters(kind, model_spec, parameters, non_width_settings(recipe.model) | chosen)
    return recipe.model_copy(update=changes)


def short_training(recipe: ComparedRecipe, seed: int, device_context: DeviceContext) -> tuple[float, float]:
    """Trains a model as its recipe says, without checkpoints and tests.

    Returns:
        The validation loss afterwards, in nats, and the seconds that the updates took.

    Raises:
        NotForThisModel: the model cannot take part.
        UserError: the training failed.
    """
    trainer = trainer_of(recipe, seed, device_context)
    clock = stopwatch(device_context)
    began = clock()
    for _ in trainer.updates(recipe.training.updates):
        pass
    seconds = clock() - began
    with trainer.optimization.use_ema_weights():
        return validation_loss(trainer, recipe), seconds


def _cells(comparison: Comparison) -> list[Trial]:
    """The trials of each model that were made, and those that come next."""
    sizes = comparison.sizes(SIZES)
    trials = []
    for each in comparison.candidates:
        made = _made(comparison, each)
        losses = {trial: loss_of(one) for trial, one in made.items()}
        trials += [Trial(each.name, trial.part) for trial in (*made, *next_trials(each.depths, losses, sizes.whole))]
    return trials


def foreseen(comparison: Comparison) -> list[Trial]:
    """The trials that are sure to come, and those that were made: as if the best were at no end of what is tried."""
    sizes = comparison.sizes(SIZES)
    trials = []
    for each in comparison.candidates:
        losses = {trial: loss_of(one) for trial, one in _made(comparison, each).items()}
        # what was made stays the best
        worst = max((loss for loss in losses.values() if loss is not None), default=0.0)
        while new := next_trials(each.depths, losses, sizes.whole):
            losses |= {trial: worst + from_the_middle(trial) for trial in new}
        trials += [Trial(each.name, trial.part) for trial in losses]
    return trials


def _measure(comparison: Comparison, cell: Trial) -> Measured:
    """The validation loss after a trial."""
    trial = TuningTrial.of(cell.part)
    candidate = comparison.candidate(cell.model)
    recipe = recipe_at(candidate.recipe, trial, candidate.own)
    if trial.whole:
        folder = whole_run(comparison, f"{file_name(cell.model)}-{cell.part}", recipe, TRIAL_SEED)
        seen = history(folder, {"losses": "loss"}, comparison.device_context)
        slope = slope_per_doubling(seen["tokens"], seen["losses"])
        end = {"loss": seen["losses"][-1], "seconds": seen["seconds"][-1], "updates": recipe.training.updates}
        return end | {"slope": slope}
    recipe = shortened(recipe, comparison.sizes(SIZES).share)
    loss, seconds = short_training(recipe, TRIAL_SEED, comparison.device_context)
    return {"loss": loss, "seconds": seconds, "updates": recipe.training.updates}


def _made(comparison: Comparison, each: Candidate) -> dict[TuningTrial, StoredResult]:
    folder = comparison.results_folder(TUNING.name)
    depths = [*each.depths, *beyond_usual(each.depths)] or [None]
    trials = [TuningTrial(rate, n, w) for w in (False, True) for n in depths for rate in grid()]
    return {trial: one for trial in trials if (one := load_result(folder, Trial(each.name, trial.part)))}


TUNING = Experiment(
    "tuning",
    "Which learning rate and which depth suit each model?",
    _cells,
    _measure,
    lambda comparison, measured: Analysis(),
)
"""Not an experiment of its own: its measurements choose each model's rate and depth before the others begin.

Which measurements there are depends on those that were made, so they are asked for again until there are no more.
"""


def loss_of(one: StoredResult) -> float | None:
    """The loss that a trial ended with; None where it failed."""
    loss = one.measured.get("loss") if one.measured else None
    # a training may end with a loss that is no number
    return loss if isinstance(loss, int | float) and math.isfinite(loss) else None


@dataclass(frozen=True)
class Tried:
    """Tuning trials of one candidate."""

    losses: dict[TuningTrial, float | None]
    seconds: float  # what it cost
    seconds_per_update: float | None  # of training at the depth chosen; None where it failed
    slope: float | None  # nats that a doubling of the tokens changes the chosen training's loss by; None where unknown
    failures: Mapping[TuningTrial, str] = field(default_factory=dict)  # why it failed, by trial


def tried(made: Mapping[Trial, StoredResult], model: str) -> Tried:
    """Collect the tuning trials of a candidate."""
    mine = {TuningTrial.of(cell.part): one for cell, one in made.items() if cell.model == model}
    losses = {trial: loss_of(one) for trial, one in mine.items()}
    best = best_trial(losses)
    paces = [
        one.measured["seconds"] / one.measured["updates"]
        for trial, one in mine.items()
        if one.measured and best and trial.layers == best.layers
    ]
    end = mine[best].measured if best else None
    # short trainings have none
    slope = end.get("slope") if end else None
    failures = {trial: one.failed for trial, one in mine.items() if one.failed}
    return Tried(losses, sum(one.seconds for one in mine.values()), min(paces, default=None), slope, failures)


def warn_unconverged(tried: Mapping[str, Tried]) -> str:
    """Warn about candidates whose loss still falls at the end of their trials; empty for none."""
    falling = {model: -each.slope for model, each in tried.items() if each.slope and -each.slope >= LEARNING}
    if not falling:
        return ""
    models = ", ".join(f"{model} ({fall:.2f})" for model, fall in falling.items())
    return (
        f"still learning when their updates were spent, by nats with each doubling of the tokens: {models}; a verdict "
        f"wants less than {LEARNING:g}, so rows of trained models may have none for them. Another comparison with more "
        "training.updates, or of a smaller task, would learn to the end"
    )


def tuned(candidate: Candidate, tried: Tried, updates: int | None) -> Candidate:
    """The candidate with the rate and the depth of the best trial; with its recipe's, where it learned in none.

    Args:
        candidate: as it came.
        tried: its trials.
        updates: how many it may have; None: as many as its recipe says.
    """
    losses = tried.losses
    best = best_trial(losses)
    recipe = recipe_at(candidate.recipe, best, candidate.own) if best else candidate.recipe
    short = dict(sorted(short_ones(losses, best.layers).items())) if best else {}
    if updates is not None:
        changes = {"updates": updates, "warmup": min(recipe.training.warmup, updates // 5)}
        recipe = recipe.model_copy(update={"training": recipe.training.model_copy(update=changes)})
    return replace(
        candidate,
        recipe=recipe,
        rates=tuple(short),
        losses=tuple(short.values()),
        whole=tuple(sorted(at_depth(losses, best.layers, whole=True).items())) if best else (),
        inside=best is not None and inside(best, losses),
        slope=tried.slope,
    )


def summarize(candidate: Candidate, tried: Tried) -> CandidateSummary:
    """Summary of a tuned candidate for the report."""
    recipe, losses, best = candidate.recipe, tried.losses, best_trial(tried.losses)
    layers = best.layers if best else next(iter(candidate.depths), None)
    model_spec = tasks.model_spec(recipe)
    deeper = [depth for depth in beyond_usual(candidate.depths) if short_ones(losses, depth)]
    tried_depths = [*candidate.depths, *deeper]
    return CandidateSummary(
        model=candidate.name,
        settings=candidate.settings.model_dump(mode="json"),
        parameters=model_spec.parameters(candidate.kind, candidate.settings),
        learning_rate=candidate.learning_rate,
        rates={f"{rate:g}": loss for rate, loss in sorted(short_ones(losses, layers).items())},
        inside=candidate.inside,
        depths={str(depth): _least(short_ones(losses, depth)) for depth in tried_depths},
        whole={_words(trial): loss for trial, loss in losses.items() if trial.whole},
        failures=_failures(tried.failures),
        tuning_seconds=tried.seconds,
        recipe=dump(recipe),
    )


def _least(tried: Mapping[float, float | None]) -> float | None:
    return min((loss for loss in tried.values() if loss is not None), default=None)


def _failures(by_trial: Mapping[TuningTrial, str]) -> dict[str, str]:
    """Failed trials by reason."""
    reasons = dict.fromkeys(by_trial.values())
    return {why: "; ".join(_words(trial) for trial, each in by_trial.items() if each == why) for why in reasons}


def _words(trial: TuningTrial) -> str:
    layers = "" if trial.layers is None else f", {trial.layers} {'layer' if trial.layers == 1 else 'layers'}"
    return f"rate {trial.rate:g}{layers}"
