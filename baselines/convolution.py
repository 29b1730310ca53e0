"""Gated convolutions over source and target, with attention in every decoder layer.

The modules of `conv` (Gehring et al. 2017). Each layer widens the context of a position by its kernel. Training is
parallel over time; the path between two positions grows with their distance divided by the kernel size.
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

# Scales the sum of two parts of variance 1 back to variance 1 (Gehring et al. 2017, section 3.5).
_HALF = math.sqrt(0.5)
# a ∘ σ(b) has variance 1 if a and b have variance s² with s² E[σ(N(0, s²))²] = 1. The paper uses 4, for vectors a tenth
# of the size of ours, whose gates are all half open; with our vectors, 4 makes the states of eight layers explode.
_VARIANCE = 2.98


class GatedConvolution(nn.Module):
    """Gated convolution (GLU), a ∘ σ(b) (Dauphin et al. 2017).

    a and b are convolutions of the same window.

    Args:
        width: Size of the input and output vectors.
        kernel: Positions of a window.
        dropout: Dropout rate of the inputs.

    Example:
        >>> GatedConvolution(width=8, kernel=3, dropout=0.0)(torch.randn(2, 7, 8)).shape
        torch.Size([2, 5, 8])
    """

    def __init__(self, width: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.kernel = kernel
        self.dropout = Dropout(dropout)
        self.convolution = nn.Linear(kernel * width, 2 * width)
        # Keeps the variance of the states; dropout scales its inputs, so their variance is larger by 1 / (1 − dropout).
        nn.init.normal_(self.convolution.weight, std=math.sqrt(_VARIANCE * (1 - dropout) / (kernel * width)))
        nn.init.zeros_(self.convolution.bias)

    def forward(self, x: Float[Tensor, "batch padded width"]) -> Vectors:
        """Apply the convolution to each whole window.

        Args:
            x: Padded inputs, `(batch, positions, width)`.

        Returns:
            Vectors, `(batch, positions − kernel + 1, width)`.
        """
        # (batch, positions, width) -> (batch, windows, kernel · width)
        windows = self.dropout(x).unfold(1, self.kernel, 1).transpose(2, 3).flatten(2)
        return functional.glu(self.convolution(windows), dim=2)


@dataclass(frozen=True)
class ConvMemory(EncoderOutput):
    """Output of the convolutional encoder.

    Attributes:
        values: Vectors that attention averages: states plus source embeddings, `(batch, source, width)`.
    """

    values: States


class Convolutions(nn.Module):
    """Base of the convolutional encoder and decoder: embedding and convolutions.

    Args:
        embedding: Token and position embeddings.
        layers: Number of layers.
        kernel: Positions of a window.
        dropout: Dropout rate of embeddings and layer inputs.
    """

    def __init__(self, embedding: Embedding, layers: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.kernel = kernel
        self.embedding = embedding
        self.max_positions = embedding.max_positions
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList([GatedConvolution(embedding.width, kernel, dropout) for _ in range(layers)])


class ConvEncoder(Convolutions, Encoder):
    """Convolutional encoder with centred windows and zero padding at the ends.

    Example:
        >>> embedding = Embedding(nn.Embedding(20, 8), "sinusoidal", 0)
        >>> encoder = ConvEncoder(embedding, layers=2, kernel=3, dropout=0.0)
        >>> source = torch.tensor([[4, 5, 6]])
        >>> encoder(source, source > 0).states.shape
        torch.Size([1, 3, 8])
    """

    def read(self, vectors: States, valid: PaddingMask) -> ConvMemory:
        """Encode embedded sources.

        Args:
            vectors: Embeddings, `(batch, source, width)`.
            valid: Padding mask, `(batch, source)`.

        Returns:
            States, padding mask, summary (mean over real tokens), and values for attention.
        """
        real, before = valid.unsqueeze(2), (self.kernel - 1) // 2
        embedded = self.dropout(vectors) * real
        x = embedded
        for layer in self.layers:
            # Padding is set to zero before every layer, like the positions beyond the ends.
            x = (x + layer(functional.pad(x, (0, 0, before, self.kernel - 1 - before)))) * _HALF * real
        return ConvMemory(x, valid, mean_over_valid(x, valid), (x + embedded) * _HALF)


@dataclass(frozen=True)
class ConvContext(BatchedState):
    """Source keys and values of attention, and the padding mask.

    Attributes:
        keys: Encoder states, `(batch, source, width)`.
        values: Vectors that attention averages, `(batch, source, width)`.
        valid: Padding mask, `(batch, source)`.
    """

    keys: States
    values: States
    valid: PaddingMask


@dataclass(frozen=True)
class ConvState(BatchedState):
    """State of a convolutional decoder.

    Attributes:
        windows: Last `kernel` − 1 inputs of each layer, `(batch, kernel − 1, width)`: all that later windows can see.
        length: Number of tokens so far.
    """

    windows: tuple[Float[Tensor, "batch past width"], ...]
    length: int


class ConvDecoder(Convolutions, Decoder[ConvContext, ConvState]):
    """Convolutional decoder with attention after each layer.

    Windows end at the newest position. Attention scores are divided by √width, unlike in the paper. Its embeddings
    start at a tenth of the size of ours; with ours, an unscaled softmax would attend to a single position from the
    start.

    Args:
        embedding: Token and position embeddings.
        layers: Number of layers.
        kernel: Positions of a window.
        dropout: Dropout rate of embeddings and layer inputs.

    Example:
        >>> decoder = ConvDecoder(Embedding(nn.Embedding(20, 8), "sinusoidal", 0), layers=2, kernel=3, dropout=0.0)
        >>> memory = EncoderOutput(torch.randn(1, 5, 8), torch.ones(1, 5, dtype=torch.bool), torch.randn(1, 8))
        >>> tokens = torch.tensor([[4, 5, 6]])
        >>> outputs, state = decoder(*decoder.start(memory, limit=3), tokens)
        >>> outputs.shape, decoder.cross_attention_weights(memory, tokens).shape
        (torch.Size([1, 3, 8]), torch.Size([1, 2, 1, 3, 5]))
    """

    def __init__(self, embedding: Embedding, layers: int, kernel: int, dropout: float) -> None:
        super().__init__(embedding, layers, kernel, dropout)
        width = embedding.width
        self.queries = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])
        self.outputs = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])

    def start(self, memory: EncoderOutput, limit: int) -> tuple[ConvContext, ConvState]:
        """Return keys and values of the source, and windows of zeros."""
        values = memory.values if isinstance(memory, ConvMemory) else memory.states
        zeros = memory.states.new_zeros(len(memory.states), self.kernel - 1, memory.states.shape[2])
        return ConvContext(memory.states, values, memory.valid), ConvState((zeros,) * len(self.layers), 0)

    def forward(self, context: ConvContext, state: ConvState, tokens: Tokens) -> tuple[Vectors, ConvState]:
        """Decode tokens.

        Args:
            context: Keys and values of the source.
            state: State after the tokens before.
            tokens: Token ids, `(batch, steps)`.

        Returns:
            The state after each token, `(batch, steps, width)`, and the new decoder state.
        """
        return self._feed(context, state, tokens, self._attend)

    def cross_attention_weights(self, memory: EncoderOutput, tokens: Tokens) -> AttentionWeights:
        """Return the attention weights of each layer with teacher forcing.

        Returns:
            Weights with one head for each layer, `(batch, layer, 1, target, source)`.
        """
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
        """Attend without returning weights: with the fused kernel if that is faster."""
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
        # The mean of m states has 1 / m of their variance, so it is scaled by √m (Gehring et al. 2017, section 3.5).
        rescaled = context.valid.sum(dim=1).sqrt()[:, None, None].to(embedded.dtype)
        for layer, query, output, past in zip(self.layers, self.queries, self.outputs, state.windows, strict=True):
            # 1. Convolution over the last kernel − 1 inputs and the new ones: (batch, new, width).
            seen = torch.cat((past.to(x.dtype), x), dim=1)
            windows.append(seen[:, seen.shape[1] - self.kernel + 1 :])
            hidden = layer(seen)
            # 2. Attention with the hidden states and the embeddings as queries.
            asked = (query(hidden) + embedded) * _HALF
            # 3. Residual connections around the attention and around the layer.
            x = (x + (hidden + output(read(asked, context) * rescaled)) * _HALF) * _HALF
        return x, ConvState(tuple(windows), state.length + tokens.shape[1])
