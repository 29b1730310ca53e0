"""The Transformer's encoder and decoder (Vaswani et al. 2017), with normalisation before or after each block."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from s2s.models.base import BatchedState, Decoder, Encoder, EncoderOutput, mean_over_valid
from s2s.nn.attention import Attention, Heads, Mask, add_bias_to_mask, causal_mask
from s2s.nn.embeddings import Embedding
from s2s.nn.layers import AttentionWeights, Dropout, FeedForward, Inputs, PaddingMask, Residual, States, Tokens, Vectors
from s2s.nn.positions import PositionBias

KeysAndValues = tuple[Tensor, Tensor]
Layer = TypeVar("Layer", bound=nn.Module)


class TransformerStack(nn.Module, Generic[Layer]):
    """What all that reads or writes by layers has: vectors of tokens, the layers, and what distances add to each."""

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
        """The layers, by their own kind: a `ModuleList` does not know what it holds."""
        return cast("list[Layer]", list(self.layers))

    def add_position_bias(self, mask: Mask, new: int, length: int) -> Mask:
        """The mask of the newest of that many positions, with what distances add."""
        return add_bias_to_mask(mask, self.bias and self.bias(new, length))


def _self_attention_weights(attention: Attention, block: Residual, x: Tensor, mask: Mask) -> Heads:
    read = block.branch_input(x)
    return attention.weights(read, attention.project_keys_values(read)[0], mask)


class EncoderLayer(nn.Module):
    """Self-attention over the source, then the feed-forward block."""

    def __init__(self, attention: Attention, feedforward: FeedForward, residuals: tuple[Residual, Residual]) -> None:
        super().__init__()
        self.attention = attention
        self.feedforward = feedforward
        self.attention_block, self.feedforward_block = residuals

    def forward(self, x: Tensor, mask: Mask) -> Tensor:
        """The layer's output for each position."""
        x = self.attention_block(x, lambda read: self.attention(read, *self.attention.project_keys_values(read), mask))
        return self.feedforward_block(x, self.feedforward)

    def attention_weights(self, x: Tensor, mask: Mask) -> Heads:
        """Where each position looks."""
        return _self_attention_weights(self.attention, self.attention_block, x, mask)


class TransformerEncoder(TransformerStack[EncoderLayer], Encoder):
    """Reads the source with self-attention; the summary is the mean over real tokens."""

    def read(self, vectors: States, valid: PaddingMask) -> EncoderOutput:
        """One vector for each source position."""
        x = self.dropout(vectors)
        mask = self._mask(valid)
        for layer in self.layers:
            x = layer(x, mask)
        x = self.norm(x)
        return EncoderOutput(x, valid, mean_over_valid(x, valid))

    def states_by_layer(self, vectors: States, valid: PaddingMask) -> list[States]:
        """The embedding, each layer, and where the last is normalised once more, that, too."""
        found, mask = [self.dropout(vectors)], self._mask(valid)
        for layer in self.layers:
            found.append(layer(found[-1], mask))
        return found if isinstance(self.norm, nn.Identity) else [*found, self.norm(found[-1])]

    def attention_weights(self, source: Inputs, valid: PaddingMask) -> Float[Tensor, "batch layer head source source"]:
        """Where each head of each layer looks."""
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
    """Each layer's projected source keys and values, and which source positions are real."""

    keys: tuple[Heads, ...]
    values: tuple[Heads, ...]
    mask: Bool[Tensor, "batch 1 1 source"]

    def repeat_for_beams(self, rows: int, times: int, device: torch.device) -> "TransformerContext":
        """Itself: attention reads a source once for all of its hypotheses."""
        return self


@dataclass(frozen=True)
class TransformerState(BatchedState):
    """Each layer's keys and values of the target so far, and its length."""

    keys: tuple[Heads, ...]
    values: tuple[Heads, ...]
    length: int

    def cached_keys_values(self, layer: int) -> KeysAndValues | None:
        """What a layer has kept; None before anything was fed."""
        return (self.keys[layer], self.values[layer]) if self.length else None


def unzip_keys_values(pairs: Sequence[KeysAndValues]) -> tuple[tuple[Heads, ...], tuple[Heads, ...]]:
    """The keys of all layers, and their values."""
    return tuple(key for key, _ in pairs), tuple(value for _, value in pairs)


def cached_self_attention(
    attention: Attention, block: Residual, x: Tensor, past: KeysAndValues | None, mask: Mask
) -> tuple[Tensor, KeysAndValues]:
    """After self-attention over a row so far, within its residual block: the states, and the keys and values to keep.

    The newest positions `x` look at those before them, whose keys and values are the `past`, and at themselves.
    """
    kept: list[KeysAndValues] = []
    return block(x, partial(_attend, attention, past, mask, kept)), kept[0]


def _attend(
    attention: Attention, past: KeysAndValues | None, mask: Mask, kept: list[KeysAndValues], read: Tensor
) -> Tensor:
    first = past[0].shape[2] if past else 0
    key, value = attention.project_keys_values(read, first)
    if past is not None:
        key, value = torch.cat((past[0], key), dim=2), torch.cat((past[1], value), dim=2)
    kept.append((key, value))
    return attention(read, key, value, mask, first)


class DecoderLayer(nn.Module):
    """Masked self-attention over the target, attention over the source, then the feed-forward block."""

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
        """After self-attention over the target so far: the states, and the keys and values to keep."""
        return cached_self_attention(self.self_attention, self.self_block, x, past, mask)

    def apply_cross_attention(self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """After attention over the source and the feed-forward block."""
        x = self.cross_block(x, lambda read: self.cross_attention(read, key, value, mask))
        return self.feedforward_block(x, self.feedforward)

    def self_attention_weights(self, x: Tensor, mask: Mask) -> Heads:
        """Where each position of a whole target looks in the target."""
        return _self_attention_weights(self.self_attention, self.self_block, x, mask)

    def cross_attention_weights(self, x: Tensor, key: Tensor, mask: Tensor) -> Heads:
        """Where each position, after `look_back`, looks in the source."""
        return self.cross_attention.weights(self.cross_block.branch_input(x), key, mask)


class TransformerDecoder(TransformerStack[DecoderLayer], Decoder[TransformerContext, TransformerState]):
    """Writes the target with masked self-attention and attention over the source."""

    def start(self, memory: EncoderOutput, limit: int) -> tuple[TransformerContext, TransformerState]:
        """Projects the source once for all steps; the target so far is empty."""
        offers = [layer.cross_attention.project_keys_values(memory.states) for layer in self.typed_layers()]
        return TransformerContext(*unzip_keys_values(offers), memory.valid[:, None, None, :]), TransformerState(
            (), (), 0
        )

    def forward(
        self, context: TransformerContext, state: TransformerState, tokens: Tokens
    ) -> tuple[Vectors, TransformerState]:
        """The state after each token, seeing only the tokens before it."""
        x, state, _ = self._feed(context, state, tokens, with_weights=False)
        return x, state

    def attention_weights(self, memory: EncoderOutput, tokens: Tokens) -> AttentionWeights:
        """Where each head of each layer looks while the given tokens are read."""
        context, state = self.start(memory, tokens.shape[1])
        return torch.stack(self._feed(context, state, tokens, with_weights=True)[2], dim=1)

    def self_attention_weights(self, memory: EncoderOutput, tokens: Tokens) -> AttentionWeights:
        """Where each head of each layer looks in the target so far."""
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
        x = self.dropout(self.embedding(tokens, state.length))
        length = state.length + tokens.shape[1]
        new = tokens.shape[1]
        mask = self.add_position_bias(incremental_causal_mask(new, length, tokens.device), new, length)
        kept, weights = [], []
        for i, layer in enumerate(self.typed_layers()):
            x, keep = layer.apply_self_attention(x, state.cached_keys_values(i), mask)
            kept.append(keep)
            if with_weights:
                weights.append(layer.cross_attention_weights(x, context.keys[i], context.mask))
            x = layer.apply_cross_attention(x, context.keys[i], context.values[i], context.mask)
        return self.norm(x), TransformerState(*unzip_keys_values(kept), length), weights


def incremental_causal_mask(new: int, length: int, device: torch.device) -> Mask:
    """Where the newest of that many tokens may look."""
    if new == 1:
        return None
    return "causal" if new == length else causal_mask(new, length, device)[None, None]
