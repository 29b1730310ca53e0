"""The recurrent encoder: one direction, the other, or both."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from baselines.cells import Stack
from baselines.settings import Recurrent
from s2s.models.contract import Encoder, Memory
from s2s.nn.dropout import Dropout


class RecurrentEncoder(Encoder):
    """Reads the source token by token; the summary is the state after the last token of each direction.

    Rows of different lengths need no packing. A padded end cannot change what came before it, and the reading from the
    end begins at each row's own last token: the row is turned round within its length.

    Args:
        cell: kind of the recurrent layers.
        settings: the model's section of the recipe.
        embedding: the table of token vectors.
    """

    def __init__(self, cell: str, settings: Recurrent, embedding: nn.Embedding) -> None:
        super().__init__()
        self.embedding = embedding
        self.dropout = Dropout(settings.dropout)
        backward = settings.bidirectional or settings.reverse_source
        forward = not settings.reverse_source
        width = settings.width // (forward + backward)

        def stack() -> Stack:
            layers, rate = settings.encoder_layers, settings.dropout
            return Stack(cell, settings.width, width, layers, rate, settings.residual)

        self.forwards = stack() if forward else None
        self.backwards = stack() if backward else None

    def forward(self, source: Int[Tensor, "batch source"], valid: Bool[Tensor, "batch source"]) -> Memory:
        """One state for each source position."""
        x = self.dropout(self.embedding(source))
        lengths = valid.sum(dim=1)
        states, ends = [], []
        if self.forwards is not None:
            outputs, _ = self.forwards(x, self.forwards.zero_state(x))
            states.append(outputs)
            ends.append(_at(outputs, lengths - 1))
        if self.backwards is not None:
            turned, _ = self.backwards(turn_round(x, lengths), self.backwards.zero_state(x))
            states.append(turn_round(turned, lengths))
            ends.append(_at(turned, lengths - 1))
        return Memory(torch.cat(states, dim=2), valid, torch.cat(ends, dim=1))


def turn_round(
    x: Float[Tensor, "batch steps width"], lengths: Int[Tensor, " batch"]
) -> Float[Tensor, "batch steps width"]:
    """Each row from its end to its beginning; what lies beyond its length stays where it is."""
    places = torch.arange(x.shape[1], device=x.device).expand(len(x), -1)
    ends = lengths.unsqueeze(1)
    turned = torch.where(places < ends, ends - 1 - places, places)
    return x.gather(1, turned.unsqueeze(2).expand_as(x))


def _at(x: Float[Tensor, "batch steps width"], steps: Int[Tensor, " batch"]) -> Float[Tensor, "batch width"]:
    return x[torch.arange(len(x), device=x.device), steps.clamp(min=0)]
