"""Linear head on an encoder, to measure what the encoder remembers without a decoder."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from s2s.models.base import BatchedState, Decoder, EncoderOutput, Seq2Seq


@dataclass(frozen=True)
class QueryStates(BatchedState):
    """Encoder states at the query positions, followed by a learned vector."""

    states: Float[Tensor, "batch queries width"]


@dataclass(frozen=True)
class NumWritten(BatchedState):
    """Number of output tokens so far."""

    count: Int[Tensor, " batch"]


class LinearHead(Decoder[QueryStates, NumWritten]):
    """Decoder that returns the encoder's states at the last positions before the end, then a learned vector.

    The projection onto the vocabulary is then a linear head over the encoder's states. Previous output tokens are
    ignored.

    Args:
        queries: Number of positions that each ask for one token.
        width: Width of the encoder's states.
    """

    def __init__(self, queries: int, width: int) -> None:
        super().__init__()
        self.queries = queries
        self.end = nn.Parameter(torch.zeros(width))

    def start(self, memory: EncoderOutput, limit: int) -> tuple[QueryStates, NumWritten]:
        """Select the states; the last valid position is the end of the source."""
        lengths = memory.valid.sum(dim=1)
        places = lengths[:, None] - 1 - self.queries + torch.arange(self.queries, device=lengths.device)
        rows = torch.arange(len(lengths), device=lengths.device)[:, None]
        end = self.end.to(memory.states.dtype).expand(len(lengths), 1, -1)
        return QueryStates(torch.cat((memory.states[rows, places], end), dim=1)), NumWritten(torch.zeros_like(lengths))

    def forward(
        self, context: QueryStates, state: NumWritten, tokens: Int[Tensor, "batch steps"]
    ) -> tuple[Float[Tensor, "batch steps width"], NumWritten]:
        """Return the states of the next queries."""
        steps = torch.arange(tokens.shape[1], device=tokens.device)
        places = (state.count[:, None] + steps).clamp(max=self.queries)
        rows = torch.arange(len(tokens), device=tokens.device)[:, None]
        return context.states[rows, places], NumWritten(state.count + tokens.shape[1])


def with_linear_head(model: Seq2Seq, queries: int, vocabulary_size: int) -> Seq2Seq:
    """Replace a model's decoder by a `LinearHead`; the encoder is shared."""
    token = torch.zeros(1, 1, dtype=torch.long)
    with torch.no_grad():
        width = model.encoder(token, token == 0).states.shape[2]
    return Seq2Seq(model.encoder, LinearHead(queries, width), nn.Linear(width, vocabulary_size, bias=False))
