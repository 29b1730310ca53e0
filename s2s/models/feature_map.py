"""Images as sequences: the cells of a small convolutional network's last feature map, row by row.

Xu et al. (2015), "Show, attend and tell", section 3.1.1: a decoder that looks at the vectors of an image's places can
choose a place for each word. There the network was a large one that had learned to name objects; here it is small and
learns with the rest.
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
    """Vectors of an image's cells, squares whose sides are a power of two.

    Each layer halves height and width and doubles the channels, up to the width; a last one mixes neighbouring cells.
    Its vectors are brought to mean 0 and variance 1, each by itself. A cell sees beyond its own borders, but less than
    two cells far.

    Raises:
        UserError: cells do not divide an image, or their side is no power of two.
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
        channels = [shape.channels, *(_channels(width, halvings - 1 - n) for n in range(halvings)), width]
        layers: list[nn.Module] = []
        for n, (read, made) in enumerate(itertools.pairwise(channels)):
            stride = 2 if n < halvings else 1
            layers += [_convolution(read, made, stride), *([nn.ReLU()] if n < halvings else [])]
        self.layers = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(width)

    def forward(self, images: UInt8[Tensor, "batch channels rows columns"]) -> Float[Tensor, "batch source width"]:
        """One vector for each cell."""
        dtype = self.norm.weight.dtype
        # as convolutions on a processor like them best
        pixels = self.standardized(images, dtype).contiguous(memory_format=torch.channels_last)
        return self.norm(self.layers(pixels).flatten(2).transpose(1, 2))


def _channels(width: int, halvings: int) -> int:
    """Channels of a layer after which there are so many halvings more."""
    return max(_FEWEST_CHANNELS, width // 2**halvings)


def _convolution(read: int, made: int, stride: int) -> nn.Conv2d:
    convolution = nn.Conv2d(read, made, _KERNEL, stride, _KERNEL // 2)
    # the size of numbers stays the same through a ReLU (He et al. 2015)
    nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
    if convolution.bias is not None:
        nn.init.zeros_(convolution.bias)
    return convolution
