"""Images as sequences: patches, one linear map, and a first vector (Dosovitskiy et al. 2021).

Positions are the encoder's own: a Transformer with learned ones is the published Vision Transformer, and a recurrent
network reads the patches in their order.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped, UInt8
from torch import Tensor, nn

from s2s.errors import UserError
from s2s.models.base import Encoder


@dataclass(frozen=True)
class ImageShape:
    """What all images of a corpus have in common.

    Channels (1, grey, or 3), height and width in pixels, and over the training images mean and standard deviation of
    each channel, as shares of white.
    """

    channels: int
    size: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]


def patches(images: Shaped[Tensor, "batch channels rows columns"], size: int) -> Shaped[Tensor, "batch patches pixels"]:
    """The patches of each image, whose sides are multiples of the size, row by row, each as channels, rows, columns."""
    cut = images.unflatten(3, (-1, size)).unflatten(2, (-1, size))
    # batch, channel, patch row, row, patch column, column
    return cut.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


class ImageTable(nn.Module):
    """Makes vectors of an image: what stands in the place of an encoder's table of tokens.

    Pixels are brought to mean 0 and variance 1 by the training images' statistics.

    Attributes:
        length: how many vectors an image has.
        pixels: height and width of an image.
    """

    length: int
    pixels: tuple[int, int]
    mean: Tensor
    deviation: Tensor

    def __init__(self, shape: ImageShape) -> None:
        super().__init__()
        self.pixels = (shape.size, shape.size)
        # the recipe knows them; a checkpoint need not
        self.register_buffer("mean", torch.tensor(shape.mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("deviation", torch.tensor(shape.deviation).view(-1, 1, 1), persistent=False)

    def standardized(
        self, images: UInt8[Tensor, "batch channels rows columns"], dtype: torch.dtype
    ) -> Float[Tensor, "batch channels rows columns"]:
        """The pixels as shares of white, less the mean, divided by the deviation."""
        return (images.to(dtype) / 255 - self.mean) / self.deviation


class PatchTable(ImageTable):
    """Vectors of an image's patches.

    A linear map of patches is a convolution whose stride is its kernel's size. A learned vector stands before the
    patches where the `first` is to be pooled.

    Raises:
        UserError: patches do not divide an image.
    """

    def __init__(self, shape: ImageShape, size: int, width: int, first: bool) -> None:
        super().__init__(shape)
        if shape.size % size:
            fitting = [str(n) for n in range(1, shape.size + 1) if shape.size % n == 0]
            raise UserError(
                f"patches of {size} pixels do not divide images of {shape.size}",
                where="patches.size",
                remedy=f"choose one of {', '.join(fitting)}, or another data.size",
            )
        self.size = size
        self.length = (shape.size // size) ** 2 + first
        pixels = shape.channels * size * size
        self.projection = nn.Linear(pixels, width)
        # pixels are of variance 1, and so are the vectors
        nn.init.normal_(self.projection.weight, std=pixels**-0.5)
        nn.init.zeros_(self.projection.bias)
        self.first = nn.Parameter(torch.randn(width)) if first else None

    def forward(self, images: UInt8[Tensor, "batch channels rows columns"]) -> Float[Tensor, "batch source width"]:
        """One vector for each patch, after the first one where there is one."""
        x = self.projection(patches(self.standardized(images, self.projection.weight.dtype), self.size))
        if self.first is None:
            return x
        return torch.cat((self.first.to(x.dtype).expand(len(x), 1, -1), x), dim=1)


def read_images(encoder: Encoder, shape: ImageShape, size: int, first: bool) -> int:
    """Makes a freshly built encoder read images instead of tokens, by a `PatchTable` in the place of its table.

    Returns:
        How many vectors of an image the encoder reads.

    Raises:
        UserError: patches do not divide an image, or are more than the positions that the encoder learns.
    """
    return read_vectors(encoder, PatchTable(shape, size, width_of(encoder), first))


def width_of(encoder: Encoder) -> int:
    """The size of the vectors that a freshly built encoder reads."""
    with torch.no_grad():
        return encoder.embedding(torch.zeros(1, 1, dtype=torch.long)).shape[2]


def read_vectors(encoder: Encoder, table: "ImageTable") -> int:
    """Puts what makes vectors of an image in the place of an encoder's table of tokens.

    Returns:
        How many vectors of an image the encoder reads.

    Raises:
        UserError: they are more than the positions that the encoder learns.
    """
    if encoder.max_positions is not None and table.length > encoder.max_positions:
        raise UserError(
            f"the model knows {encoder.max_positions} positions, but an image has {table.length}",
            where="model.max_positions",
            remedy=f"set model.max_positions={table.length}, or larger patches",
        )
    encoder.set_input_embeddings(table)
    return table.length
