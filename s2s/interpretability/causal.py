"""A language model as an encoder: what looks into encoders looks into it, too."""

import torch
from jaxtyping import Float
from torch import Tensor

from s2s.interpretability.walk import lookups, weights_of
from s2s.models.contract import Encoder, Memory
from s2s.models.language_model import CausalDecoder
from s2s.nn.layers import Inputs, States, Valid


class CausalReader(Encoder):
    """Reads rows of one document each, from left to right: a state knows of nothing that comes after it."""

    def __init__(self, decoder: CausalDecoder) -> None:
        super().__init__()
        self.decoder = decoder
        self.embedding = decoder.embedding
        self.longest = decoder.longest

    def read(self, vectors: States, valid: Valid) -> Memory:
        """The decoder makes its vectors by itself, so these are put in the place of those that it makes."""
        handle = self.embedding.register_forward_hook(lambda module, given, made: vectors)
        try:
            # which tokens they are is of no meaning now
            states = self.decoder.read(torch.zeros_like(valid, dtype=torch.int64), apart=False)
        finally:
            handle.remove()
        return Memory(states, valid, states[:, -1])

    def attention_weights(self, source: Inputs, valid: Valid) -> Float[Tensor, "1 layer head source source"]:
        """Of one row; an earlier position looks at no later one."""
        found = lookups(self.decoder, lambda: self.decoder.read(source, apart=False))
        if not found:
            return super().attention_weights(source, valid)
        return torch.stack([weights_of(lookup) for lookup in found])[None]
