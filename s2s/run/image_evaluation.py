"""Scores of image classifiers, and examples with the patches that decided."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from jaxtyping import Float

from s2s.data.images import Images, load_image_split, load_images
from s2s.decoding.classes import class_probabilities
from s2s.evaluation.classification import chosen_examples, classification_scores
from s2s.evaluation.pictures import seen_picture
from s2s.evaluation.saliency import Method, attention_on_words, gradient_times_input
from s2s.run.held_out import split_to_score
from s2s.run.image_loading import LoadedImageClassifier, load_image_classifier
from s2s.run.labelled_evaluation import Classified, LabelledEvaluation
from s2s.training.progress import Meter, silent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_EXAMPLES = 3


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


def evaluate_images(
    path: Path,
    split: str = "test",
    checkpoint: str | None = None,
    overrides: Sequence[str] = (),
    keep: bool = True,
    meter: Meter = silent,
) -> ImageEvaluation:
    """Classifies a split and scores the answers.

    Args:
        path: the run's folder.
        split: `test` or `validation`.
        checkpoint: see `loading.find_checkpoint`.
        overrides: `section.key=value` for `data`, `batches` and `device`.
        keep: whether this is the run's result, kept in its folder.
        meter: shows how far it is.

    Raises:
        UserError: it is not a run of images, or its recipe has no such split.
    """
    run = load_image_classifier(path, checkpoint, overrides)
    images = _split(path, run, split)
    with meter("classifying", len(images.labels)) as advance:
        probabilities = class_probabilities(run.model, run.examples(images), advance)
    predicted = probabilities.argmax(axis=1)
    right, wrong = chosen_examples(images.labels, predicted, _EXAMPLES)
    evaluation = ImageEvaluation(
        run=str(path),
        checkpoint=run.checkpoint.name,
        split=split,
        classes=list(run.classes),
        scores=classification_scores(images.labels, probabilities, run.classes),
        digest=digest_of(images),
        truth=images.labels.tolist(),
        predicted=predicted.tolist(),
        probabilities=probabilities.round(6).tolist(),
        examples=[_seen(run, images, row, probabilities[row]) for row in (*right, *wrong)],
    )
    if keep:
        evaluation.keep()
    return evaluation


def digest_of(images: Images) -> str:
    """What identifies images and their classes, wherever they lie."""
    digest = hashlib.blake2b(digest_size=16)
    for array in (images.pixels, images.labels):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _split(path: Path, run: LoadedImageClassifier, split: str) -> Images:
    settings = run.recipe.data
    return split_to_score(
        path,
        settings,
        split,
        lambda: load_image_split(settings, split, run.classes),
        lambda: load_images(settings),
        digest_of,
    )


def _seen(
    run: LoadedImageClassifier, images: Images, row: int, probabilities: Float[np.ndarray, " classes"]
) -> SeenImage:
    batch = run.examples(images).collate(np.array([row]), 0).to(run.computer.device)
    weights, method = attention_on_words(run.model, batch.source, batch.source_valid), "attention"
    chosen = int(probabilities.argmax())
    if weights is None:
        label = torch.tensor([chosen], device=batch.source.device)
        weights, method = gradient_times_input(run.model, batch.source, batch.source_valid, label), "gradient"
    across = run.recipe.data.size // run.recipe.patches.size
    # without the first vector, which is no patch
    patches = weights[0, run.positions - across * across :].view(across, across)
    return SeenImage(
        row=row,
        truth=run.classes[int(images.labels[row])],
        predicted=run.classes[chosen],
        probabilities=dict(zip(run.classes, probabilities.round(6).tolist(), strict=True)),
        method=method,
        patches=patches.cpu().double().numpy().round(6).tolist(),
        pixels=images.pixels[row].tolist(),
    )
