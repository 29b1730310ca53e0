"""Multi-head attention (Vaswani et al. 2017, section 3.2), explicit and fused.

`Attention` is the layer. `attention_weights` is equation 1 without the product with the values. Key/value heads may be
fewer than query heads (grouped-query attention), and rotary positions may rotate queries and keys.
"""

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
KeyValueHeads = Float[Tensor, "batch key_value_head source size"]
Weights = Float[Tensor, "batch head target source"]
Biases = Float[Tensor, "#batch head target source"]
Mask = Bool[Tensor, "#batch #head #target source"] | Biases | Literal["causal"] | None
"""Attention mask: the source positions that each target position may attend to.

- A boolean tensor is True where attention is allowed.
- A float tensor is added to the scores, with -inf where attention is not allowed.
- `"causal"` allows each position itself and all earlier positions. It needs as many target as source positions. No mask
  is stored, so memory grows with the length, not with its square.
- None allows all positions."""
Implementation = Literal["auto", "fused", "explicit"]

# Measured on CPU cores by benchmarks/attention.py: in bf16 with at most this many source positions, the explicit
# softmax is faster than torch's fused kernel; in fp32 the explicit softmax is never faster.
_EXPLICIT_UP_TO = 1024


def is_fused_faster(query: Tensor, sources: int) -> bool:
    """Return True if torch's fused kernel is faster than the explicit softmax.

    The explicit softmax holds all attention weights in memory; the fused kernel does not.

    Args:
        query: Queries; their device and data type decide.
        sources: Number of source positions.

    Returns:
        False only for bf16 on a CPU with at most 1,024 source positions (measured by benchmarks/attention.py).

    Example:
        >>> is_fused_faster(torch.zeros(1, 1, 4, 8), sources=16)
        True
        >>> is_fused_faster(torch.zeros(1, 1, 4, 8, dtype=torch.bfloat16), sources=16)
        False
    """
    kind = query.device.type
    # The data type of the query does not decide under autocast: the kernel casts its inputs, and the query may be fp32.
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else query.dtype
    return kind != "cpu" or dtype != torch.bfloat16 or sources > _EXPLICIT_UP_TO


def attention_weights(query: Query, key: KeyValue, mask: Mask) -> Weights:
    """Compute the attention weights of each head, softmax(q kᵀ / √d).

    This is equation 1 of Vaswani et al. (2017) without the product with the values:
    attention(q, k, v) = softmax(q kᵀ / √d) v, where d is the size of a head.

    Args:
        query: Queries, `(batch, head, target, size)`.
        key: Keys, `(batch, head, source, size)`.
        mask: Attention mask, see `Mask`.

    Returns:
        Weights, `(batch, head, target, source)`. They sum to one over the source positions.

    Example:
        A query that equals the second of two keys, without and with a causal mask:

        >>> query = torch.tensor([[0.0, 2.0], [0.0, 2.0]])[None, None]
        >>> key = torch.tensor([[2.0, 0.0], [0.0, 2.0]])[None, None]
        >>> attention_weights(query, key, mask=None)[0, 0].round(decimals=2)
        tensor([[0.0600, 0.9400],
                [0.0600, 0.9400]])
        >>> attention_weights(query, key, mask="causal")[0, 0].round(decimals=2)
        tensor([[1.0000, 0.0000],
                [0.0600, 0.9400]])
    """
    # 1. Scaled dot products: (batch, head, target, size) @ (batch, head, size, source) = (…, target, source).
    # The queries are scaled, not the scores: there are fewer queries than scores.
    scores = (query * (1 / math.sqrt(query.shape[-1]))) @ key.transpose(-2, -1)
    # 2. Attention mask: a score of -inf becomes a weight of zero.
    if isinstance(mask, str):
        mask = causal_mask(query.shape[2], key.shape[2], query.device)
    if mask is not None and mask.is_floating_point():
        scores = scores + mask
    elif mask is not None:
        # Added in place: masked_fill would copy all scores, in the forward and in the backward pass.
        scores += torch.zeros_like(mask, dtype=scores.dtype).masked_fill_(~mask, float("-inf"))
    # 3. Softmax over the source positions.
    return scores.softmax(dim=-1)


class Attention(nn.Module):
    """Multi-head attention of target positions over source positions.

        head_i = softmax(Q_i K_iᵀ / √d) V_i,    output = W_O [head_1; …; head_h]

    (Vaswani et al. 2017, section 3.2.2). Q_i, K_i and V_i are linear projections of the target and source states.

    Args:
        width: Size of the input and output vectors (d_model).
        heads: Number of query heads.
        dropout: Dropout rate of the attention weights.
        implementation: `"fused"` is torch's scaled_dot_product_attention, `"explicit"` the softmax written out, and
            `"auto"` the faster one for device, precision and length. The results are equal up to rounding.
        size: Size of a head; None for `width // heads`.
        key_value_heads: Number of key/value heads, a divisor of `heads`. Each serves `heads // key_value_heads`
            consecutive query heads (grouped-query attention, Ainslie et al. 2023). None for `heads`.
        rotary: Rotary positions of queries and keys, for self-attention; None for none.

    Example:
        Self-attention over a batch of 2 sequences of 5 positions:

        >>> _ = torch.manual_seed(0)
        >>> attention = Attention(width=16, heads=4, dropout=0.0, implementation="auto")
        >>> states = torch.randn(2, 5, 16)
        >>> key, value = attention.project_keys_values(states)
        >>> key.shape
        torch.Size([2, 4, 5, 4])
        >>> attention(states, key, value, mask="causal").shape
        torch.Size([2, 5, 16])
        >>> attention.weights(states, key, mask="causal").shape
        torch.Size([2, 4, 5, 5])
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
        """Project states to keys and values, split into heads.

        The decoder keeps the result for all later steps (key/value cache).

        Args:
            states: Source states, `(batch, source, width)`.
            first: Position of the first state, for rotary positions.

        Returns:
            Keys and values, each `(batch, key_value_heads, source, size)`.
        """
        key, value = self._split_heads(self.key(states)), self._split_heads(self.value(states))
        return key if self.rotary is None else self.rotary(key, first), value

    def forward(self, states: Hidden, key: KeyValueHeads, value: KeyValueHeads, mask: Mask, first: int = 0) -> Hidden:
        """Compute the attention output of each target position.

        Args:
            states: Target states, `(rows, target, width)`. `rows` may be a multiple of `batch`, for example with
                several beam hypotheses of each source. The rows of one source are then adjacent and share its mask, and
                are computed as one row with that many more target positions.
            key: Keys, `(batch, key_value_heads, source, size)`.
            value: Values, of the same shape.
            mask: Attention mask, see `Mask`.
            first: Position of the first target, for rotary positions.

        Returns:
            Output vectors, `(rows, target, width)`.

        Raises:
            ValueError: The mask is `"causal"`, but targets and sources differ in number.
        """
        # The batch size is read from the shape, because len() would turn a dynamic size of an exported graph into a
        # constant.
        sources = key.shape[0]
        if isinstance(mask, str) and states.shape[:2] != (sources, key.shape[2]):
            raise ValueError("the mask 'causal' needs as many rows and positions of targets as of sources")
        # 1. Project the queries: (rows, target, width) -> (rows, head, target, size).
        query = self._project_query(states, first)
        has_several_rows = query.shape[0] != sources
        if has_several_rows:
            # The rows of one source become more target positions: (batch, head, rows / batch · target, size).
            query = query.unflatten(0, (sources, -1)).transpose(1, 2).flatten(2, 3)
        # 2. Attend with each head, then move the heads behind the positions: (batch, target, head, size).
        heads = self.attend(
            query, self._repeat_key_value_heads(key), self._repeat_key_value_heads(value), mask
        ).transpose(1, 2)
        if has_several_rows:
            # Separate the rows again: (rows, target, head, size).
            heads = heads.unflatten(1, (-1, states.shape[1])).flatten(0, 1)
        # 3. Concatenate the heads and project: (rows, target, head · size) -> (rows, target, width).
        return self.output(heads.flatten(2))

    def attend(self, query: Query, key: KeyValue, value: KeyValue, mask: Mask) -> Query:
        """Compute softmax(q kᵀ / √d) v for each head, between the projections.

        Args:
            query: Queries, `(batch, head, target, size)`.
            key: Keys, `(batch, head, source, size)`, one for each query head.
            value: Values, of the same shape as the keys.
            mask: Attention mask, see `Mask`.

        Returns:
            The weighted means of the values, `(batch, head, target, size)`.
        """
        if self._uses_fused_kernel(query, key):
            rate = self.dropout.rate if self.training else 0.0
            causal = isinstance(mask, str)
            seen = None if isinstance(mask, str) else mask
            if seen is not None and seen.is_floating_point():
                seen = seen.to(query.dtype)
            return functional.scaled_dot_product_attention(query, key, value, seen, dropout_p=rate, is_causal=causal)
        return self.dropout(attention_weights(query, key, mask)) @ value

    def weights(self, states: Vectors, key: KeyValueHeads, mask: Mask) -> Weights:
        """Return the attention weights, for inspection; the first target is at position 0.

        Args:
            states: Target states, `(batch, target, width)`.
            key: Keys from `project_keys_values`.
            mask: Attention mask, see `Mask`.

        Returns:
            Weights, `(batch, head, target, source)`, which sum to one over the source positions.
        """
        return attention_weights(self._project_query(states, 0), self._repeat_key_value_heads(key), mask)

    def _project_query(self, states: Tensor, first: int) -> Tensor:
        query = self.query(states).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return query if self.rotary is None else self.rotary(query, first)

    def _split_heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.key_value_heads, -1)).transpose(1, 2)

    def _repeat_key_value_heads(self, offered: Tensor) -> Tensor:
        """Repeat each key/value head for the query heads that it serves."""
        if self.key_value_heads == self.heads:
            return offered
        return offered.repeat_interleave(self.heads // self.key_value_heads, dim=1)

    def _uses_fused_kernel(self, query: Tensor, key: Tensor) -> bool:
        if self.implementation != "auto":
            return self.implementation == "fused"
        return is_fused_faster(query, key.shape[2])


def add_bias_to_mask(mask: Mask, bias: Bias | None) -> Mask:
    """Combine an attention mask with a position bias on the scores.

    Args:
        mask: Attention mask, see `Mask`.
        bias: Bias of each head, `(head, target, source)`; None for none.

    Returns:
        A float mask `(batch, head, target, source)`: the bias, plus a float mask, or with -inf where a boolean mask
        forbids attention. Without a bias, the mask itself.

    Example:
        >>> add_bias_to_mask("causal", torch.tensor([[[0.0, 1.0], [-1.0, 0.0]]]))
        tensor([[[[ 0., -inf],
                  [-1.,  0.]]]])
    """
    if bias is None:
        return mask
    if isinstance(mask, str):
        mask = causal_mask(bias.shape[1], bias.shape[2], bias.device)
    if mask is None:
        return bias[None]
    return bias[None] + mask if mask.is_floating_point() else bias[None].masked_fill(~mask, float("-inf"))


def causal_mask(targets: int, sources: int, device: torch.device) -> Bool[Tensor, "targets sources"]:
    """Build a causal mask for the newest target positions.

    The last target attends to all sources, the one before it to all but the last, and so on.

    Args:
        targets: Number of target positions, at most `sources`.
        sources: Number of source positions.
        device: Device of the mask.

    Returns:
        A mask `(targets, sources)`, True where attention is allowed.

    Example:
        Three positions at once, and the newest two of three:

        >>> causal_mask(3, 3, torch.device("cpu")).int()
        tensor([[1, 0, 0],
                [1, 1, 0],
                [1, 1, 1]], dtype=torch.int32)
        >>> causal_mask(2, 3, torch.device("cpu")).int()
        tensor([[1, 1, 0],
                [1, 1, 1]], dtype=torch.int32)
    """
    return torch.ones(targets, sources, dtype=torch.bool, device=device).tril(sources - targets)
