"""Recurrent decoders: from a summary, with attention, and time-synchronous.

- `SummaryDecoder`: the source's summary is the first state (Sutskever et al. 2014).
- `AttentiveDecoder`: Luong's decoder, with attention over the source states (Luong et al. 2015).
- `TimeSyncedDecoder`: one output for each input, for `rnn-tagger`.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from baselines.attention import Attention, CoverageAttention, Keys
from baselines.cells import CellState, Stack, initialize_parts
from s2s.models.base import BatchedState, Context, Decoder, EncoderOutput, State
from s2s.nn.embeddings import Embedding
from s2s.nn.layers import AttentionWeights, Dropout, PaddingMask, States, Summary, Tokens, Vectors


class Bridge(nn.Module):
    """Initial decoder state from the source's summary: tanh(W summary + b).

    Args:
        width: Size of the summary and of each state tensor.
        parts: Number of state tensors of each decoder layer.

    Example:
        Two LSTM layers, each with a hidden state and a cell:

        >>> states = Bridge(width=4, parts=[2, 2])(torch.randn(3, 4))
        >>> len(states), len(states[0]), states[0][0].shape
        (2, 2, torch.Size([3, 4]))
    """

    def __init__(self, width: int, parts: list[int]) -> None:
        super().__init__()
        self.parts = parts
        self.linear = nn.Linear(width, width * sum(parts))
        initialize_parts(self.linear, width)

    def forward(self, summary: Summary) -> tuple[CellState, ...]:
        """Compute the state of each layer from the summary, `(batch, width)`."""
        # (batch, width) -> (batch, width · tensors), split into one tensor (batch, width) for each part of each layer
        parts = iter(torch.tanh(self.linear(summary)).chunk(sum(self.parts), dim=1))
        # cuDNN requires contiguous states.
        return tuple(tuple(next(parts).contiguous() for _ in range(count)) for count in self.parts)


@dataclass(frozen=True)
class NoContext(BatchedState):
    """Empty context of a decoder without attention, which reads only its own state."""


@dataclass(frozen=True)
class RecurrentState(BatchedState):
    """State of a recurrent decoder.

    Attributes:
        layers: State of each recurrent layer.
    """

    layers: tuple[CellState, ...]


class RecurrentDecoder(Decoder[Context, State]):
    """Base of recurrent decoders: embedding, recurrent layers and bridge.

    Args:
        tokens: Table of target token vectors.
        stack: Recurrent layers.
        bridge: Initial state from the source's summary.
        dropout: Dropout rate of embeddings and outputs.
        scaled: Multiply token vectors by √width.
    """

    def __init__(self, tokens: nn.Embedding, stack: Stack, bridge: Bridge, dropout: float, *, scaled: bool) -> None:
        super().__init__()
        self.embedding = Embedding(tokens, "none", 0, scaled)
        self.dropout = Dropout(dropout)
        self.stack = stack
        self.recurrence = "scan" if stack.is_scan else "steps"
        self.bridge = bridge


class SummaryDecoder(RecurrentDecoder[NoContext, RecurrentState]):
    """Decoder without attention (Sutskever et al. 2014).

    The first state is computed from the source's summary; nothing else of the source is read.

    Example:
        >>> stack = Stack("gru", inputs=8, width=8, layers=1, dropout=0.0, residual=False)
        >>> decoder = SummaryDecoder(nn.Embedding(20, 8), stack, Bridge(8, stack.parts), dropout=0.0, scaled=False)
        >>> memory = EncoderOutput(torch.randn(2, 5, 8), torch.ones(2, 5, dtype=torch.bool), torch.randn(2, 8))
        >>> context, state = decoder.start(memory, limit=3)
        >>> outputs, state = decoder(context, state, torch.tensor([[4, 5, 6], [7, 8, 9]]))
        >>> outputs.shape
        torch.Size([2, 3, 8])
    """

    def start(self, memory: EncoderOutput, limit: int) -> tuple[NoContext, RecurrentState]:
        """Compute the first state from the summary."""
        return NoContext(), RecurrentState(self.bridge(memory.summary))

    def forward(self, context: NoContext, state: RecurrentState, tokens: Tokens) -> tuple[Vectors, RecurrentState]:
        """Decode all tokens in one pass.

        Args:
            context: Empty.
            state: State of the recurrent layers.
            tokens: Token ids, `(batch, steps)`.

        Returns:
            The output after each token, `(batch, steps, width)`, and the new state.
        """
        outputs, layers = self.stack(self.dropout(self.embedding(tokens)), state.layers)
        return self.dropout(outputs), RecurrentState(layers)


@dataclass(frozen=True)
class AttentionContext(BatchedState):
    """Source states, keys and padding mask that every decoder step reads.

    Not to be confused with the context *vector*, which a step computes from them.

    Attributes:
        states: Source states, `(batch, source, width)`.
        keys: Keys of the attention score, computed once from the states.
        valid: Padding mask, `(batch, source)`.
    """

    states: States
    keys: Keys
    valid: PaddingMask


@dataclass(frozen=True)
class AttentionState(BatchedState):
    """State of a recurrent decoder with attention.

    Attributes:
        layers: State of each recurrent layer.
        last_output: Output of the step before, without dropout, `(batch, width)`; None without input feeding.
        coverage: Sum of the attention weights of all steps so far, `(batch, source)`; None without coverage.
    """

    layers: tuple[CellState, ...]
    last_output: Summary | None
    coverage: Float[Tensor, "batch source"] | None


class AttentiveDecoder(RecurrentDecoder[AttentionContext, AttentionState]):
    """Luong's decoder: attention after each recurrent step, with its state h as the query.

        h_t = layers(y_{t−1}, h_{t−1}),    c_t = Σ_j α_tj s_j,    output_t = tanh(W [c_t; h_t])

    (Luong et al. 2015, section 3 and equation 5; the output is the attentional vector h̃_t.) Bahdanau's decoder uses
    h_{t−1} as the query and feeds c_t into the layers (Bahdanau et al. 2015, section 3.1).

    If no step depends on the attention of the step before, the recurrent layers read the whole target in one pass, and
    all steps attend at once. Input feeding and coverage create such a dependency; the decoder then runs step by step,
    also in training.

    Args:
        tokens: Table of target token vectors.
        stack: Recurrent layers; with input feeding their inputs have twice the width.
        bridge: Initial state from the source's summary.
        attention: Attention over the source; `CoverageAttention` for coverage.
        dropout: Dropout rate of embeddings and outputs.
        input_feeding: Feed the output of the step before into the layers (Luong et al. 2015, section 3.3).
        scaled: Multiply token vectors by √width.

    Example:
        >>> from baselines.attention import General
        >>> stack = Stack("lstm", inputs=8, width=8, layers=1, dropout=0.0, residual=False)
        >>> decoder = AttentiveDecoder(
        ...     nn.Embedding(20, 8),
        ...     stack,
        ...     Bridge(8, stack.parts),
        ...     Attention(General(8)),
        ...     dropout=0.0,
        ...     input_feeding=False,
        ...     scaled=False,
        ... )
        >>> memory = EncoderOutput(torch.randn(2, 5, 8), torch.ones(2, 5, dtype=torch.bool), torch.randn(2, 8))
        >>> context, state = decoder.start(memory, limit=3)
        >>> outputs, state = decoder(context, state, torch.tensor([[4, 5, 6], [7, 8, 9]]))
        >>> outputs.shape
        torch.Size([2, 3, 8])
        >>> decoder.cross_attention_weights(memory, torch.tensor([[4, 5, 6], [7, 8, 9]])).shape
        torch.Size([2, 1, 1, 3, 5])
    """

    def __init__(
        self,
        tokens: nn.Embedding,
        stack: Stack,
        bridge: Bridge,
        attention: Attention | CoverageAttention,
        dropout: float,
        *,
        input_feeding: bool,
        scaled: bool,
    ) -> None:
        super().__init__(tokens, stack, bridge, dropout, scaled=scaled)
        self.input_feeding, self.coverage = input_feeding, isinstance(attention, CoverageAttention)
        self.attention = attention
        self.combine = nn.Linear(2 * stack.width, stack.width, bias=False)
        nn.init.xavier_uniform_(self.combine.weight)

    def start(self, memory: EncoderOutput, limit: int) -> tuple[AttentionContext, AttentionState]:
        """Compute the keys of the source, and the state before the first token.

        Returns:
            Source states, keys and padding mask; and the first state, with zeros for the last output and the coverage.
        """
        context = AttentionContext(memory.states, self.attention.score.keys(memory.states), memory.valid)
        last_output = torch.zeros_like(memory.summary) if self.input_feeding else None
        coverage = memory.states.new_zeros(memory.valid.shape) if self.coverage else None
        return context, AttentionState(self.bridge(memory.summary), last_output, coverage)

    def forward(
        self, context: AttentionContext, state: AttentionState, tokens: Tokens
    ) -> tuple[Vectors, AttentionState]:
        """Decode tokens with attention over the source.

        Args:
            context: Source states, keys and padding mask.
            state: State after the tokens before.
            tokens: Token ids, `(batch, steps)`.

        Returns:
            The output of each step, `(batch, steps, width)`, and the new state.
        """
        return self._steps(context, state, tokens)

    def cross_attention_weights(self, memory: EncoderOutput, tokens: Tokens) -> AttentionWeights:
        """Return the attention weights with teacher forcing.

        Returns:
            Weights of one layer with one head, `(batch, 1, 1, target, source)`.
        """
        context, state = self.start(memory, tokens.shape[1])
        all_weights: list[Tensor] = []
        self._steps(context, state, tokens, all_weights)
        return torch.cat(all_weights, dim=1)[:, None, None]

    def _steps(
        self,
        context: AttentionContext,
        state: AttentionState,
        tokens: Tokens,
        all_weights: list[Tensor] | None = None,
    ) -> tuple[Vectors, AttentionState]:
        """Run all steps: in one pass, or one by one if a step depends on the step before.

        Attention weights are appended to `all_weights`; None allows the fused kernel, which does not return them.
        """
        # Number of steps in one pass; each pass reads embeddings (batch, at_once, width).
        at_once = 1 if self.input_feeding or self.coverage else tokens.shape[1]
        outputs = []
        for x in self.dropout(self.embedding(tokens)).split(at_once, dim=1):
            output, state = self._attend(context, state, x, all_weights)
            outputs.append(output)
        return torch.cat(outputs, dim=1), state

    def _attend(
        self, context: AttentionContext, state: AttentionState, x: Vectors, all_weights: list[Tensor] | None
    ) -> tuple[Vectors, AttentionState]:
        """Run the recurrent layers, then the attention, then combine both."""
        # 1. Input feeding: append the last output to each input, (batch, 1, 2 · width).
        if state.last_output is not None:
            x = torch.cat((x, state.last_output.unsqueeze(1).to(x.dtype)), dim=2)
        # 2. Recurrent layers: hidden states h_t, (batch, steps, width).
        hidden, layers = self.stack(x, state.layers)
        # 3. Attention with the hidden states as queries: context vectors c_t, (batch, steps, width).
        source = (context.states, context.keys, context.valid)
        coverage = state.coverage
        weights = None
        if isinstance(self.attention, CoverageAttention):
            context_vectors, weights = self.attention(hidden, *source, coverage)
            coverage = coverage + weights.sum(dim=1)
        elif all_weights is not None:
            context_vectors, weights = self.attention(hidden, *source)
        else:
            context_vectors = self.attention.context_vectors(hidden, *source)
        if all_weights is not None and weights is not None:
            all_weights.append(weights)
        # 4. Combine both: tanh(W [c_t; h_t]), (batch, steps, width).
        output = torch.tanh(self.combine(torch.cat((context_vectors, hidden), dim=2)))
        last_output = output[:, -1] if self.input_feeding else None
        return self.dropout(output), AttentionState(layers, last_output, coverage)


@dataclass(frozen=True)
class TimeSyncedContext(BatchedState):
    """Encoder states of a time-synchronous decoder.

    Attributes:
        states: One state for each source position, `(batch, source, width)`; zeros for padding.
    """

    states: States


@dataclass(frozen=True)
class TimeSyncedState(BatchedState):
    """State of a time-synchronous decoder.

    Attributes:
        step: Number of outputs so far.
    """

    step: int


class TimeSyncedDecoder(Decoder[TimeSyncedContext, TimeSyncedState]):
    """Time-synchronous decoder: output t is the encoder state at position t.

    Earlier outputs have no influence. The source ends with EOS, whose state gives the EOS of the target, so both have
    the same length.

    Args:
        dropout: Dropout rate of the outputs.

    Example:
        >>> decoder = TimeSyncedDecoder(dropout=0.0)
        >>> memory = EncoderOutput(torch.tensor([[[1.0], [2.0]]]), torch.tensor([[True, True]]), torch.zeros(1, 1))
        >>> context, state = decoder.start(memory, limit=2)
        >>> decoder(context, state, torch.tensor([[1, 7]]))[0].flatten()
        tensor([1., 2.])
    """

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.is_one_to_one = True

    def start(self, memory: EncoderOutput, limit: int) -> tuple[TimeSyncedContext, TimeSyncedState]:
        """Keep the encoder states, padded with zeros to `limit` positions."""
        states = memory.states * memory.valid.unsqueeze(2)
        padded = functional.pad(states, (0, 0, 0, max(0, limit - states.shape[1])))
        return TimeSyncedContext(padded), TimeSyncedState(0)

    def forward(
        self, context: TimeSyncedContext, state: TimeSyncedState, tokens: Tokens
    ) -> tuple[Vectors, TimeSyncedState]:
        """Return the next encoder states, one for each token.

        Args:
            context: Encoder states.
            state: Number of outputs so far.
            tokens: Token ids, `(batch, steps)`; only their number matters.

        Returns:
            States, `(batch, steps, width)`, and the new state.
        """
        end = state.step + tokens.shape[1]
        return self.dropout(context.states[:, state.step : end]), TimeSyncedState(end)
