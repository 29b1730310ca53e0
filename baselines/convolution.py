"""The network of `conv`: gated convolutions over source and target, and attention in every layer of the decoder.

A position sees its neighbours, after two layers their neighbours, and so on: parallel over time, with a path between
two positions that grows with their distance over the kernel's width.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from s2s.models.base import BatchedState, Decoder, Encoder, EncoderOutput, mean_over_valid
from s2s.nn.attention import is_fused_faster
from s2s.nn.embeddings import Embedding
from s2s.nn.layers import AttentionWeights, Dropout, PaddingMask, States, Tokens, Vectors

# a sum of two parts of variance 1 has variance 1 again (Gehring et al. 2017, section 3.5)
_HALF = math.sqrt(0.5)
# a ∘ σ(b) has variance 1 where a and b have variance s² with s² E[σ(N(0, s²))²] = 1. The paper has 4 here, of vectors a
# tenth of the size of ours, whose gates are all half open; of ours that makes eight layers explode
_VARIANCE = 2.98


class GatedConvolution(nn.Module):
    """v = a ∘ σ(b), where a and b are convolutions of the same window (Dauphin et al. 2017)."""

    def __init__(self, width: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.kernel = kernel
        self.dropout = Dropout(dropout)
        self.convolution = nn.Linear(kernel * width, 2 * width)
        # so that states keep their variance, of which 1 − dropout comes through
        nn.init.normal_(self.convolution.weight, std=math.sqrt(_VARIANCE * (1 - dropout) / (kernel * width)))
        nn.init.zeros_(self.convolution.bias)

    def forward(self, x: Float[Tensor, "batch padded width"]) -> Vectors:
        """One vector for each whole window: `kernel` − 1 fewer than positions."""
        windows = self.dropout(x).unfold(1, self.kernel, 1).transpose(2, 3).flatten(2)
        return functional.glu(self.convolution(windows), dim=2)


@dataclass(frozen=True)
class ConvMemory(EncoderOutput):
    """What the encoder leaves: beside its states, what attention reads, where the words themselves are mixed in."""

    values: States


class Convolutions(nn.Module):
    """What encoder and decoder have alike: vectors of tokens and of their places, and the convolutions."""

    def __init__(self, embedding: Embedding, layers: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.kernel = kernel
        self.embedding = embedding
        self.longest = embedding.max_positions
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList([GatedConvolution(embedding.width, kernel, dropout) for _ in range(layers)])


class ConvEncoder(Convolutions, Encoder):
    """Reads the source with centred windows; beyond its ends stand zeros."""

    def read(self, vectors: States, valid: PaddingMask) -> ConvMemory:
        """One state for each source position."""
        real, before = valid.unsqueeze(2), (self.kernel - 1) // 2
        embedded = self.dropout(vectors) * real
        x = embedded
        for layer in self.layers:
            # what stands in the padding is zero before every window, as it is beyond the end
            x = (x + layer(functional.pad(x, (0, 0, before, self.kernel - 1 - before)))) * _HALF * real
        return ConvMemory(x, valid, mean_over_valid(x, valid), (x + embedded) * _HALF)


@dataclass(frozen=True)
class ConvContext(BatchedState):
    """What attention compares with, what it reads, and which positions are real."""

    keys: States
    values: States
    valid: PaddingMask


@dataclass(frozen=True)
class ConvState(BatchedState):
    """Of each layer, the last `kernel` − 1 inputs: all that a window can still see; and how many came before."""

    windows: tuple[Float[Tensor, "batch past width"], ...]
    length: int


class ConvDecoder(Convolutions, Decoder[ConvContext, ConvState]):
    """Writes the target with windows that end at the newest position, looking at the source after each.

    The scores of attention are divided by the square root of the width, which the paper does not: its embeddings start
    at a tenth of the size of ours, and a softmax over scores of ours would look at one position from the beginning.
    """

    def __init__(self, embedding: Embedding, layers: int, kernel: int, dropout: float) -> None:
        super().__init__(embedding, layers, kernel, dropout)
        width = embedding.width
        self.queries = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])
        self.outputs = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])

    def start(self, memory: EncoderOutput, limit: int) -> tuple[ConvContext, ConvState]:
        """Before the first token stand zeros."""
        values = memory.values if isinstance(memory, ConvMemory) else memory.states
        zeros = memory.states.new_zeros(len(memory.states), self.kernel - 1, memory.states.shape[2])
        return ConvContext(memory.states, values, memory.valid), ConvState((zeros,) * len(self.layers), 0)

    def forward(self, context: ConvContext, state: ConvState, tokens: Tokens) -> tuple[Vectors, ConvState]:
        """The state after each token."""
        return self._feed(context, state, tokens, self._attend)

    def attention_weights(self, memory: EncoderOutput, tokens: Tokens) -> AttentionWeights:
        """Where each layer looks; one head each."""
        context, state = self.start(memory, tokens.shape[1])
        looks: list[Tensor] = []

        def _seen(asked: Tensor, context: ConvContext) -> Tensor:
            looks.append(self._attention_weights(asked, context))
            return looks[-1].to(context.values.dtype) @ context.values

        self._feed(context, state, tokens, _seen)
        return torch.stack(looks, dim=1).unsqueeze(2)

    def _attention_weights(self, asked: Vectors, context: ConvContext) -> Float[Tensor, "batch target source"]:
        scores = asked @ context.keys.transpose(1, 2).to(asked.dtype) / math.sqrt(asked.shape[2])
        return scores.masked_fill(~context.valid.unsqueeze(1), float("-inf")).softmax(dim=2)

    def _attend(self, asked: Vectors, context: ConvContext) -> Vectors:
        """What is read where the weights are not asked for; a kernel that never holds all of them, where one helps."""
        if not is_fused_faster(asked, context.keys.shape[1]):
            return self._attention_weights(asked, context).to(context.values.dtype) @ context.values
        one_head = (x.to(asked.dtype).unsqueeze(1) for x in (asked, context.keys, context.values))
        mask = context.valid[:, None, None]
        return functional.scaled_dot_product_attention(*one_head, attn_mask=mask).squeeze(1)

    def _feed(
        self,
        context: ConvContext,
        state: ConvState,
        tokens: Tokens,
        read: Callable[[Tensor, ConvContext], Tensor],
    ) -> tuple[Vectors, ConvState]:
        embedded = self.dropout(self.embedding(tokens, state.length))
        x, windows = embedded, []
        # the mean of m states has 1 / m of their variance (Gehring et al. 2017, section 3.5)
        rescaled = context.valid.sum(dim=1).sqrt()[:, None, None].to(embedded.dtype)
        for layer, query, output, past in zip(self.layers, self.queries, self.outputs, state.windows, strict=True):
            seen = torch.cat((past.to(x.dtype), x), dim=1)
            windows.append(seen[:, seen.shape[1] - self.kernel + 1 :])
            hidden = layer(seen)
            asked = (query(hidden) + embedded) * _HALF
            x = (x + (hidden + output(read(asked, context) * rescaled)) * _HALF) * _HALF
        return x, ConvState(tuple(windows), state.length + tokens.shape[1])
