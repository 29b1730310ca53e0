"""Convolutional sequence-to-sequence model: recipe settings and builders.

Gated convolutions with attention in every decoder layer (Gehring et al. 2017); the modules are in
`baselines.convolution`.
"""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from s2s.recipe.schema import Layers, Length, Probability, Section, Width

if TYPE_CHECKING:
    from torch import nn

    from s2s.models.base import Encoder, Seq2Seq


class EncoderSettings(Section):
    """Settings of a convolutional encoder."""

    kind: Literal["conv"] = "conv"
    """Gated convolutions with attention."""
    width: Width = 256
    """Size of every vector between layers."""
    encoder_layers: Layers = 4
    """Number of encoder layers; each one widens the context by `kernel` − 1 positions."""
    kernel: Annotated[int, Field(ge=2, le=1_000)] = 3
    """Kernel size in positions: centred in the encoder, ending at the current position in the decoder."""
    encoder_positions: Literal["learned", "sinusoidal", "none"] = "learned"
    """Position embeddings of the encoder. With `none`, only the zero padding at the ends shows positions."""
    max_positions: Length = 1024
    """Longest sequence in tokens for learned positions."""
    dropout: Probability = 0.2
    """Dropout rate of the embeddings and of the input of every convolution."""

    @model_validator(mode="after")
    def _check_width(self) -> "EncoderSettings":
        if self.width % 2 and "sinusoidal" in (self.encoder_positions, getattr(self, "decoder_positions", "")):
            raise ValueError(f"width ({self.width}) must be even for sinusoidal positions")
        return self


class Settings(EncoderSettings):
    """Settings of a convolutional encoder and decoder."""

    decoder_layers: Layers = 4
    """Number of decoder layers, each with its own attention."""
    decoder_positions: Literal["learned", "sinusoidal", "none"] = "learned"
    """Position embeddings of the decoder."""
    tie: Literal["all", "target", "none"] = "all"
    """Tied embeddings: `all` shares one matrix between source, target and output (needs a shared vocabulary), `target`
    between target and output, `none` shares nothing."""


def build(settings: Settings, source_size: int, target_size: int) -> "Seq2Seq":
    """Build an initialized convolutional encoder and decoder.

    Args:
        settings: Settings of the model.
        source_size: Size of the source vocabulary.
        target_size: Size of the target vocabulary.

    Raises:
        UserError: `tie` is `all`, but the vocabularies differ in size.

    Example:
        >>> model = build(Settings(width=16, encoder_layers=2, decoder_layers=2), source_size=100, target_size=100)
        >>> len(model.encoder.layers), len(model.decoder.layers)
        (2, 2)
    """
    from baselines.convolution import ConvDecoder
    from s2s.models.base import Seq2Seq
    from s2s.nn.embeddings import Embedding, build_embeddings

    source, target, projection = build_embeddings(settings.tie, settings.width, source_size, target_size)
    encoder = _encoder(settings, source)
    placed = Embedding(target, settings.decoder_positions, settings.max_positions)
    decoder = ConvDecoder(placed, settings.decoder_layers, settings.kernel, settings.dropout)
    return Seq2Seq(encoder, decoder, projection)


def build_encoder(settings: EncoderSettings, source_size: int) -> "tuple[Encoder, int]":
    """Build an initialized convolutional encoder, for classification.

    Returns:
        The encoder, and the width of its states and summary.
    """
    from s2s.nn.embeddings import build_embedding_table

    return _encoder(settings, build_embedding_table(source_size, settings.width)), settings.width


def _encoder(settings: EncoderSettings, tokens: "nn.Embedding") -> "Encoder":
    from baselines.convolution import ConvEncoder
    from s2s.nn.embeddings import Embedding

    placed = Embedding(tokens, settings.encoder_positions, settings.max_positions)
    return ConvEncoder(placed, settings.encoder_layers, settings.kernel, settings.dropout)
