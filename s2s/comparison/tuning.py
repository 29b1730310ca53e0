"""Tuning: the learning rate and the depth of each candidate, chosen by validation loss.

Short trainings are added until the best rate lies inside the grid. They use a separate seed, because the best of
several trainings is partly the best by chance, and must not be among the scored ones.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import TypeAdapter

from s2s.comparison.candidate_names import file_name
from s2s.comparison.claims import traits_in_words
from s2s.comparison.executor import StoredResult, load_result
from s2s.comparison.matching import match_parameters, non_width_settings
from s2s.comparison.results import CandidateSummary
from s2s.comparison.runs import learning_curve, shortened, stopwatch
from s2s.comparison.spec import Analysis, Candidate, ComparedRecipe, Comparison, Experiment, R, Scale, Trial
from s2s.comparison.tasks import finish_run, model_spec, trainer_of, validation_loss
from s2s.comparison.tuning_search import (
    TuningTrial,
    at_depth,
    best_trial,
    deeper_than_usual,
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
"""Seed of all tuning trials; the seeds of repetitions start at 1."""


SHARE = 0.15
"""Updates of a short training, as a share of a full training."""
FULL_TRIALS: dict[Scale, int] = {"quick": 0, "lecture": 2, "definitive": 2}
"""Number of the best trials that are trained in full."""
_LAYERS = ("encoder_layers", "decoder_layers")
_RESIDUAL = "residual"


@dataclass(frozen=True)
class TuningMeasurement:
    """Measurement of a tuning trial.

    Attributes:
        loss: Validation loss at the end, in nats.
        seconds: Training time.
        slope: Change of the loss per doubling of the tokens, in nats; None for a short training.
    """

    loss: float
    seconds: float
    updates: int
    slope: float | None = None


def depths_of(recipe: ComparedRecipe, own: Mapping[str, object]) -> tuple[int, ...]:
    """Return the numbers of layers to try, the recipe's first; empty if the depth is fixed.

    Args:
        own: Settings of the candidate on the command line; a depth there is fixed.
    """
    layers = {getattr(recipe.model, key) for key in _LAYERS if key in type(recipe.model).model_fields}
    if len(layers) != 1 or any(key in own for key in _LAYERS):
        return ()
    usual = layers.pop()
    return usual, 2 if usual == 1 else 1


def settled(recipe: ComparedRecipe, own: Mapping[str, object]) -> tuple[str, ...]:
    """Return the settings that tuning must not change: those of the command line, and `residual` if it is on."""
    return tuple(dict.fromkeys([*own, *([_RESIDUAL] if getattr(recipe.model, _RESIDUAL, False) else [])]))


def recipe_at(recipe: R, trial: TuningTrial, own: Collection[str] = ()) -> R:
    """Return a recipe with a trial's learning rate and depth, and the width that keeps the number of parameters.

    Models with more layers than the recipe's, and than two, get residual connections if they have the setting: without
    them deep recurrent models hardly learn (Wu et al. 2016, section 3.1), and convolutions and Transformers always have
    them.

    Args:
        own: Settings that must not change.

    Returns:
        The recipe, with about as many parameters as before.

    Raises:
        UserError: No width gives about as many parameters.
    """
    changes: dict[str, object] = {"training": recipe.training.model_copy(update={"learning_rate": trial.rate})}
    fields = type(recipe.model).model_fields
    now = {key: getattr(recipe.model, key) for key in _LAYERS if key in fields}
    if trial.layers is not None and any(layers != trial.layers for layers in now.values()):
        chosen: dict[str, object] = dict.fromkeys(now, trial.layers)
        if trial.layers > max(2, *now.values()) and _RESIDUAL in fields.keys() - {*own}:
            chosen[_RESIDUAL] = True
        spec, kind = model_spec(recipe), recipe.model.kind
        parameters = spec.parameters(kind, recipe.model)
        changes["model"] = match_parameters(kind, spec, parameters, non_width_settings(recipe.model) | chosen)
    return recipe.model_copy(update=changes)


def can_have_equal_depth(candidates: Sequence[Candidate]) -> bool:
    """Return True if `at_equal_depth` gives all candidates the same number of layers."""
    usual = {candidate.depths[:1] for candidate in candidates}
    return len(usual) == 1 and () not in usual


def at_equal_depth(candidate: Candidate) -> Candidate:
    """Return a candidate with as many layers as the comparison's recipe, and about as many parameters as before.

    Residual connections that tuning added with more layers are removed.
    """
    recipe = candidate.recipe
    if _RESIDUAL in type(recipe.model).model_fields and _RESIDUAL not in candidate.own:
        recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update={_RESIDUAL: False})})
    trial = TuningTrial(candidate.learning_rate, candidate.depths[0])
    return replace(candidate, recipe=recipe_at(recipe, trial, candidate.own))


def short_training(recipe: ComparedRecipe, seed: int, device_context: DeviceContext) -> tuple[float, float]:
    """Train a model without checkpoints and tests.

    Returns:
        The validation loss at the end in nats, and the training time in seconds.

    Raises:
        UserError: The training failed.
    """
    trainer = trainer_of(recipe, seed, device_context)
    clock = stopwatch(device_context)
    began = clock()
    for _ in trainer.updates(recipe.training.updates):
        pass
    seconds = clock() - began
    with trainer.optimization.use_ema_weights():
        return validation_loss(trainer, recipe), seconds


def _trials(comparison: Comparison) -> list[Trial]:
    """Return the stored trials of each model, and the next ones."""
    whole, trials = comparison.sizes(FULL_TRIALS), list[Trial]()
    for candidate in comparison.candidates:
        losses = _losses(comparison, candidate)
        tried = [*losses, *next_trials(candidate.depths, losses, whole)]
        trials += [Trial(candidate.name, trial.part) for trial in tried]
    return trials


def foreseen(comparison: Comparison) -> list[Trial]:
    """Return the stored trials, and the future ones if no grid has to be extended."""
    whole, trials = comparison.sizes(FULL_TRIALS), list[Trial]()
    for candidate in comparison.candidates:
        losses = _losses(comparison, candidate)
        # Assumed losses are higher than the stored ones, so that stored trials stay the best.
        worst = max((loss for loss in losses.values() if loss is not None), default=0.0)
        while new := next_trials(candidate.depths, losses, whole):
            losses |= {trial: worst + from_the_middle(trial) for trial in new}
        trials += [Trial(candidate.name, trial.part) for trial in losses]
    return trials


def _losses(comparison: Comparison, candidate: Candidate) -> dict[TuningTrial, float | None]:
    """Return the losses of a candidate's stored trials."""
    folder = comparison.results_folder(TUNING.name)
    depths = [*candidate.depths, *deeper_than_usual(candidate.depths)] or [None]
    trials = [TuningTrial(rate, layers, whole) for whole in (False, True) for layers in depths for rate in grid()]
    stored = {trial: load_result(folder, Trial(candidate.name, trial.part)) for trial in trials}
    return {trial: loss_of(result) for trial, result in stored.items() if result}


def _measure(comparison: Comparison, cell: Trial) -> TuningMeasurement:
    trial = TuningTrial.of(cell.part)
    candidate = comparison.candidate(cell.model)
    recipe = recipe_at(candidate.recipe, trial, candidate.own)
    if trial.whole:
        folder = finish_run(comparison, f"{file_name(cell.model)}-{cell.part}", recipe, TRIAL_SEED)
        curve = learning_curve(folder, comparison.device_context)
        slope = slope_per_doubling(curve.tokens, curve.losses)
        return TuningMeasurement(curve.losses[-1], curve.seconds[-1], recipe.training.updates, slope)
    recipe = shortened(recipe, SHARE)
    loss, seconds = short_training(recipe, TRIAL_SEED, comparison.device_context)
    return TuningMeasurement(loss, seconds, recipe.training.updates)


# Not a question: its trials run before all questions. Trials depend on the results of earlier ones, so the engine asks
# for trials until there are no new ones.
TUNING = Experiment(
    "tuning",
    "Which learning rate and depth are best for each model?",
    _trials,
    _measure,
    lambda comparison, measured: Analysis(),
    measurement=TypeAdapter(TuningMeasurement),
)


def loss_of(result: StoredResult) -> float | None:
    """Return the final loss of a tuning trial; None if it failed or diverged."""
    loss = result.measured.get("loss") if result.measured else None
    return loss if isinstance(loss, int | float) and math.isfinite(loss) else None


@dataclass(frozen=True)
class Tried:
    """Tuning trials of one candidate.

    Attributes:
        losses: Validation loss by trial; None if it failed.
        seconds: Duration of all trials.
        seconds_per_update: Training speed at the chosen depth; None if all trials failed.
        slope: Change of the loss per doubling of the tokens at the end of the best trial, in nats; None if unknown.
        failures: Reasons of failures by trial.
    """

    losses: dict[TuningTrial, float | None]
    seconds: float
    seconds_per_update: float | None
    slope: float | None
    failures: Mapping[TuningTrial, str] = field(default_factory=dict)


def tried(results: Mapping[Trial, StoredResult], model: str) -> Tried:
    """Collect the tuning trials of a candidate."""
    own = {TuningTrial.of(cell.part): result for cell, result in results.items() if cell.model == model}
    losses = {trial: loss_of(result) for trial, result in own.items()}
    measured = {
        trial: TUNING.measurement.validate_python(result.measured)
        for trial, result in own.items()
        if result.measured is not None
    }
    best = best_trial(losses)
    paces = [each.seconds / each.updates for trial, each in measured.items() if best and trial.layers == best.layers]
    failures = {trial: result.failed for trial, result in own.items() if result.failed}
    seconds = sum(result.seconds for result in own.values())
    return Tried(losses, seconds, min(paces, default=None), measured[best].slope if best else None, failures)


def warn_unconverged(tried: Mapping[str, Tried]) -> str:
    """Return a warning about candidates whose loss still falls at the end of their trials; empty if there is none."""
    falling = {model: -each.slope for model, each in tried.items() if each.slope and -each.slope >= LEARNING}
    if not falling:
        return ""
    models = ", ".join(f"{model} ({fall:.2f})" for model, fall in falling.items())
    return (
        f"still learning at the end of training, in nats per doubling of the tokens: {models}; a verdict needs less "
        f"than {LEARNING:g}, so questions on trained models may have no verdict for them. Raise training.updates in a "
        "new comparison, or choose a smaller task"
    )


def tuned(candidate: Candidate, tried: Tried, updates: int | None) -> Candidate:
    """Return a candidate with the learning rate and depth of its best trial; unchanged if all trials failed.

    Args:
        updates: Number of updates; None keeps the recipe's.

    Returns:
        The candidate with its recipe, the tried learning rates and their losses.
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
    """Summarize a tuned candidate for the report."""
    losses, best = tried.losses, best_trial(tried.losses)
    layers = best.layers if best else next(iter(candidate.depths), None)
    deeper = [depth for depth in deeper_than_usual(candidate.depths) if short_ones(losses, depth)]
    lowest = {
        str(depth): min((loss for loss in short_ones(losses, depth).values() if loss is not None), default=None)
        for depth in [*candidate.depths, *deeper]
    }
    failures = {
        reason: "; ".join(_words(trial) for trial, each in tried.failures.items() if each == reason)
        for reason in dict.fromkeys(tried.failures.values())
    }
    return CandidateSummary(
        model=candidate.name,
        settings=candidate.settings.model_dump(mode="json"),
        traits=traits_in_words(candidate),
        parameters=model_spec(candidate.recipe).parameters(candidate.kind, candidate.settings),
        learning_rate=candidate.learning_rate,
        rates={f"{rate:g}": loss for rate, loss in sorted(short_ones(losses, layers).items())},
        inside=candidate.inside,
        depths=lowest,
        whole={_words(trial): loss for trial, loss in losses.items() if trial.whole},
        failures=failures,
        tuning_seconds=tried.seconds,
        recipe=dump(candidate.recipe),
    )


def _words(trial: TuningTrial) -> str:
    layers = "" if trial.layers is None else f", {trial.layers} {'layer' if trial.layers == 1 else 'layers'}"
    return f"rate {trial.rate:g}{layers}"
