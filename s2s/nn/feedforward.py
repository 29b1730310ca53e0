"""The position-wise feed-forward block (Vaswani et al. 2017, section 3.3)."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from s2s.nn.dropout import Dropout


class FeedForward(nn.Module):
    """Two linear maps with a non-linearity between them, applied to each position alone.

    Args:
        width: size of input and output.
        inner: size between the two maps.
        activation: the non-linearity.
        dropout: probability of dropping a number after the non-linearity.
    """

    def __init__(self, width: int, inner: int, activation: Literal["relu", "gelu"], dropout: float) -> None:
        super().__init__()
        self.expand = nn.Linear(width, inner)
        self.contract = nn.Linear(inner, width)
        self.activation = {"relu": functional.relu, "gelu": functional.gelu}[activation]
        self.dropout = Dropout(dropout)
        for linear in (self.expand, self.contract):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Float[Tensor, "batch steps width"]) -> Float[Tensor, "batch steps width"]:
        """The block's output for each position."""
        return self.contract(self.dropout(self.activation(self.expand(x))))
