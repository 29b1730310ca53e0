"""The language model: a decoder without a source, and the projection onto the pieces.

It reads what stands before and says what comes next (Bengio et al. 2003; with attention alone: Radford et al. 2018). A
document begins with `BOS`, which is read and never written. Where documents stand one after the other in a row, they
are kept `apart` or not: apart, what was read before a `BOS` is forgotten with it, and positions begin anew, so that a
document among others is the document alone.
"""

from abc import ABC, abstractmethod
from typing import Generic

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from s2s.data.tokenizers import BOS
from s2s.models.base import State
from s2s.nn.layers import Tokens, Vectors


class CausalDecoder(nn.Module, ABC, Generic[State]):
    """Reads rows of pieces from the left to the right: no state knows of what comes after it.

    Attributes:
        embedding: makes a vector of each piece.
        longest: most pieces that a row may have; None where there is no limit.
    """

    embedding: nn.Module
    max_positions: int | None = None

    @abstractmethod
    def start(self, rows: int, separate_documents: bool) -> State:
        """The state of that many rows before their first piece.

        Args:
            rows: how many rows there are.
            separate_documents: whether a `BOS` makes what was read before it forgotten.
        """

    @abstractmethod
    def forward(self, state: State, tokens: Tokens) -> tuple[Vectors, State]:
        """Reads `steps` pieces more: the state after each of them (to be projected), and the new state.

        Reading a row at once and piece by piece gives the same numbers.
        """

    def read(self, tokens: Tokens, separate_documents: bool) -> Vectors:
        """The state after each piece of whole rows; what `forward` gives from the start, perhaps sooner."""
        return self(self.start(len(tokens), separate_documents), tokens)[0]


class LanguageModel(nn.Module):
    """Pieces in, scores of the piece that follows each out: decoder and projection.

    As in `Seq2Seq`, the projection lives here, so that the loss can fuse it with the cross-entropy.

    Args:
        decoder: reads the text.
        projection: maps its states to scores of the pieces; its weight may be tied to an embedding.
    """

    def __init__(self, decoder: CausalDecoder, projection: nn.Linear) -> None:
        super().__init__()
        self.decoder = decoder
        self.projection = projection

    def forward(self, tokens: Tokens, separate_documents: bool = True) -> Vectors:
        """The state after each piece, before the projection; see `CausalDecoder.start` for `apart`."""
        return self.decoder.read(tokens, separate_documents)

    def logits(self, tokens: Tokens, separate_documents: bool = True) -> Float[Tensor, "batch steps vocabulary"]:
        """Unnormalised log probabilities of the piece that follows each given one."""
        return self.projection(self(tokens, separate_documents))


def document_starts(tokens: Tokens) -> Bool[Tensor, "batch steps"]:
    """True where a document begins."""
    return tokens == BOS


def document_positions(begin: Bool[Tensor, "batch steps"], before: Int[Tensor, " batch"]) -> Int[Tensor, "batch steps"]:
    """Where each piece stands in its document, from 0 on.

    Args:
        begin: where a document begins.
        before: how many pieces each row has read of the document that it is in.
    """
    steps = torch.arange(begin.shape[1], device=begin.device).expand(begin.shape)
    # the latest beginning; before the first one, the row's own, which lies to its left
    latest = torch.where(begin, steps, -before.unsqueeze(1)).cummax(dim=1).values
    return steps - latest
