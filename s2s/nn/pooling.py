"""Pooling: one vector for a sequence of encoder states, without the padding."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from s2s.nn.layers import PaddingMask, States, Summary

PoolingKind = Literal["mean", "first", "max", "last", "attention", "summary", "pooler"]
FIRST_TOKEN_POOLING: tuple[PoolingKind, ...] = ("first", "pooler")
"""Kinds that read the state of the first position; the task puts a special token or vector there."""


def mean_over_valid(states: States, valid: PaddingMask) -> Summary:
    """Compute the mean of the states of real tokens.

    Args:
        states: Encoder states, `(batch, source, width)`.
        valid: Padding mask, `(batch, source)`, True for real tokens.

    Returns:
        The means, `(batch, width)`; zeros for a row without real tokens.

    Example:
        >>> states = torch.tensor([[[1.0], [3.0], [100.0]]])
        >>> mean_over_valid(states, torch.tensor([[True, True, False]]))
        tensor([[2.]])
    """
    weights = valid.unsqueeze(-1).to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1).clamp(min=1)


class Pooling(nn.Module):
    """Pooling of encoder states into one vector for each row.

    | kind | vector |
    |--|--|
    | `mean` | mean of the states |
    | `first`, `last` | state of the first or the last real position |
    | `max` | largest value of each number (Collobert et al. 2011) |
    | `attention` | weighted mean with learned weights softmax(u · v), u = tanh(W h + b) (Yang et al. 2016) |
    | `summary` | the encoder's own summary |
    | `pooler` | tanh(W h + b) of the first state h, as in BERT's published code (Devlin et al. 2019) |

    Args:
        kind: One of these kinds.
        width: Size of the states.

    Example:
        >>> states, valid = torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[True, True, False]])
        >>> Pooling("last", width=1)(states, valid, summary=torch.zeros(1, 1))
        tensor([[3.]])
    """

    def __init__(self, kind: PoolingKind, width: int) -> None:
        super().__init__()
        self.kind = kind
        self.inner = nn.Linear(width, width) if kind == "attention" else None
        self.dense = nn.Linear(width, width) if kind == "pooler" else None
        self.score = nn.Linear(width, 1, bias=False) if kind == "attention" else None

    def forward(self, states: States, valid: PaddingMask, summary: Summary) -> Summary:
        """Pool the states of each row.

        Args:
            states: Encoder states, `(batch, source, width)`.
            valid: Padding mask, `(batch, source)`.
            summary: The encoder's summary, `(batch, width)`, for the kind `summary`.

        Returns:
            One vector for each row, `(batch, width)`.
        """
        if self.kind == "summary":
            return summary
        if self.kind == "max":
            return _without_padding(states, valid).amax(dim=1)
        pooled = (self.weights(states, valid).unsqueeze(2) * states).sum(dim=1)
        return pooled if self.dense is None else torch.tanh(self.dense(pooled))

    def weights(self, states: States, valid: PaddingMask) -> Float[Tensor, "batch source"]:
        """Return the share of each state in the pooled vector.

        For `max` this is the share of the numbers that come from the state. For `pooler` it is 1 for the first state.
        For `summary`, which need not be a mean of states, all real positions have the same share.

        Returns:
            Weights, `(batch, source)`. They are zero for padding and sum to one.
        """
        if self.inner is not None and self.score is not None:
            scores = self.score(torch.tanh(self.inner(states))).squeeze(2)
            return scores.masked_fill(~valid, float("-inf")).softmax(dim=1)
        if self.kind == "max":
            chosen = _without_padding(states, valid).argmax(dim=1)
            counts = states.new_zeros(valid.shape).scatter_add_(1, chosen, torch.ones_like(chosen, dtype=states.dtype))
            return counts / states.shape[2]
        real = valid.to(states.dtype)
        if self.kind in (*FIRST_TOKEN_POOLING, "last"):
            place = valid.sum(dim=1) - 1 if self.kind == "last" else valid.new_zeros(len(valid), dtype=torch.long)
            return torch.zeros_like(real).scatter_(1, place.clamp(min=0).unsqueeze(1), 1.0)
        return real / real.sum(dim=1, keepdim=True).clamp(min=1)


def _without_padding(states: Tensor, valid: Tensor) -> Tensor:
    return states.masked_fill(~valid.unsqueeze(2), float("-inf"))
