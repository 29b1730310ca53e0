"""The convolutional encoder and decoder (Gehring et al. 2017): gated convolutions, with attention in every layer."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from s2s.recipe.schema import Layers, Length, Probability, Section, Width

if TYPE_CHECKING:
    from torch import nn

    from s2s.models.base import Encoder, Seq2Seq


class EncoderSettings(Section):
    """What a recipe says of its encoder alone."""

    kind: Literal["conv"] = "conv"
    """Gated convolutions with attention."""
    width: Width = 256
    """Size of every vector between layers."""
    encoder_layers: Layers = 4
    """Convolutions that read the source; each sees `kernel` − 1 positions further."""
    kernel: Annotated[int, Field(ge=2, le=1_000)] = 3
    """Positions that one convolution sees; in the encoder centred, in the decoder the last ones."""
    encoder_positions: Literal["learned", "sinusoidal", "none"] = "learned"
    """What tells the encoder where a piece stands, beside its windows. With `none` the zeros beyond the ends do."""
    max_positions: Length = 1024
    """Longest sequence where positions are learned."""
    dropout: Probability = 0.2
    """Applied to embeddings and to the input of every convolution."""

    @model_validator(mode="after")
    def _width_suits_positions(self) -> "EncoderSettings":
        if self.width % 2 and "sinusoidal" in (self.encoder_positions, getattr(self, "decoder_positions", "")):
            raise ValueError(f"width ({self.width}) must be even for sinusoidal positions")
        return self


class Settings(EncoderSettings):
    """The convolutional model's section of a recipe."""

    decoder_layers: Layers = 4
    """Convolutions that write the target, each with its own attention."""
    decoder_positions: Literal["learned", "sinusoidal", "none"] = "learned"
    """What tells the decoder where a piece stands."""
    tie: Literal["all", "target", "none"] = "all"
    """Which embeddings are one matrix: source, target and output; target and output; none. `all` needs a shared
    vocabulary."""


def build(settings: Settings, source_size: int, target_size: int) -> "Seq2Seq":
    """A freshly initialised model.

    Raises:
        UserError: all embeddings shall be tied, but the vocabularies differ in size.
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
    """The encoder alone and the width of its summary, for classification."""
    from s2s.nn.embeddings import build_embedding_table

    return _encoder(settings, build_embedding_table(source_size, settings.width)), settings.width


def _encoder(settings: EncoderSettings, tokens: "nn.Embedding") -> "Encoder":
    from baselines.convolution import ConvEncoder
    from s2s.nn.embeddings import Embedding

    placed = Embedding(tokens, settings.encoder_positions, settings.max_positions)
    return ConvEncoder(placed, settings.encoder_layers, settings.kernel, settings.dropout)
