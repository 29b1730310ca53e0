"""What the layers of all networks are made of: dropout, the feed-forward block, the residual connection."""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional

Inputs = Shaped[Tensor, "batch ..."]
"""Token ids, or whatever else an encoder reads."""
SourceTokens = Int[Tensor, "batch source"]
PaddingMask = Bool[Tensor, "batch source"]
"""True where a source position is real, False where there is padding."""
States = Float[Tensor, "batch source width"]
Summary = Float[Tensor, "batch width"]
Tokens = Int[Tensor, "batch steps"]
Vectors = Float[Tensor, "batch steps width"]
AttentionWeights = Float[Tensor, "batch layer head target source"]
"""How much each target position looked at each source position; rows sum to one over real positions."""

Activation = Literal["relu", "gelu", "swish", "swiglu"]

_LEVELS = 256


class Dropout(nn.Module):
    """Zeroes each number at a rate in [0, 1) in training and scales the rest, so that the mean stays.

    On a processor the random numbers, not the arithmetic, are what dropout costs. One 64-bit random word therefore
    decides about eight numbers, eight bits for each: the rate is rounded to a multiple of 1/256, from 1/256 to 255/256,
    and the scale is that of the rounded rate. Elsewhere torch's own dropout runs.
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


_ACTIVATIONS = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "swish": functional.silu,
    "swiglu": functional.silu,
}


class FeedForward(nn.Module):
    """Two linear maps with a non-linearity between them, applied to each position alone.

    With `swiglu`, a third map is a gate: SiLU(gate(x)) times expand(x) is contracted (Shazeer 2020, equation 6, with
    biases as in the other kinds).
    """

    def __init__(self, width: int, hidden_width: int, activation: Activation, dropout: float) -> None:
        super().__init__()
        self.expand = nn.Linear(width, hidden_width)
        self.contract = nn.Linear(hidden_width, width)
        self.gate = nn.Linear(width, hidden_width) if activation == "swiglu" else None
        self.activation = _ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)
        for linear in (self.expand, self.contract, *([self.gate] if self.gate else [])):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Vectors) -> Vectors:
        """The block's output for each position."""
        inner = self.expand(x)
        inner = self.activation(inner) if self.gate is None else self.activation(self.gate(x)) * inner
        return self.contract(self.dropout(inner))


def build_norm(kind: Literal["layer", "rms"], width: int, epsilon: float = 1e-5) -> nn.Module:
    """What brings a vector to one size: its mean and variance (Ba et al. 2016), or its mean square alone.

    The second is that of Zhang & Sennrich (2019): without a mean and without a bias. Both have the same guard against
    division by zero, `epsilon`, in every precision.
    """
    return nn.LayerNorm(width, epsilon) if kind == "layer" else nn.RMSNorm(width, epsilon)


class Residual(nn.Module):
    """What a function changes, added to what it read: x + f(norm(x)) if `before`, or norm(x + f(x)) as first published.

    The first is the pre-norm of Xiong et al. (2020), the second that of Vaswani et al. (2017).
    """

    def __init__(self, norm: nn.Module, dropout: nn.Module, before: bool) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = dropout
        self.before = before

    def forward(self, x: Vectors, f: Callable[[Vectors], Vectors]) -> Vectors:
        """The input with the change of `f`."""
        if self.before:
            return x + self.dropout(f(self.norm(x)))
        return self.norm(x + self.dropout(f(x)))

    def branch_input(self, x: Vectors) -> Vectors:
        """What `f` reads of the input."""
        return self.norm(x) if self.before else x
