"""Tasks of a comparison: their data, trainers of candidates, and full training runs of candidates."""

import io
import json
import time
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, cast

import datasets
import torch
from rich.console import Console
from torch import nn

from s2s.comparison.candidate_names import file_name
from s2s.comparison.matching import ModelSpec, settings_of, translators
from s2s.comparison.runs import COST, RUNS, Cost, prepare, prepared, prepared_texts, seeds_of
from s2s.comparison.spec import ComparedRecipe, Comparison, NotForThisModel, R, one_to_one_error
from s2s.data.dataset import BaseBatch
from s2s.data.sources import digest_of
from s2s.files import LARGE_BYTES, file_lock, write_atomically
from s2s.json_files import read_json
from s2s.recipe.installed import encoder_settings, module_of
from s2s.recipe.schema import RunSettings, Section
from s2s.run.folder import LOCK, RECIPE
from s2s.run.inference import evaluate
from s2s.run.tasks import task_of
from s2s.run.training import build_trainer, resume, train
from s2s.tasks.classification.data import LabelledTexts
from s2s.tasks.classification.task import build_classifier, starts_with_bos
from s2s.tasks.classification_base import classification_loss
from s2s.tasks.seq2seq import mean_loss as mean_loss_of_pairs
from s2s.tasks.translation.recipe import Recipe
from s2s.training.device import DeviceContext
from s2s.training.trainer import Trainer, mean_loss


def check_kind(recipe: ComparedRecipe, kind: str) -> None:
    """Check that a kind of model can do the task of a recipe.

    Raises:
        NotForThisModel: The decoder is one-to-one, or the model has no encoder for a classifier.
    """
    if isinstance(recipe, Recipe):
        if _is_one_to_one(kind):
            raise one_to_one_error(kind)
    elif not callable(getattr(module_of(kind), "build_encoder", None)):
        raise NotForThisModel(
            f"{kind} only translates: it has no separate encoder, so it cannot classify",
            where=f"command line: {kind}",
            remedy="leave it out",
        )


# Cached, because a comparison calls it several times for each candidate, and a default model initializes in 0.1 s.
@cache
def _is_one_to_one(kind: str) -> bool:
    with torch.random.fork_rng(devices=[]):
        return module_of(kind).build(settings_of(kind, {}), 5, 5).decoder.is_one_to_one


def finalize_recipe(recipe: R) -> R:
    """Return a recipe with the settings that depend on its data: the vocabulary sizes, and the names of the classes.

    For words and characters, the recipe's `tokenizer.size` is only an upper bound.

    Returns:
        A recipe from which models can be built without the data.

    Raises:
        UserError: The data cannot be read.
    """
    data = prepare(recipe)
    sizes = [tokenizer.size for tokenizer in data.tokenizers]
    if isinstance(recipe, Recipe) and len(sizes) > 1:
        source, target = map(recipe.tokenizer.of, ("source", "target"))
        changes: dict[str, object] = {
            "shared": False,
            "source": source.model_copy(update={"size": sizes[0]}),
            "target": target.model_copy(update={"size": sizes[1]}),
        }
    else:
        changes = {"size": sizes[0]}
    recipe = recipe.model_copy(update={"tokenizer": recipe.tokenizer.model_copy(update=changes)})
    return cast(R, task_of(recipe).finalize_config(recipe, data))


def data_digests(recipe: ComparedRecipe) -> dict[str, str]:
    """Return the digest of the texts of each split, equal on all machines."""
    if isinstance(recipe, Recipe):
        pairs = prepared(recipe).corpus.splits()
        return {name: digest_of(part["source"], part["target"]) for name, part in pairs.items()}
    texts = prepared_texts(recipe).corpus.splits()
    return {name: digest_of(p.texts["text"], (p.names[label] for label in p.labels)) for name, p in texts.items()}


def model_spec(recipe: ComparedRecipe) -> ModelSpec:
    """Return how models of the recipe's task are built; the recipe has its vocabulary sizes and classes."""
    if isinstance(recipe, Recipe):
        return translators(*recipe.tokenizer.sizes)
    size = recipe.tokenizer.size

    def build(kind: str, settings: Section) -> nn.Module:
        return build_classifier(recipe.model_copy(update={"model": settings}), size)

    key = recipe.task, size, recipe.data.classes, recipe.head.model_dump_json()
    return ModelSpec(encoder_settings, build, size, key)


def trainer_of(recipe: ComparedRecipe, seed: int, device_context: DeviceContext) -> Trainer[nn.Module, BaseBatch]:
    """Build a trainer of a recipe's model, with one seed for everything.

    Raises:
        UserError: The data does not fit the model.
    """
    recipe = recipe.model_copy(update={"seeds": seeds_of(seed)})
    return build_trainer(task_of(recipe), recipe, prepare(recipe), device_context, (None, None))[0]


def validation_loss(trainer: Trainer[Any, Any], recipe: ComparedRecipe) -> float:
    """Return the loss of a trainer's current model on the validation set, in nats per target token or per text."""
    if isinstance(recipe, Recipe):
        data = prepared(recipe).validation
        return mean_loss_of_pairs(trainer.model, data, recipe.batches, trainer.device_context)
    data = prepared_texts(recipe)
    texts = LabelledTexts(data.validation, data.corpus.validation.labels, recipe.batches, starts_with_bos(recipe))
    return mean_loss(trainer.model, texts, classification_loss(0.0), trainer.device_context)


def trained(comparison: Comparison, model: str, seed: int | None) -> Path:
    """Return the folder of a candidate's finished run; see `finish_run`."""
    seed = seed or 0
    return finish_run(comparison, f"{file_name(model)}-seed{seed}", comparison.candidate(model).recipe, seed)


def finish_run(comparison: Comparison, name: str, recipe: ComparedRecipe, seed: int) -> Path:
    """Return the folder of a finished run, training or resuming it first if needed.

    Args:
        name: Name of the run's folder in the comparison.

    Returns:
        The folder, with checkpoints, metrics and `cost.json`.

    Raises:
        NotForThisModel: The model cannot do the task.
        UserError: The training failed.
    """
    folder = comparison.folder / RUNS / name
    if not (folder / COST).exists() and (folder / LOCK).exists():
        # A worker on a lost node may still be finishing this run: wait for its lock.
        with file_lock(folder / LOCK, wait=True):
            pass
    if (folder / COST).exists():
        return folder
    changes = {"name": folder.name, "run": RunSettings(dir=str(folder)), "seeds": seeds_of(seed)}
    recipe = recipe.model_copy(update=changes)
    # The comparison shows its own progress; the run's log file has everything.
    console = Console(file=io.StringIO(), quiet=True, force_terminal=False)
    datasets.disable_progress_bars()
    resumed = (folder / RECIPE).exists()
    # The shared data are prepared before the clock starts.
    data = None if resumed else prepare(recipe)
    wall, processor = time.perf_counter(), time.process_time()
    if resumed:
        resume(folder, console)
    else:
        folder.parent.mkdir(parents=True, exist_ok=True)
        train(recipe, console, data=data)
    cost = Cost(time.perf_counter() - wall, time.process_time() - processor)
    write_atomically(folder / COST, json.dumps(asdict(Cost(None, None) if resumed else cost)))
    return folder


def evaluation_of(comparison: Comparison, model: str, seed: int | None) -> tuple[Path, dict[str, Any]]:
    """Return the folder of a candidate's finished run, and its evaluation.

    The evaluation is of the test set, or of the validation set if there is no test set.
    """
    folder = trained(comparison, model, seed)
    paths = (folder / f"evaluation-{split}.json" for split in ("test", "validation"))
    stored = next((path for path in paths if path.exists()), None)
    if stored is None:
        return folder, json.loads(evaluate(folder, "validation").to_json())
    return folder, read_json(stored, dict[str, Any], "remove it; it is created again", LARGE_BYTES)
