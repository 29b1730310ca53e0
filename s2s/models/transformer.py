"""The Transformer (Vaswani et al. 2017, "Attention Is All You Need"): its settings, and how it is built.

The network itself is in `transformer_network.py`; this module stays free of torch until `build` is called, so
that a mistake in a recipe is answered at once.
"""

from typing import TYPE_CHECKING, Literal

from pydantic import model_validator

from s2s.recipe.limits import Inner, Layers, Length, Probability, Width
from s2s.recipe.schema import Section

if TYPE_CHECKING:
    from s2s.models.contract import Encoder, Seq2Seq

Positions = Literal["sinusoidal", "learned", "none"]


class EncoderSettings(Section):
    """What a recipe says of its encoder alone."""

    kind: Literal["transformer"] = "transformer"
    """The Transformer."""
    width: Width = 256
    """Size of every vector between layers (d_model)."""
    heads: Width = 4
    """Attention heads; they divide the width among them."""
    feedforward: Inner = 1024
    """Inner size of the feed-forward blocks (d_ff)."""
    encoder_layers: Layers = 3
    """Layers that read the source."""
    norm: Literal["pre", "post"] = "pre"
    """Layer normalisation before each block (Xiong et al. 2020) or after the sum, as first published."""
    activation: Literal["relu", "gelu"] = "relu"
    """Non-linearity of the feed-forward blocks."""
    encoder_positions: Positions = "sinusoidal"
    """How the encoder knows where a token stands."""
    max_positions: Length = 1024
    """Longest sequence that learned positions know; the other kinds know no limit."""
    dropout: Probability = 0.1
    """Applied to each block's output and to the embeddings."""
    attention_dropout: Probability = 0.0
    """Applied to attention weights."""
    activation_dropout: Probability = 0.0
    """Applied inside the feed-forward blocks."""
    attention: Literal["auto", "fused", "explicit"] = "auto"
    """`fused` is torch's scaled_dot_product_attention, `explicit` a softmax in plain sight; they are equal. `auto`
    takes whichever is faster for the device, the precision and the length."""

    @model_validator(mode="after")
    def _heads_divide_width(self) -> "EncoderSettings":
        if self.width % self.heads:
            raise ValueError(f"heads ({self.heads}) must divide width ({self.width})")
        if self.width % 2 and self.encoder_positions == "sinusoidal":
            raise ValueError(f"width ({self.width}) must be even for sinusoidal positions")
        return self


class Settings(EncoderSettings):
    """The Transformer's section of a recipe."""

    decoder_layers: Layers = 3
    """Layers that write the target."""
    decoder_positions: Positions = "sinusoidal"
    """How the decoder knows; without positions, the causal mask still tells it something (Haviv et al. 2022)."""
    tie: Literal["all", "target", "none"] = "all"
    """Which embeddings are one matrix: source, target and output; target and output; none. `all` needs a shared
    vocabulary."""

    @model_validator(mode="after")
    def _width_is_even(self) -> "Settings":
        if self.width % 2 and self.decoder_positions == "sinusoidal":
            raise ValueError(f"width ({self.width}) must be even for sinusoidal positions")
        return self


def build(settings: Settings, source_size: int, target_size: int) -> "Seq2Seq":
    """A freshly initialised Transformer.

    Args:
        settings: the recipe's `model` section.
        source_size: number of source pieces.
        target_size: number of target pieces.

    Raises:
        UserError: all embeddings shall be tied, but the vocabularies differ in size.
    """
    from s2s.models import transformer_network

    return transformer_network.build(settings, source_size, target_size)


def build_encoder(settings: EncoderSettings, source_size: int) -> "tuple[Encoder, int]":
    """The encoder alone and the width of its summary, for classification."""
    from s2s.models import transformer_network

    return transformer_network.build_encoder(settings, source_size), settings.width
