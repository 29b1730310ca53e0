"""The recurrent encoder: one direction, the other, or both."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from baselines.cells import CELLS
from s2s.models.base import Encoder, EncoderOutput
from s2s.nn.embeddings import Embedding
from s2s.nn.layers import Dropout, PaddingMask, States, Summary, Vectors


class Layer(nn.Module):
    """Reads in one direction or in both, side by side, which share the width; `turned` ones begin at the end."""

    def __init__(self, cell: str, inputs: int, width: int, turned: tuple[bool, ...]) -> None:
        super().__init__()
        self.turned = turned
        self.cells = nn.ModuleList([CELLS[cell](inputs, width // len(turned)) for _ in turned])
        self.part = (CELLS[cell].parts, width // len(turned))

    def forward(
        self, x: Float[Tensor, "batch source inputs"], lengths: Int[Tensor, " batch"]
    ) -> tuple[States, Summary]:
        """The state at each position, and of each direction the state after the last token that it reads."""
        count, width = self.part
        states, ends = [], []
        for cell, turned in zip(self.cells, self.turned, strict=True):
            read, _ = cell(reverse_sequences(x, lengths) if turned else x, (x.new_zeros(len(x), width),) * count)
            ends.append(_at(read, lengths - 1))
            states.append(reverse_sequences(read, lengths) if turned else read)
        return torch.cat(states, dim=2), torch.cat(ends, dim=1)


class RecurrentEncoder(Encoder):
    """Reads the source token by token; the summary is the top layer's state after the last token of each direction.

    Rows of different lengths need no packing. A padded end cannot change what came before it, and the reading from the
    end begins at each row's own last token: the row is turned round within its length. What it takes is described in
    `baselines.recurrent.EncoderFields`.
    """

    def __init__(
        self,
        cell: str,
        tokens: nn.Embedding,
        *,
        layers: int,
        bidirectional: bool,
        reverse: bool,
        residual: bool,
        dropout: float,
        scaled: bool,
    ) -> None:
        super().__init__()
        self.embedding = Embedding(tokens, "none", 0, scaled)
        self.dropout = Dropout(dropout)
        self.residual = residual
        turned = (False, True) if bidirectional else (reverse,)
        width = tokens.embedding_dim
        self.layers = nn.ModuleList([Layer(cell, width, width, turned) for _ in range(layers)])

    def read(self, vectors: States, valid: PaddingMask) -> EncoderOutput:
        """One state for each source position."""
        x = self.dropout(vectors)
        lengths = valid.sum(dim=1)
        summary = x[:, 0]
        for i, layer in enumerate(self.layers):
            y, ends = layer(self.dropout(x) if i else x, lengths)
            deeper = self.residual and i > 0
            x, summary = (x + y, summary + ends) if deeper else (y, ends)
        return EncoderOutput(x, valid, summary)


def reverse_sequences(x: Vectors, lengths: Int[Tensor, " batch"]) -> Vectors:
    """Each row from its end to its beginning; what lies beyond its length stays where it is."""
    places = torch.arange(x.shape[1], device=x.device).expand(len(x), -1)
    ends = lengths.unsqueeze(1)
    turned = torch.where(places < ends, ends - 1 - places, places)
    return x.gather(1, turned.unsqueeze(2).expand_as(x))


def _at(x: Vectors, steps: Int[Tensor, " batch"]) -> Summary:
    return x[torch.arange(len(x), device=x.device), steps.clamp(min=0)]
