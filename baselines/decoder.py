"""Recurrent decoders: from the source's summary alone, with attention, and the one of `rnn-tagger`, time-synced."""

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
    """The decoder's first state, from the source's summary: tanh(W summary + b) for every part of every layer."""

    def __init__(self, width: int, parts: list[int]) -> None:
        super().__init__()
        self.parts = parts
        self.linear = nn.Linear(width, width * sum(parts))
        initialize_parts(self.linear, width)

    def forward(self, summary: Summary) -> tuple[CellState, ...]:
        """The state of each layer."""
        parts = iter(torch.tanh(self.linear(summary)).chunk(sum(self.parts), dim=1))
        # cuDNN takes no views
        return tuple(tuple(next(parts).contiguous() for _ in range(count)) for count in self.parts)


@dataclass(frozen=True)
class NoContext(BatchedState):
    """A decoder without attention reads nothing but its own state."""


@dataclass(frozen=True)
class RecurrentState(BatchedState):
    """The states of the recurrent layers."""

    layers: tuple[CellState, ...]


class RecurrentDecoder(Decoder[Context, State]):
    """What all that write by recurrent layers have: vectors of tokens, the layers, and what their first state is."""

    def __init__(self, tokens: nn.Embedding, stack: Stack, bridge: Bridge, dropout: float, *, scaled: bool) -> None:
        super().__init__()
        self.embedding = Embedding(tokens, "none", 0, scaled)
        self.dropout = Dropout(dropout)
        self.stack = stack
        self.bridge = bridge


class SummaryDecoder(RecurrentDecoder[NoContext, RecurrentState]):
    """Writes from its state alone: all that it knows of the source went through the summary (Sutskever et al. 2014)."""

    def start(self, memory: EncoderOutput, limit: int) -> tuple[NoContext, RecurrentState]:
        """The summary becomes the first state."""
        return NoContext(), RecurrentState(self.bridge(memory.summary))

    def forward(self, context: NoContext, state: RecurrentState, tokens: Tokens) -> tuple[Vectors, RecurrentState]:
        """The state after each token, in one pass over all of them."""
        outputs, layers = self.stack(self.dropout(self.embedding(tokens)), state.layers)
        return self.dropout(outputs), RecurrentState(layers)


@dataclass(frozen=True)
class AttentionContext(BatchedState):
    """What every step may look at; the context *vector* is what one step makes of it.

    Attributes:
        states: of the source.
        keys: what of the score depends on them alone.
        valid: True where a source position is real.
    """

    states: States
    keys: Keys
    valid: PaddingMask


@dataclass(frozen=True)
class AttentionState(BatchedState):
    """What each step changes.

    Attributes:
        layers: the states of the recurrent layers.
        last_output: that of the step before, without dropout; None without input feeding.
        coverage: the sum of the weights of all steps so far; None without coverage.
    """

    layers: tuple[CellState, ...]
    last_output: Summary | None
    coverage: Float[Tensor, "batch source"] | None


class AttentiveDecoder(RecurrentDecoder[AttentionContext, AttentionState]):
    """Luong's decoder: attention after each step, with its state h as the query.

        h_t = layers(y_{t−1}, h_{t−1}),    c_t = Σ_j α_tj s_j,    output_t = tanh(W [c_t; h_t])

    (Luong et al. 2015, section 3 and equation 5, where the output is the attentional vector h̃_t.) Bahdanau's asks with
    h_{t−1} and gives c_t to the layers (Bahdanau et al. 2015, section 3.1).

    As long as no step depends on where the one before it looked, the recurrent layers run over the whole target in one
    pass, and all steps look at once. With input feeding or coverage, they go one by one. The attention is a
    `CoverageAttention` where its score is to see how much was looked at before; with input feeding, where each step
    also reads what the step before wrote, the stack reads twice the width.
    """

    def __init__(
        self,
        tokens: nn.Embedding,
        stack: Stack,
        bridge: Bridge,
        attention: Attention,
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
        """The keys, once for all steps; nothing is written or looked at yet."""
        context = AttentionContext(memory.states, self.attention.score.keys(memory.states), memory.valid)
        last_output = torch.zeros_like(memory.summary) if self.input_feeding else None
        coverage = memory.states.new_zeros(memory.valid.shape) if self.coverage else None
        return context, AttentionState(self.bridge(memory.summary), last_output, coverage)

    def forward(
        self, context: AttentionContext, state: AttentionState, tokens: Tokens
    ) -> tuple[Vectors, AttentionState]:
        """The output of each step."""
        return self._steps(context, state, tokens)

    def attention_weights(self, memory: EncoderOutput, tokens: Tokens) -> AttentionWeights:
        """Where each step looks; one layer with one head."""
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
        """Outputs of all steps: in one piece, or step by step where a step waits for the one before it.

        Weights are appended to `all_weights`; without it they need not be made.
        """
        at_once = 1 if self.input_feeding or self.coverage else tokens.shape[1]
        outputs = []
        for x in self.dropout(self.embedding(tokens)).split(at_once, dim=1):
            output, state = self._attend(context, state, x, all_weights)
            outputs.append(output)
        return torch.cat(outputs, dim=1), state

    def _attend(
        self, context: AttentionContext, state: AttentionState, x: Vectors, all_weights: list[Tensor] | None
    ) -> tuple[Vectors, AttentionState]:
        """First the recurrent layers, then attention with their states as queries, then what both say together."""
        if state.last_output is not None:
            x = torch.cat((x, state.last_output.unsqueeze(1).to(x.dtype)), dim=2)
        hidden, layers = self.stack(x, state.layers)
        source = (context.states, context.keys, context.valid)
        coverage = state.coverage
        weights = None
        if isinstance(self.attention, CoverageAttention) and coverage is not None:
            context_vectors, weights = self.attention.update_coverage(hidden, *source, coverage)
            coverage = coverage + weights.sum(dim=1)
        elif all_weights is not None:
            context_vectors, weights = self.attention(hidden, *source)
        else:
            context_vectors = self.attention.context_vectors(hidden, *source)
        if all_weights is not None and weights is not None:
            all_weights.append(weights)
        output = torch.tanh(self.combine(torch.cat((context_vectors, hidden), dim=2)))
        last_output = output[:, -1] if self.input_feeding else None
        return self.dropout(output), AttentionState(layers, last_output, coverage)


@dataclass(frozen=True)
class TimeSyncedContext(BatchedState):
    """One state of the encoder for each source position; zeros where there is padding."""

    states: States


@dataclass(frozen=True)
class TimeSyncedState(BatchedState):
    """How many outputs have been given."""

    step: int


class TimeSyncedDecoder(Decoder[TimeSyncedContext, TimeSyncedState]):
    """Gives the encoder's states in their order. What was written before is not looked at.

    The source ends with `EOS`, so that its state is what the target's own `EOS` is read off: both have one length.
    """

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.is_one_to_one = True

    def start(self, memory: EncoderOutput, limit: int) -> tuple[TimeSyncedContext, TimeSyncedState]:
        """Nothing is given yet; after the source's end there are zeros."""
        states = memory.states * memory.valid.unsqueeze(2)
        padded = functional.pad(states, (0, 0, 0, max(0, limit - states.shape[1])))
        return TimeSyncedContext(padded), TimeSyncedState(0)

    def forward(
        self, context: TimeSyncedContext, state: TimeSyncedState, tokens: Tokens
    ) -> tuple[Vectors, TimeSyncedState]:
        """The next states, as many as there are tokens."""
        end = state.step + tokens.shape[1]
        return self.dropout(context.states[:, state.step : end]), TimeSyncedState(end)
