"""Multi-head attention (Vaswani et al. 2017, section 3.2), explicit and fused."""

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from s2s.nn.layers import Dropout, States, Vectors

Heads = Float[Tensor, "batch head steps size"]
Asked = Float[Tensor, "batch head target size"]
Offered = Float[Tensor, "batch head source size"]
Weights = Float[Tensor, "batch head target source"]
Mask = Bool[Tensor, "#batch #head #target source"] | Literal["causal"] | None
"""Where a target position may look: where it is True; at itself and what comes before it; everywhere. No kernel has to
read a matrix to know what `causal` means, and none need be held: memory then grows with the length, not its square."""
Implementation = Literal["auto", "fused", "explicit"]

# Measured on processor cores by benchmarks/attention.py: in bf16, and with no more sources than this, the softmax in
# plain sight is the faster one; in fp32 it never is.
_EXPLICIT_UP_TO = 1024


def attention_weights(query: Asked, key: Offered, mask: Mask) -> Weights:
    """Softmax of the scaled dot products: equation 1 of Vaswani et al. (2017), before the values are read."""
    scores = (query * (1 / math.sqrt(query.shape[-1]))) @ key.transpose(-2, -1)
    if isinstance(mask, str):
        mask = causal_mask(query.shape[2], key.shape[2], query.device)
    if mask is not None:
        # added in place: a mask filled in would copy all scores, and once more on the way back
        scores += torch.zeros_like(mask, dtype=scores.dtype).masked_fill_(~mask, float("-inf"))
    return scores.softmax(dim=-1)


class Attention(nn.Module):
    """Multi-head attention of targets over sources.

    Heads divide the width, and dropout is that of attention weights.
    """

    def __init__(self, width: int, heads: int, dropout: float, implementation: Implementation) -> None:
        super().__init__()
        self.heads = heads
        self.implementation: Implementation = implementation
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.dropout = Dropout(dropout)
        for linear in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def keys_and_values(self, states: States) -> tuple[Heads, Heads]:
        """What the states offer to be looked for and to be read, split into heads."""
        return self._split(self.key(states)), self._split(self.value(states))

    def forward(self, states: Vectors, key: Offered, value: Offered, mask: Mask) -> Vectors:
        """What each target position reads from the source positions that it may look at."""
        read = self.read(self._split(self.query(states)), key, value, mask)
        return self.output(read.transpose(1, 2).flatten(2))

    def read(self, query: Asked, key: Offered, value: Offered, mask: Mask) -> Asked:
        """Equation 1 of Vaswani et al. (2017) for each head, between the projections."""
        if self._fused(query, key):
            rate = self.dropout.rate if self.training else 0.0
            causal = isinstance(mask, str)
            seen = None if causal else mask
            return functional.scaled_dot_product_attention(query, key, value, seen, dropout_p=rate, is_causal=causal)
        return self.dropout(attention_weights(query, key, mask)) @ value

    def weights(self, states: Vectors, key: Offered, mask: Mask) -> Weights:
        """Where each target position looks."""
        return attention_weights(self._split(self.query(states)), key, mask)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def _fused(self, query: Tensor, key: Tensor) -> bool:
        if self.implementation != "auto":
            return self.implementation == "fused"
        return query.device.type != "cpu" or query.dtype != torch.bfloat16 or key.shape[2] > _EXPLICIT_UP_TO


def causal_mask(targets: int, sources: int, device: torch.device) -> Bool[Tensor, "targets sources"]:
    """True where a target may look: the last target sees all sources, the one before it all but the last, and so on."""
    return torch.ones(targets, sources, dtype=torch.bool, device=device).tril(sources - targets)
