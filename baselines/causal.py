"""Recurrent language models: layers that read a text from the left to the right, without a source."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from baselines.cells import CellState, Stack
from s2s.models.contract import Rows
from s2s.models.language_model import CausalDecoder, begins
from s2s.nn.embeddings import Embedding
from s2s.nn.layers import Dropout, Tokens, Vectors


@dataclass(frozen=True)
class CausalState(Rows):
    """The states of the recurrent layers, and whether a `BOS` makes what they hold forgotten."""

    layers: tuple[CellState, ...]
    apart: bool


class CausalRecurrent(CausalDecoder[CausalState]):
    """Reads with recurrent layers, from zeros on, with dropout on what is read and on what is given."""

    def __init__(self, tokens: nn.Embedding, stack: Stack, dropout: float, *, scaled: bool) -> None:
        super().__init__()
        self.embedding = Embedding(tokens, "none", 0, scaled)
        self.dropout = Dropout(dropout)
        self.stack = stack

    def start(self, rows: int, apart: bool) -> CausalState:
        """Zeros."""
        return CausalState(self._zeros(rows), apart)

    def forward(self, state: CausalState, tokens: Tokens) -> tuple[Vectors, CausalState]:
        """The state after each piece; in as many passes as there are steps at which a document begins."""
        x = self.dropout(self.embedding(tokens))
        layers, outputs = state.layers, []
        begin = begins(tokens) if state.apart else torch.zeros_like(tokens, dtype=torch.bool)
        inner = begin.any(dim=0).nonzero().flatten().tolist() if state.apart else []
        first = [0, *(step for step in inner if step)]
        for step, following in zip(first, [*first[1:], tokens.shape[1]], strict=True):
            kept = ~begin[:, step].unsqueeze(1)
            layers = tuple(tuple(part * kept for part in layer) for layer in layers)
            read, layers = self.stack(x[:, step:following], layers)
            outputs.append(read)
        return self.dropout(torch.cat(outputs, dim=1)), CausalState(layers, state.apart)

    def read(self, tokens: Tokens, apart: bool) -> Vectors:
        """As elsewhere; each document of a row is read as a row of its own, those of similar length together."""
        begin = begins(tokens)
        if not apart or not bool(begin[:, 1:].any()):
            return super().read(tokens, apart)
        begin[:, 0] = True
        x = self.dropout(self.embedding(tokens)).flatten(0, 1)
        number = begin.flatten().cumsum(0) - 1
        starts = begin.flatten().nonzero().squeeze(1)
        place = torch.arange(len(x), device=x.device) - starts[number]
        lengths = torch.bincount(number)
        # each group is less than twice as long as its shortest
        group = lengths.float().log2().floor().long()
        outputs = torch.zeros_like(x)
        for each in group.unique().tolist():
            chosen = (group == each).nonzero().squeeze(1)
            row = torch.full_like(lengths, -1)
            row[chosen] = torch.arange(len(chosen), device=x.device)
            here = (group[number] == each).nonzero().squeeze(1)
            outputs = outputs.index_copy(0, here, self._alone(x[here], row[number[here]], place[here]))
        return self.dropout(outputs.unflatten(0, tokens.shape))

    def _alone(self, x: Tensor, row: Tensor, place: Tensor) -> Tensor:
        """The states of pieces that stand in these places of these rows, in their order."""
        padded = x.new_zeros(int(row.max()) + 1, int(place.max()) + 1, x.shape[1]).index_put((row, place), x)
        return self.stack(padded, self._zeros(len(padded)))[0][row, place]

    def _zeros(self, rows: int) -> tuple[CellState, ...]:
        zeros = next(self.parameters()).new_zeros(rows, self.stack.width)
        return tuple(tuple(zeros for _ in range(count)) for count in self.stack.parts)
