"""What every model is made of: an encoder, a decoder, and the two wholes built from them.

The batch is axis 0 of everything, and a decoder's state is a value: `select(rows)` tiles, reorders and drops
hypotheses for every model alike, so one search serves them all.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Generic, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from s2s.nn.embeddings import Embedding
from s2s.nn.layers import AttentionWeights, Inputs, PaddingMask, States, Summary, Tokens, Vectors
from s2s.nn.pooling import Pooling, PoolingKind
from s2s.nn.pooling import mean_over_valid as mean_over_valid

R = TypeVar("R", bound="BatchedState")


@dataclass(frozen=True)
class BatchedState:
    """A bundle whose tensors all have the batch as their first axis.

    Fields may be tensors, other bundles, tuples of these, or plain values that are the same for all rows.
    """

    def select(self: R, rows: Int[Tensor, " chosen"]) -> R:
        """The bundle of the chosen rows, in that order; a row may be chosen often or not at all."""
        return replace(self, **{f.name: _select(getattr(self, f.name), rows) for f in fields(self)})

    def repeat_for_beams(self: R, rows: int, times: int, device: torch.device) -> R:
        """Each of that many rows so many times, one after the other: what that many hypotheses of each begin from.

        A bundle that its decoder reads for many rows at once may stay as it is.
        """
        return self.select(torch.arange(rows, device=device).repeat_interleave(times)) if times > 1 else self


def _select(value: object, rows: Tensor) -> object:
    if isinstance(value, Tensor):
        return value.index_select(0, rows)
    if isinstance(value, BatchedState):
        return value.select(rows)
    if isinstance(value, tuple):
        return tuple(_select(item, rows) for item in value)
    return value


@dataclass(frozen=True)
class EncoderOutput(BatchedState):
    """What an encoder leaves behind.

    Attributes:
        states: one vector for each source position.
        valid: True where a real token stands, False where there is padding.
        summary: one vector for the whole source: what a classifier reads and a recurrent decoder starts from.
    """

    states: States
    valid: PaddingMask
    summary: Summary


class Encoder(nn.Module, ABC):
    """Reads a batch of sources.

    Attributes:
        embedding: makes a vector of each position, by a table of tokens or by what stands in its place.
        longest: most positions that a row may have; None where there is no limit.
    """

    embedding: nn.Module
    max_positions: int | None = None

    def forward(self, source: Inputs, valid: PaddingMask) -> EncoderOutput:
        """The memory of each row; what stands where `valid` is False has no influence on it."""
        return self.read(self.embedding(source), valid)

    @abstractmethod
    def read(self, vectors: States, valid: PaddingMask) -> EncoderOutput:
        """The memory of each row, from the vectors that `embedding` made."""

    def states_by_layer(self, vectors: States, valid: PaddingMask) -> list[States]:
        """The vectors that `embedding` made, and what each layer makes of them; the last are the memory's states.

        An encoder that does not tell its layers has the two ends.
        """
        return [vectors, self.read(vectors, valid).states]

    def set_input_embeddings(self, vectors: nn.Module) -> None:
        """Puts a module in the place of the table of tokens, to read something else, e.g. images.

        Args:
            vectors: makes vectors of variance 1 and the same size, `(batch, source, width)`; positions, where the
                encoder adds them to its tokens' vectors, stay.
        """
        if isinstance(self.embedding, Embedding):
            self.embedding.set_input_embeddings(vectors)
        else:
            self.embedding = vectors

    def attention_weights(self, source: Inputs, valid: PaddingMask) -> Float[Tensor, "batch layer head source source"]:
        """How much each position looked at each other; rows sum to one over real positions.

        An encoder without attention has no layer in its answer.
        """
        return valid.new_zeros((len(valid), 0, 0, valid.shape[1], valid.shape[1]), dtype=torch.float32)


Context = TypeVar("Context", bound=BatchedState)
State = TypeVar("State", bound=BatchedState)


class Decoder(nn.Module, ABC, Generic[Context, State]):
    """Writes a target, one token after another, or all at once when the target is known.

    Attributes:
        longest: most tokens that may be fed; None where there is no limit.
        one_to_one: whether a target must have as many pieces as its source.
    """

    max_positions: int | None = None
    is_one_to_one: bool = False

    @abstractmethod
    def start(self, memory: EncoderOutput, limit: int) -> tuple[Context, State]:
        """What every step reads and none changes, and the state before the first token.

        Args:
            memory: what the encoder left.
            limit: the largest number of tokens that will be fed.
        """

    @abstractmethod
    def forward(self, context: Context, state: State, tokens: Tokens) -> tuple[Vectors, State]:
        """Feeds `steps` tokens: the state after each of them (to be projected onto the vocabulary), and the new state.

        Feeding a target at once and token by token gives the same numbers.
        """

    def attention_weights(self, memory: EncoderOutput, tokens: Tokens) -> AttentionWeights:
        """How much each target position looked at each source position; rows sum to one over real tokens.

        A decoder without attention has no layer in its answer.
        """
        return memory.states.new_zeros(len(tokens), 0, 0, tokens.shape[1], memory.states.shape[1])

    def self_attention_weights(self, memory: EncoderOutput, tokens: Tokens) -> AttentionWeights:
        """How much each target position looked at those before it and at itself; rows sum to one.

        A decoder without attention over what it has written has no layer in its answer.
        """
        return memory.states.new_zeros(len(tokens), 0, 0, tokens.shape[1], tokens.shape[1])


class Seq2Seq(nn.Module):
    """A source in, a target out: encoder, decoder and the projection onto the target vocabulary.

    The projection lives here, not in the decoder, so that the loss can fuse it with the cross-entropy and never
    holds `batch × target × vocabulary` numbers.

    Args:
        encoder: reads the source.
        decoder: writes the target.
        projection: maps decoder states to vocabulary scores; its weight may be tied to an embedding.
    """

    def __init__(self, encoder: Encoder, decoder: Decoder, projection: nn.Linear) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.projection = projection

    def forward(self, source: Inputs, valid: PaddingMask, target: Tokens) -> Vectors:
        """Teacher forcing: the decoder's state after each given target token, before the projection."""
        context, state = self.decoder.start(self.encoder(source, valid), target.shape[1])
        return self.decoder(context, state, target)[0]

    def logits(self, source: Inputs, valid: PaddingMask, target: Tokens) -> Float[Tensor, "batch steps vocabulary"]:
        """Unnormalised log probabilities of the token that follows each given target token."""
        return self.projection(self(source, valid, target))


class Classifier(nn.Module):
    """A source in, class scores out: encoder, pooling of its states, and a head over what was pooled.

    Args:
        encoder: reads the source.
        width: size of the encoder's states and of its summary.
        classes: number of classes.
        pooling: how one vector is made of the states.
        dropout: probability of dropping a number of that vector in training.
    """

    def __init__(
        self, encoder: Encoder, width: int, classes: int, pooling: PoolingKind = "summary", dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling = Pooling(pooling, width)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, classes)

    def forward(self, source: Inputs, valid: PaddingMask) -> Float[Tensor, "batch classes"]:
        """Unnormalised log probabilities of the classes."""
        return self.classify(self.encoder(source, valid))

    def classify(self, memory: EncoderOutput) -> Float[Tensor, "batch classes"]:
        """Unnormalised log probabilities of the classes, from what the encoder left."""
        return self.head(self.dropout(self.pooling(memory.states, memory.valid, memory.summary)))

    def pooling_weights(self, memory: EncoderOutput) -> Float[Tensor, "batch source"]:
        """How much of each state is in what the head reads; see `Pooling.weights`."""
        return self.pooling.weights(memory.states, memory.valid)


def count_parameters(model: nn.Module) -> int:
    """Number of trainable numbers; tied ones count once."""
    return sum(p.numel() for p in {id(p): p for p in model.parameters() if p.requires_grad}.values())
