"""The residual connection (He et al. 2016) and the normalisation that goes with it."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

Vectors = Float[Tensor, "batch steps width"]


class Residual(nn.Module):
    """What a function changes, added to what it read: x + f(norm(x)), or norm(x + f(x)) as first published.

    The first is the pre-norm of Xiong et al. (2020), the second that of Vaswani et al. (2017).

    Args:
        norm: the normalisation.
        dropout: of what the function gives.
        before: whether the function reads what is normalised.
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

    def read(self, x: Vectors) -> Vectors:
        """What `f` reads of the input."""
        return self.norm(x) if self.before else x
