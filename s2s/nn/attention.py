"""Multi-head attention (Vaswani et al. 2017, section 3.2), explicit and fused."""

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from s2s.nn.layers import Dropout, States, Vectors
from s2s.nn.positions import Bias, Rotary

Heads = Float[Tensor, "batch head steps size"]
Hidden = Float[Tensor, "rows steps width"]
Query = Float[Tensor, "batch head target size"]
KeyValue = Float[Tensor, "batch head source size"]
KeyValueHeads = Float[Tensor, "batch key_head source size"]
Weights = Float[Tensor, "batch head target source"]
Biases = Float[Tensor, "#batch head target source"]
Mask = Bool[Tensor, "#batch #head #target source"] | Biases | Literal["causal"] | None
"""Where a target position may look: where it is True; everywhere, with these numbers added to the scores; at itself and
what comes before it; everywhere. No kernel has to read a matrix to know what `causal` means, and none need be held:
memory then grows with the length, not its square."""
Implementation = Literal["auto", "fused", "explicit"]

# Measured on processor cores by benchmarks/attention.py: in bf16, and with no more sources than this, the softmax in
# plain sight is the faster one; in fp32 it never is.
_EXPLICIT_UP_TO = 1024


def is_fused_faster(query: Tensor, sources: int) -> bool:
    """Whether torch's kernel reads so many sources faster than a softmax in plain sight, which holds all weights."""
    kind = query.device.type
    # the kernel casts what it is given, and some queries are sums in fp32
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else query.dtype
    return kind != "cpu" or dtype != torch.bfloat16 or sources > _EXPLICIT_UP_TO


def attention_weights(query: Query, key: KeyValue, mask: Mask) -> Weights:
    """Softmax of the scaled dot products: equation 1 of Vaswani et al. (2017), before the values are read."""
    scores = (query * (1 / math.sqrt(query.shape[-1]))) @ key.transpose(-2, -1)
    if isinstance(mask, str):
        mask = causal_mask(query.shape[2], key.shape[2], query.device)
    if mask is not None and mask.is_floating_point():
        scores = scores + mask
    elif mask is not None:
        # added in place: a mask filled in would copy all scores, and once more on the way back
        scores += torch.zeros_like(mask, dtype=scores.dtype).masked_fill_(~mask, float("-inf"))
    return scores.softmax(dim=-1)


class Attention(nn.Module):
    """Multi-head attention of targets over sources.

    Args:
        width: size of the vectors that are read and written.
        heads: of the queries.
        dropout: of attention weights.
        implementation: how equation 1 is computed.
        size: of a head; when None, heads divide the width.
        key_value_heads: of keys and values, each of which serves equally many heads of queries in their order (Ainslie
            et al. 2023); as many as of queries when None.
        rotary: turns queries and keys by where they stand, in self-attention.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        dropout: float,
        implementation: Implementation,
        size: int | None = None,
        key_value_heads: int | None = None,
        rotary: Rotary | None = None,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.key_value_heads = key_value_heads or heads
        self.implementation: Implementation = implementation
        size = size or width // heads
        self.query = nn.Linear(width, heads * size)
        self.key = nn.Linear(width, self.key_value_heads * size)
        self.value = nn.Linear(width, self.key_value_heads * size)
        self.output = nn.Linear(heads * size, width)
        self.dropout = Dropout(dropout)
        self.rotary = rotary
        for linear in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def project_keys_values(self, states: States, first: int = 0) -> tuple[Heads, Heads]:
        """What the states, the first of which stands at position `first`, offer to be looked for and to be read.

        They are split into heads of keys and values.
        """
        key, value = self._split_heads(self.key(states)), self._split_heads(self.value(states))
        return key if self.rotary is None else self.rotary(key, first), value

    def forward(self, states: Hidden, key: KeyValueHeads, value: KeyValueHeads, mask: Mask, first: int = 0) -> Hidden:
        """What each target position, counted from `first` on, reads from the source positions it may look at.

        Where there are several rows of targets to each source, those of one source follow each other, and the mask
        holds for all of them: they are asked for as one row of that many more positions.
        """
        # not by `len`, which makes a number of a size that an exported graph leaves open
        query, sources = self._project_query(states, first), key.shape[0]
        if several := query.shape[0] != sources:
            query = query.unflatten(0, (sources, -1)).transpose(1, 2).flatten(2, 3)
        read = self.attend(
            query, self._repeat_key_value_heads(key), self._repeat_key_value_heads(value), mask
        ).transpose(1, 2)
        if several:
            read = read.unflatten(1, (-1, states.shape[1])).flatten(0, 1)
        return self.output(read.flatten(2))

    def attend(self, query: Query, key: KeyValue, value: KeyValue, mask: Mask) -> Query:
        """Equation 1 of Vaswani et al. (2017) for each head, between the projections."""
        if self._uses_fused_kernel(query, key):
            rate = self.dropout.rate if self.training else 0.0
            causal = isinstance(mask, str)
            seen = None if isinstance(mask, str) else mask
            if seen is not None and seen.is_floating_point():
                seen = seen.to(query.dtype)
            return functional.scaled_dot_product_attention(query, key, value, seen, dropout_p=rate, is_causal=causal)
        return self.dropout(attention_weights(query, key, mask)) @ value

    def weights(self, states: Vectors, key: KeyValueHeads, mask: Mask) -> Weights:
        """Where each target position looks, the first of them at position 0."""
        return attention_weights(self._project_query(states, 0), self._repeat_key_value_heads(key), mask)

    def _project_query(self, states: Tensor, first: int) -> Tensor:
        query = self.query(states).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return query if self.rotary is None else self.rotary(query, first)

    def _split_heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.key_value_heads, -1)).transpose(1, 2)

    def _repeat_key_value_heads(self, offered: Tensor) -> Tensor:
        """Each head of keys or values once for each head of queries that it serves."""
        if self.key_value_heads == self.heads:
            return offered
        return offered.repeat_interleave(self.heads // self.key_value_heads, dim=1)

    def _uses_fused_kernel(self, query: Tensor, key: Tensor) -> bool:
        if self.implementation != "auto":
            return self.implementation == "fused"
        return is_fused_faster(query, key.shape[2])


def add_bias_to_mask(mask: Mask, bias: Bias | None) -> Mask:
    """The mask with a bias on the scores, which is minus infinity where nobody may look; as it is where there is none.

    A bias is a matrix in any case, so a mask that is none becomes one.
    """
    if bias is None:
        return mask
    if isinstance(mask, str):
        mask = causal_mask(bias.shape[1], bias.shape[2], bias.device)
    return bias[None] if mask is None else bias[None].masked_fill(~mask, float("-inf"))


def causal_mask(targets: int, sources: int, device: torch.device) -> Bool[Tensor, "targets sources"]:
    """True where a target may look: the last target sees all sources, the one before it all but the last, and so on."""
    return torch.ones(targets, sources, dtype=torch.bool, device=device).tril(sources - targets)
