"""Images as sequences: patches, a linear projection, and a first vector (ViT).

Dosovitskiy et al. (2021). Position embeddings are the encoder's own: a Transformer with learned positions is the
published Vision Transformer; a recurrent network reads the patches in order.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped, UInt8
from torch import Tensor, nn

from s2s.errors import UserError
from s2s.models.base import Encoder
from s2s.nn.embeddings import Embedding


@dataclass(frozen=True)
class ImageShape:
    """Shape and pixel statistics of the images of a dataset.

    Attributes:
        channels: 1 (grey) or 3.
        size: Height and width in pixels.
        mean: Mean of each channel over the training images, from 0 (black) to 1 (white).
        deviation: Standard deviation of each channel, in the same unit.
    """

    channels: int
    size: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]


def patches(images: Shaped[Tensor, "batch channels rows columns"], size: int) -> Shaped[Tensor, "batch patches pixels"]:
    """Split images into square patches.

    Args:
        images: Images, `(batch, channels, rows, columns)`; their sides are multiples of `size`.
        size: Side of a patch in pixels.

    Returns:
        Patches, `(batch, patches, channels · size · size)`, row by row; each is flattened as channels, rows, columns.

    Example:
        >>> image = torch.arange(16).view(1, 1, 4, 4)
        >>> patches(image, size=2)
        tensor([[[ 0,  1,  4,  5],
                 [ 2,  3,  6,  7],
                 [ 8,  9, 12, 13],
                 [10, 11, 14, 15]]])
    """
    cut = images.unflatten(3, (-1, size)).unflatten(2, (-1, size))
    # Axes: batch, channel, patch row, row, patch column, column.
    return cut.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


class ImageTable(nn.Module):
    """Base of modules that replace an encoder's token table by vectors of an image.

    Pixels are standardized with the mean and deviation of the training images.

    Attributes:
        length: Number of vectors of an image.
        pixels: Height and width of an image.
    """

    length: int
    pixels: tuple[int, int]
    mean: Tensor
    deviation: Tensor

    def __init__(self, shape: ImageShape) -> None:
        super().__init__()
        self.pixels = (shape.size, shape.size)
        # Both come from the recipe, so a checkpoint does not store them.
        self.register_buffer("mean", torch.tensor(shape.mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("deviation", torch.tensor(shape.deviation).view(-1, 1, 1), persistent=False)

    def standardized(
        self, images: UInt8[Tensor, "batch channels rows columns"], dtype: torch.dtype
    ) -> Float[Tensor, "batch channels rows columns"]:
        """Standardize pixels: (pixel / 255 − mean) / deviation for each channel."""
        return (images.to(dtype) / 255 - self.mean) / self.deviation


class PatchTable(ImageTable):
    """Patch embeddings: a linear projection of each patch of an image.

    This equals a convolution whose stride is its kernel size. With `first`, a learned vector precedes the patches, for
    pooling of the first position.

    Args:
        shape: Shape and statistics of the images.
        size: Side of a patch in pixels, a divisor of the side of an image.
        width: Size of the vectors.
        first: Add the learned first vector.

    Raises:
        UserError: Patches do not divide an image.

    Example:
        >>> images = torch.randint(256, (2, 1, 16, 16), dtype=torch.uint8)
        >>> table = PatchTable(ImageShape(1, 16, mean=(0.5,), deviation=(0.25,)), size=4, width=8, first=True)
        >>> table(images).shape
        torch.Size([2, 17, 8])
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
        # Pixels have variance 1, and with this initialization so have the vectors.
        nn.init.normal_(self.projection.weight, std=pixels**-0.5)
        nn.init.zeros_(self.projection.bias)
        self.first = nn.Parameter(torch.randn(width)) if first else None

    def forward(self, images: UInt8[Tensor, "batch channels rows columns"]) -> Float[Tensor, "batch source width"]:
        """Compute one vector for each patch, after the learned first vector if there is one.

        Args:
            images: Pixels from 0 to 255, `(batch, channels, rows, columns)`.

        Returns:
            Vectors, `(batch, length, width)`.
        """
        x = self.projection(patches(self.standardized(images, self.projection.weight.dtype), self.size))
        if self.first is None:
            return x
        return torch.cat((self.first.to(x.dtype).expand(len(x), 1, -1), x), dim=1)


def read_images(encoder: Encoder, shape: ImageShape, size: int, first: bool) -> int:
    """Replace the token table of a new encoder by a `PatchTable`.

    Args:
        encoder: Encoder that has not been trained.
        shape: Shape and statistics of the images.
        size: Side of a patch in pixels.
        first: Add a learned first vector.

    Returns:
        Number of vectors of an image.

    Raises:
        UserError: Patches do not divide an image, or are more than the encoder's learned positions.
    """
    return read_vectors(encoder, PatchTable(shape, size, width_of(encoder), first))


def width_of(encoder: Encoder) -> int:
    """Return the size of the vectors that a new encoder reads."""
    if isinstance(encoder.embedding, Embedding):
        # on the meta device, torch would import a compiler to scale the vectors
        return encoder.embedding.width
    with torch.no_grad():
        return encoder.embedding(torch.zeros(1, 1, dtype=torch.long)).shape[2]


def read_vectors(encoder: Encoder, table: "ImageTable") -> int:
    """Replace the token table of an encoder by a module for images.

    Returns:
        Number of vectors of an image.

    Raises:
        UserError: An image has more vectors than the encoder's learned positions.
    """
    if encoder.max_positions is not None and table.length > encoder.max_positions:
        raise UserError(
            f"the model knows {encoder.max_positions} positions, but an image has {table.length}",
            where="model.max_positions",
            remedy=f"set model.max_positions={table.length}, or larger patches",
        )
    encoder.set_input_embeddings(table)
    return table.length
