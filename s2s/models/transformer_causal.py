"""The Transformer as a language model: the decoder of Vaswani et al. (2017) without a source (Radford et al. 2018).

A layer is the encoder's: self-attention and the feed-forward block. What makes it a decoder is that no position looks
at what comes after it, and that keys and values are kept from step to step.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from s2s.models.language_model import CausalDecoder, document_positions, document_starts
from s2s.models.transformer_layers import (
    EncoderLayer,
    KeysAndValues,
    TransformerStack,
    TransformerState,
    cached_self_attention,
    incremental_causal_mask,
    unzip_keys_values,
)
from s2s.nn.attention import Mask
from s2s.nn.layers import Tokens, Vectors


@dataclass(frozen=True)
class CausalState(TransformerState):
    """Each layer's keys and values of the row so far, and its length.

    Attributes:
        documents: where documents are kept apart, the number of the document, in its row, that each piece is of.
        read: likewise, how many pieces of its last document each row has read.
    """

    documents: Int[Tensor, "batch past"] | None
    read: Int[Tensor, " batch"] | None


class CausalLayer(EncoderLayer):
    """Masked self-attention over the row so far, then the feed-forward block."""

    def forward_step(self, x: Tensor, past: KeysAndValues | None, mask: Mask) -> tuple[Tensor, KeysAndValues]:
        """The layer's output for each new position, and the keys and values to keep."""
        x, kept = cached_self_attention(self.attention, self.attention_block, x, past, mask)
        return self.feedforward_block(x, self.feedforward), kept


class CausalTransformer(TransformerStack[CausalLayer], CausalDecoder[CausalState]):
    """Reads a row with masked self-attention."""

    def start(self, rows: int, separate_documents: bool) -> CausalState:
        """Nothing is kept yet."""
        if not separate_documents:
            return CausalState((), (), 0, None, None)
        device = next(self.parameters()).device
        none = torch.zeros(rows, 0, dtype=torch.int64, device=device)
        return CausalState((), (), 0, none, none.new_zeros(rows))

    def forward(self, state: CausalState, tokens: Tokens) -> tuple[Vectors, CausalState]:
        """The state after each piece, seeing only those before it: of its document, where they are kept apart."""
        length = state.length + tokens.shape[1]
        mask, places, documents = incremental_causal_mask(tokens.shape[1], length, tokens.device), None, None
        if state.documents is not None and state.read is not None:
            begin = document_starts(tokens)
            places = document_positions(begin, state.read)
            before = state.documents[:, -1:] if state.length else state.documents.new_zeros(len(tokens), 1)
            documents = torch.cat((state.documents, before + begin.cumsum(dim=1)), dim=1)
            if bool((documents != documents[:, :1]).any()):
                mask = _same_document_mask(documents, tokens.shape[1], mask)
        # distances are the same within a document, wherever in its row it stands
        mask = self.add_position_bias(mask, tokens.shape[1], length)
        x = self.dropout(self.embedding(tokens, state.length, places))
        kept: list[KeysAndValues] = []
        for i, layer in enumerate(self.typed_layers()):
            x, keep = layer.forward_step(x, state.cached_keys_values(i), mask)
            kept.append(keep)
        read = None if places is None else places[:, -1] + 1
        return self.norm(x), CausalState(*unzip_keys_values(kept), length, documents, read)


def _same_document_mask(
    documents: Int[Tensor, "batch length"], new: int, mask: Mask
) -> Bool[Tensor, "batch 1 new length"]:
    """Where the newest pieces may look: in their own document, at themselves and what comes before."""
    length = documents.shape[1]
    same = documents[:, length - new :, None] == documents[:, None, :]
    if isinstance(mask, str):
        mask = torch.ones(new, length, dtype=torch.bool, device=same.device).tril(length - new)[None, None]
    return same[:, None] if mask is None else same[:, None] & mask
