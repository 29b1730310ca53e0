"""Recurrent language models: layers that read a text from left to right."""

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
    """State of a recurrent language model.

    Attributes:
        layers: State of each recurrent layer.
        separate_documents: Reset the state at each BOS.
    """

    layers: tuple[CellState, ...]
    separate_documents: bool


@dataclass(frozen=True)
class Documents:
    """Documents of similar length, for one padded batch.

    The longest document is less than twice as long as the shortest.

    Attributes:
        pieces: Indices of their tokens in the flattened batch.
        document: Number of each token's document in this group, from 0 on.
        place: Position of each token in its document, from 0 on.
    """

    pieces: Int[Tensor, " pieces"]
    document: Int[Tensor, " pieces"]
    place: Int[Tensor, " pieces"]

    @property
    def documents(self) -> int:
        """Number of documents."""
        return int(self.document.max()) + 1

    @property
    def max_length(self) -> int:
        """Tokens of the longest document."""
        return int(self.place.max()) + 1


def documents_by_length(begin: Bool[Tensor, "batch steps"]) -> Iterator[Documents]:
    """Group the documents of a batch by similar length, shortest first.

    Args:
        begin: True where a document begins, `(batch, steps)`; each row also begins one.

    Yields:
        Groups of documents.

    Example:
        A row with documents of 1 and 3 tokens:

        >>> begin = torch.tensor([[True, True, False, False]])
        >>> [(group.documents, group.max_length) for group in documents_by_length(begin)]
        [(1, 1), (1, 3)]
    """
    first_of_row = torch.arange(begin.shape[1], device=begin.device) == 0
    starts = (begin | first_of_row).flatten()
    number = starts.cumsum(0) - 1
    place = torch.arange(len(starts), device=begin.device) - starts.nonzero().squeeze(1)[number]
    lengths = torch.bincount(number)
    # Documents of 2^k to 2^(k+1) − 1 tokens are one group, so less than half of a padded batch is padding.
    group = lengths.float().log2().floor().long()
    for each in group.unique().tolist():
        member = group == each
        tokens = member[number].nonzero().squeeze(1)
        document = (member.cumsum(0) - 1)[number[tokens]]
        yield Documents(tokens, document, place[tokens])


class CausalRecurrent(CausalDecoder[CausalState]):
    """Recurrent decoder of language models; the first state is zero.

    Args:
        tokens: Table of token vectors.
        stack: Recurrent layers.
        dropout: Dropout rate of embeddings and outputs.
        scaled: Multiply token vectors by √width.

    Example:
        >>> stack = Stack("gru", inputs=8, width=8, layers=1, dropout=0.0, residual=False)
        >>> decoder = CausalRecurrent(nn.Embedding(20, 8), stack, dropout=0.0, scaled=False)
        >>> decoder.read(torch.tensor([[1, 5, 6, 1, 7]]), separate_documents=True).shape
        torch.Size([1, 5, 8])
    """

    def __init__(self, tokens: nn.Embedding, stack: Stack, dropout: float, *, scaled: bool) -> None:
        super().__init__()
        self.embedding = Embedding(tokens, "none", 0, scaled)
        self.dropout = Dropout(dropout)
        self.stack = stack

    def start(self, rows: int, separate_documents: bool) -> CausalState:
        """Return a state of zeros."""
        return CausalState(self._zeros(rows), separate_documents)

    def forward(self, state: CausalState, tokens: Tokens) -> tuple[Vectors, CausalState]:
        """Read tokens, in one pass for each step at which a document begins.

        Args:
            state: State after the tokens before.
            tokens: Token ids, `(batch, steps)`.

        Returns:
            The state after each token, `(batch, steps, width)`, and the new decoder state.
        """
        x = self.dropout(self.embedding(tokens))
        layers, outputs = state.layers, []
        begin = document_starts(tokens) if state.separate_documents else torch.zeros_like(tokens, dtype=torch.bool)
        inner = begin.any(dim=0).nonzero().flatten().tolist() if state.separate_documents else []
        first = [0, *(step for step in inner if step)]
        for step, following in zip(first, [*first[1:], tokens.shape[1]], strict=True):
            # Rows in which a document begins here start from a state of zeros.
            kept = ~begin[:, step].unsqueeze(1)
            layers = tuple(tuple(part * kept for part in layer) for layer in layers)
            read, layers = self.stack(x[:, step:following], layers)
            outputs.append(read)
        return self.dropout(torch.cat(outputs, dim=1)), CausalState(layers, state.separate_documents)

    def read(self, tokens: Tokens, separate_documents: bool) -> Vectors:
        """Read whole rows; separate documents are read as rows, grouped by similar length.

        Args:
            tokens: Token ids, `(batch, steps)`.
            separate_documents: Reset the state at each BOS.

        Returns:
            The state after each token, `(batch, steps, width)`.
        """
        begin = document_starts(tokens)
        if not separate_documents or not bool(begin[:, 1:].any()):
            return super().read(tokens, separate_documents)
        x = self.dropout(self.embedding(tokens)).flatten(0, 1)
        outputs = torch.zeros_like(x)
        for group in documents_by_length(begin):
            # Copy the documents of a group into a padded batch, (documents, max_length, width), and their states back.
            padded = x.new_zeros(group.documents, group.max_length, x.shape[1])
            padded = padded.index_put((group.document, group.place), x[group.pieces])
            states, _ = self.stack(padded, self._zeros(group.documents))
            # The states may be bf16; autocast casts the arguments of index_copy on a CPU, but not on CUDA.
            outputs = outputs.index_copy(0, group.pieces, states[group.document, group.place].to(outputs.dtype))
        return self.dropout(outputs.unflatten(0, tokens.shape))

    def _zeros(self, rows: int) -> tuple[CellState, ...]:
        zeros = next(self.parameters()).new_zeros(rows, self.stack.width)
        return tuple(tuple(zeros for _ in range(count)) for count in self.stack.parts)
