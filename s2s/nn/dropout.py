"""Dropout (Srivastava et al. 2014), with cheap random numbers on processors."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

_LEVELS = 256


class Dropout(nn.Module):
    """Zeroes each number with a probability in training and scales the rest, so that the mean stays.

    On a processor the random numbers, not the arithmetic, are what dropout costs. One 64-bit random word therefore
    decides about eight numbers, eight bits for each: the rate is rounded to a multiple of 1/256, from 1/256 to 255/256,
    and the scale is that of the rounded rate. Elsewhere torch's own dropout runs.

    Args:
        rate: probability of zeroing, in [0, 1).
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The input with numbers dropped in training, and the input itself otherwise."""
        if not self.training or self.rate == 0:
            return x
        if x.device.type != "cpu":
            return functional.dropout(x, self.rate)
        return x * _scaled_mask(x, min(_LEVELS - 1, max(1, round(self.rate * _LEVELS))))

    def extra_repr(self) -> str:
        """The rate, for printed models."""
        return f"rate={self.rate}"


def _scaled_mask(x: Tensor, dropped: int) -> Tensor:
    words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64)
    # from the smallest number on, without an end: all 64 bits are random
    words.random_(torch.iinfo(torch.int64).min, None)
    levels = words.view(torch.uint8)[: x.numel()].view(x.shape)
    keep = 1 - dropped / _LEVELS
    return (levels >= dropped).to(x.dtype).mul_(1 / keep)
