"""Classification of images: patches as a sequence, from labelled images to scores and answers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int

from s2s.data.examples import Examples, LabelledBatch
from s2s.data.sources import Corpus
from s2s.data.tokenizers import Tokenizer
from s2s.evaluation.classification import chosen_examples
from s2s.models.contract import Classifier
from s2s.models.patches import ImageShape, read_images
from s2s.recipe.installed import module_of
from s2s.tasks.contract import Course, Loaded, Say, Scoring, draw
from s2s.tasks.images.batches import LabelledImages
from s2s.tasks.images.data import Images, ImageSource, pixel_statistics, read_image
from s2s.tasks.images.recipe import ImageRecipe
from s2s.tasks.labelled import (
    Answers,
    Classified,
    LabelledEvaluation,
    Labelling,
    class_lines,
    class_probabilities,
    looked_at,
    scored,
)
from s2s.tasks.pictures import class_counts_picture, images_picture, seen_picture
from s2s.tasks.saliency import Method, weighed
from s2s.training.devices import seed_for
from s2s.training.logger import RunLog
from s2s.training.progress import Meter

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DRAWN = 24

ImageRun = Loaded[ImageRecipe, Classifier]


@dataclass(frozen=True)
class PreparedImages:
    """Everything about the data that training needs: images are learned from as they are."""

    corpus: Corpus[Images]
    tokenizers: tuple[Tokenizer, ...] = ()

    def hashes(self) -> dict[str, str]:
        """What identifies the training images and their classes."""
        return {"training_data": self.corpus.train.digest()}


ImageCourse = Course[ImageRecipe, PreparedImages, Classifier]


@dataclass(frozen=True)
class SeenImage(Classified):
    """A classified image, and which of its patches decided.

    Attributes:
        method: how that was found; see `saliency.Reading`.
        patches: what each patch weighed, row by row.
        pixels: by channel, row and column, from 0 to 255.
    """

    method: Method
    patches: list[list[float]]
    pixels: list[list[list[int]]]


@dataclass(frozen=True)
class ImageEvaluation(LabelledEvaluation):
    """What a classifier of images scored on a split."""

    noun: ClassVar[str] = "images"

    examples: Sequence[SeenImage]

    def pictures(self) -> "Iterator[tuple[str, Figure]]":
        """Confusion matrix, reliability, and the examples with their patches."""
        yield from super().pictures()
        pixels = np.array([example.pixels for example in self.examples], dtype=np.uint8)
        captions = [f"{e.predicted} {e.probabilities[e.predicted]:.3f}, it is {e.truth}" for e in self.examples]
        yield "examples", seen_picture(pixels, [np.array(e.patches) for e in self.examples], captions)


class ImageClassification(Labelling[ImageRecipe, PreparedImages]):
    """Images in, their classes out."""

    def source(self, recipe: ImageRecipe) -> ImageSource:
        """IDX files, folders of images, or the hub."""
        return ImageSource(recipe.data)

    def prepare(self, recipe: ImageRecipe, tokenizers: tuple[Tokenizer, ...], say: Say) -> PreparedImages:
        """Labelled images."""
        return PreparedImages(ImageSource(recipe.data).load())

    def resolved(self, recipe: ImageRecipe, data: PreparedImages) -> ImageRecipe:
        """The recipe with the classes' names, and mean and deviation of the pixels."""
        statistics = pixel_statistics(data.corpus.train.pixels)
        mean, deviation = (tuple(round(float(number), 6) for number in part) for part in statistics)
        known = {
            "classes": data.corpus.train.names,
            "mean": recipe.data.mean or mean,
            # so little difference is rounding's, not the images'
            "deviation": recipe.data.deviation or tuple(number or 1.0 for number in deviation),
        }
        return recipe.model_copy(update={"data": recipe.data.model_copy(update=known)})

    def build(self, recipe: ImageRecipe, tokenizers: Sequence[Tokenizer]) -> Classifier:
        """An encoder that reads patches, and a head."""
        torch.manual_seed(seed_for(recipe.seeds.initialization))
        data, head = recipe.data, recipe.head
        # a table of one token, which is replaced at once
        encoder, width = module_of(recipe.model.kind).build_encoder(recipe.model, 1)
        shape = ImageShape(data.channels, data.size, data.mean or (), data.deviation or ())
        read_images(encoder, shape, recipe.patches.size, first=head.pooling == "first")
        return Classifier(encoder, width, len(data.classes or ()), head.pooling, head.dropout)

    def examples(self, recipe: ImageRecipe, data: PreparedImages, model: Classifier) -> LabelledImages:
        """Labelled images, varied."""
        batches, wanted = recipe.batches.images, recipe.training.examples_per_update
        return LabelledImages(data.corpus.train, positions_of(recipe), batches, recipe.augmentation, wanted)

    def validated(self, course: ImageCourse) -> Iterator[tuple[Examples[LabelledBatch], Int[np.ndarray, " examples"]]]:
        """All validation images, and some training images, none varied."""
        train = course.data.corpus.train
        known = train.select(looked_at(len(train), course.recipe.data.seed))
        for part in (course.data.corpus.validation, known):
            yield as_read(course.recipe, part), part.labels

    def counts(self, course: ImageCourse) -> dict[str, int]:
        """Images by split."""
        return {name: len(part) for name, part in course.data.corpus.parts().items()}

    def introduce(self, course: ImageCourse, say: Say) -> None:
        """Tells how many images each class has, and what is read of an image."""
        for line in class_lines({name: part.counts() for name, part in course.data.corpus.parts().items()}):
            say(line)
        data, patch = course.recipe.data, course.recipe.patches.size
        colour = "grey" if data.channels == 1 else "colour"
        say(
            f"{data.size} x {data.size} pixels, {colour} · patches of {patch} x {patch}: "
            f"{positions_of(course.recipe)} vectors of an image"
        )

    def begin(self, course: ImageCourse, folder: Path, log: RunLog) -> None:
        """Draws how many training images each class has, and some as they are first seen."""
        train, examples = course.data.corpus.train, course.trainer.examples
        rows = examples.plan(course.recipe.seeds.data, 0)[0][:_DRAWN]
        pixels = examples.collate(rows, 0).source.numpy()
        pictures = {
            "classes": class_counts_picture(train.counts()),
            "training": images_picture(pixels, [train.names[label] for label in train.labels[rows]]),
        }
        draw(course, folder, log, "data", pictures)

    def probabilities(self, run: ImageRun, lines: Sequence[str]) -> Float[np.ndarray, "images classes"]:
        """The probability of each class, for the image file that each line names."""
        data = run.recipe.data
        pixels = np.zeros((len(lines), data.channels, data.size, data.size), dtype=np.uint8)
        for row, file in enumerate(lines):
            pixels[row] = read_image(Path(file), data)
        images = Images(pixels, np.zeros(len(lines), dtype=np.int64), data.classes or ())
        return class_probabilities(run.model, as_read(run.recipe, images))

    def evaluate(self, run: ImageRun, part: Images, scoring: Scoring, meter: Meter) -> ImageEvaluation:
        """Classifies images and scores the answers."""
        examples = as_read(run.recipe, part)
        with meter("classifying", len(part)) as advance:
            answers = Answers(part.names, part.labels, class_probabilities(run.model, examples, advance))
        right, wrong = chosen_examples(part.labels, answers.predicted)
        return ImageEvaluation(
            **scored(run, scoring.split, answers, part.digest()),
            examples=[_seen(run, part, examples, answers.of(row)) for row in (*right, *wrong)],
        )


TASK = ImageClassification()


def positions_of(recipe: ImageRecipe) -> int:
    """Vectors that a model reads of an image: its patches, and the first one where the head pools that."""
    return (recipe.data.size // recipe.patches.size) ** 2 + (recipe.head.pooling == "first")


def as_read(recipe: ImageRecipe, images: Images) -> LabelledImages:
    """Images as a model reads them when it is asked: nothing is varied."""
    return LabelledImages(images, positions_of(recipe), recipe.batches.images)


def _seen(run: ImageRun, images: Images, examples: LabelledImages, said: Classified) -> SeenImage:
    batch = examples.collate(np.array([said.row]), 0).to(run.computer.device)
    label = torch.tensor([images.names.index(said.predicted)], device=batch.source.device)
    weights, method = weighed(run.model, batch.source, batch.source_valid, label)
    across = run.recipe.data.size // run.recipe.patches.size
    # without the first vector, which is no patch
    patches = weights[0, weights.shape[1] - across * across :].view(across, across)
    return SeenImage(
        row=said.row,
        truth=said.truth,
        predicted=said.predicted,
        probabilities=said.probabilities,
        method=method,
        patches=patches.cpu().double().numpy().round(6).tolist(),
        pixels=images.pixels[said.row].tolist(),
    )
