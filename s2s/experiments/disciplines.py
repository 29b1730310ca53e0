"""The tasks that models are compared on, each with what a comparison needs of it."""

from typing import Any

from s2s.experiments.classifiers import classifier_trainer, prepared_texts, validation_texts
from s2s.experiments.contest import NotForThisModel
from s2s.experiments.discipline import Discipline
from s2s.experiments.matching import Blueprint, translators
from s2s.experiments.short_training import prepared
from s2s.experiments.translation import sizes_of, trainer_for
from s2s.recipe.installed import encoder_settings, module_of
from s2s.recipe.tasks import TASK
from s2s.run.classification_loading import build_classifier
from s2s.training.classification import classification_loss
from s2s.training.devices import Computer
from s2s.training.trainer import Trainer, mean_loss
from s2s.training.translation import mean_loss as mean_loss_of_pairs


class Translation(Discipline):
    """Models that write a target for each source, over one vocabulary of the size that the recipe says."""

    def check(self, kind: str) -> None:
        """Refuses none: whether a model translates is seen when it is built."""

    def resolved(self, recipe: Any) -> Any:
        """The recipe itself."""
        return recipe

    def blueprint(self, recipe: Any) -> Blueprint:
        """Encoder, decoder and output."""
        return translators(*recipe.tokenizer.sizes)

    def trainer(self, recipe: Any, seed: int, computer: Computer) -> Trainer:
        """Learns from the recipe's pairs; see `Discipline.trainer`."""
        data = prepared(recipe)
        return trainer_for(recipe, sizes_of(data), data.train, seed, computer)

    def validation_loss(self, trainer: Trainer, recipe: Any) -> float:
        """In nats per target token."""
        return mean_loss_of_pairs(trainer.model, prepared(recipe).validation, recipe.batches, trainer.computer)


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
        data = prepared_texts(recipe)
        changes = {
            "data": recipe.data.model_copy(update={"classes": data.corpus.classes}),
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
        """Learns from the recipe's texts; see `Discipline.trainer`."""
        return classifier_trainer(recipe, seed, computer)

    def validation_loss(self, trainer: Trainer, recipe: Any) -> float:
        """In nats per text."""
        return mean_loss(trainer.model, validation_texts(recipe), classification_loss(0.0), trainer.computer)


DISCIPLINES: dict[str, Discipline] = {"translation": Translation(), "classification": Classification()}
"""By the word that a recipe's `task` holds."""


def discipline_of(recipe: Any) -> Discipline:
    """The discipline of a recipe's task."""
    return DISCIPLINES[getattr(recipe, TASK)]
