"""The tasks that models are compared on, each with what a comparison needs of it."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from rich.console import Console

from s2s.experiments.contest import Contest, NotForThisModel, check_translates
from s2s.experiments.matching import Blueprint, translators
from s2s.experiments.translating import sizes_of, trainer_for
from s2s.experiments.whole_runs import prepared, seeds_of, tested, whole_run
from s2s.recipe.installed import encoder_settings, module_of
from s2s.recipe.messages import TASK
from s2s.run.loaded import evaluate
from s2s.run.training import train
from s2s.tasks.classification.data import LabelledTexts
from s2s.tasks.classification.task import begins, build_classifier, trainer_of
from s2s.tasks.labelled import classification_loss
from s2s.tasks.translation.task import build_model
from s2s.tasks.translation.task import mean_loss as mean_loss_of_pairs
from s2s.training.devices import Computer
from s2s.training.trainer import Trainer, mean_loss


class Discipline(ABC):
    """A task that models are compared on."""

    def check(self, kind: str) -> None:
        """Refuses a model of this kind that cannot take part at all; none where that is seen when it is built.

        Raises:
            NotForThisModel: it is such a model.
        """
        return

    def resolved(self, recipe: Any) -> Any:
        """The recipe with all that only its data tells and a model's size depends on.

        Raises:
            UserError: the data cannot be read.
        """
        return recipe

    @abstractmethod
    def blueprint(self, recipe: Any) -> Blueprint:
        """How the task makes a model of a section of this resolved recipe."""

    @abstractmethod
    def trainer(self, recipe: Any, seed: int, computer: Computer) -> Trainer:
        """A trainer of a recipe's model that has done nothing yet.

        Raises:
            NotForThisModel: the model cannot take part.
        """

    @abstractmethod
    def validation_loss(self, trainer: Trainer, recipe: Any) -> float:
        """The loss of the trainer's model, as it is now, on the recipe's validation set, in nats."""

    @abstractmethod
    def begin(self, recipe: Any, console: Console) -> object:
        """Trains a new run by a recipe."""

    @abstractmethod
    def validated(self, folder: Path) -> str:
        """Evaluates a finished run on its validation set, keeps the result there and gives it as JSON."""


class Translation(Discipline):
    """Models that write a target for each source, over one vocabulary of the size that the recipe says."""

    def blueprint(self, recipe: Any) -> Blueprint:
        """Encoder, decoder and output."""
        return translators(*recipe.tokenizer.sizes)

    def trainer(self, recipe: Any, seed: int, computer: Computer) -> Trainer:
        """Learns from the recipe's pairs."""
        data = prepared(recipe)
        return trainer_for(recipe, sizes_of(data), data.train, seed, computer)

    def validation_loss(self, trainer: Trainer, recipe: Any) -> float:
        """In nats per target token."""
        return mean_loss_of_pairs(trainer.model, prepared(recipe).validation, recipe.batches, trainer.computer)

    def begin(self, recipe: Any, console: Console) -> object:
        """Trains a translator; what cannot translate is refused."""
        check_translates(build_model(recipe, *recipe.tokenizer.sizes), recipe.model.kind)
        return train(recipe, console, data=prepared(recipe))

    def validated(self, folder: Path) -> str:
        """Scores and translations."""
        return evaluate(folder, "validation").to_json()


class Classification(Discipline):
    """Encoders under one head, which name the class of each text."""

    def check(self, kind: str) -> None:
        """Refuses a model without an encoder of its own.

        Raises:
            NotForThisModel: it is such a model.
        """
        if not callable(getattr(module_of(kind), "build_encoder", None)):
            raise NotForThisModel(f"{kind} only translates: it offers no encoder alone, so it cannot classify")

    def resolved(self, recipe: Any) -> Any:
        """With the names of the classes and the number of pieces that there are."""
        data = prepared(recipe)
        changes = {
            "data": recipe.data.model_copy(update={"classes": data.corpus.train.names}),
            "tokenizer": recipe.tokenizer.model_copy(update={"size": data.tokenizer.size}),
        }
        return recipe.model_copy(update=changes)

    def blueprint(self, recipe: Any) -> Blueprint:
        """The whole classifier: encoder, pooling and head."""
        pieces = recipe.tokenizer.size
        return Blueprint(
            encoder_settings,
            lambda kind, settings: build_classifier(recipe.model_copy(update={"model": settings}), pieces),
            pieces,
        )

    def trainer(self, recipe: Any, seed: int, computer: Computer) -> Trainer:
        """Learns from the recipe's texts; its classes are known."""
        data = prepared(recipe)
        recipe = recipe.model_copy(update={"seeds": seeds_of(seed)})
        model = build_classifier(recipe, data.tokenizer.size).to(computer.device)
        return trainer_of(recipe, data, model, computer)

    def validation_loss(self, trainer: Trainer, recipe: Any) -> float:
        """In nats per text."""
        data = prepared(recipe)
        texts = LabelledTexts(data.validation, data.corpus.validation.labels, recipe.batches, begins(recipe))
        return mean_loss(trainer.model, texts, classification_loss(0.0), trainer.computer)

    def begin(self, recipe: Any, console: Console) -> object:
        """Trains a classifier."""
        return train(recipe, console, data=prepared(recipe))

    def validated(self, folder: Path) -> str:
        """Scores and answers."""
        return evaluate(folder, "validation").to_json()


DISCIPLINES: dict[str, Discipline] = {"translation": Translation(), "classification": Classification()}
"""By the word that a recipe's `task` holds."""


def discipline_of(recipe: Any) -> Discipline:
    """The discipline of a recipe's task."""
    return DISCIPLINES[getattr(recipe, TASK)]


def trained(contest: Contest, model: str, seed: int | None) -> Path:
    """The folder of a contestant's finished run; trained only where it is not finished yet.

    Raises:
        NotForThisModel: the model cannot take part.
        UserError: the training failed.
    """
    return whole_run(contest, model, seed or 0, discipline_of(contest.contestant(model).recipe).begin)


def evaluation_of(contest: Contest, model: str, seed: int | None) -> tuple[Path, dict[str, Any]]:
    """The folder of a contestant's run, see `trained`, and what it scored and answered.

    That is on the test set; on the validation set where there is no test set.
    """
    folder = trained(contest, model, seed)
    return folder, tested(folder, lambda: discipline_of(contest.contestant(model).recipe).validated(folder))
