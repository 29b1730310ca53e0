"""One vector for a row of states, whatever lies in its padding."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from s2s.nn.layers import PaddingMask, States, Summary

PoolingKind = Literal["mean", "first", "max", "last", "attention", "summary", "pooler"]
FIRST_TOKEN_POOLING: tuple[PoolingKind, ...] = ("first", "pooler")
"""What is read then begins with something whose state stands for the whole."""


def mean_over_valid(states: States, valid: PaddingMask) -> Summary:
    """The mean of the states of real tokens; zero for a row without any."""
    weights = valid.unsqueeze(-1).to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1).clamp(min=1)


class Pooling(nn.Module):
    """Makes one vector of an encoder's states.

    All kinds but three are weighted means of the states: `mean`, `first`, `last`, and `attention`, whose weights are
    learned: with u = tanh(W h + b), the softmax over real positions of u · v (Yang et al. 2016, equations 5 to 7).
    `max` takes the largest of each number (Collobert et al. 2011), `summary` what the encoder itself summed up, and
    `pooler` is tanh(W h + b) of the first state h, as in BERT's published code (Devlin et al. 2019).
    """

    def __init__(self, kind: PoolingKind, width: int) -> None:
        super().__init__()
        self.kind = kind
        self.inner = nn.Linear(width, width) if kind == "attention" else None
        self.dense = nn.Linear(width, width) if kind == "pooler" else None
        self.score = nn.Linear(width, 1, bias=False) if kind == "attention" else None

    def forward(self, states: States, valid: PaddingMask, summary: Summary) -> Summary:
        """The vector of each row."""
        if self.kind == "summary":
            return summary
        if self.kind == "max":
            return _without_padding(states, valid).amax(dim=1)
        pooled = (self.weights(states, valid).unsqueeze(2) * states).sum(dim=1)
        return pooled if self.dense is None else torch.tanh(self.dense(pooled))

    def weights(self, states: States, valid: PaddingMask) -> Float[Tensor, "batch source"]:
        """How much of each state is in the vector; zero in the padding, and each row sums to one.

        Of `max`, the share of the numbers that come from the state; of `pooler`, those of the state that it changes;
        of `summary`, which may be made of other things than states, the same for all.
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
