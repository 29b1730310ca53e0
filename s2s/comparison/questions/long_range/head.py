"""An encoder whose states are read by a linear head: a model that need not learn how to say what it remembers."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from s2s.models.base import BatchedState, Decoder, EncoderOutput, Seq2Seq


@dataclass(frozen=True)
class QueryStates(BatchedState):
    """The states at the positions that ask for something."""

    states: Float[Tensor, "batch asked width"]


@dataclass(frozen=True)
class Given(BatchedState):
    """Number of answers that were given."""

    count: Int[Tensor, " batch"]


class LinearHead(Decoder[QueryStates, Given]):
    """Hands on the states at the last positions of a source before its end, one after another; then a learned vector.

    What projects onto the vocabulary is then a linear head over the encoder's states, trained and counted as every
    other model is. What was written before plays no part.

    Args:
        asking: so many positions ask for one piece each.
        width: of the encoder's states.
    """

    def __init__(self, asking: int, width: int) -> None:
        super().__init__()
        self.asking = asking
        self.end = nn.Parameter(torch.zeros(width))

    def start(self, memory: EncoderOutput, limit: int) -> tuple[QueryStates, Given]:
        """The states there; the last real position is the end's sign."""
        lengths = memory.valid.sum(dim=1)
        places = lengths[:, None] - 1 - self.asking + torch.arange(self.asking, device=lengths.device)
        rows = torch.arange(len(lengths), device=lengths.device)[:, None]
        end = self.end.to(memory.states.dtype).expand(len(lengths), 1, -1)
        return QueryStates(torch.cat((memory.states[rows, places], end), dim=1)), Given(torch.zeros_like(lengths))

    def forward(
        self, context: QueryStates, state: Given, tokens: Int[Tensor, "batch steps"]
    ) -> tuple[Float[Tensor, "batch steps width"], Given]:
        """The states for the next answers, whatever the tokens are."""
        steps = torch.arange(tokens.shape[1], device=tokens.device)
        places = (state.count[:, None] + steps).clamp(max=self.asking)
        rows = torch.arange(len(tokens), device=tokens.device)[:, None]
        return context.states[rows, places], Given(state.count + tokens.shape[1])


def headed(model: Seq2Seq, asking: int, pieces: int) -> Seq2Seq:
    """A model's encoder under a linear head, in the place of its decoder.

    Args:
        model: whose encoder it is.
        asking: see `LinearHead`.
        pieces: size of the vocabulary.
    """
    one = torch.zeros(1, 1, dtype=torch.long)
    with torch.no_grad():
        width = model.encoder(one, one == 0).states.shape[2]
    return Seq2Seq(model.encoder, LinearHead(asking, width), nn.Linear(width, pieces, bias=False))
