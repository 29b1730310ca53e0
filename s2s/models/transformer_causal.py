"""Transformer language model: the decoder of Vaswani et al. (2017) without a source.

As in GPT (Radford et al. 2018). A layer has the parts of an encoder layer: self-attention and feed-forward block. The
causal mask and the key/value cache make it a decoder.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from s2s.models.language_model import CausalDecoder, document_positions, document_starts
from s2s.models.transformer_layers import (
    EncoderLayer,
    KeyValueCache,
    TransformerStack,
    TransformerState,
    cached_self_attention,
    incremental_causal_mask,
)
from s2s.nn.attention import Mask
from s2s.nn.layers import Tokens, Vectors


@dataclass(frozen=True)
class CausalState(TransformerState):
    """Key/value cache of a row so far.

    Attributes:
        documents: Number of the document of each token, counted in its row, `(rows, past)`; None unless documents are
            separate.
        read: Tokens that each row has read of its last document, `(rows,)`; None unless documents are separate.
    """

    documents: Int[Tensor, "rows past"] | None
    read: Int[Tensor, " rows"] | None


class CausalLayer(EncoderLayer):
    """Decoder layer without cross-attention: masked self-attention, feed-forward block."""

    def forward_step(self, x: Tensor, past: KeyValueCache | None, mask: Mask) -> tuple[Tensor, KeyValueCache]:
        """Apply the layer to new positions, with a key/value cache.

        Args:
            x: States of the new positions, `(batch, new, width)`.
            past: Cache of the positions before; None at the start.
            mask: Attention mask of the new positions.

        Returns:
            The output, `(batch, new, width)`, and the cache of all positions.
        """
        x, cache = cached_self_attention(self.attention, self.attention_block, x, past, mask)
        return self.feedforward_block(x, self.feedforward), cache


class CausalTransformer(TransformerStack[CausalLayer], CausalDecoder[CausalState]):
    """Transformer language model's decoder, with causal self-attention.

    Example:
        With `separate_documents`, a document has the same states in a row with others as alone:

        >>> from s2s.models.transformer import LanguageSettings, build_language_model
        >>> _ = torch.manual_seed(0)
        >>> decoder = build_language_model(LanguageSettings(width=16, heads=2, feedforward=32), size=100).decoder.eval()
        >>> row = torch.tensor([[1, 5, 6, 1, 7, 8]])  # 1 is BOS
        >>> together = decoder.read(row, separate_documents=True)[:, 3:]
        >>> torch.allclose(together, decoder.read(row[:, 3:], separate_documents=True), atol=1e-5)
        True
    """

    def start(self, rows: int, separate_documents: bool) -> CausalState:
        """Return an empty key/value cache."""
        if not separate_documents:
            return CausalState((), 0, None, None)
        device = next(self.parameters()).device
        none = torch.zeros(rows, 0, dtype=torch.int64, device=device)
        return CausalState((), 0, none, none.new_zeros(rows))

    def forward(self, state: CausalState, tokens: Tokens) -> tuple[Vectors, CausalState]:
        """Read tokens with causal self-attention, limited to the document if separate.

        Args:
            state: Key/value cache of the tokens before.
            tokens: Token ids, `(batch, steps)`.

        Returns:
            The state after each token, `(batch, steps, width)`, and the new cache.
        """
        length = state.length + tokens.shape[1]
        mask, places, documents = incremental_causal_mask(tokens.shape[1], length, tokens.device), None, None
        if state.documents is not None and state.read is not None:
            # Position of each token in its document, and number of its document in the row.
            begin = document_starts(tokens)
            places = document_positions(begin, state.read)
            before = state.documents[:, -1:] if state.length else state.documents.new_zeros(len(tokens), 1)
            documents = torch.cat((state.documents, before + begin.cumsum(dim=1)), dim=1)
            if bool((documents != documents[:, :1]).any()):
                mask = _same_document_mask(documents, tokens.shape[1], mask)
        # Distances within a document do not depend on its place in the row, so the bias needs no document positions.
        mask = self.add_position_bias(mask, tokens.shape[1], length)
        x = self.dropout(self.embedding(tokens, state.length, places))
        caches: list[KeyValueCache] = []
        for i, layer in enumerate(self.typed_layers()):
            x, cache = layer.forward_step(x, state.cache_of(i), mask)
            caches.append(cache)
        read = None if places is None else places[:, -1] + 1
        return self.norm(x), CausalState(tuple(caches), length, documents, read)


def _same_document_mask(
    documents: Int[Tensor, "batch length"], new: int, mask: Mask
) -> Bool[Tensor, "batch 1 new length"]:
    """Return the causal mask of the newest tokens, limited to their own documents."""
    length = documents.shape[1]
    same = documents[:, length - new :, None] == documents[:, None, :]
    if isinstance(mask, str):
        mask = torch.ones(new, length, dtype=torch.bool, device=same.device).tril(length - new)[None, None]
    return same[:, None] if mask is None else same[:, None] & mask
