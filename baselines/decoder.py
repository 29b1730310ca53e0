"""Recurrent decoders: from the source's summary alone, with attention, and the one of `rnn-tagger`, time-synced."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from baselines.attention import Attention, Keys
from baselines.cells import CellState, Stack, initialize_parts
from s2s.models.contract import Context, Decoder, Memory, Rows, State
from s2s.nn.embeddings import Embedding
from s2s.nn.layers import Dropout, Looks, States, Summary, Tokens, Valid, Vectors


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
class Nothing(Rows):
    """A decoder without attention reads nothing but its own state."""


@dataclass(frozen=True)
class Cells(Rows):
    """The recurrent layers' states."""

    layers: tuple[CellState, ...]


class RecurrentDecoder(Decoder[Context, State]):
    """What all that write by recurrent layers have: vectors of tokens, the layers, and what their first state is."""

    def __init__(self, tokens: nn.Embedding, stack: Stack, bridge: Bridge, dropout: float, scaled: bool = True) -> None:
        super().__init__()
        self.embedding = Embedding(tokens, "none", 0, scaled)
        self.dropout = Dropout(dropout)
        self.stack = stack
        self.bridge = bridge


class SqueezedDecoder(RecurrentDecoder[Nothing, Cells]):
    """Writes from its state alone: all that it knows of the source went through the summary (Sutskever et al. 2014)."""

    def start(self, memory: Memory, limit: int) -> tuple[Nothing, Cells]:
        """The summary becomes the first state."""
        return Nothing(), Cells(self.bridge(memory.summary))

    def forward(self, context: Nothing, state: Cells, tokens: Tokens) -> tuple[Vectors, Cells]:
        """The state after each token, in one pass over all of them."""
        outputs, layers = self.stack(self.dropout(self.embedding(tokens)), state.layers)
        return self.dropout(outputs), Cells(layers)


@dataclass(frozen=True)
class Source(Rows):
    """What every step may look at."""

    states: States
    keys: Keys
    valid: Valid


@dataclass(frozen=True)
class Looking(Rows):
    """The layers' states; with input feeding the last output before dropout, with coverage the sum of all weights."""

    layers: tuple[CellState, ...]
    fed: Summary | None
    seen: Float[Tensor, "batch source"] | None


class AttentiveDecoder(RecurrentDecoder[Source, Looking]):
    """Looks at the source after each step: output = tanh(W [read; h]) (Luong et al. 2015, equation 5).

    As long as no step depends on where the one before it looked, the recurrent layers run over the whole target in one
    pass, and all steps look at once. With input feeding or coverage, they go one by one. The attention has coverage
    where its score is to see how much was looked at before; with input feeding, where each step also reads what the
    step before wrote, the stack reads twice the width.
    """

    def __init__(
        self,
        tokens: nn.Embedding,
        stack: Stack,
        bridge: Bridge,
        attention: Attention,
        dropout: float,
        input_feeding: bool,
        scaled: bool = True,
    ) -> None:
        super().__init__(tokens, stack, bridge, dropout, scaled)
        self.input_feeding, self.coverage = input_feeding, attention.coverage is not None
        self.attention = attention
        self.combine = nn.Linear(2 * stack.width, stack.width, bias=False)
        nn.init.xavier_uniform_(self.combine.weight)

    def start(self, memory: Memory, limit: int) -> tuple[Source, Looking]:
        """The keys, once for all steps; nothing is written or looked at yet."""
        source = Source(memory.states, self.attention.score.keys(memory.states), memory.valid)
        fed = torch.zeros_like(memory.summary) if self.input_feeding else None
        seen = memory.states.new_zeros(memory.valid.shape) if self.coverage else None
        return source, Looking(self.bridge(memory.summary), fed, seen)

    def forward(self, context: Source, state: Looking, tokens: Tokens) -> tuple[Vectors, Looking]:
        """The output of each step."""
        return self._steps(context, state, tokens)

    def attention_weights(self, memory: Memory, tokens: Tokens) -> Looks:
        """Where each step looks; one layer with one head."""
        context, state = self.start(memory, tokens.shape[1])
        looked: list[Tensor] = []
        self._steps(context, state, tokens, looked)
        return torch.cat(looked, dim=1)[:, None, None]

    def _steps(
        self, context: Source, state: Looking, tokens: Tokens, looked: list[Tensor] | None = None
    ) -> tuple[Vectors, Looking]:
        """Outputs of all steps: in one piece, or step by step where a step waits for the one before it.

        Weights are appended to `looked`; without it they need not be made.
        """
        at_once = 1 if self.input_feeding or self.coverage else tokens.shape[1]
        outputs = []
        for x in self.dropout(self.embedding(tokens)).split(at_once, dim=1):
            output, state = self._look(context, state, x, looked)
            outputs.append(output)
        return torch.cat(outputs, dim=1), state

    def _look(
        self, context: Source, state: Looking, x: Vectors, looked: list[Tensor] | None
    ) -> tuple[Vectors, Looking]:
        """First the recurrent layers, then attention with their states as queries, then what both say together."""
        if state.fed is not None:
            x = torch.cat((x, state.fed.unsqueeze(1).to(x.dtype)), dim=2)
        hidden, layers = self.stack(x, state.layers)
        seen = state.seen
        if looked is None and seen is None:
            read = self.attention.read(hidden, context.states, context.keys, context.valid)
        else:
            read, weights = self.attention(hidden, context.states, context.keys, context.valid, seen)
            seen = None if seen is None else seen + weights.sum(dim=1)
            if looked is not None:
                looked.append(weights)
        output = torch.tanh(self.combine(torch.cat((read, hidden), dim=2)))
        fed = output[:, -1] if self.input_feeding else None
        return self.dropout(output), Looking(layers, fed, seen)


@dataclass(frozen=True)
class Outputs(Rows):
    """One state for each source position; zeros where there is padding."""

    states: States


@dataclass(frozen=True)
class Place(Rows):
    """How many outputs have been given."""

    step: int


class TimeSyncedDecoder(Decoder[Outputs, Place]):
    """Gives the encoder's states in their order. What was written before is not looked at.

    The source ends with `EOS`, so that its state is what the target's own `EOS` is read off: both have one length.
    """

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.one_to_one = True

    def start(self, memory: Memory, limit: int) -> tuple[Outputs, Place]:
        """Nothing is given yet; after the source's end there are zeros."""
        states = memory.states * memory.valid.unsqueeze(2)
        return Outputs(functional.pad(states, (0, 0, 0, max(0, limit - states.shape[1])))), Place(0)

    def forward(self, context: Outputs, state: Place, tokens: Tokens) -> tuple[Vectors, Place]:
        """The next states, as many as there are tokens."""
        end = state.step + tokens.shape[1]
        return self.dropout(context.states[:, state.step : end]), Place(end)
