"""Images with captions as batches, and everything about the data that training needs."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt8
from torch import Tensor

from s2s.data.batches import Batch, collate
from s2s.data.encoding import Lists, PreparedTexts
from s2s.data.examples import Examples, Plan
from s2s.errors import UserError
from s2s.tasks.captioning.data import Captioned
from s2s.tasks.captioning.recipe import CaptionRecipe
from s2s.tasks.pixels import Pixels


@dataclass(frozen=True)
class PreparedCaptions(PreparedTexts[Captioned]):
    """The images, and their captions as text and as pieces."""

    def learned(self) -> Iterator[np.ndarray]:
        """Pixels, how many captions each image has, and their pieces."""
        train = self.corpus.train
        yield train.pixels
        yield np.array([len(several) for several in train.captions], dtype=np.int64)
        yield from super().learned()


class CaptionedImages(Examples[Batch]):
    """Captions in any order, each with its image; of an image, `positions` vectors are read.

    Raises:
        UserError: all captions are longer than so many pieces.
    """

    noun: ClassVar[str] = "training captions"

    def __init__(self, part: Captioned, pieces: Lists, positions: int, batch: int, max_length: int) -> None:
        self.part, self.pieces, self.positions, self.batch = part, pieces, positions, batch
        self.image = np.repeat(np.arange(len(part)), [len(several) for several in part.captions])
        # the end is a piece, too
        self.kept = np.flatnonzero(pieces.lengths < max_length)
        self.left_out = len(self.image) - len(self.kept)
        if not len(self.kept):
            raise UserError(
                f"all {len(self.image):,} captions are longer than {max_length} pieces",
                where="batches.max_length",
                remedy="raise it",
            )

    def __len__(self) -> int:
        return len(self.image)

    def plan(self, seed: int, epoch: int) -> Plan:
        order = self.kept[np.random.default_rng([seed % 2**64, epoch]).permutation(len(self.kept))]
        return [order[first : first + self.batch] for first in range(0, len(order), self.batch)]

    def collate(self, rows: Int[np.ndarray, " batch"], seed: int) -> Batch:
        """The captions, padded, and their images; nothing is drawn at random."""
        captions = collate([[]] * len(rows), self.pieces.rows(rows), rows)
        source, valid = as_read(self.part.pixels[self.image[rows]], self.positions)
        real = captions.tokens + valid.numel()
        share = real / (captions.target_valid.numel() + valid.numel())
        return replace(captions, source=source, source_valid=valid, real_share=share)


def as_read(
    pixels: Pixels, positions: int
) -> tuple[UInt8[Tensor, "batch channels rows columns"], Bool[Tensor, "batch source"]]:
    """Images as an encoder reads them, and its positions, all of which are real."""
    valid = torch.ones(len(pixels), positions, dtype=torch.bool)
    return torch.from_numpy(np.ascontiguousarray(pixels)), valid


def positions_of(recipe: CaptionRecipe) -> int:
    """Vectors that a model reads of an image."""
    return (recipe.data.size // recipe.stem.size) ** 2


def examples_of(recipe: CaptionRecipe, part: Captioned, pieces: Lists) -> CaptionedImages:
    """A part's captions under the recipe's limits."""
    return CaptionedImages(part, pieces, positions_of(recipe), recipe.batches.captions, recipe.batches.max_length)
