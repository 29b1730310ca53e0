"""Language models: a decoder without a source, and the output projection.

A language model predicts the next token from the tokens before (Bengio et al. 2003; with a Transformer: Radford et al.
2018). A document begins with BOS, which is read and never written. A row may hold several documents. With
`separate_documents`, a BOS resets the state and the positions, so a document has the same states in a row with others
as alone.
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
    """Base class of decoders without a source; no state depends on later tokens.

    Attributes:
        embedding: Token embeddings.
        max_positions: Longest row in tokens; None for no limit.
    """

    embedding: nn.Module
    max_positions: int | None = None

    @abstractmethod
    def start(self, rows: int, separate_documents: bool) -> State:
        """Return the state before the first token.

        Args:
            rows: Number of rows.
            separate_documents: Reset the state at each BOS.
        """

    @abstractmethod
    def forward(self, state: State, tokens: Tokens) -> tuple[Vectors, State]:
        """Read tokens; all at once or token by token gives the same numbers.

        Args:
            state: State after the tokens before.
            tokens: Token ids, `(batch, steps)`.

        Returns:
            The state after each token, `(batch, steps, width)`, before the output projection; and the new decoder
            state.
        """

    def read(self, tokens: Tokens, separate_documents: bool) -> Vectors:
        """Read whole rows.

        Subclasses may have a faster implementation than `forward` from the start.

        Args:
            tokens: Token ids, `(batch, steps)`.
            separate_documents: Reset the state at each BOS.

        Returns:
            The state after each token, `(batch, steps, width)`.
        """
        return self(self.start(len(tokens), separate_documents), tokens)[0]


class LanguageModel(nn.Module):
    """Language model: causal decoder and output projection.

    The projection is separate from the decoder, as in `Seq2Seq`, so that the loss can fuse it with the cross-entropy.

    Args:
        decoder: Reads the text.
        projection: Maps its states to token scores; its weight may be tied to an embedding.

    Example:
        >>> from s2s.models.transformer import LanguageSettings, build_language_model
        >>> model = build_language_model(LanguageSettings(width=16, heads=2, feedforward=32), size=100)
        >>> model.logits(torch.tensor([[BOS, 5, 6], [BOS, 7, 8]])).shape
        torch.Size([2, 3, 100])
    """

    def __init__(self, decoder: CausalDecoder, projection: nn.Linear) -> None:
        super().__init__()
        self.decoder = decoder
        self.projection = projection

    def forward(self, tokens: Tokens, separate_documents: bool = True) -> Vectors:
        """Return the state after each token, before the output projection.

        Args:
            tokens: Token ids, `(batch, steps)`.
            separate_documents: Reset the state at each BOS.

        Returns:
            States, `(batch, steps, width)`.
        """
        return self.decoder.read(tokens, separate_documents)

    def logits(self, tokens: Tokens, separate_documents: bool = True) -> Float[Tensor, "batch steps vocabulary"]:
        """Return the scores of the token that follows each token.

        Returns:
            Unnormalized log probabilities, `(batch, steps, vocabulary)`.
        """
        return self.projection(self(tokens, separate_documents))


def document_starts(tokens: Tokens) -> Bool[Tensor, "batch steps"]:
    """Return True for each BOS, which begins a document."""
    return tokens == BOS


def document_positions(begin: Bool[Tensor, "batch steps"], before: Int[Tensor, " batch"]) -> Int[Tensor, "batch steps"]:
    """Compute the position of each token in its document, from 0 on.

    Args:
        begin: True where a document begins, `(batch, steps)`.
        before: Tokens that each row has already read of its current document, `(batch,)`.

    Returns:
        Positions, `(batch, steps)`.

    Example:
        >>> tokens = torch.tensor([[7, 8, BOS, 9]])
        >>> document_positions(document_starts(tokens), before=torch.tensor([3]))
        tensor([[3, 4, 0, 1]])
    """
    steps = torch.arange(begin.shape[1], device=begin.device).expand(begin.shape)
    # The latest beginning of a document; before the first one, that of the row's current document, a negative step.
    latest = torch.where(begin, steps, -before.unsqueeze(1)).cummax(dim=1).values
    return steps - latest
