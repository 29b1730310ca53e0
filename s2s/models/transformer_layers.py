"""Transformer encoder and decoder (Vaswani et al. 2017), pre-norm or post-norm.

The order of this file: the stack that both share, the encoder, the key/value cache and self-attention with it, the
decoder. `s2s.nn.attention` has the attention itself, and `s2s.models.transformer` builds a model from a recipe.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from s2s.models.base import BatchedState, Decoder, Encoder, EncoderOutput, mean_over_valid
from s2s.nn.attention import Attention, Heads, Mask, add_bias_to_mask, causal_mask
from s2s.nn.embeddings import Embedding
from s2s.nn.layers import AttentionWeights, Dropout, FeedForward, Inputs, PaddingMask, Residual, States, Tokens, Vectors
from s2s.nn.positions import PositionBias

Layer = TypeVar("Layer", bound=nn.Module)


class TransformerStack(nn.Module, Generic[Layer]):
    """Base of the Transformer encoder and decoder.

    Args:
        embedding: Token and position embeddings.
        layers: Encoder or decoder layers, first to last.
        norm: Final normalization (pre-norm), or `nn.Identity` (post-norm).
        dropout: Dropout rate of the embeddings.
        bias: Position bias of self-attention, shared by all layers; None for none.
    """

    def __init__(
        self, embedding: Embedding, layers: Sequence[Layer], norm: nn.Module, dropout: float, bias: PositionBias | None
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.max_positions = embedding.max_positions
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList(layers)
        self.norm = norm
        self.bias = bias

    def typed_layers(self) -> list[Layer]:
        """Return the layers with their own type, which `nn.ModuleList` does not keep."""
        return cast("list[Layer]", list(self.layers))

    def add_position_bias(self, mask: Mask, new: int, length: int) -> Mask:
        """Add the position bias to the attention mask of the newest positions.

        Args:
            mask: Attention mask, see `s2s.nn.attention.Mask`.
            new: Number of target positions, the newest ones.
            length: Number of positions so far.
        """
        return add_bias_to_mask(mask, None if self.bias is None else self.bias(new, length))


def _self_attention_weights(attention: Attention, block: Residual, x: Tensor, mask: Mask) -> Heads:
    inputs = block.branch_input(x)
    return attention.weights(inputs, attention.project_keys_values(inputs)[0], mask)


class EncoderLayer(nn.Module):
    """Encoder layer: self-attention over the source, then the feed-forward block.

    Args:
        attention: Self-attention.
        feedforward: Position-wise feed-forward block.
        residuals: Residual connections of both.

    Example:
        >>> residuals = (
        ...     Residual(nn.LayerNorm(8), Dropout(0.0), before=True),
        ...     Residual(nn.LayerNorm(8), Dropout(0.0), before=True),
        ... )
        >>> attention = Attention(width=8, heads=2, dropout=0.0, implementation="auto")
        >>> layer = EncoderLayer(attention, FeedForward(8, 32, activation="relu", dropout=0.0), residuals)
        >>> layer(torch.randn(2, 5, 8), mask=None).shape
        torch.Size([2, 5, 8])
    """

    def __init__(self, attention: Attention, feedforward: FeedForward, residuals: tuple[Residual, Residual]) -> None:
        super().__init__()
        self.attention = attention
        self.feedforward = feedforward
        self.attention_block, self.feedforward_block = residuals

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        """Apply the layer to all positions.

        Args:
            x: States, `(batch, source, width)`.
            mask: Attention mask; None if all positions are attended to.

        Returns:
            New states of the same shape.
        """
        # 1. Self-attention: queries, keys and values come from the same states.
        x = self.attention_block(
            x, lambda inputs: self.attention(inputs, *self.attention.project_keys_values(inputs), mask)
        )
        # 2. Feed-forward block, applied to each position.
        return self.feedforward_block(x, self.feedforward)

    def self_attention_weights(self, x: Tensor, mask: Mask) -> Heads:
        """Return the self-attention weights, `(batch, head, source, source)`."""
        return _self_attention_weights(self.attention, self.attention_block, x, mask)


class TransformerEncoder(TransformerStack[EncoderLayer], Encoder):
    """Transformer encoder; the summary is the mean of the states of real tokens.

    Example:
        Encode one source of 3 tokens and one of 2:

        >>> from s2s.models.transformer import EncoderSettings, build_encoder
        >>> encoder, width = build_encoder(EncoderSettings(width=16, heads=2, feedforward=32), source_size=100)
        >>> source = torch.tensor([[5, 6, 7], [8, 9, 0]])
        >>> valid = torch.tensor([[True, True, True], [True, True, False]])
        >>> output = encoder(source, valid)
        >>> output.states.shape, output.summary.shape
        (torch.Size([2, 3, 16]), torch.Size([2, 16]))
    """

    def read(self, vectors: States, valid: PaddingMask) -> EncoderOutput:
        """Encode embedded sources.

        Args:
            vectors: Embeddings, `(batch, source, width)`.
            valid: Padding mask, `(batch, source)`.

        Returns:
            States `(batch, source, width)`, the padding mask, and the summary `(batch, width)`.
        """
        # 1. Dropout of the embeddings: (batch, source, width).
        x = self.dropout(vectors)
        # 2. Attention mask from the padding mask: (batch, 1, 1, source), the same for all heads and target positions.
        mask = self._mask(valid)
        # 3. The layers keep the shape.
        for layer in self.typed_layers():
            x = layer(x, mask)
        # 4. Final normalization, and the mean over real tokens as the summary: (batch, width).
        x = self.norm(x)
        return EncoderOutput(x, valid, mean_over_valid(x, valid))

    def states_by_layer(self, vectors: States, valid: PaddingMask) -> list[States]:
        """Return the embeddings and the output of each layer, then the final norm (pre-norm)."""
        found, mask = [self.dropout(vectors)], self._mask(valid)
        for layer in self.typed_layers():
            found.append(layer(found[-1], mask))
        return found if isinstance(self.norm, nn.Identity) else [*found, self.norm(found[-1])]

    def self_attention_weights(
        self, source: Inputs, valid: PaddingMask
    ) -> Float[Tensor, "batch layer head source source"]:
        """Return the self-attention weights of each layer.

        Returns:
            Weights, `(batch, layer, head, source, source)`.
        """
        x = self.dropout(self.embedding(source))
        mask, weights = self._mask(valid), []
        for layer in self.typed_layers():
            weights.append(layer.self_attention_weights(x, mask))
            x = layer(x, mask)
        return torch.stack(weights, dim=1)

    def _mask(self, valid: PaddingMask) -> Mask:
        return self.add_position_bias(valid[:, None, None, :], valid.shape[1], valid.shape[1])


@dataclass(frozen=True)
class KeysAndValues(BatchedState):
    """Keys and values of one layer.

    Attributes:
        keys: Keys of all positions, `(batch, key_value_heads, length, size)`.
        values: Likewise.
    """

    keys: Heads
    values: Heads


@dataclass(frozen=True)
class KeyValueCache(KeysAndValues):
    """Key/value cache of self-attention: keys and values of the target so far.

    Attributes:
        rows: Rows of the keys and values that this cache stands for, in order, `(rows,)`; None for all. Beam search
            reorders hypotheses by setting `rows`; the tensors are copied when the next token is appended.
    """

    rows: Int[Tensor, " rows"] | None = None

    def select(self, rows: Int[Tensor, " chosen"]) -> "KeyValueCache":
        """Return the cache of the chosen rows, in that order; see `BatchedState.select`."""
        return replace(self, rows=rows if self.rows is None else self.rows.index_select(0, rows))

    def append(self, new: KeysAndValues) -> "KeyValueCache":
        """Return the cache with new positions, each `(rows, key_value_heads, new, size)`."""
        return KeyValueCache(_append(self.keys, self.rows, new.keys), _append(self.values, self.rows, new.values))


def _append(past: Tensor, rows: Tensor | None, new: Tensor) -> Tensor:
    """Append new positions to the chosen rows."""
    if rows is None:
        return torch.cat((past, new), dim=2)
    if torch.is_grad_enabled() or past.device.type != "cpu":
        return torch.cat((past.index_select(0, rows), new), dim=2)
    # One copy instead of two (measured on CPUs): the rows go straight to their place in the longer tensor.
    length = past.shape[2]
    grown = new.new_empty(*new.shape[:2], length + new.shape[2], new.shape[3])
    torch.index_select(past, 0, rows, out=grown[:, :, :length])
    grown[:, :, length:] = new
    return grown


@dataclass(frozen=True)
class TransformerContext(BatchedState):
    """Cross-attention keys and values of each layer, computed once from the source.

    Attributes:
        layers: Keys and values of the source for each layer.
        mask: Padding mask, `(batch, 1, 1, source)`.
    """

    layers: tuple[KeysAndValues, ...]
    mask: Bool[Tensor, "batch 1 1 source"]

    def repeat_for_beams(self, rows: int, times: int, device: torch.device) -> "TransformerContext":
        """Return the context unchanged: attention shares a source between its hypotheses."""
        return self


@dataclass(frozen=True)
class TransformerState(BatchedState):
    """Key/value caches of the target so far.

    Attributes:
        layers: Cache of each layer; empty at the start.
        length: Number of tokens so far.
    """

    layers: tuple[KeyValueCache, ...]
    length: int

    def cache_of(self, layer: int) -> KeyValueCache | None:
        """Return the cache of a layer; None before the first token."""
        return self.layers[layer] if self.length else None


def cached_self_attention(
    attention: Attention, block: Residual, x: Tensor, past: KeyValueCache | None, mask: Mask
) -> tuple[Tensor, KeyValueCache]:
    """Apply self-attention to new positions, with a key/value cache.

    The new positions attend to the cached positions and to themselves.

    Args:
        attention: Self-attention.
        block: Its residual connection.
        x: States of the new positions, `(batch, new, width)`.
        past: Cache of the positions before; None at the start.
        mask: Attention mask of the new positions over all `past + new` positions.

    Returns:
        The new states, and the cache of all positions.
    """
    inputs = block.branch_input(x)
    # 1. Keys and values of the new positions, which follow the cached ones.
    first = past.keys.shape[2] if past else 0
    new = KeyValueCache(*attention.project_keys_values(inputs, first))
    # 2. Append them to the cache: (batch, key_value_heads, past + new, size).
    cache = past.append(new) if past else new
    # 3. The new positions attend to all positions.
    return block.add(x, attention(inputs, cache.keys, cache.values, mask, first)), cache


class DecoderLayer(nn.Module):
    """Decoder layer: masked self-attention, cross-attention, feed-forward block.

    Args:
        self_attention: Self-attention over the target.
        cross_attention: Attention of target positions over source positions.
        feedforward: Position-wise feed-forward block.
        residuals: Residual connections of the three.
    """

    def __init__(
        self,
        self_attention: Attention,
        cross_attention: Attention,
        feedforward: FeedForward,
        residuals: tuple[Residual, Residual, Residual],
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.cross_attention = cross_attention
        self.feedforward = feedforward
        self.self_block, self.cross_block, self.feedforward_block = residuals

    def apply_self_attention(self, x: Tensor, past: KeyValueCache | None, mask: Mask) -> tuple[Tensor, KeyValueCache]:
        """Apply masked self-attention, with a key/value cache.

        Args:
            x: States of the new target positions, `(batch, new, width)`.
            past: Cache of the positions before; None at the start.
            mask: Attention mask, usually causal.

        Returns:
            The new states, and the cache of all positions.
        """
        return cached_self_attention(self.self_attention, self.self_block, x, past, mask)

    def apply_cross_attention(self, x: Tensor, source: KeysAndValues, mask: Tensor) -> Tensor:
        """Apply cross-attention over the source.

        Args:
            x: States after self-attention, `(rows, new, width)`; `rows` may be a multiple of `batch` in beam search.
            source: Keys and values of the source.
            mask: Padding mask of the source, `(batch, 1, 1, source)`.

        Returns:
            New states, `(rows, new, width)`.
        """
        return self.cross_block(x, lambda inputs: self.cross_attention(inputs, source.keys, source.values, mask))

    def apply_feedforward(self, x: Tensor) -> Tensor:
        """Apply the feed-forward block to each position, `(rows, new, width)`."""
        return self.feedforward_block(x, self.feedforward)

    def self_attention_weights(self, x: Tensor, mask: Mask) -> Heads:
        """Return the self-attention weights, `(batch, head, target, target)`."""
        return _self_attention_weights(self.self_attention, self.self_block, x, mask)

    def cross_attention_weights(self, x: Tensor, key: Tensor, mask: Tensor) -> Heads:
        """Return the cross-attention weights, `(batch, head, target, source)`.

        Args:
            x: States after `apply_self_attention`.
            key: Keys of the source.
            mask: Padding mask of the source.
        """
        return self.cross_attention.weights(self.cross_block.branch_input(x), key, mask)


class TransformerDecoder(TransformerStack[DecoderLayer], Decoder[TransformerContext, TransformerState]):
    """Transformer decoder with causal self-attention and cross-attention.

    Example:
        Decoding all target tokens at once and token by token gives the same states:

        >>> from s2s.models.transformer import Settings, build
        >>> _ = torch.manual_seed(0)
        >>> model = build(Settings(width=16, heads=2, feedforward=32), source_size=100, target_size=100).eval()
        >>> source, target = torch.tensor([[5, 6, 7]]), torch.tensor([[8, 9]])
        >>> context, start = model.decoder.start(model.encoder(source, source > 0), limit=2)
        >>> at_once, _ = model.decoder(context, start, target)
        >>> first, state = model.decoder(context, start, target[:, :1])
        >>> second, state = model.decoder(context, state, target[:, 1:])
        >>> torch.allclose(at_once, torch.cat((first, second), dim=1), atol=1e-5), state.length
        (True, 2)
    """

    def start(self, memory: EncoderOutput, limit: int) -> tuple[TransformerContext, TransformerState]:
        """Project the source to the cross-attention keys and values of each layer.

        Returns:
            These keys and values with the padding mask, and an empty key/value cache.
        """
        layers = self.typed_layers()
        source = tuple(KeysAndValues(*layer.cross_attention.project_keys_values(memory.states)) for layer in layers)
        return TransformerContext(source, memory.valid[:, None, None, :]), TransformerState((), 0)

    def forward(
        self, context: TransformerContext, state: TransformerState, tokens: Tokens
    ) -> tuple[Vectors, TransformerState]:
        """Decode tokens with causal self-attention.

        Args:
            context: Keys and values of the source.
            state: Key/value cache of the tokens before.
            tokens: Token ids, `(batch, steps)`.

        Returns:
            The state after each token, `(batch, steps, width)`, before the output projection; and the new cache.
        """
        x, state, _ = self._decode(context, state, tokens)
        return x, state

    def cross_attention_weights(self, memory: EncoderOutput, tokens: Tokens) -> AttentionWeights:
        """Return the cross-attention weights of each layer with teacher forcing.

        Returns:
            Weights, `(batch, layer, head, target, source)`.
        """
        context, state = self.start(memory, tokens.shape[1])
        return torch.stack(self._decode(context, state, tokens, weights="cross")[2], dim=1)

    def self_attention_weights(self, memory: EncoderOutput, tokens: Tokens) -> AttentionWeights:
        """Return the self-attention weights of each layer with teacher forcing.

        Returns:
            Weights, `(batch, layer, head, target, target)`.
        """
        context, state = self.start(memory, tokens.shape[1])
        return torch.stack(self._decode(context, state, tokens, weights="self")[2], dim=1)

    def _decode(
        self,
        context: TransformerContext,
        state: TransformerState,
        tokens: Tensor,
        weights: Literal["self", "cross"] | None = None,
    ) -> tuple[Tensor, TransformerState, list[Tensor]]:
        """Decode tokens; also return the weights of self-attention or cross-attention in each layer, if wanted."""
        # 1. Embed the new tokens; the first one is at position state.length. (batch, new, width)
        x = self.dropout(self.embedding(tokens, state.length))
        length = state.length + tokens.shape[1]
        new = tokens.shape[1]
        # 2. Causal mask of the new positions over all positions, plus the position bias if there is one.
        mask = self.add_position_bias(incremental_causal_mask(new, length, tokens.device), new, length)
        caches: list[KeyValueCache] = []
        found: list[Tensor] = []
        for i, (layer, source) in enumerate(zip(self.typed_layers(), context.layers, strict=True)):
            if weights == "self":
                found.append(layer.self_attention_weights(x, mask))
            # 3. Self-attention over the target so far; the cache grows to `length` positions.
            x, cache = layer.apply_self_attention(x, state.cache_of(i), mask)
            caches.append(cache)
            if weights == "cross":
                found.append(layer.cross_attention_weights(x, source.keys, context.mask))
            # 4. Cross-attention over the source, then the feed-forward block.
            x = layer.apply_feedforward(layer.apply_cross_attention(x, source, context.mask))
        # 5. Final normalization (pre-norm): (batch, new, width).
        return self.norm(x), TransformerState(tuple(caches), length), found


def incremental_causal_mask(new: int, length: int, device: torch.device) -> Mask:
    """Return the causal mask of the newest positions in the cheapest form.

    Args:
        new: Number of target positions, the newest ones.
        length: Number of positions so far.
        device: Device of the mask.

    Returns:
        None for one new position, which attends to all; `"causal"` if all positions are new; otherwise a boolean mask
        `(1, 1, new, length)`.

    Example:
        >>> incremental_causal_mask(1, 5, torch.device("cpu")) is None
        True
        >>> incremental_causal_mask(5, 5, torch.device("cpu"))
        'causal'
        >>> incremental_causal_mask(2, 3, torch.device("cpu")).int()
        tensor([[[[1, 1, 0],
                  [1, 1, 1]]]], dtype=torch.int32)
    """
    if new == 1:
        return None
    return "causal" if new == length else causal_mask(new, length, device)[None, None]
