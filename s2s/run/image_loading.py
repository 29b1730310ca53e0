"""From an image run's folder to a model that is ready to classify."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float

from s2s.data.images import Images, read_image
from s2s.data.labelled_images import LabelledImages
from s2s.decoding.classes import class_probabilities
from s2s.errors import quoted
from s2s.models.contract import Classifier
from s2s.models.patches import ImageShape, read_images
from s2s.recipe.images import ImageRecipe
from s2s.recipe.installed import module_of
from s2s.recipe.reading import read
from s2s.run.folder import RECIPE, check_sections
from s2s.run.loading import computer_for, find_checkpoint
from s2s.run.tasks import check_classes, check_task
from s2s.training.checkpoint import load_weights
from s2s.training.devices import Computer, seed_for

MAY_CHANGE = ("data", "device", "batches")


@dataclass(frozen=True)
class LoadedImageClassifier:
    """A trained classifier of images with all that is needed to use it.

    Attributes:
        checkpoint: the folder its weights came from.
        recipe: what it was trained by, with the caller's overrides.
        model: in evaluation mode, on the computer's device.
        positions: vectors that it reads of an image.
        computer: device and precision.
    """

    checkpoint: Path
    recipe: ImageRecipe
    model: Classifier
    positions: int
    computer: Computer

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.recipe.data.classes or ()

    def probabilities(self, files: Sequence[str]) -> Float[np.ndarray, "images classes"]:
        """The probability of each class, for each image file.

        Raises:
            UserError: a file is missing or no image.
        """
        data = self.recipe.data
        pixels = np.zeros((len(files), data.channels, data.size, data.size), dtype=np.uint8)
        for row, file in enumerate(files):
            pixels[row] = read_image(Path(file), data)
        images = Images(pixels, np.zeros(len(files), dtype=np.int64), self.classes)
        return class_probabilities(self.model, self.examples(images))

    def examples(self, images: Images) -> LabelledImages:
        """Images as they are, ready to be classified."""
        return LabelledImages(images, self.positions, self.recipe.batches.images)


def load_image_classifier(
    path: Path, checkpoint: str | None = None, overrides: Sequence[str] = ()
) -> LoadedImageClassifier:
    """Loads a trained classifier of images.

    Args:
        path: a run's folder, or that of one checkpoint.
        checkpoint: see `loading.find_checkpoint`.
        overrides: `section.key=value`, for what may change after training: `data`, `device` and `batches`.

    Raises:
        UserError: it is not a run of images, it has no such checkpoint, or a file is damaged.
    """
    check_task(
        path,
        "images",
        {"classification": f"s2s classify {quoted(path)}", "translation": f"s2s translate {quoted(path)}"},
    )
    check_sections(overrides, MAY_CHANGE, "a trained model keeps its recipe")
    folder = find_checkpoint(path, checkpoint)
    recipe = read(folder / RECIPE, overrides)
    check_classes(read(folder / RECIPE).data.classes, recipe.data.classes)
    computer = computer_for(recipe.device, overrides)
    model, positions = build_image_classifier(recipe)
    load_weights(model, folder / "model.safetensors")
    return LoadedImageClassifier(folder, recipe, model.to(computer.device).eval(), positions, computer)


def build_image_classifier(recipe: ImageRecipe) -> tuple[Classifier, int]:
    """A classifier as the recipe describes it, with the initial weights that its seed gives.

    Args:
        recipe: the resolved recipe: classes, mean and deviation are known.

    Returns:
        The classifier, and how many vectors it reads of an image.

    Raises:
        UserError: an image has more patches than the model knows positions.
    """
    torch.manual_seed(seed_for(recipe.seeds.initialization))
    data, head = recipe.data, recipe.head
    # a table of one token, which is replaced at once
    encoder, width = module_of(recipe.model.kind).build_encoder(recipe.model, 1)
    shape = ImageShape(data.channels, data.size, data.mean or (), data.deviation or ())
    positions = read_images(encoder, shape, recipe.patches.size, first=head.pooling == "first")
    return Classifier(encoder, width, len(data.classes or ()), head.pooling, head.dropout), positions
