"""A language model as an encoder: what looks into encoders looks into it, too."""

import torch
from jaxtyping import Float
from torch import Tensor

from s2s.inspection.walk import lookups, weights_of
from s2s.models.base import Encoder, EncoderOutput
from s2s.models.language_model import CausalDecoder
from s2s.nn.layers import Inputs, PaddingMask, States


class CausalReader(Encoder):
    """Reads rows of one document each, from left to right: a state knows of nothing that comes after it."""

    def __init__(self, decoder: CausalDecoder) -> None:
        super().__init__()
        self.decoder = decoder
        self.embedding = decoder.embedding
        self.max_positions = decoder.max_positions

    def read(self, vectors: States, valid: PaddingMask) -> EncoderOutput:
        """The decoder makes its vectors by itself, so these are put in the place of those that it makes."""
        handle = self.embedding.register_forward_hook(lambda module, given, made: vectors)
        try:
            # which tokens they are is of no meaning now
            states = self.decoder.read(torch.zeros_like(valid, dtype=torch.int64), separate_documents=False)
        finally:
            handle.remove()
        return EncoderOutput(states, valid, states[:, -1])

    def attention_weights(self, source: Inputs, valid: PaddingMask) -> Float[Tensor, "1 layer head source source"]:
        """Of one row; an earlier position looks at no later one."""
        found = lookups(self.decoder, lambda: self.decoder.read(source, separate_documents=False))
        if not found:
            return super().attention_weights(source, valid)
        return torch.stack([weights_of(lookup) for lookup in found])[None]
