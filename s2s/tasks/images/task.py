"""Image classification task: patches as a sequence, with data augmentation.

Data augmentation shifts, crops and flips training images. All three only change the positions at which rows and columns
of the original image are read: a new image is R · image · Cᵀ, with one matrix for its rows and one for its columns, and
bilinear interpolation between pixels.

The augmentation of an image is a pure function of a seed and its row in the corpus, independent of its batch and of
resumed runs.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from s2s.data.dataset import LabelledBatch, LabelledExamples, Plan
from s2s.data.sources import Corpus
from s2s.data.tokenizers import Tokenizer
from s2s.errors import Refuse, UserError
from s2s.models.base import Classifier
from s2s.models.patches import ImageShape, read_images
from s2s.nn.pooling import FIRST_TOKEN_POOLING
from s2s.tasks.base import LoadedModel, PrintFn, TrainContext, build_encoder
from s2s.tasks.classification_base import ClassificationEvaluation, ClassificationTask, Prediction, with_class_weights
from s2s.tasks.figures import images_picture, seen_picture
from s2s.tasks.image_files import Pixels, read_image, statistics_for
from s2s.tasks.images.data import Images, ImageSource
from s2s.tasks.images.recipe import AugmentationSettings, ImageRecipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from s2s.inspection.classifier import Read

_DRAWN = 24
# Increment and multipliers of SplitMix64 (Steele et al. 2014, "Fast splittable pseudorandom number generators").
_STEP, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_DRAWS = 6
_NOTHING = AugmentationSettings()

ImageRun = LoadedModel[ImageRecipe, Classifier]


class LabelledImages(LabelledExamples):
    """Examples of an image classifier.

    Args:
        positions: Number of vectors that the encoder reads of an image.
        batch: Number of images in a batch.
        augmentation: Data augmentation; none by default.
        examples_per_update: Number of images for an optimizer step; None uses one batch.
        balanced: Give each epoch equally many images of each class.
    """

    item_name: ClassVar[str] = "training images"
    key: ClassVar[str] = "batches.images"

    def __init__(
        self,
        images: Images,
        positions: int,
        batch: int,
        augmentation: AugmentationSettings = _NOTHING,
        examples_per_update: int | None = None,
        balanced: bool = False,
    ) -> None:
        self.images = images
        self.labels = images.labels
        self.positions = positions
        self.batch = batch
        self.augmentation = augmentation
        self.examples_per_step = examples_per_update
        self.balanced = balanced

    def make_batches(self, seed: int, epoch: int) -> Plan:
        order = np.random.default_rng([seed % 2**64, epoch]).permutation(self.epoch_rows(seed, epoch))
        return [order[first : first + self.batch] for first in range(0, len(self), self.batch)]

    def mean_batch_size(self, batches: Plan) -> float:
        return self.batch

    def subset(self, rows: Int[np.ndarray, " chosen"]) -> "LabelledImages":
        return LabelledImages(self.images.select(rows), self.positions, self.batch)

    def read(self, rows: Int[np.ndarray, " batch"], seed: int) -> tuple[Tensor, Tensor]:
        """Return the images, augmented, and their padding mask (batch, source), True everywhere."""
        pixels = augment(self.images.pixels[rows % len(self)], rows, self.augmentation, seed)
        valid = torch.ones(len(rows), self.positions, dtype=torch.bool)
        return torch.from_numpy(np.ascontiguousarray(pixels)), valid


def augment(pixels: Pixels, rows: Int[np.ndarray, " images"], settings: AugmentationSettings, seed: int) -> Pixels:
    """Augment square images: shift, crop and flip."""
    if settings == AugmentationSettings():
        return pixels
    size = pixels.shape[2]
    down, right, side, top, left, turn = uniform(seed, rows, _DRAWS).T
    side = settings.crop + (1 - settings.crop) * side
    steps = 2 * settings.shift + 1
    vertical = _places(size, side, top) + (np.floor(steps * down) - settings.shift)[:, None]
    horizontal = _places(size, side, left) + (np.floor(steps * right) - settings.shift)[:, None]
    if settings.flip:
        horizontal = np.where(turn[:, None] < 0.5, horizontal[:, ::-1], horizontal)
    read = torch.from_numpy(pixels.astype(np.float32))
    read = _reading(vertical, size)[:, None] @ read @ _reading(horizontal, size)[:, None].transpose(2, 3)
    return read.round_().clamp_(0, 255).to(torch.uint8).numpy()


def uniform(seed: int, rows: Int[np.ndarray, " rows"], draws: int) -> Float[np.ndarray, "rows draws"]:
    """Return random numbers in [0, 1) that depend only on seed and row (SplitMix64), `draws` for each row.

    Example:
        >>> import numpy as np
        >>> both = uniform(1, np.array([5, 6]), 2)
        >>> bool((both[1] == uniform(1, np.array([6]), 2)[0]).all())
        True
    """
    with np.errstate(over="ignore"):
        key = _mixed(np.full(len(rows), seed % 2**64, dtype=np.uint64) + _STEP)
        key = _mixed(key + _STEP * (rows.astype(np.uint64) + np.uint64(1)))
        bits = _mixed(key[:, None] + _STEP * np.arange(1, draws + 1, dtype=np.uint64))
    return (bits >> np.uint64(11)) * 2.0**-53


def _mixed(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))


def _places(
    size: int, side: Float[np.ndarray, " images"], start: Float[np.ndarray, " images"]
) -> Float[np.ndarray, "images size"]:
    """Return the position of each new pixel's center in the old image.

    The center of the old image's first pixel is 0. `side` is the window's share of the image, and `start` its position
    as a share of the free space.
    """
    first = (start * (1 - side) * size)[:, None]
    places = first + (np.arange(size) + 0.5) * side[:, None] - 0.5
    # Between the border and the nearest pixel center, there is no second pixel to interpolate with.
    return np.clip(places, 0, size - 1)


def _reading(places: Float[np.ndarray, "images size"], size: int) -> Tensor:
    """Return the bilinear weights of old pixels for each new pixel; zero outside."""
    weights = 1 - np.abs(places[:, :, None] - np.arange(size))
    return torch.from_numpy(np.maximum(0, weights).astype(np.float32))


@dataclass(frozen=True)
class PreparedImages:
    """Images of all splits."""

    corpus: Corpus[Images]
    tokenizers: tuple[Tokenizer, ...] = ()

    @property
    def chance_loss(self) -> float:
        return math.log(len(self.corpus.train.names))

    def hashes(self) -> dict[str, str]:
        return {"training_data": self.corpus.train.digest()}


ImageContext = TrainContext[ImageRecipe, PreparedImages, Classifier]


@dataclass(frozen=True)
class SaliencyImage(Prediction):
    """Prediction for an image, with the weight of each patch, row by row, and the pixels, 0 to 255."""

    method: Literal["attention", "gradient"]
    patches: list[list[float]]
    pixels: list[list[list[int]]]


@dataclass(frozen=True, repr=False)
class ImageEvaluation(ClassificationEvaluation):
    """Scores and predictions of an image classifier on a split."""

    noun: ClassVar[str] = "images"

    examples: Sequence[SaliencyImage]

    def pictures(self) -> "Iterator[tuple[str, Figure]]":
        yield from super().pictures()
        pixels = np.array([example.pixels for example in self.examples], dtype=np.uint8)
        captions = [f"{e.predicted} {e.probabilities[e.predicted]:.3f}, true: {e.truth}" for e in self.examples]
        yield "examples", seen_picture(pixels, [np.array(e.patches) for e in self.examples], captions)


class ImageClassificationTask(ClassificationTask[ImageRecipe, PreparedImages]):
    """Image classification task: a class for each image."""

    evaluation = ImageEvaluation

    def source(self, recipe: ImageRecipe) -> ImageSource:
        return ImageSource(recipe.data)

    def prepare(self, recipe: ImageRecipe, tokenizers: tuple[Tokenizer, ...], print_fn: PrintFn) -> PreparedImages:
        corpus = ImageSource(recipe.data).load()
        if corpus.note:
            print_fn(corpus.note)
        return PreparedImages(corpus)

    def finalize_config(self, recipe: ImageRecipe, data: PreparedImages) -> ImageRecipe:
        """Return the recipe with names and weights of the classes, and the pixels' mean and deviation."""
        train = data.corpus.train
        known = {"classes": train.names} | statistics_for(recipe.data, train.pixels)
        training = with_class_weights(recipe.training, train.counts())
        return recipe.model_copy(update={"data": recipe.data.model_copy(update=known), "training": training})

    def build(self, recipe: ImageRecipe, tokenizers: Sequence[Tokenizer]) -> Classifier:
        """Build the recipe's encoder with patch embeddings, and a classification head."""
        data, head = recipe.data, recipe.head
        # An embedding table of one token, which is replaced at once.
        encoder, width = build_encoder(recipe, 1)
        shape = ImageShape(data.channels, data.size, data.mean or (), data.deviation or ())
        read_images(encoder, shape, recipe.patches.size, first=head.pooling in FIRST_TOKEN_POOLING)
        return Classifier(encoder, width, len(data.classes or ()), head.pooling, head.dropout)

    def examples(self, recipe: ImageRecipe, data: PreparedImages, model: Classifier) -> LabelledImages:
        batches, training = recipe.batches.images, recipe.training
        wanted, balanced = training.examples_per_update, training.balanced_sampling
        return LabelledImages(data.corpus.train, _positions(recipe), batches, recipe.augmentation, wanted, balanced)

    def training_examples_for_inference(self, train_context: ImageContext) -> tuple[LabelledImages, LabelledImages]:
        corpus = train_context.data.corpus
        return _inference_images(train_context.recipe, corpus.train), _inference_images(
            train_context.recipe, corpus.validation
        )

    def examples_for_inference(self, run: ImageRun, part: Images) -> LabelledImages:
        return _inference_images(run.recipe, part)

    def parse_inputs(self, run: ImageRun, lines: Sequence[str], refuse: Refuse | None = None) -> LabelledImages:
        """Read the image files; a refused file gives a black image."""
        data = run.recipe.data
        pixels = np.zeros((len(lines), data.channels, data.size, data.size), dtype=np.uint8)
        for row, file in enumerate(lines):
            try:
                pixels[row] = read_image(Path(file), data)
            except UserError as error:
                if refuse is None:
                    raise
                refuse(row, error)
        return _inference_images(run.recipe, Images(pixels, np.zeros(len(lines), dtype=np.int64), data.classes or ()))

    def dataset_statistics(self, train_context: ImageContext) -> Iterator[str]:
        """Yield a line with the image size and the number of patches."""
        data, patch = train_context.recipe.data, train_context.recipe.patches.size
        colour = "grey" if data.channels == 1 else "colour"
        vectors = f"patches of {patch} x {patch}: {_positions(train_context.recipe)} vectors per image"
        yield f"{data.size} x {data.size} pixels, {colour} · {vectors}"

    def initial_figures(self, train_context: ImageContext) -> "dict[str, Figure]":
        """Draw some training images of the first batch, augmented."""
        train = train_context.data.corpus.train
        examples = self.examples(train_context.recipe, train_context.data, train_context.model)
        rows = examples.make_batches(train_context.recipe.seeds.data, 0)[0][:_DRAWN]
        batch = examples.collate(rows, 0)
        names = [train.names[label] for label in batch.labels.tolist()]
        return {"training": images_picture(batch.source.numpy(), names)}

    def inspect_example(self, run: ImageRun, batch: LabelledBatch, text: str) -> "Read":
        """Prepare an image for `s2s inspect`: patches are its words; the baseline is an even grey."""
        from s2s.inspection.classifier import Read
        from s2s.inspection.positions import even_grey
        from s2s.inspection.walk import Source
        from s2s.inspection.words import patches

        data = run.recipe.data
        across, encoder = data.size // run.recipe.patches.size, run.model.encoder
        words = patches(across, before=batch.source_valid.shape[1] - across * across)
        pixels = batch.source[0].cpu().numpy()
        with torch.no_grad():
            baseline = encoder.embedding(even_grey(batch.source, data.mean))
        names = [word.text for word in words]
        return Read(Source(batch.source, batch.source_valid, names, words, pixels, across), text, baseline)

    def explain_prediction(self, run: ImageRun, part: Images, batch: LabelledBatch, said: Prediction) -> SaliencyImage:
        """Add the weight of each patch to a prediction."""
        from s2s.inspection.saliency import weighed

        weights, method = weighed(run.model, batch.source, batch.source_valid, part.names.index(said.predicted))
        across = run.recipe.data.size // run.recipe.patches.size
        # The first vector, if learned, is not a patch.
        patches = weights[0, weights.shape[1] - across * across :].view(across, across)
        weighed_patches, pixels = patches.cpu().double().numpy().round(6).tolist(), part.pixels[said.row].tolist()
        return SaliencyImage(said.row, said.truth, said.predicted, said.probabilities, method, weighed_patches, pixels)


TASK = ImageClassificationTask()


def _positions(recipe: ImageRecipe) -> int:
    """Return the number of vectors of an image: patches, and a learned first vector."""
    return (recipe.data.size // recipe.patches.size) ** 2 + (recipe.head.pooling in FIRST_TOKEN_POOLING)


def _inference_images(recipe: ImageRecipe, images: Images) -> LabelledImages:
    """Return images for inference (no augmentation)."""
    return LabelledImages(images, _positions(recipe), recipe.batches.images)
