"""Training runs of a comparison: prepared data, learning curves, and costs."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from s2s.comparison.candidate_names import file_name
from s2s.comparison.spec import R, RateChoice
from s2s.json_files import read_json
from s2s.recipe.schema import Section, SeedSettings, TrainRecipe
from s2s.run.tasks import schemas, task_of
from s2s.tasks.base import PreparedData
from s2s.tasks.classification.data import PreparedLabelled
from s2s.tasks.classification.recipe import ClassificationRecipe
from s2s.tasks.translation.prepared import PreparedTranslation
from s2s.tasks.translation.recipe import Recipe
from s2s.training.device import DeviceContext
from s2s.training.logger import read_metrics

RUNS = "runs"
COST = "cost.json"


@dataclass(frozen=True)
class Cost:
    """Cost of a run: training, validations and test."""

    seconds: float | None  # wall-clock time; None if the run was interrupted
    cpu_seconds: float | None  # CPU time of all threads; None if the run was interrupted


@dataclass(frozen=True)
class ValidationPoint:
    """A validation of a run.

    Attributes:
        update: Optimizer steps before it.
        count: Items of the loss before it: target tokens or examples.
        tokens: Tokens without padding before it.
        seconds: Wall-clock time of the optimizer steps before it.
        cpu_seconds: CPU time of the optimizer steps before it, of all threads.
        scores: Scores by name.
    """

    update: int
    count: int
    tokens: int
    seconds: float
    cpu_seconds: float
    scores: dict[str, float]


def prepare(recipe: TrainRecipe) -> PreparedData:
    """Prepare a recipe's data, once per process for all recipes with the same data and tokenizer."""
    sections = recipe.model_dump(mode="json", include={"task", "data", "tokenizer"})
    return _prepare(recipe.task, json.dumps(sections | {"name": "data", "model": {}}))


@lru_cache(maxsize=8)
def _prepare(task: str, sections: str) -> PreparedData:
    recipe = schemas()[task].recipe_class(Section).model_validate_json(sections)
    return task_of(recipe).prepare(recipe, (), lambda line: None)


def prepared(recipe: Recipe[Any]) -> PreparedTranslation:
    """Prepare the data of a translation recipe; see `prepare`."""
    return cast(PreparedTranslation, prepare(recipe))


def prepared_texts(recipe: ClassificationRecipe[Any]) -> PreparedLabelled:
    """Prepare the data of a classification recipe; see `prepare`."""
    return cast(PreparedLabelled, prepare(recipe))


def is_trained(folder: Path, model: str, seed: int | None) -> bool:
    """Return True if a candidate's run is finished; see `s2s.comparison.tasks.trained`."""
    return (folder / RUNS / f"{file_name(model)}-seed{seed}" / COST).exists()


def cost_of(folder: Path) -> Cost:
    """Read the cost of a finished run."""
    return read_json(folder / COST, Cost)


def validation_points(folder: Path) -> Iterator[ValidationPoint]:
    """Yield the validations of a run, in order."""
    count, tokens, seconds, cpu_seconds = 0, 0, 0.0, 0.0
    for entry in read_metrics(folder):
        if entry.validation is not None:
            yield ValidationPoint(entry.update, count, tokens, seconds, cpu_seconds, entry.validation)
        else:
            count, tokens = count + (entry.count or 0), tokens + entry.tokens
            seconds += entry.seconds
            cpu_seconds += entry.seconds if entry.cpu_seconds is None else entry.cpu_seconds


@dataclass(frozen=True, kw_only=True)
class LearningCurve:
    """Validations and cost of a finished run; base class of the measurements of trained models."""

    updates: list[int]  # optimizer steps before each validation
    tokens: list[int]  # real tokens trained on before each validation
    seconds: list[float]  # training time before each validation: CPU time on a CPU, else wall-clock time
    losses: list[float]  # validation losses
    run_seconds: float | None = None  # wall-clock time of the whole run; None if it was interrupted
    cpu_seconds: float | None = None  # CPU time of the whole run; None if it was interrupted


@dataclass(frozen=True, kw_only=True)
class TrainedRun(LearningCurve):
    """Measurement of a trained candidate: its learning curve and the choice of its learning rate."""

    rate: RateChoice | None = None
    machine: str = ""  # set by the engine


def learning_curve(folder: Path, device_context: DeviceContext) -> LearningCurve:
    """Read the learning curve and the cost of a finished run."""
    points, cost = list(validation_points(folder)), cost_of(folder)
    on_cpu = device_context.device.type == "cpu"
    return LearningCurve(
        updates=[point.update for point in points],
        tokens=[point.tokens for point in points],
        seconds=[round(point.cpu_seconds if on_cpu else point.seconds, 3) for point in points],
        losses=[point.scores["loss"] for point in points],
        run_seconds=cost.seconds,
        cpu_seconds=cost.cpu_seconds,
    )


def stopwatch(device_context: DeviceContext) -> Callable[[], float]:
    """Return a clock for trainings in parallel processes: CPU time on a CPU, wall-clock time elsewhere.

    Other processes hardly change the CPU time of a training, which has one thread.
    """
    return time.process_time if device_context.device.type == "cpu" else time.perf_counter


def seeds_of(seed: int) -> SeedSettings:
    """Return seed settings with one seed for initialization, data order and dropout."""
    return SeedSettings(initialization=seed, data=seed, dropout=seed)


def shortened(recipe: R, share: float) -> R:
    """Return a recipe with a share of the updates; its schedule ends with the last update."""
    training = recipe.training
    updates = max(2, round(share * training.updates))
    changes = {"updates": updates, "average_last": None, "warmup": min(training.warmup, updates // 5)}
    return recipe.model_copy(update={"training": training.model_copy(update=changes)})
