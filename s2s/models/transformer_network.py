"""The Transformer's encoder and decoder (Vaswani et al. 2017), with normalisation before or after each block."""

from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from s2s.errors import UserError
from s2s.models.contract import Decoder, Encoder, Memory, Rows, Seq2Seq, mean_over_valid
from s2s.models.transformer import EncoderSettings, Settings
from s2s.nn.attention import Attention, Heads, Mask, causal_mask
from s2s.nn.dropout import Dropout
from s2s.nn.feedforward import FeedForward
from s2s.nn.positions import Embedding


class Block(nn.Module):
    """A residual connection and its normalisation: x + f(norm(x)), or norm(x + f(x)) as first published."""

    def __init__(self, settings: EncoderSettings) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(settings.width)
        self.dropout = Dropout(settings.dropout)
        self.before = settings.norm == "pre"

    def enter(self, x: Tensor) -> Tensor:
        """What the block's function reads."""
        return self.norm(x) if self.before else x

    def leave(self, x: Tensor, change: Tensor) -> Tensor:
        """The block's output, from its input and what its function made of it."""
        x = x + self.dropout(change)
        return x if self.before else self.norm(x)


class EncoderLayer(nn.Module):
    """Self-attention over the source, then the feed-forward block."""

    def __init__(self, settings: EncoderSettings) -> None:
        super().__init__()
        self.attention = _attention(settings)
        self.feedforward = _feedforward(settings)
        self.attention_block = Block(settings)
        self.feedforward_block = Block(settings)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """The layer's output for each position."""
        read = self.attention_block.enter(x)
        x = self.attention_block.leave(x, self.attention(read, *self.attention.keys_and_values(read), mask))
        return self.feedforward_block.leave(x, self.feedforward(self.feedforward_block.enter(x)))

    def weights(self, x: Tensor, mask: Tensor) -> Heads:
        """Where each position looks."""
        read = self.attention_block.enter(x)
        return self.attention.weights(read, self.attention.keys_and_values(read)[0], mask)


class TransformerEncoder(Encoder):
    """Reads the source with self-attention; the summary is the mean over real tokens."""

    def __init__(self, settings: EncoderSettings, embedding: Embedding) -> None:
        super().__init__()
        self.embedding = embedding
        self.longest = embedding.longest
        self.dropout = Dropout(settings.dropout)
        self.layers = nn.ModuleList([EncoderLayer(settings) for _ in range(settings.encoder_layers)])
        self.norm = nn.LayerNorm(settings.width) if settings.norm == "pre" else nn.Identity()

    def read(self, vectors: Float[Tensor, "batch source width"], valid: Bool[Tensor, "batch source"]) -> Memory:
        """One vector for each source position."""
        x = self.dropout(vectors)
        mask = valid[:, None, None, :]
        for layer in self.layers:
            x = layer(x, mask)
        x = self.norm(x)
        return Memory(x, valid, mean_over_valid(x, valid))

    def attention_weights(
        self, source: Shaped[Tensor, "batch ..."], valid: Bool[Tensor, "batch source"]
    ) -> Float[Tensor, "batch layer head source source"]:
        """Where each head of each layer looks."""
        x = self.dropout(self.embedding(source))
        mask, weights = valid[:, None, None, :], []
        for layer in cast("list[EncoderLayer]", list(self.layers)):
            weights.append(layer.weights(x, mask))
            x = layer(x, mask)
        return torch.stack(weights, dim=1)


@dataclass(frozen=True)
class TransformerContext(Rows):
    """Each layer's projected source keys and values, and which source positions are real."""

    keys: tuple[Heads, ...]
    values: tuple[Heads, ...]
    mask: Bool[Tensor, "batch 1 1 source"]


@dataclass(frozen=True)
class TransformerState(Rows):
    """Each layer's keys and values of the target so far, and its length."""

    keys: tuple[Heads, ...]
    values: tuple[Heads, ...]
    length: int


class DecoderLayer(nn.Module):
    """Masked self-attention over the target, attention over the source, then the feed-forward block."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.self_attention = _attention(settings)
        self.cross_attention = _attention(settings)
        self.feedforward = _feedforward(settings)
        self.self_block = Block(settings)
        self.cross_block = Block(settings)
        self.feedforward_block = Block(settings)

    def look_back(self, x: Tensor, past: tuple[Tensor, Tensor] | None, mask: Mask) -> tuple[Tensor, tuple]:
        """After self-attention over the target so far: the states, and the keys and values to keep."""
        read = self.self_block.enter(x)
        key, value = self.self_attention.keys_and_values(read)
        if past is not None:
            key, value = torch.cat((past[0], key), dim=2), torch.cat((past[1], value), dim=2)
        return self.self_block.leave(x, self.self_attention(read, key, value, mask)), (key, value)

    def look_across(self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """After attention over the source and the feed-forward block."""
        x = self.cross_block.leave(x, self.cross_attention(self.cross_block.enter(x), key, value, mask))
        return self.feedforward_block.leave(x, self.feedforward(self.feedforward_block.enter(x)))


class TransformerDecoder(Decoder[TransformerContext, TransformerState]):
    """Writes the target with masked self-attention and attention over the source."""

    def __init__(self, settings: Settings, embedding: Embedding) -> None:
        super().__init__()
        self.embedding = embedding
        self.longest = embedding.longest
        self.dropout = Dropout(settings.dropout)
        self.layers = nn.ModuleList([DecoderLayer(settings) for _ in range(settings.decoder_layers)])
        self.norm = nn.LayerNorm(settings.width) if settings.norm == "pre" else nn.Identity()

    def start(self, memory: Memory, limit: int) -> tuple[TransformerContext, TransformerState]:
        """Projects the source once for all steps; the target so far is empty."""
        offers = [layer.cross_attention.keys_and_values(memory.states) for layer in self._layers()]
        context = TransformerContext(
            tuple(key for key, _ in offers), tuple(value for _, value in offers), memory.valid[:, None, None, :]
        )
        return context, TransformerState((), (), 0)

    def forward(
        self, context: TransformerContext, state: TransformerState, tokens: Int[Tensor, "batch steps"]
    ) -> tuple[Float[Tensor, "batch steps width"], TransformerState]:
        """The state after each token, seeing only the tokens before it."""
        x, state, _ = self._feed(context, state, tokens, with_weights=False)
        return x, state

    def attention_weights(
        self, memory: Memory, tokens: Int[Tensor, "batch target"]
    ) -> Float[Tensor, "batch layer head target source"]:
        """Where each head of each layer looks while the given tokens are read."""
        context, state = self.start(memory, tokens.shape[1])
        return torch.stack(self._feed(context, state, tokens, with_weights=True)[2], dim=1)

    def _layers(self) -> list[DecoderLayer]:
        # a ModuleList does not know what it holds
        return cast("list[DecoderLayer]", list(self.layers))

    def _feed(
        self, context: TransformerContext, state: TransformerState, tokens: Tensor, with_weights: bool
    ) -> tuple[Tensor, TransformerState, list[Tensor]]:
        x = self.dropout(self.embedding(tokens, state.length))
        length = state.length + tokens.shape[1]
        mask = _mask(tokens.shape[1], length, tokens.device)
        kept, weights = [], []
        for i, layer in enumerate(self._layers()):
            past = (state.keys[i], state.values[i]) if state.length else None
            x, keep = layer.look_back(x, past, mask)
            kept.append(keep)
            if with_weights:
                read = layer.cross_block.enter(x)
                weights.append(layer.cross_attention.weights(read, context.keys[i], context.mask))
            x = layer.look_across(x, context.keys[i], context.values[i], context.mask)
        state = TransformerState(tuple(key for key, _ in kept), tuple(value for _, value in kept), length)
        return self.norm(x), state, weights


def build(settings: Settings, source_size: int, target_size: int) -> Seq2Seq:
    """A freshly initialised Transformer for vocabularies of these sizes.

    Raises:
        UserError: all embeddings shall be tied, but the vocabularies differ in size.
    """
    if settings.tie == "all" and source_size != target_size:
        raise UserError(
            f"model.tie is all, but the source has {source_size} pieces and the target {target_size}",
            remedy="set tokenizer.shared: true, or model.tie: target",
        )
    source_table = _token_table(source_size, settings.width)
    target_table = source_table if settings.tie == "all" else _token_table(target_size, settings.width)
    projection = nn.Linear(settings.width, target_size, bias=False)
    if settings.tie == "none":
        nn.init.normal_(projection.weight, std=settings.width**-0.5)
    else:
        projection.weight = target_table.weight
    encoder = TransformerEncoder(settings, Embedding(source_table, settings.encoder_positions, settings.max_positions))
    decoder = TransformerDecoder(settings, Embedding(target_table, settings.decoder_positions, settings.max_positions))
    return Seq2Seq(encoder, decoder, projection)


def build_encoder(settings: EncoderSettings, source_size: int) -> Encoder:
    """A freshly initialised Transformer encoder."""
    table = _token_table(source_size, settings.width)
    return TransformerEncoder(settings, Embedding(table, settings.encoder_positions, settings.max_positions))


def _token_table(size: int, width: int) -> nn.Embedding:
    table = nn.Embedding(size, width)
    nn.init.normal_(table.weight, std=width**-0.5)
    return table


def _mask(new: int, length: int, device: torch.device) -> Mask:
    """Where the newest of that many tokens may look."""
    if new == 1:
        return None
    return "causal" if new == length else causal_mask(new, length, device)[None, None]


def _attention(settings: EncoderSettings) -> Attention:
    return Attention(settings.width, settings.heads, settings.attention_dropout, settings.attention)


def _feedforward(settings: EncoderSettings) -> FeedForward:
    return FeedForward(settings.width, settings.feedforward, settings.activation, settings.activation_dropout)
