"""Interfaces of all models: encoder, decoder, and the models built from them.

`Seq2Seq` is an encoder with a decoder, `Classifier` an encoder with a head. The batch is the first axis of all tensors.
A decoder's state is an immutable value: `select(rows)` repeats, reorders and drops hypotheses for every model, so one
beam search serves them all.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Generic, Literal, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from s2s.nn.embeddings import Embedding
from s2s.nn.layers import AttentionWeights, Inputs, PaddingMask, States, Summary, Tokens, Vectors
from s2s.nn.pooling import Pooling, PoolingKind
from s2s.nn.pooling import mean_over_valid as mean_over_valid

R = TypeVar("R", bound="BatchedState")
Recurrence = Literal["none", "steps", "scan"]
"""Dependence of a state on the state before it: none, computed step by step, or by a parallel scan."""


@dataclass(frozen=True)
class BatchedState:
    """State whose tensors all have the batch as their first axis.

    Fields may be tensors, other states, tuples of these, or plain values that are equal for all rows.

    Example:
        >>> @dataclass(frozen=True)
        ... class Hidden(BatchedState):
        ...     h: Tensor
        >>> Hidden(torch.tensor([[1.0], [2.0]])).select(torch.tensor([1, 1, 0])).h.T
        tensor([[2., 2., 1.]])
    """

    def select(self: R, rows: Int[Tensor, " chosen"]) -> R:
        """Return the state of the chosen rows, in that order.

        Args:
            rows: Row numbers; a row may be chosen several times or not at all.
        """
        return replace(self, **{f.name: _select(getattr(self, f.name), rows) for f in fields(self)})

    def repeat_for_beams(self: R, rows: int, times: int, device: torch.device) -> R:
        """Repeat each row for the hypotheses of a beam; copies of a row are adjacent.

        Subclasses may return themselves unchanged if their decoder shares a row between hypotheses.

        Args:
            rows: Number of rows.
            times: Hypotheses of each row.
            device: Device of the tensors.
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
    """Output of an encoder.

    Attributes:
        states: One vector for each source position, `(batch, source, width)`.
        valid: Padding mask, `(batch, source)`, True for real tokens.
        summary: One vector for the whole source, `(batch, width)`: the input of a classifier, and the first state of a
            recurrent decoder.
    """

    states: States
    valid: PaddingMask
    summary: Summary


class Encoder(nn.Module, ABC):
    """Base class of encoders.

    Attributes:
        embedding: Token embeddings, or another module that makes one vector for each position.
        max_positions: Longest row in tokens; None for no limit.
        recurrence: Computation of the states in training; comparisons group models by it.
    """

    embedding: nn.Module
    max_positions: int | None = None
    recurrence: Recurrence = "none"

    def forward(self, source: Inputs, valid: PaddingMask) -> EncoderOutput:
        """Embed and encode a batch of sources; padding has no influence on the result.

        Args:
            source: Token ids, `(batch, source)`, or other inputs of `embedding`.
            valid: Padding mask, `(batch, source)`.
        """
        return self.read(self.embedding(source), valid)

    @abstractmethod
    def read(self, vectors: States, valid: PaddingMask) -> EncoderOutput:
        """Encode a batch of embedded sources.

        Args:
            vectors: Output of `embedding`, `(batch, source, width)`.
            valid: Padding mask, `(batch, source)`.
        """

    def states_by_layer(self, vectors: States, valid: PaddingMask) -> list[States]:
        """Return the embeddings and the output of each layer, for inspection.

        Returns:
            Tensors `(batch, source, width)`; the last one is `EncoderOutput.states`. The default, for encoders that do
            not expose their layers, has the embeddings and the states only.
        """
        return [vectors, self.read(vectors, valid).states]

    def set_input_embeddings(self, vectors: nn.Module) -> None:
        """Replace the token embeddings, to read other inputs, such as images.

        Args:
            vectors: Module that returns vectors of variance 1 and of the same width, `(batch, source, width)`. The
                position embeddings that the encoder adds to token vectors remain.
        """
        if isinstance(self.embedding, Embedding):
            self.embedding.set_input_embeddings(vectors)
        else:
            self.embedding = vectors

    def self_attention_weights(
        self, source: Inputs, valid: PaddingMask
    ) -> Float[Tensor, "batch layer head source source"]:
        """Return the self-attention weights of each layer.

        Returns:
            Weights, `(batch, layer, head, source, source)`, which sum to one over real positions. An encoder without
            attention returns zero layers.
        """
        return valid.new_zeros((len(valid), 0, 0, valid.shape[1], valid.shape[1]), dtype=torch.float32)


Context = TypeVar("Context", bound=BatchedState)
State = TypeVar("State", bound=BatchedState)


class Decoder(nn.Module, ABC, Generic[Context, State]):
    """Base class of decoders: token by token, or all at once with teacher forcing.

    Attributes:
        max_positions: Most tokens that can be fed; None for no limit.
        is_one_to_one: True if a target must have as many tokens as its source.
        recurrence: Computation of a state of fixed size in training; `none` for a state that grows with each token.
    """

    max_positions: int | None = None
    is_one_to_one: bool = False
    recurrence: Recurrence = "none"

    @abstractmethod
    def start(self, memory: EncoderOutput, limit: int) -> tuple[Context, State]:
        """Prepare decoding of a batch of encoded sources.

        Args:
            memory: Output of the encoder.
            limit: Largest number of tokens that will be fed.

        Returns:
            A context that all steps read and none changes, and the state before the first token.
        """

    @abstractmethod
    def forward(self, context: Context, state: State, tokens: Tokens) -> tuple[Vectors, State]:
        """Feed tokens; all at once or token by token gives the same numbers.

        Args:
            context: Context from `start`.
            state: State after the tokens fed before.
            tokens: Token ids, `(batch, steps)`.

        Returns:
            The state after each token, `(batch, steps, width)`, before the output projection; and the new decoder
            state.
        """

    def cross_attention_weights(self, memory: EncoderOutput, tokens: Tokens) -> AttentionWeights:
        """Return the cross-attention weights, over the source, with teacher forcing.

        Returns:
            Weights, `(batch, layer, head, target, source)`, which sum to one over real tokens. A decoder without
            attention returns zero layers.
        """
        return memory.states.new_zeros(len(tokens), 0, 0, tokens.shape[1], memory.states.shape[1])

    def self_attention_weights(self, memory: EncoderOutput, tokens: Tokens) -> AttentionWeights:
        """Return the self-attention weights over the target with teacher forcing.

        Returns:
            Weights, `(batch, layer, head, target, target)`, which sum to one over each position and those before it. A
            decoder without self-attention returns zero layers.
        """
        return memory.states.new_zeros(len(tokens), 0, 0, tokens.shape[1], tokens.shape[1])


class Seq2Seq(nn.Module):
    """Sequence-to-sequence model: encoder, decoder and output projection.

    The projection is separate from the decoder, so that the loss can fuse projection and cross-entropy and never holds
    `batch × target × vocabulary` numbers.

    Args:
        encoder: Reads the source.
        decoder: Writes the target.
        projection: Maps decoder states to vocabulary scores; its weight may be tied to an embedding.

    Example:
        >>> from s2s.models.transformer import Settings, build
        >>> model = build(Settings(width=16, heads=2, feedforward=32), source_size=100, target_size=100)
        >>> source, target = torch.tensor([[5, 6, 7]]), torch.tensor([[2, 8, 9, 4]])
        >>> model.logits(source, source > 0, target).shape
        torch.Size([1, 4, 100])
    """

    def __init__(self, encoder: Encoder, decoder: Decoder, projection: nn.Linear) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.projection = projection

    def forward(self, source: Inputs, valid: PaddingMask, target: Tokens) -> Vectors:
        """Run the decoder with teacher forcing.

        Args:
            source: Token ids, `(batch, source)`, or other inputs of the encoder.
            valid: Padding mask, `(batch, source)`.
            target: Token ids of the target, `(batch, steps)`, beginning with BOS.

        Returns:
            The decoder state after each target token, `(batch, steps, width)`, before the projection.
        """
        context, state = self.decoder.start(self.encoder(source, valid), target.shape[1])
        return self.decoder(context, state, target)[0]

    def logits(self, source: Inputs, valid: PaddingMask, target: Tokens) -> Float[Tensor, "batch steps vocabulary"]:
        """Return the scores of the token that follows each target token.

        Returns:
            Unnormalized log probabilities, `(batch, steps, vocabulary)`.
        """
        return self.projection(self(source, valid, target))

    def log_probabilities(self, states: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch vocabulary"]:
        """Return the log probabilities of the next token, in fp32.

        Args:
            states: Decoder states, before the projection.
        """
        # log_softmax is one kernel; logsumexp is several and took four times as long.
        return self.projection(states).float().log_softmax(dim=-1)


class Classifier(nn.Module):
    """Classifier: encoder, pooling of its states, and a linear head.

    Args:
        encoder: Reads the source.
        width: Size of the encoder's states and summary.
        classes: Number of classes.
        pooling: Kind of pooling, see `s2s.nn.pooling.Pooling`.
        dropout: Dropout rate of the pooled vector.

    Example:
        >>> from s2s.models.transformer import EncoderSettings, build_encoder
        >>> encoder, width = build_encoder(EncoderSettings(width=16, heads=2, feedforward=32), source_size=100)
        >>> source = torch.tensor([[5, 6, 7]])
        >>> Classifier(encoder, width, classes=3, pooling="mean")(source, source > 0).shape
        torch.Size([1, 3])
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
        """Classify sources.

        Args:
            source: Token ids, `(batch, source)`, or other inputs of the encoder.
            valid: Padding mask, `(batch, source)`.

        Returns:
            Unnormalized log probabilities of the classes, `(batch, classes)`.
        """
        return self.classify(self.encoder(source, valid))

    def classify(self, memory: EncoderOutput) -> Float[Tensor, "batch classes"]:
        """Return the class scores of encoded sources, `(batch, classes)`."""
        return self.head(self.dropout(self.pooling(memory.states, memory.valid, memory.summary)))

    def pooling_weights(self, memory: EncoderOutput) -> Float[Tensor, "batch source"]:
        """Return the share of each state in the pooled vector; see `Pooling.weights`."""
        return self.pooling.weights(memory.states, memory.valid)


def count_parameters(model: nn.Module) -> int:
    """Count the trainable parameters; tied parameters count once.

    Example:
        >>> count_parameters(nn.Linear(3, 2))
        8
    """
    return sum(p.numel() for p in {id(p): p for p in model.parameters() if p.requires_grad}.values())
