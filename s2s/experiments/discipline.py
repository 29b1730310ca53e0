"""What a comparison needs of the task that its models are compared on; `disciplines.py` knows them all."""

from abc import ABC, abstractmethod
from typing import Any

from s2s.experiments.matching import Blueprint
from s2s.training.devices import Computer
from s2s.training.trainer import Trainer


class Discipline(ABC):
    """A task that models are compared on."""

    @abstractmethod
    def check(self, kind: str) -> None:
        """Refuses a model that cannot take part at all.

        Args:
            kind: an installed model.

        Raises:
            NotForThisModel: it is such a model.
        """

    @abstractmethod
    def resolved(self, recipe: Any) -> Any:
        """The recipe with all that only its data tells and a model's size depends on.

        Raises:
            UserError: the data cannot be read.
        """

    @abstractmethod
    def blueprint(self, recipe: Any) -> Blueprint:
        """How the task makes a model of a section of this recipe.

        Args:
            recipe: a resolved one.
        """

    @abstractmethod
    def trainer(self, recipe: Any, seed: int, computer: Computer) -> Trainer:
        """A trainer of a recipe's model that has done nothing yet.

        Args:
            recipe: the resolved recipe.
            seed: of initialisation, order and dropout.
            computer: device and precision.

        Raises:
            NotForThisModel: the model cannot take part.
        """

    @abstractmethod
    def validation_loss(self, trainer: Trainer, recipe: Any) -> float:
        """The loss of the trainer's model, as it is now, on the validation set, in nats.

        Args:
            trainer: of that recipe.
            recipe: the resolved recipe.
        """
