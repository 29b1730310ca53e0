"""Building blocks of all networks: dropout, feed-forward block, residual connection.

The type aliases name the shapes that models pass around.
"""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional

Inputs = Shaped[Tensor, "batch ..."]
"""Token ids, or other inputs of an encoder, such as images."""
SourceTokens = Int[Tensor, "batch source"]
PaddingMask = Bool[Tensor, "batch source"]
"""Padding mask: True for real source positions, False for padding."""
States = Float[Tensor, "batch source width"]
Summary = Float[Tensor, "batch width"]
Tokens = Int[Tensor, "batch steps"]
Vectors = Float[Tensor, "batch steps width"]
AttentionWeights = Float[Tensor, "batch layer head target source"]
"""Attention weights of each layer and head; they sum to one over real source positions."""

Activation = Literal["relu", "gelu", "swish", "swiglu"]

_LEVELS = 256


class Dropout(nn.Module):
    """Dropout: set numbers to zero at random in training, and scale the others.

    The scale, 1 / (1 − rate), keeps the mean. On a CPU, drawing random numbers costs more than the arithmetic.
    Therefore one 64-bit random word decides about eight numbers, with eight bits for each: the rate is rounded to a
    multiple of 1/256, from 1/256 to 255/256, and the scale is that of the rounded rate; in bf16 it is rounded by up
    to 0.4 %, as in torch's dropout. Other devices use torch's own dropout.

    Args:
        rate: Probability of setting a number to zero, in [0, 1).

    Example:
        >>> _ = torch.manual_seed(0)
        >>> dropout = Dropout(0.5)
        >>> sorted(set(dropout(torch.ones(100)).tolist()))
        [0.0, 2.0]
        >>> dropout.eval()(torch.ones(3))
        tensor([1., 1., 1.])
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Apply dropout in training; return the input unchanged in evaluation mode."""
        if not self.training or self.rate == 0:
            return x
        if x.device.type != "cpu":
            return functional.dropout(x, self.rate)
        return x * _scaled_mask(x, min(_LEVELS - 1, max(1, round(self.rate * _LEVELS))))

    def extra_repr(self) -> str:
        """Return the rate, for printed models."""
        return f"rate={self.rate}"


def _scaled_mask(x: Tensor, dropped: int) -> Tensor:
    words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64)
    # From the smallest int64 without an upper end, so that all 64 bits are random.
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
    """Position-wise feed-forward block: two linear maps with an activation between them.

        output = W₂ f(W₁ x + b₁) + b₂

    (Vaswani et al. 2017, section 3.3, with f = ReLU). `"swiglu"` adds a gate: W₂ (SiLU(W_g x + b_g) ∘ (W₁ x + b₁)) + b₂
    (Shazeer 2020, equation 6, with biases as in the other kinds).

    Args:
        width: Size of the input and output vectors.
        hidden_width: Size between the two maps.
        activation: The function f.
        dropout: Dropout rate of the hidden vectors.

    Example:
        >>> FeedForward(width=8, hidden_width=32, activation="relu", dropout=0.1)(torch.randn(2, 5, 8)).shape
        torch.Size([2, 5, 8])
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
        """Apply the block to each position, `(batch, steps, width)` to the same shape."""
        # (batch, steps, width) -> (batch, steps, hidden_width)
        inner = self.expand(x)
        inner = self.activation(inner) if self.gate is None else self.activation(self.gate(x)) * inner
        # (batch, steps, hidden_width) -> (batch, steps, width)
        return self.contract(self.dropout(inner))


def build_norm(kind: Literal["layer", "rms"], width: int, epsilon: float = 1e-5) -> nn.Module:
    """Build layer normalization or RMS normalization.

    Args:
        kind: `"layer"` subtracts the mean and divides by the standard deviation (Ba et al. 2016). `"rms"` divides by
            the root mean square, without a mean and without a bias (Zhang & Sennrich 2019).
        width: Size of the vectors.
        epsilon: Guard against division by zero, the same in every precision.

    Example:
        >>> build_norm("layer", width=2)(torch.tensor([3.0, 5.0])).round(decimals=2).tolist()
        [-1.0, 1.0]
        >>> build_norm("rms", width=2)(torch.tensor([3.0, 3.0])).round(decimals=2).tolist()
        [1.0, 1.0]
    """
    return nn.LayerNorm(width, epsilon) if kind == "layer" else nn.RMSNorm(width, epsilon)


class Residual(nn.Module):
    """Residual connection with normalization: x + f(norm(x)), or norm(x + f(x)).

    The first form is pre-norm (Xiong et al. 2020), the second is post-norm (Vaswani et al. 2017, section 3.1).

    Args:
        norm: Normalization of vectors.
        dropout: Dropout of the output of f.
        before: True for pre-norm, False for post-norm.

    Example:
        >>> block = Residual(nn.LayerNorm(4), Dropout(0.0), before=True)
        >>> x = torch.ones(1, 2, 4)
        >>> bool((block(x, torch.zeros_like) == x).all())
        True
    """

    def __init__(self, norm: nn.Module, dropout: nn.Module, before: bool) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = dropout
        self.before = before

    def forward(self, x: Vectors, f: Callable[[Vectors], Vectors]) -> Vectors:
        """Apply a function within the residual connection.

        Args:
            x: Input, `(batch, steps, width)`.
            f: Function on vectors of this shape, such as self-attention.
        """
        return self.add(x, f(self.branch_input(x)))

    def add(self, x: Vectors, output: Vectors) -> Vectors:
        """Add the output of `f` to its input, with dropout, and normalize the sum for post-norm."""
        added = x + self.dropout(output)
        return added if self.before else self.norm(added)

    def branch_input(self, x: Vectors) -> Vectors:
        """Return the input of `f`: normalized vectors for pre-norm, `x` for post-norm."""
        return self.norm(x) if self.before else x
