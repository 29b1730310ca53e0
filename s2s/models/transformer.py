"""The Transformer (Vaswani et al. 2017, "Attention Is All You Need"): its settings, and how it is built.

The network's parts are in `transformer_network.py` and `s2s/nn`; this module stays free of torch until `build` is
called, so that a mistake in a recipe is answered at once.
"""

from typing import TYPE_CHECKING, Literal

from pydantic import model_validator

from s2s.recipe.schema import Inner, Layers, Length, Probability, Section, Width

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from s2s.models.contract import Encoder, Seq2Seq
    from s2s.models.language_model import LanguageModel
    from s2s.nn.attention import Attention
    from s2s.nn.layers import FeedForward, Residual

Positions = Literal["sinusoidal", "learned", "none"]


class Blocks(Section):
    """What a recipe says of layers that read and of layers that write."""

    kind: Literal["transformer"] = "transformer"
    """The Transformer."""
    width: Width = 256
    """Size of every vector between layers (d_model)."""
    heads: Width = 4
    """Attention heads; they divide the width among them."""
    feedforward: Inner = 1024
    """Inner size of the feed-forward blocks (d_ff)."""
    norm: Literal["pre", "post"] = "pre"
    """Layer normalisation before each block (Xiong et al. 2020) or after the sum, as first published."""
    activation: Literal["relu", "gelu"] = "relu"
    """Non-linearity of the feed-forward blocks."""
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
    def _heads_divide_width(self) -> "Blocks":
        if self.width % self.heads:
            raise ValueError(f"heads ({self.heads}) must divide width ({self.width})")
        return self


class EncoderSettings(Blocks):
    """What a recipe says of its encoder alone."""

    encoder_layers: Layers = 3
    """Layers that read the source."""
    encoder_positions: Positions = "sinusoidal"
    """How the encoder knows where a token stands."""

    @model_validator(mode="after")
    def _source_width_is_even(self) -> "EncoderSettings":
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


class LanguageSettings(Blocks):
    """The Transformer's section of a language model's recipe."""

    decoder_layers: Layers = 3
    """Layers that read the text so far."""
    decoder_positions: Positions = "sinusoidal"
    """How it knows where a piece stands; without positions, the causal mask still tells it something (Haviv et al.
    2022)."""
    tie: bool = True
    """Whether the projection onto the pieces is the table of their vectors (Press & Wolf 2017)."""

    @model_validator(mode="after")
    def _text_width_is_even(self) -> "LanguageSettings":
        if self.width % 2 and self.decoder_positions == "sinusoidal":
            raise ValueError(f"width ({self.width}) must be even for sinusoidal positions")
        return self


def build(settings: Settings, source_size: int, target_size: int) -> "Seq2Seq":
    """A freshly initialised Transformer.

    Raises:
        UserError: all embeddings shall be tied, but the vocabularies differ in size.
    """
    from s2s.models.contract import Seq2Seq
    from s2s.models.transformer_network import DecoderLayer, TransformerDecoder
    from s2s.nn.embeddings import Embedding, tables

    source, target, projection = tables(settings.tie, settings.width, source_size, target_size)
    encoder = _encoder(settings, source)
    attention, feedforward, residual = _parts(settings)
    embedding = Embedding(target, settings.decoder_positions, settings.max_positions)
    layers = [
        DecoderLayer(attention(), attention(), feedforward(), (residual(), residual(), residual()))
        for _ in range(settings.decoder_layers)
    ]
    return Seq2Seq(encoder, TransformerDecoder(embedding, layers, _last_norm(settings), settings.dropout), projection)


def build_encoder(settings: EncoderSettings, source_size: int) -> "tuple[Encoder, int]":
    """The encoder alone and the width of its summary, for classification."""
    from s2s.nn.embeddings import table

    return _encoder(settings, table(source_size, settings.width)), settings.width


def build_language_model(settings: LanguageSettings, size: int) -> "LanguageModel":
    """A freshly initialised decoder without a source, for so many pieces."""
    from s2s.models.language_model import LanguageModel
    from s2s.models.transformer_causal import CausalLayer, CausalTransformer
    from s2s.nn.embeddings import Embedding, tables

    _, table, projection = tables("all" if settings.tie else "none", settings.width, size, size)
    attention, feedforward, residual = _parts(settings)
    embedding = Embedding(table, settings.decoder_positions, settings.max_positions)
    layers = [CausalLayer(attention(), feedforward(), (residual(), residual())) for _ in range(settings.decoder_layers)]
    return LanguageModel(CausalTransformer(embedding, layers, _last_norm(settings), settings.dropout), projection)


def _encoder(settings: EncoderSettings, tokens: "nn.Embedding") -> "Encoder":
    from s2s.models.transformer_network import EncoderLayer, TransformerEncoder
    from s2s.nn.embeddings import Embedding

    attention, feedforward, residual = _parts(settings)
    embedding = Embedding(tokens, settings.encoder_positions, settings.max_positions)
    layers = [
        EncoderLayer(attention(), feedforward(), (residual(), residual())) for _ in range(settings.encoder_layers)
    ]
    return TransformerEncoder(embedding, layers, _last_norm(settings), settings.dropout)


def _parts(
    settings: Blocks,
) -> "tuple[Callable[[], Attention], Callable[[], FeedForward], Callable[[], Residual]]":
    """What makes the parts of a layer, each a fresh one."""
    from torch import nn

    from s2s.nn.attention import Attention
    from s2s.nn.layers import Dropout, FeedForward, Residual

    width, rate, before = settings.width, settings.dropout, settings.norm == "pre"
    return (
        lambda: Attention(width, settings.heads, settings.attention_dropout, settings.attention),
        lambda: FeedForward(width, settings.feedforward, settings.activation, settings.activation_dropout),
        lambda: Residual(nn.LayerNorm(width), Dropout(rate), before),
    )


def _last_norm(settings: Blocks) -> "nn.Module":
    """What is normalised before each block is normalised behind the last one, too."""
    from torch import nn

    return nn.LayerNorm(settings.width) if settings.norm == "pre" else nn.Identity()
