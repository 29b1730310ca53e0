"""Transformer encoder and decoder (Vaswani et al. 2017), pre-norm or post-norm.

The order of this file: the stack that both share, the encoder, the key/value cache, the decoder. `s2s.nn.attention` has
the attention itself, and `s2s.models.transformer` builds a model from a recipe.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Generic, TypeVar, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from s2s.models.base import BatchedState, Decoder, Encoder, EncoderOutput, mean_over_valid
from s2s.nn.attention import Attention, Heads, Mask, add_bias_to_mask, causal_mask
from s2s.nn.embeddings import Embedding
from s2s.nn.layers import AttentionWeights, Dropout, FeedForward, Inputs, PaddingMask, Residual, States, Tokens, Vectors
from s2s.nn.positions import PositionBias

Layer = TypeVar("Layer", bound=nn.Module)
S = TypeVar("S", bound="TransformerState")


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
        return add_bias_to_mask(mask, self.bias and self.bias(new, length))


def _self_attention_weights(attention: Attention, block: Residual, x: Tensor, mask: Mask) -> Heads:
    read = block.branch_input(x)
    return attention.weights(read, attention.project_keys_values(read)[0], mask)


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
            mask: Attention mask.

        Returns:
            New states of the same shape.
        """
        # 1. Self-attention: queries, keys and values come from the same states.
        x = self.attention_block(x, lambda read: self.attention(read, *self.attention.project_keys_values(read), mask))
        # 2. Feed-forward block, applied to each position.
        return self.feedforward_block(x, self.feedforward)

    def attention_weights(self, x: Tensor, mask: Mask) -> Heads:
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
        for layer in self.layers:
            x = layer(x, mask)
        # 4. Final normalization, and the mean over real tokens as the summary: (batch, width).
        x = self.norm(x)
        return EncoderOutput(x, valid, mean_over_valid(x, valid))

    def states_by_layer(self, vectors: States, valid: PaddingMask) -> list[States]:
        """Return the embeddings and the output of each layer, then the final norm (pre-norm)."""
        found, mask = [self.dropout(vectors)], self._mask(valid)
        for layer in self.layers:
            found.append(layer(found[-1], mask))
        return found if isinstance(self.norm, nn.Identity) else [*found, self.norm(found[-1])]

    def attention_weights(self, source: Inputs, valid: PaddingMask) -> Float[Tensor, "batch layer head source source"]:
        """Return the self-attention weights of each layer.

        Returns:
            Weights, `(batch, layer, head, source, source)`.
        """
        x = self.dropout(self.embedding(source))
        mask, weights = self._mask(valid), []
        for layer in self.typed_layers():
            weights.append(layer.attention_weights(x, mask))
            x = layer(x, mask)
        return torch.stack(weights, dim=1)

    def _mask(self, valid: PaddingMask) -> Mask:
        return self.add_position_bias(valid[:, None, None, :], valid.shape[1], valid.shape[1])


@dataclass(frozen=True)
class TransformerContext(BatchedState):
    """Cross-attention keys and values of each layer, computed once from the source.

    Attributes:
        keys: One tensor `(batch, key_value_heads, source, size)` for each layer.
        values: Likewise.
        mask: Padding mask, `(batch, 1, 1, source)`.
    """

    keys: tuple[Heads, ...]
    values: tuple[Heads, ...]
    mask: Bool[Tensor, "batch 1 1 source"]

    def repeat_for_beams(self, rows: int, times: int, device: torch.device) -> "TransformerContext":
        """Return the context unchanged: attention shares a source between its hypotheses."""
        return self


@dataclass(frozen=True)
class TransformerState(BatchedState):
    """Key/value cache of self-attention: keys and values of the target so far.

    Attributes:
        keys: One tensor `(batch, key_value_heads, length, size)` for each layer; empty at the start.
        values: Likewise.
        length: Number of tokens so far.
        rows: Rows of the keys and values that this state has, in order, `(rows,)`; None for all. `select` only notes
            them: the cache is copied once, when the next token is appended.
    """

    keys: tuple[Heads, ...]
    values: tuple[Heads, ...]
    length: int
    rows: Int[Tensor, " rows"] | None = field(default=None, kw_only=True)

    def select(self: S, rows: Int[Tensor, " chosen"]) -> S:
        """Return the state of the chosen rows, in that order; see `BatchedState.select`."""
        if not self.length:
            return super().select(rows)
        # All fields but the keys and values, which stay as they are.
        rest = super(TransformerState, replace(self, keys=(), values=())).select(rows)
        return replace(rest, keys=self.keys, values=self.values, rows=rows if rest.rows is None else rest.rows)

    def cached_keys_values(self, layer: int) -> "KeysAndValues | None":
        """Return the cached keys and values of a layer; None before the first token."""
        return KeysAndValues(self.keys[layer], self.values[layer], self.rows) if self.length else None


@dataclass(frozen=True)
class KeysAndValues:
    """Keys and values of one layer; for self-attention its key/value cache.

    Attributes:
        keys: Keys of all positions, `(batch, key_value_heads, length, size)`.
        values: Likewise.
        rows: Their rows that are continued, in order, `(rows,)`; None for all.
    """

    keys: Heads
    values: Heads
    rows: Int[Tensor, " rows"] | None = None

    def append(self, keys: Heads, values: Heads) -> "KeysAndValues":
        """Return these rows with new positions, each `(rows, key_value_heads, new, size)`."""
        return KeysAndValues(_append(self.keys, self.rows, keys), _append(self.values, self.rows, values))


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


def unzip_keys_values(layers: Sequence[KeysAndValues]) -> tuple[tuple[Heads, ...], tuple[Heads, ...]]:
    """Return the keys of all layers, and their values."""
    return tuple(layer.keys for layer in layers), tuple(layer.values for layer in layers)


def cached_self_attention(
    attention: Attention, block: Residual, x: Tensor, past: KeysAndValues | None, mask: Mask
) -> tuple[Tensor, KeysAndValues]:
    """Apply self-attention to the newest positions, with a key/value cache.

    The newest positions attend to the cached positions and to themselves.

    Args:
        attention: Self-attention.
        block: Its residual connection.
        x: States of the newest positions, `(batch, new, width)`.
        past: Cache of the positions before; None at the start.
        mask: Attention mask of the newest positions over all `past + new` positions.

    Returns:
        The new states, and the cache of all positions.
    """
    kept: list[KeysAndValues] = []
    return block(x, partial(_attend, attention, past, mask, kept)), kept[0]


def _attend(
    attention: Attention, past: KeysAndValues | None, mask: Mask, kept: list[KeysAndValues], read: Tensor
) -> Tensor:
    # 1. Keys and values of the newest positions, which follow the cached ones.
    first = past.keys.shape[2] if past else 0
    new = KeysAndValues(*attention.project_keys_values(read, first))
    # 2. Append them to the cache: (batch, key_value_heads, past + new, size).
    cache = past.append(new.keys, new.values) if past else new
    kept.append(cache)
    # 3. The newest positions attend to all positions.
    return attention(read, cache.keys, cache.values, mask, first)


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

    def apply_self_attention(self, x: Tensor, past: KeysAndValues | None, mask: Mask) -> tuple[Tensor, KeysAndValues]:
        """Apply masked self-attention, with a key/value cache.

        Args:
            x: States of the newest target positions, `(batch, new, width)`.
            past: Cache of the positions before; None at the start.
            mask: Attention mask, usually causal.

        Returns:
            The new states, and the cache of all positions.
        """
        return cached_self_attention(self.self_attention, self.self_block, x, past, mask)

    def apply_cross_attention(self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Apply cross-attention over the source, then the feed-forward block.

        Args:
            x: States after self-attention, `(rows, new, width)`; `rows` may be a multiple of `batch` in beam search.
            key: Keys of the source, `(batch, key_value_heads, source, size)`.
            value: Values of the source.
            mask: Padding mask of the source, `(batch, 1, 1, source)`.

        Returns:
            The output of the layer, `(rows, new, width)`.
        """
        x = self.cross_block(x, lambda read: self.cross_attention(read, key, value, mask))
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
        offers = [KeysAndValues(*layer.cross_attention.project_keys_values(memory.states)) for layer in layers]
        context = TransformerContext(*unzip_keys_values(offers), memory.valid[:, None, None, :])
        return context, TransformerState((), (), 0)

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
        x, state, _ = self._feed(context, state, tokens, with_weights=False)
        return x, state

    def attention_weights(self, memory: EncoderOutput, tokens: Tokens) -> AttentionWeights:
        """Return the cross-attention weights of each layer with teacher forcing.

        Returns:
            Weights, `(batch, layer, head, target, source)`.
        """
        context, state = self.start(memory, tokens.shape[1])
        return torch.stack(self._feed(context, state, tokens, with_weights=True)[2], dim=1)

    def self_attention_weights(self, memory: EncoderOutput, tokens: Tokens) -> AttentionWeights:
        """Return the self-attention weights of each layer with teacher forcing.

        Returns:
            Weights, `(batch, layer, head, target, target)`.
        """
        length = tokens.shape[1]
        context, _ = self.start(memory, length)
        x, weights = self.dropout(self.embedding(tokens)), []
        mask = self.add_position_bias(incremental_causal_mask(length, length, tokens.device), length, length)
        for i, layer in enumerate(self.typed_layers()):
            weights.append(layer.self_attention_weights(x, mask))
            x = layer.apply_cross_attention(
                layer.apply_self_attention(x, None, mask)[0], context.keys[i], context.values[i], context.mask
            )
        return torch.stack(weights, dim=1)

    def _feed(
        self, context: TransformerContext, state: TransformerState, tokens: Tensor, with_weights: bool
    ) -> tuple[Tensor, TransformerState, list[Tensor]]:
        # 1. Embed the new tokens; the first one is at position state.length. (batch, new, width)
        x = self.dropout(self.embedding(tokens, state.length))
        length = state.length + tokens.shape[1]
        new = tokens.shape[1]
        # 2. Causal mask of the new positions over all positions, plus the position bias if there is one.
        mask = self.add_position_bias(incremental_causal_mask(new, length, tokens.device), new, length)
        kept, weights = [], []
        for i, layer in enumerate(self.typed_layers()):
            # 3. Self-attention over the target so far; the cache grows to `length` positions.
            x, keep = layer.apply_self_attention(x, state.cached_keys_values(i), mask)
            kept.append(keep)
            if with_weights:
                weights.append(layer.cross_attention_weights(x, context.keys[i], context.mask))
            # 4. Cross-attention over the source, then the feed-forward block.
            x = layer.apply_cross_attention(x, context.keys[i], context.values[i], context.mask)
        # 5. Final normalization (pre-norm): (batch, new, width).
        return self.norm(x), TransformerState(*unzip_keys_values(kept), length), weights


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
