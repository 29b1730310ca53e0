"""The tasks that models are compared on, each with what a comparison needs of it, and the whole runs of candidates."""

import io
import json
import time
from abc import ABC, abstractmethod
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic

import datasets
import torch
from rich.console import Console

from s2s.comparison.candidate_names import file_name
from s2s.comparison.matching import ModelSpec, settings_of, translators
from s2s.comparison.runs import COST, RUNS, Cost, prepared, prepared_texts, seeds_of
from s2s.comparison.spec import ComparedRecipe, Comparison, NotForThisModel, R, check_translates
from s2s.comparison.translation import sizes_of, trainer_for
from s2s.data.sources import digest_of
from s2s.files import LARGE_BYTES, file_lock, write_atomically
from s2s.json_files import read_json
from s2s.recipe.installed import encoder_settings, module_of
from s2s.recipe.schema import RunSettings
from s2s.run.folder import LOCK, RECIPE
from s2s.run.inference import evaluate
from s2s.run.training import resume, train
from s2s.tasks import base
from s2s.tasks.classification.data import LabelledTexts, PreparedLabelled
from s2s.tasks.classification.recipe import ClassificationRecipe
from s2s.tasks.classification.task import build_classifier, starts_with_bos, trainer_of
from s2s.tasks.classification_base import classification_loss
from s2s.tasks.translation.prepared import PreparedTranslation
from s2s.tasks.translation.recipe import Recipe
from s2s.tasks.translation.task import mean_loss as mean_loss_of_pairs
from s2s.training.device import DeviceContext
from s2s.training.trainer import Trainer, mean_loss


class ComparableTask(ABC, Generic[R]):
    """A task that models are compared on."""

    def check(self, kind: str) -> None:
        """Refuses a kind of model that cannot do the task.

        Raises:
            NotForThisModel: it is such a kind.
        """

    def finalize_config(self, recipe: R) -> R:
        """The recipe with all that only its data tells and a model's size depends on.

        Raises:
            UserError: the data cannot be read.
        """
        return recipe

    @abstractmethod
    def prepared(self, recipe: R) -> base.PreparedData:
        """The recipe's corpus in pieces, as the task trains on it."""

    @abstractmethod
    def digests(self, recipe: R) -> dict[str, str]:
        """Digest of the texts of each split, equal on any machine."""

    @abstractmethod
    def blueprint(self, recipe: R) -> ModelSpec:
        """`ModelSpec` of the task, from its finalized recipe."""

    @abstractmethod
    def trainer(self, recipe: R, seed: int, device_context: DeviceContext) -> Trainer:
        """A trainer of a recipe's model that has done nothing yet.

        Raises:
            NotForThisModel: the model cannot take part.
        """

    @abstractmethod
    def validation_loss(self, trainer: Trainer, recipe: R) -> float:
        """The loss of the trainer's model, as it is now, on the recipe's validation set, in nats."""

    def begin(self, recipe: R, console: Console) -> object:
        """Trains a new run by a recipe."""
        return train(recipe, console, data=self.prepared(recipe))


class Translation(ComparableTask[Recipe[Any]]):
    """Models that write a target for each source, over vocabularies of the size that the resolved recipe says."""

    def check(self, kind: str) -> None:
        """Refuses a model that writes one piece for each that it reads."""
        with torch.random.fork_rng(devices=[]):
            check_translates(module_of(kind).build(settings_of(kind, {}), 5, 5), kind)

    def finalize_config(self, recipe: Recipe[Any]) -> Recipe[Any]:
        """With the numbers of pieces that there are: of words or characters a recipe says no more than a limit."""
        data, given = prepared(recipe), recipe.tokenizer
        source, target = sizes_of(data)
        sides = {
            "shared": False,
            "source": given.of("source").model_copy(update={"size": source}),
            "target": given.of("target").model_copy(update={"size": target}),
        }
        changes = {"size": source} if len(data.tokenizers) == 1 else sides
        return recipe.model_copy(update={"tokenizer": given.model_copy(update=changes)})

    def prepared(self, recipe: Recipe[Any]) -> PreparedTranslation:
        return prepared(recipe)

    def digests(self, recipe: Recipe[Any]) -> dict[str, str]:
        """Digest of the texts of each split, equal on any machine."""
        parts = prepared(recipe).corpus.parts()
        return {name: digest_of(part["source"], part["target"]) for name, part in parts.items()}

    def blueprint(self, recipe: Recipe[Any]) -> ModelSpec:
        return translators(*recipe.tokenizer.sizes)

    def trainer(self, recipe: Recipe[Any], seed: int, device_context: DeviceContext) -> Trainer:
        data = prepared(recipe)
        return trainer_for(recipe, sizes_of(data), data.train, seed, device_context)

    def validation_loss(self, trainer: Trainer, recipe: Recipe[Any]) -> float:
        """In nats per target token."""
        return mean_loss_of_pairs(trainer.model, prepared(recipe).validation, recipe.batches, trainer.device_context)


class Classification(ComparableTask[ClassificationRecipe[Any]]):
    """Encoders under one head, which name the class of each text."""

    def check(self, kind: str) -> None:
        """Refuses a model without an encoder of its own."""
        if not callable(getattr(module_of(kind), "build_encoder", None)):
            raise NotForThisModel(
                f"{kind} only translates: it offers no encoder alone, so it cannot classify",
                where=f"command line: {kind}",
                remedy="leave it out",
            )

    def finalize_config(self, recipe: ClassificationRecipe[Any]) -> ClassificationRecipe[Any]:
        """With the names of the classes and the number of pieces that there are."""
        data = prepared_texts(recipe)
        changes = {
            "data": recipe.data.model_copy(update={"classes": data.corpus.train.names}),
            "tokenizer": recipe.tokenizer.model_copy(update={"size": data.tokenizer.size}),
        }
        return recipe.model_copy(update=changes)

    def prepared(self, recipe: ClassificationRecipe[Any]) -> PreparedLabelled:
        return prepared_texts(recipe)

    def digests(self, recipe: ClassificationRecipe[Any]) -> dict[str, str]:
        """Digest of the texts of each split, equal on any machine."""
        parts = prepared_texts(recipe).corpus.parts()
        return {
            name: digest_of(part.texts["text"], (part.names[number] for number in part.labels))
            for name, part in parts.items()
        }

    def blueprint(self, recipe: ClassificationRecipe[Any]) -> ModelSpec:
        """The whole classifier: encoder, pooling and head."""
        pieces = recipe.tokenizer.size
        return ModelSpec(
            encoder_settings,
            lambda kind, settings: build_classifier(recipe.model_copy(update={"model": settings}), pieces),
            pieces,
        )

    def trainer(self, recipe: ClassificationRecipe[Any], seed: int, device_context: DeviceContext) -> Trainer:
        """Learns from the recipe's texts; its classes are known."""
        data = prepared_texts(recipe)
        recipe = recipe.model_copy(update={"seeds": seeds_of(seed)})
        model = build_classifier(recipe, data.tokenizer.size).to(device_context.device)
        return trainer_of(recipe, data, model, device_context)

    def validation_loss(self, trainer: Trainer, recipe: ClassificationRecipe[Any]) -> float:
        """In nats per text."""
        data = prepared_texts(recipe)
        texts = LabelledTexts(data.validation, data.corpus.validation.labels, recipe.batches, starts_with_bos(recipe))
        return mean_loss(trainer.model, texts, classification_loss(0.0), trainer.device_context)


COMPARABLE_TASKS: dict[str, ComparableTask[Any]] = {"translation": Translation(), "classification": Classification()}
"""By the word that a recipe's `task` holds."""


def comparable_task_of(recipe: R) -> ComparableTask[R]:
    """The discipline of a recipe's task."""
    return COMPARABLE_TASKS[recipe.task]


def trained(comparison: Comparison, model: str, seed: int | None) -> Path:
    """The folder of a candidate's finished run, see `whole_run`."""
    seed = seed or 0
    return whole_run(comparison, f"{file_name(model)}-seed{seed}", comparison.candidate(model).recipe, seed)


def whole_run(comparison: Comparison, name: str, recipe: ComparedRecipe, seed: int) -> Path:
    """The folder of a finished run of that name by a recipe; trained only where it is not finished yet.

    What all candidates learn from is prepared before the clock runs: none of them pays for it.

    Raises:
        NotForThisModel: the model cannot take part.
        UserError: the training failed.
    """
    folder = comparison.folder / RUNS / name
    if not (folder / COST).exists() and (folder / LOCK).exists():
        # what trained it on a node that was lost may still be about to end
        with file_lock(folder / LOCK, wait=True):
            pass
    if (folder / COST).exists():
        return folder
    changes = {"name": folder.name, "run": RunSettings(dir=str(folder)), "seeds": seeds_of(seed)}
    recipe = recipe.model_copy(update=changes)
    # a comparison shows its own progress, and the run writes down everything
    console = Console(file=io.StringIO(), quiet=True, force_terminal=False)
    datasets.disable_progress_bars()
    began = (folder / RECIPE).exists()
    if not began:
        comparable_task_of(recipe).prepared(recipe)
    wall, processor = time.perf_counter(), time.process_time()
    if began:
        resume(folder, console)
    else:
        folder.parent.mkdir(parents=True, exist_ok=True)
        comparable_task_of(recipe).begin(recipe, console)
    cost = Cost(time.perf_counter() - wall, time.process_time() - processor)
    write_atomically(folder / COST, json.dumps(asdict(Cost(None, None) if began else cost)))
    return folder


def evaluation_of(comparison: Comparison, model: str, seed: int | None) -> tuple[Path, dict[str, Any]]:
    """The folder of a candidate's run, see `trained`, and what it scored and answered.

    That is on the test set; on the validation set where there is no test set.
    """
    folder = trained(comparison, model, seed)
    there = (folder / f"evaluation-{split}.json" for split in ("test", "validation"))
    kept = next((path for path in there if path.exists()), None)
    if kept is None:
        return folder, json.loads(evaluate(folder, "validation").to_json())
    return folder, read_json(kept, dict[str, Any], "remove it: it is made again", LARGE_BYTES)
