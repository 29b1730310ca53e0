"""Recurrent encoder: forward, backward or bidirectional."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from baselines.cells import CELLS
from s2s.models.base import Encoder, EncoderOutput
from s2s.nn.embeddings import Embedding
from s2s.nn.layers import Dropout, PaddingMask, States, Summary, Vectors


class Layer(nn.Module):
    """Recurrent encoder layer with one direction, or two that share the width.

    Args:
        cell: Kind of the layer, a key of `baselines.cells.CELLS`.
        inputs: Size of the input vectors.
        width: Size of the states of all directions together.
        turned: For each direction, True to read from the end to the beginning.

    Example:
        >>> layer = Layer("gru", inputs=3, width=8, turned=(False, True))
        >>> states, ends = layer(torch.randn(2, 5, 3), lengths=torch.tensor([5, 4]))
        >>> states.shape, ends.shape
        (torch.Size([2, 5, 8]), torch.Size([2, 8]))
    """

    def __init__(self, cell: str, inputs: int, width: int, turned: tuple[bool, ...]) -> None:
        super().__init__()
        self.turned = turned
        self.cells = nn.ModuleList([CELLS[cell](inputs, width // len(turned)) for _ in turned])
        self.part = (CELLS[cell].parts, width // len(turned))

    def forward(
        self, x: Float[Tensor, "batch source inputs"], lengths: Int[Tensor, " batch"]
    ) -> tuple[States, Summary]:
        """Read sequences in each direction.

        Args:
            x: Input vectors, `(batch, source, inputs)`.
            lengths: Real positions of each row, `(batch,)`.

        Returns:
            The states, `(batch, source, width)`, and for each direction the state after the last token that it reads,
            `(batch, width)`.
        """
        count, width = self.part
        states, ends = [], []
        for cell, turned in zip(self.cells, self.turned, strict=True):
            read, _ = cell(reverse_sequences(x, lengths) if turned else x, (x.new_zeros(len(x), width),) * count)
            ends.append(_select_steps(read, lengths - 1))
            states.append(reverse_sequences(read, lengths) if turned else read)
        return torch.cat(states, dim=2), torch.cat(ends, dim=1)


class RecurrentEncoder(Encoder):
    """Recurrent encoder; the summary is the top layer's final state of each direction.

    Rows of different lengths need no packing. Padding at the end cannot change earlier states, and the backward
    direction starts at each row's last token, because the row is reversed within its length.

    Args:
        cell: Kind of the layers, a key of `baselines.cells.CELLS`.
        tokens: Table of token vectors.
        layers: Number of layers.
        bidirectional: Half of the width reads backward.
        reverse: A one-directional encoder reads backward.
        residual: Add the input of each layer but the first to its output.
        dropout: Dropout rate of embeddings and between layers.
        scaled: Multiply token vectors by √width.

    Example:
        >>> encoder = RecurrentEncoder(
        ...     "lstm",
        ...     nn.Embedding(20, 8),
        ...     layers=2,
        ...     bidirectional=True,
        ...     reverse=False,
        ...     residual=False,
        ...     dropout=0.0,
        ...     scaled=False,
        ... )
        >>> source = torch.tensor([[4, 5, 6], [7, 8, 0]])
        >>> output = encoder(source, source > 0)
        >>> output.states.shape, output.summary.shape
        (torch.Size([2, 3, 8]), torch.Size([2, 8]))
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
        self.recurrence = "scan" if CELLS[cell].is_scan else "steps"
        turned = (False, True) if bidirectional else (reverse,)
        width = tokens.embedding_dim
        self.layers = nn.ModuleList([Layer(cell, width, width, turned) for _ in range(layers)])

    def read(self, vectors: States, valid: PaddingMask) -> EncoderOutput:
        """Encode embedded sources.

        Args:
            vectors: Embeddings, `(batch, source, width)`.
            valid: Padding mask, `(batch, source)`.

        Returns:
            States `(batch, source, width)`, the padding mask, and the summary `(batch, width)`.
        """
        x = self.dropout(vectors)
        lengths = valid.sum(dim=1)
        summary = x[:, 0]
        for i, layer in enumerate(self.layers):
            # One state for each position, (batch, source, width), and the final state of each direction, (batch,
            # width).
            y, ends = layer(self.dropout(x) if i else x, lengths)
            deeper = self.residual and i > 0
            x, summary = (x + y, summary + ends) if deeper else (y, ends)
        return EncoderOutput(x, valid, summary)


def reverse_sequences(x: Vectors, lengths: Int[Tensor, " batch"]) -> Vectors:
    """Reverse each row within its length; padding stays in place.

    Args:
        x: Vectors, `(batch, steps, width)`.
        lengths: Real positions of each row, `(batch,)`.

    Example:
        >>> x = torch.tensor([[1, 2, 3], [4, 5, 0]]).unsqueeze(2)
        >>> reverse_sequences(x, torch.tensor([3, 2])).squeeze(2)
        tensor([[3, 2, 1],
                [5, 4, 0]])
    """
    places = torch.arange(x.shape[1], device=x.device).expand(len(x), -1)
    ends = lengths.unsqueeze(1)
    turned = torch.where(places < ends, ends - 1 - places, places)
    return x.gather(1, turned.unsqueeze(2).expand_as(x))


def _select_steps(x: Vectors, steps: Int[Tensor, " batch"]) -> Summary:
    return x[torch.arange(len(x), device=x.device), steps.clamp(min=0)]
