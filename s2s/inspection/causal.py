"""Adapter that presents a language model as an encoder, for inspection."""

import torch
from jaxtyping import Float
from torch import Tensor

from s2s.inspection.walk import lookups, weights_of
from s2s.models.base import Encoder, EncoderOutput
from s2s.models.language_model import CausalDecoder
from s2s.nn.layers import Inputs, PaddingMask, States


class CausalReader(Encoder):
    """Encoder interface of a causal language model.

    Each state depends only on earlier tokens.

    Args:
        decoder: Decoder of the language model; each row is one document.
    """

    def __init__(self, decoder: CausalDecoder) -> None:
        super().__init__()
        self.decoder = decoder
        self.embedding = decoder.embedding
        self.max_positions = decoder.max_positions

    def read(self, vectors: States, valid: PaddingMask) -> EncoderOutput:
        """Run the decoder on given embeddings.

        A forward hook replaces the decoder's own embeddings.

        Args:
            vectors: Embeddings, `(batch, source, width)`.
        """
        handle = self.embedding.register_forward_hook(lambda module, given, made: vectors)
        try:
            # The token ids do not matter, because the hook replaces their embeddings.
            states = self.decoder.read(torch.zeros_like(valid, dtype=torch.int64), separate_documents=False)
        finally:
            handle.remove()
        return EncoderOutput(states, valid, states[:, -1])

    def attention_weights(self, source: Inputs, valid: PaddingMask) -> Float[Tensor, "1 layer head source source"]:
        """Return the causal self-attention weights.

        Args:
            source: Token ids of a single row, `(1, source)`.

        Returns:
            Weights, `(1, layer, head, source, source)`; zero above the diagonal.
        """
        found = lookups(self.decoder, lambda: self.decoder.read(source, separate_documents=False))
        if not found:
            return super().attention_weights(source, valid)
        return torch.stack([weights_of(lookup) for lookup in found])[None]
