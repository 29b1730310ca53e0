"""Labelled images as a trainer takes them: any of them together, varied in training."""

from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Int

from s2s.data.augmentation import augmented
from s2s.data.examples import Examples, LabelledBatch, Plan
from s2s.data.images import Images
from s2s.errors import UserError
from s2s.recipe.images import AugmentationSettings

_NOTHING = AugmentationSettings()


class LabelledImages(Examples[LabelledBatch]):
    """The images of a split.

    Args:
        images: with their classes.
        positions: vectors that the encoder reads of an image; all are real.
        batch: images of one batch.
        augmentation: how they are varied; not at all unless given.
        examples_per_update: images that one update learns from; those of one batch when None.
    """

    noun: ClassVar[str] = "training images"

    def __init__(
        self,
        images: Images,
        positions: int,
        batch: int,
        augmentation: AugmentationSettings = _NOTHING,
        examples_per_update: int | None = None,
    ) -> None:
        self.images = images
        self.positions = positions
        self.batch = batch
        self.augmentation = augmentation
        self.wanted = examples_per_update or batch

    def __len__(self) -> int:
        return len(self.images)

    def plan(self, seed: int, epoch: int) -> Plan:
        """The images in random order, another one in each epoch, cut into batches; the last one may be smaller."""
        order = np.random.default_rng([seed % 2**64, epoch]).permutation(len(self))
        return [order[first : first + self.batch] for first in range(0, len(self), self.batch)]

    def updates(self, batches: Plan) -> tuple[list[Plan], int]:
        """Successive batches with about as many images together as wanted.

        Raises:
            UserError: one batch has more than twice as many.
        """
        if self.wanted < self.batch / 2:
            raise UserError(
                f"an update should learn from {self.wanted} images, but a batch has {self.batch}",
                where="training.examples_per_update",
                remedy=f"set batches.images={self.wanted}, or training.examples_per_update={self.batch}",
            )
        together = max(1, round(self.wanted / self.batch))
        return [batches[i : i + together] for i in range(0, len(batches), together)], together

    def collate(self, rows: Int[np.ndarray, " batch"], seed: int) -> LabelledBatch:
        """The images, varied as the seed and their rows say."""
        pixels = augmented(self.images.pixels[rows], rows, self.augmentation, seed)
        return LabelledBatch(
            indices=torch.from_numpy(np.array(rows, dtype=np.int64)),
            count=len(rows),
            tokens=len(rows) * self.positions,
            real_share=1.0,
            source=torch.from_numpy(np.ascontiguousarray(pixels)),
            source_valid=torch.ones(len(rows), self.positions, dtype=torch.bool),
            labels=torch.from_numpy(self.images.labels[rows]),
        )
