"""Recurrent language models: layers that read a text from the left to the right, without a source."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from baselines.cells import CellState, Stack
from s2s.models.base import BatchedState
from s2s.models.language_model import CausalDecoder, document_starts
from s2s.nn.embeddings import Embedding
from s2s.nn.layers import Dropout, Tokens, Vectors


@dataclass(frozen=True)
class CausalState(BatchedState):
    """The states of the recurrent layers, and whether a `BOS` makes what they hold forgotten."""

    layers: tuple[CellState, ...]
    separate_documents: bool


@dataclass(frozen=True)
class Documents:
    """Documents of similar length, to be read side by side: the longest is less than twice as long as the shortest.

    Attributes:
        pieces: where their pieces stand in a batch whose rows are laid end to end.
        document: which of these documents each piece is of, from 0 on.
        place: where it stands in that document, from 0 on.
    """

    pieces: Int[Tensor, " pieces"]
    document: Int[Tensor, " pieces"]
    place: Int[Tensor, " pieces"]

    @property
    def documents(self) -> int:
        """How many there are."""
        return int(self.document.max()) + 1

    @property
    def max_length(self) -> int:
        """Pieces of the longest."""
        return int(self.place.max()) + 1


def documents_by_length(begin: Bool[Tensor, "batch steps"]) -> Iterator[Documents]:
    """The documents of a batch in groups of similar length, the shortest first.

    Args:
        begin: where a document begins; at the start of a row, one does in any case.
    """
    first_of_row = torch.arange(begin.shape[1], device=begin.device) == 0
    starts = (begin | first_of_row).flatten()
    number = starts.cumsum(0) - 1
    place = torch.arange(len(starts), device=begin.device) - starts.nonzero().squeeze(1)[number]
    lengths = torch.bincount(number)
    # documents of 2^k to 2^(k+1) − 1 pieces are of one group: less than half of what is read is padding
    group = lengths.float().log2().floor().long()
    for each in group.unique().tolist():
        member = group == each
        tokens = member[number].nonzero().squeeze(1)
        document = (member.cumsum(0) - 1)[number[tokens]]
        yield Documents(tokens, document, place[tokens])


class CausalRecurrent(CausalDecoder[CausalState]):
    """Reads with recurrent layers, from zeros on, with dropout on what is read and on what is given."""

    def __init__(self, tokens: nn.Embedding, stack: Stack, dropout: float, *, scaled: bool) -> None:
        super().__init__()
        self.embedding = Embedding(tokens, "none", 0, scaled)
        self.dropout = Dropout(dropout)
        self.stack = stack

    def start(self, rows: int, separate_documents: bool) -> CausalState:
        """Zeros."""
        return CausalState(self._zeros(rows), separate_documents)

    def forward(self, state: CausalState, tokens: Tokens) -> tuple[Vectors, CausalState]:
        """The state after each piece; in as many passes as there are steps at which a document begins."""
        x = self.dropout(self.embedding(tokens))
        layers, outputs = state.layers, []
        begin = document_starts(tokens) if state.separate_documents else torch.zeros_like(tokens, dtype=torch.bool)
        inner = begin.any(dim=0).nonzero().flatten().tolist() if state.separate_documents else []
        first = [0, *(step for step in inner if step)]
        for step, following in zip(first, [*first[1:], tokens.shape[1]], strict=True):
            kept = ~begin[:, step].unsqueeze(1)
            layers = tuple(tuple(part * kept for part in layer) for layer in layers)
            read, layers = self.stack(x[:, step:following], layers)
            outputs.append(read)
        return self.dropout(torch.cat(outputs, dim=1)), CausalState(layers, state.separate_documents)

    def read(self, tokens: Tokens, separate_documents: bool) -> Vectors:
        """As elsewhere; each document of a row is read as a row of its own, those of similar length together."""
        begin = document_starts(tokens)
        if not separate_documents or not bool(begin[:, 1:].any()):
            return super().read(tokens, separate_documents)
        x = self.dropout(self.embedding(tokens)).flatten(0, 1)
        outputs = torch.zeros_like(x)
        for group in documents_by_length(begin):
            padded = x.new_zeros(group.documents, group.max_length, x.shape[1])
            padded = padded.index_put((group.document, group.place), x[group.pieces])
            states, _ = self.stack(padded, self._zeros(group.documents))
            outputs = outputs.index_copy(0, group.pieces, states[group.document, group.place])
        return self.dropout(outputs.unflatten(0, tokens.shape))

    def _zeros(self, rows: int) -> tuple[CellState, ...]:
        zeros = next(self.parameters()).new_zeros(rows, self.stack.width)
        return tuple(tuple(zeros for _ in range(count)) for count in self.stack.parts)
