"""Classification of images: patches as a sequence, from labelled images to scores and answers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from s2s.data.examples import LabelledBatch
from s2s.data.sources import Corpus
from s2s.data.tokenizers import Tokenizer
from s2s.models.contract import Classifier
from s2s.models.patches import ImageShape, read_images
from s2s.recipe.installed import module_of
from s2s.tasks.contract import Course, Loaded, Say
from s2s.tasks.images.batches import LabelledImages
from s2s.tasks.images.data import Images, ImageSource, pixel_statistics, read_image
from s2s.tasks.images.recipe import ImageRecipe
from s2s.tasks.labelled import Classified, LabelledEvaluation, Labelling
from s2s.tasks.pictures import images_picture, seen_picture
from s2s.tasks.saliency import Method, weighed
from s2s.training.devices import seed_for

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
    """A classified image, what each patch, row by row, weighed, and by which method; pixels are from 0 to 255."""

    method: Method
    patches: list[list[float]]
    pixels: list[list[list[int]]]


@dataclass(frozen=True)
class ImageEvaluation(LabelledEvaluation):
    """What a classifier of images scored on a split."""

    noun: ClassVar[str] = "images"

    examples: Sequence[SeenImage]

    def pictures(self) -> "Iterator[tuple[str, Figure]]":
        yield from super().pictures()
        pixels = np.array([example.pixels for example in self.examples], dtype=np.uint8)
        captions = [f"{e.predicted} {e.probabilities[e.predicted]:.3f}, it is {e.truth}" for e in self.examples]
        yield "examples", seen_picture(pixels, [np.array(e.patches) for e in self.examples], captions)


class ImageClassification(Labelling[ImageRecipe, PreparedImages]):
    """Images in, their classes out."""

    evaluation = ImageEvaluation

    def source(self, recipe: ImageRecipe) -> ImageSource:
        return ImageSource(recipe.data)

    def prepare(self, recipe: ImageRecipe, tokenizers: tuple[Tokenizer, ...], say: Say) -> PreparedImages:
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
        batches, wanted = recipe.batches.images, recipe.training.examples_per_update
        return LabelledImages(data.corpus.train, _positions(recipe), batches, recipe.augmentation, wanted)

    def as_read(self, course: ImageCourse) -> tuple[LabelledImages, LabelledImages]:
        return _as_read(course.recipe, course.data.corpus.train), _as_read(course.recipe, course.data.corpus.validation)

    def read(self, run: ImageRun, part: Images) -> LabelledImages:
        return _as_read(run.recipe, part)

    def named(self, run: ImageRun, lines: Sequence[str]) -> LabelledImages:
        """The image files."""
        data = run.recipe.data
        pixels = np.zeros((len(lines), data.channels, data.size, data.size), dtype=np.uint8)
        for row, file in enumerate(lines):
            pixels[row] = read_image(Path(file), data)
        return _as_read(run.recipe, Images(pixels, np.zeros(len(lines), dtype=np.int64), data.classes or ()))

    def told(self, course: ImageCourse) -> Iterator[str]:
        """What is read of an image."""
        data, patch = course.recipe.data, course.recipe.patches.size
        colour = "grey" if data.channels == 1 else "colour"
        vectors = f"patches of {patch} x {patch}: {_positions(course.recipe)} vectors of an image"
        yield f"{data.size} x {data.size} pixels, {colour} · {vectors}"

    def first_pictures(self, course: ImageCourse) -> "dict[str, Figure]":
        """Some training images as they are first seen."""
        train, examples = course.data.corpus.train, course.trainer.examples
        rows = examples.plan(course.recipe.seeds.data, 0)[0][:_DRAWN]
        pixels = examples.collate(rows, 0).source.numpy()
        return {"training": images_picture(pixels, [train.names[label] for label in train.labels[rows]])}

    def explained(self, run: ImageRun, part: Images, batch: LabelledBatch, said: Classified) -> SeenImage:
        """An answer with what each patch of the image weighed for it."""
        weights, method = weighed(run.model, batch.source, batch.source_valid, part.names.index(said.predicted))
        across = run.recipe.data.size // run.recipe.patches.size
        # without the first vector, which is no patch
        patches = weights[0, weights.shape[1] - across * across :].view(across, across)
        weighed_patches, pixels = patches.cpu().double().numpy().round(6).tolist(), part.pixels[said.row].tolist()
        return SeenImage(said.row, said.truth, said.predicted, said.probabilities, method, weighed_patches, pixels)


TASK = ImageClassification()


def _positions(recipe: ImageRecipe) -> int:
    """Vectors that a model reads of an image: its patches, and the first one where the head pools that."""
    return (recipe.data.size // recipe.patches.size) ** 2 + (recipe.head.pooling == "first")


def _as_read(recipe: ImageRecipe, images: Images) -> LabelledImages:
    """Images as a model reads them when it is asked: nothing is varied."""
    return LabelledImages(images, _positions(recipe), recipe.batches.images)
