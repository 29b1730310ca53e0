"""A run of image classification: from a recipe to a trained and tested classifier."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from s2s.data.images import ImageCorpus, load_images, pixel_statistics
from s2s.data.labelled_images import LabelledImages
from s2s.evaluation.pictures import class_counts_picture, images_picture
from s2s.recipe.images import ImageRecipe
from s2s.run.course import Say
from s2s.run.held_out import held_out_hashes
from s2s.run.image_evaluation import digest_of, evaluate_images
from s2s.run.image_loading import build_image_classifier
from s2s.run.labelled import Labelling, Part, class_lines
from s2s.run.labelled_evaluation import LabelledEvaluation
from s2s.training.classification import classification_loss
from s2s.training.devices import choose
from s2s.training.logger import RunLog
from s2s.training.progress import Meter
from s2s.training.trainer import Trainer

# training images that are classified at each validation, to see what is known by heart
_LOOKED_AT = 1000
_DRAWN = 24


def course(
    recipe: ImageRecipe,
    say: Say,
    folder: Path | None = None,
    overrides: Sequence[str] = (),
) -> "Seeing":
    """A run that has done nothing yet.

    Args:
        recipe: the resolved recipe.
        say: prints a line.
        folder: of the run that goes on; it is not asked, for images have no tokenizer.
        overrides: `section.key=value`, for `data` and `device`.

    Raises:
        UserError: data, recipe and model do not fit together.
    """
    computer = choose(recipe.device)
    say(f"{recipe.name} on {computer}")
    corpus = load_images(recipe.data)
    recipe = resolved(recipe, corpus)
    model, positions = build_image_classifier(recipe)
    images = LabelledImages(
        corpus.train,
        positions,
        recipe.batches.images,
        recipe.augmentation,
        recipe.training.examples_per_update,
    )
    loss = classification_loss(recipe.training.label_smoothing)
    trainer = Trainer(model.to(computer.device), images, loss, recipe.training, recipe.seeds, computer)
    return Seeing(recipe, trainer, corpus, overrides)


def resolved(recipe: ImageRecipe, corpus: ImageCorpus) -> ImageRecipe:
    """The recipe with what only the data tells: a checkpoint shall know classes, mean and deviation without them."""
    statistics = pixel_statistics(corpus.train.pixels)
    mean, deviation = (tuple(round(float(number), 6) for number in part) for part in statistics)
    found = {
        "classes": corpus.train.names,
        "mean": recipe.data.mean or mean,
        # so little difference is rounding's, not the images'
        "deviation": recipe.data.deviation or tuple(number or 1.0 for number in deviation),
    }
    return recipe.model_copy(update={"data": recipe.data.model_copy(update=found)})


class Seeing(Labelling):
    """What a run of images has of its own.

    Args:
        recipe: the resolved recipe; classes, mean and deviation are known.
        trainer: that has done nothing yet.
        corpus: the images.
        overrides: of the command line, for the test.
    """

    def __init__(self, recipe: ImageRecipe, trainer: Trainer, corpus: ImageCorpus, overrides: Sequence[str]) -> None:
        chosen = np.random.default_rng(recipe.data.seed).permutation(len(corpus.train))[:_LOOKED_AT]
        images: LabelledImages = trainer.examples  # pyright: ignore[reportAssignmentType]
        validation, known = (
            Part(LabelledImages(part, images.positions, recipe.batches.images), part.labels)
            for part in (corpus.validation, corpus.train.select(np.sort(chosen)))
        )
        super().__init__(recipe, trainer, validation, known)
        self.images = images
        self.corpus = corpus
        self.overrides = overrides

    def hashes(self) -> dict[str, str]:
        """Of the training images and their classes, and of what is held out."""
        parts = {"validation": self.corpus.validation, "test": self.corpus.test}
        return {"training_data": digest_of(self.corpus.train)} | held_out_hashes(self.recipe.data, parts, digest_of)

    def choices(self) -> int:
        """Classes."""
        return len(self.corpus.train.names)

    def counts(self) -> dict[str, int]:
        """Images by split."""
        return {name: sum(counts.values()) for name, counts in self.corpus.counts().items()}

    def introduce(self, say: Say) -> None:
        """Tells how many images each class has, and what is read of an image."""
        for line in class_lines(self.corpus.counts()):
            say(line)
        data, patch = self.recipe.data, self.recipe.patches.size
        colour = "grey" if data.channels == 1 else "colour"
        say(
            f"{data.size} x {data.size} pixels, {colour} · patches of {patch} x {patch}: "
            f"{self.images.positions} vectors of an image"
        )

    def begin(self, folder: Path, log: RunLog) -> None:
        """Draws how many training images each class has, and some as they are first seen."""
        rows = self.images.plan(self.recipe.seeds.data, 0)[0][:_DRAWN]
        pixels = self.images.collate(rows, 0).source.numpy()
        captions = [self.corpus.train.names[label] for label in self.corpus.train.labels[rows]]
        pictures = {
            "classes": class_counts_picture(self.corpus.train.counts()),
            "training": images_picture(pixels, captions),
        }
        self.draw(folder, log, pictures, "data")

    def evaluate(self, folder: Path, meter: Meter) -> LabelledEvaluation | None:
        """Scores the test set."""
        return (
            None if self.corpus.test is None else evaluate_images(folder, "test", overrides=self.overrides, meter=meter)
        )
