"""From a classification run's folder to a model that is ready to classify."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from s2s.data.tokenizers import Tokenizer
from s2s.decoding.classes import TextClassifier
from s2s.errors import quoted
from s2s.models.contract import Classifier
from s2s.recipe.classification import ClassificationRecipe
from s2s.recipe.installed import module_of
from s2s.recipe.reading import read
from s2s.run.classification_data import SIDE
from s2s.run.folder import RECIPE, TOKENIZER, check_sections
from s2s.run.loading import computer_for, find_checkpoint
from s2s.run.tasks import check_classes, check_task
from s2s.training.checkpoint import load_weights
from s2s.training.devices import Computer, seed_for

MAY_CHANGE = ("data", "device", "batches")


@dataclass(frozen=True)
class LoadedClassifier:
    """A trained classifier with all that is needed to use it.

    Attributes:
        checkpoint: the folder its weights came from.
        recipe: what it was trained by, with the caller's overrides.
        model: in evaluation mode, on the computer's device.
        tokenizer: cuts texts.
        computer: device and precision.
    """

    checkpoint: Path
    recipe: ClassificationRecipe
    model: Classifier
    tokenizer: Tokenizer
    computer: Computer

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        return classes_of(self.recipe)

    def text_classifier(self) -> TextClassifier:
        """Text in, probabilities out."""
        return TextClassifier(self.model, self.tokenizer, self.recipe.batches, begins(self.recipe))


def load_classifier(path: Path, checkpoint: str | None = None, overrides: Sequence[str] = ()) -> LoadedClassifier:
    """Loads a trained classifier.

    Args:
        path: a run's folder, or that of one checkpoint.
        checkpoint: see `loading.find_checkpoint`.
        overrides: `section.key=value`, for what may change after training: `data`, `device` and `batches`.

    Raises:
        UserError: it is not a run of classification, it has no such checkpoint, or a file is damaged.
    """
    check_task(path, "classification", {"translation": f"s2s translate {quoted(path)}"})
    check_sections(overrides, MAY_CHANGE, "a trained model keeps its recipe")
    folder = find_checkpoint(path, checkpoint)
    recipe = read(folder / RECIPE, overrides)
    check_classes(read(folder / RECIPE).data.classes, recipe.data.classes)
    computer = computer_for(recipe.device, overrides)
    tokenizer = Tokenizer.load(folder / TOKENIZER, SIDE)
    model = build_classifier(recipe, tokenizer.size)
    load_weights(model, folder / "model.safetensors")
    return LoadedClassifier(folder, recipe, model.to(computer.device).eval(), tokenizer, computer)


def build_classifier(recipe: ClassificationRecipe, pieces: int) -> Classifier:
    """A classifier as the recipe describes it, with the initial weights that its seed gives.

    Args:
        recipe: the resolved recipe; its classes are known.
        pieces: size of the vocabulary.
    """
    torch.manual_seed(seed_for(recipe.seeds.initialization))
    encoder, width = module_of(recipe.model.kind).build_encoder(recipe.model, pieces)
    return Classifier(encoder, width, len(classes_of(recipe)), recipe.head.pooling, recipe.head.dropout)


def begins(recipe: ClassificationRecipe) -> bool:
    """Whether texts begin with a piece of their own, whose state stands for the whole."""
    return recipe.head.pooling == "first"


def classes_of(recipe: ClassificationRecipe) -> tuple[str, ...]:
    """Names of the classes; known once the data was read, and kept in a run's recipe."""
    return recipe.data.classes or ()
