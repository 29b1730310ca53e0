"""Images as sequences: the cells of a small convolutional network's feature map.

Cells are read row by row. A decoder that attends to them can select a place of the image for each word (Xu et al. 2015,
"Show, attend and tell", section 3.1.1). There the network was large and pretrained for object recognition; here it is
small and trained with the rest of the model.
"""

import itertools

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from s2s.errors import UserError
from s2s.models.patches import ImageShape, ImageTable

_KERNEL = 3
_FEWEST_CHANNELS = 8


class FeatureMap(ImageTable):
    """Convolutional feature map: one vector for each cell of an image.

    Each layer halves height and width and doubles the channels, up to the width; a last layer mixes neighbouring cells.
    Each vector is normalized to mean 0 and variance 1. The receptive field of a cell extends beyond its borders by less
    than two cells.

    Args:
        shape: Shape and statistics of the images.
        size: Side of a cell in pixels, a power of two that divides the side of an image.
        width: Size of the vectors.

    Raises:
        UserError: Cells do not divide an image, or `size` is not a power of two.

    Example:
        >>> images = torch.randint(256, (2, 1, 16, 16), dtype=torch.uint8)
        >>> FeatureMap(ImageShape(1, 16, mean=(0.5,), deviation=(0.25,)), size=4, width=8)(images).shape
        torch.Size([2, 16, 8])
    """

    def __init__(self, shape: ImageShape, size: int, width: int) -> None:
        super().__init__(shape)
        if shape.size % size or size & (size - 1):
            fitting = [str(2**n) for n in range(shape.size.bit_length()) if shape.size % 2**n == 0]
            raise UserError(
                f"cells of {size} pixels do not divide images of {shape.size} by halving them",
                where="stem.size",
                remedy=f"choose one of {', '.join(fitting)}, or another data.size",
            )
        self.length = (shape.size // size) ** 2
        halvings = size.bit_length() - 1
        # The number of channels doubles with each halving.
        inner = [max(_FEWEST_CHANNELS, width // 2 ** (halvings - 1 - n)) for n in range(halvings)]
        channels = [shape.channels, *inner, width]
        layers: list[nn.Module] = []
        for n, (read, made) in enumerate(itertools.pairwise(channels)):
            stride = 2 if n < halvings else 1
            layers += [_convolution(read, made, stride), *([nn.ReLU()] if n < halvings else [])]
        self.layers = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(width)

    def forward(self, images: UInt8[Tensor, "batch channels rows columns"]) -> Float[Tensor, "batch source width"]:
        """Compute one vector for each cell.

        Args:
            images: Pixels from 0 to 255, `(batch, channels, rows, columns)`.

        Returns:
            Vectors, `(batch, cells, width)`, row by row.
        """
        dtype = self.norm.weight.dtype
        # The channels-last format is the fastest one for convolutions on a CPU.
        pixels = self.standardized(images, dtype).contiguous(memory_format=torch.channels_last)
        return self.norm(self.layers(pixels).flatten(2).transpose(1, 2))


def _convolution(read: int, made: int, stride: int) -> nn.Conv2d:
    convolution = nn.Conv2d(read, made, _KERNEL, stride, _KERNEL // 2)
    # Keeps the variance through a ReLU (He et al. 2015).
    nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
    if convolution.bias is not None:
        nn.init.zeros_(convolution.bias)
    return convolution
