"""Images as a trainer takes them: any of them together, and varied at random: moved, cut and scaled back, turned.

All three only choose where each row and each column of the new image is read in the old one. So a new image is
R · image · Cᵀ with one matrix for its rows and one for its columns, and positions between pixels mix their neighbours.

What is drawn for an image is a pure function of a seed and its row in the corpus: neither the batch that it comes in
nor where a run was stopped and resumed changes it.
"""

from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from s2s.data.examples import LabelledExamples, Plan
from s2s.tasks.images.data import Images
from s2s.tasks.images.recipe import AugmentationSettings

Pixels = UInt8[np.ndarray, "images channels height width"]

# the increment and the multipliers of SplitMix64 (Steele et al. 2014, "Fast splittable pseudorandom number generators")
_STEP, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_DRAWS = 6
_NOTHING = AugmentationSettings()


class LabelledImages(LabelledExamples):
    """The images of a split.

    Of an image, `positions` vectors are read, all of them real; an update learns from those of one batch when None.
    """

    noun: ClassVar[str] = "training images"
    key: ClassVar[str] = "batches.images"

    def __init__(
        self,
        images: Images,
        positions: int,
        batch: int,
        augmentation: AugmentationSettings = _NOTHING,
        examples_per_update: int | None = None,
    ) -> None:
        self.images = images
        self.labels = images.labels
        self.positions = positions
        self.batch = batch
        self.augmentation = augmentation
        self.wanted = examples_per_update

    def plan(self, seed: int, epoch: int) -> Plan:
        order = np.random.default_rng([seed % 2**64, epoch]).permutation(len(self))
        return [order[first : first + self.batch] for first in range(0, len(self), self.batch)]

    def usual(self, batches: Plan) -> float:
        return self.batch

    def only(self, rows: Int[np.ndarray, " chosen"]) -> "LabelledImages":
        return LabelledImages(self.images.select(rows), self.positions, self.batch)

    def read(self, rows: Int[np.ndarray, " batch"], seed: int) -> tuple[Tensor, Tensor]:
        """The images, varied as the seed and their rows say."""
        pixels = augmented(self.images.pixels[rows], rows, self.augmentation, seed)
        valid = torch.ones(len(rows), self.positions, dtype=torch.bool)
        return torch.from_numpy(np.ascontiguousarray(pixels)), valid


def augmented(pixels: Pixels, rows: Int[np.ndarray, " images"], settings: AugmentationSettings, seed: int) -> Pixels:
    """Square images, varied as a seed, another one for each epoch, and their rows in the corpus say."""
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
    """Numbers in [0, 1), so many for each row, that depend on seed and row alone."""
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
    """Where each new pixel's centre stands in the old image, whose first pixel's is 0.

    The window's side is a share of the whole, and its start a share of the room that it has.
    """
    first = (start * (1 - side) * size)[:, None]
    places = first + (np.arange(size) + 0.5) * side[:, None] - 0.5
    # between the border and the centre of the pixel beside it, there is nothing to mix
    return np.clip(places, 0, size - 1)


def _reading(places: Float[np.ndarray, "images size"], size: int) -> torch.Tensor:
    """For each new pixel, how much of each old one it is: the nearer of two neighbours more, nothing from outside."""
    weights = 1 - np.abs(places[:, :, None] - np.arange(size))
    return torch.from_numpy(np.maximum(0, weights).astype(np.float32))
