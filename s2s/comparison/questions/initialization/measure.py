"""Train recurrent encoders from several initializations, and measure the decay of their untrained gradients."""

import copy
from collections.abc import Mapping
from functools import partial

import numpy as np
import torch
from pydantic import TypeAdapter

from s2s.comparison.matching import non_width_settings, settings_of
from s2s.comparison.questions.gradients.decay import fit_decay
from s2s.comparison.questions.gradients.sweep import sweep_parameter_of
from s2s.comparison.questions.initialization.analyse import Start, analyse
from s2s.comparison.spec import Comparison, Experiment, NotForThisModel, Scale, Trial, check_translates
from s2s.comparison.task_question import OPTIONS, encoder_width
from s2s.comparison.task_training import Budget, Rates, TaskModel, TaskRun, find_rates, search
from s2s.comparison.tuning import TRIAL_SEED
from s2s.data.synthetic_tasks import FirstSymbol
from s2s.models.base import Seq2Seq
from s2s.recipe.installed import module_of
from s2s.training.device import derive_seed

VALUES: dict[str, tuple[float, ...]] = {
    "radius": (0.7, 1.0, 1.3, 1.7, 2.0, 3.0, 6.0),
    "bias": (-2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 6.0, 8.0),
}
"""Spectral radii and biases of the gate that keeps the state."""
WIDTH, SPAN = 64, 64
"""Width of the encoders, and number of symbols over which gradients are measured."""
_TASK = FirstSymbol(trained=range(1, 33), tested=(1, 2, 4, 8, 16, 32))
_RATES = "rates"
_SEARCH = f"-{_RATES}"
_TEXTS = 8

SEEDS: dict[Scale, int] = {"quick": 3, "lecture": 8, "definitive": 8}
UPDATES: dict[Scale, int] = {"quick": 1_500, "lecture": 3_000, "definitive": 10_000}


def _budget(comparison: Comparison) -> Budget:
    return Budget(comparison.sizes(UPDATES), every=5, trial=500, warmup=20)


def trials(comparison: Comparison) -> list[Trial]:
    """Return a search for the rate of each initialization, and trainings from each initialization and seed.

    A model that is not recurrent has one trial, which fails with this reason.
    """
    made = []
    for candidate in comparison.candidates:
        parameter = sweep_parameter_of(_model(comparison, candidate.name, 1).model.encoder)
        if parameter is None:
            made.append(Trial(candidate.name, _RATES))
            continue
        for value in VALUES[parameter.kind]:
            part = f"{parameter.kind}-{round(100 * value)}"
            searched = Trial(candidate.name, f"{part}{_SEARCH}")
            made.append(searched)
            seeds = range(1, comparison.sizes(SEEDS) + 1)
            made += [Trial(candidate.name, part, seed, search=searched) for seed in seeds]
    return made


def measure(comparison: Comparison, trial: Trial) -> Start | Rates:
    """Search for the best rate of an initialization, or train from it at this rate.

    Raises:
        NotForThisModel: The model is not recurrent.
    """
    budget = _budget(comparison)
    part = trial.part.removesuffix(_SEARCH)
    kind, _, hundredths = part.partition("-")
    value = int(hundredths or 0) / 100
    if trial.seed is None or trial.search is None:
        chance = _TASK.shortcut_accuracy(1)
        return search(lambda rate: _start(comparison, trial.model, value, rate, budget, TRIAL_SEED)[0], chance)
    folder = comparison.results_folder(EXPERIMENT.name)
    rates = find_rates(folder, partial(measure, comparison), trial.search, "fp32")
    run, own = _start(comparison, trial.model, value, rates.best, budget, trial.seed)
    decay = fit_decay(gradient_norms(copy.deepcopy(run.model.model), trial.seed), first=0)
    run.continue_until(budget.updates)
    return Start(
        kind=kind,
        value=value,
        own=own,
        slope=decay.slope,
        rate=rates.best,
        inside=rates.inside,
        budget=budget.updates,
        updates=run.update,
        solved=None if run.failure else run.solved,
        loss=run.loss,
        seconds=run.seconds,
        failure=run.failure,
    )


def gradient_norms(model: Seq2Seq, seed: int) -> np.ndarray:
    """Compute norms of the gradient of the last encoder state, along a random direction, by distance.

    Args:
        model: The model; its weights are moved to the CPU and converted to float64.
        seed: Seed of texts and directions.

    Returns:
        Norms with respect to the input 0, 1, 2 … steps before the last one, `(texts, span)`.
    """
    chance = torch.Generator().manual_seed(derive_seed(seed, 4) % 2**63)
    source = _TASK.draw(SPAN - 1, _TEXTS, chance).source
    encoder = model.cpu().double().eval().encoder
    vectors = encoder.embedding(source).detach().requires_grad_()
    states = encoder.read(vectors, torch.ones_like(source, dtype=torch.bool)).states[:, -1]
    direction = torch.randn(states.shape, generator=chance, dtype=states.dtype)
    (gradient,) = torch.autograd.grad((states * direction).sum(), vectors)
    return gradient.norm(dim=2).flip(1).numpy()


def _model(comparison: Comparison, name: str, seed: int) -> TaskModel:
    candidate, size = comparison.candidate(name), _TASK.vocabulary_size
    joined = {} if "residual" in candidate.own else {"residual": False}
    shape = {"encoder_layers": 1, "width": WIDTH, "feedforward": 2 * WIDTH, "max_positions": 2 * SPAN}
    settings = settings_of(candidate.kind, non_width_settings(candidate.settings) | OPTIONS | joined | shape)
    torch.manual_seed(derive_seed(seed))
    model: Seq2Seq = module_of(candidate.kind).build(settings, size, size)
    check_translates(model, name)
    return TaskModel(model, encoder_width(model), _TASK.classes)


def _start(
    comparison: Comparison, name: str, value: float, rate: float, budget: Budget, seed: int
) -> tuple[TaskRun, float]:
    """Initialize a model with a value of the varied parameter; return its training and the model's own value.

    Raises:
        NotForThisModel: The model is not recurrent.
    """
    model = _model(comparison, name, seed)
    parameter = sweep_parameter_of(model.model.encoder)
    if parameter is None:
        raise NotForThisModel("it is not recurrent, so no parameter of its initialisation can be varied")
    own = parameter.own
    with torch.no_grad():
        parameter.turn(value)
    return TaskRun(model, _TASK, rate, budget, seed, comparison.device_context), own


def _numbers(comparison: Comparison) -> Mapping[str, object]:
    words = {kind: ", ".join(f"{value:g}" for value in values) for kind, values in VALUES.items()}
    every = _budget(comparison).every
    return {"width": WIDTH, "span": SPAN, "radii": words["radius"], "biases": words["bias"], "every": every}


EXPERIMENT = Experiment(
    "initialization",
    "Does a recurrent network learn sooner if its initial gradients neither vanish nor explode?",
    trials,
    measure,
    analyse,
    measurement=TypeAdapter(Start | Rates),
    tuning_level="",
    numbers=_numbers,
    precision="fp32",
)
