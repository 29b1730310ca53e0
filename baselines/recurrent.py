"""What the recurrent models of the ladder share: sections of a recipe, and how a model is built of cells of one kind.

Each model is a small module over this one that names its cell and its sections, as `baselines.lstm_attention` does.
Free of torch until a model is built, so that a typo in a recipe is answered at once.
"""

from typing import TYPE_CHECKING, Literal

from pydantic import model_validator

from s2s.recipe.schema import Layers, Length, Probability, Section, Width

if TYPE_CHECKING:
    from torch import nn

    from s2s.models.base import Encoder, Seq2Seq
    from s2s.models.language_model import LanguageModel

AttentionKind = Literal["additive", "dot", "general", "concat", "location"]


class LayerFields(Section):
    """What all recurrent layers share, whatever they read."""

    width: Width = 256
    """Size of embeddings and hidden states."""
    residual: bool = False
    """Whether the input of each layer but the first is added to its output (Wu et al. 2016, section 3.1)."""
    dropout: Probability = 0.2
    """Applied to embeddings, between layers and to the output, never from step to step (Zaremba et al. 2014)."""
    scale_embeddings: bool = False
    """Whether embeddings are multiplied by √width, so that they begin as large as states, as in the Transformer. Models
    learn sooner so where all pieces are frequent, and less in the end where many are rare (docs/dev/log.md)."""


class EncoderFields(LayerFields):
    """What all recurrent encoders share."""

    encoder_layers: Layers = 2
    """Recurrent layers that read the source."""
    bidirectional: bool = True
    """Whether half of the encoder's width reads from the end to the beginning (Schuster & Paliwal 1997)."""
    reverse_source: bool = False
    """Whether a one-directional encoder reads from the end to the beginning, so that the first words to write are the
    last ones read (Sutskever et al. 2014, section 3.3)."""

    @model_validator(mode="after")
    def _directions(self) -> "EncoderFields":
        if self.bidirectional and self.width % 2:
            raise ValueError(f"width ({self.width}) must be even when bidirectional: each direction has one half")
        if self.bidirectional and self.reverse_source:
            raise ValueError(
                "reverse_source needs bidirectional: false; with both directions, one half reads backwards already"
            )
        return self


class LanguageFields(LayerFields):
    """What all recurrent language models share; none has attention, since there is no source to look at."""

    decoder_layers: Layers = 2
    """Recurrent layers that read the text so far."""
    tie: bool = True
    """Whether the projection onto the pieces is the table of their vectors (Press & Wolf 2017)."""


class TranslatorFields(EncoderFields):
    """What all recurrent models that translate share."""

    decoder_layers: Layers = 2
    """Recurrent layers that write the target."""
    tie: Literal["all", "target", "none"] = "all"
    """Which embeddings are one matrix: source, target and output; target and output; none. `all` needs a shared
    vocabulary."""


class AttentionFields(TranslatorFields):
    """What recurrent models with attention add."""

    attention: AttentionKind = "general"
    """How a decoder state is compared with the source's: `additive` (Bahdanau et al. 2015), `dot`, `general`, `concat`
    or `location` (Luong et al. 2015)."""
    input_feeding: bool = False
    """Whether each step also reads what the step before wrote (Luong et al. 2015, section 3.3). Then the decoder goes
    step by step in training, too, and is slower."""
    coverage: bool = False
    """Whether the score sees how much each source position was looked at before (Tu et al. 2016); needs `additive`."""
    max_positions: Length = 256
    """Longest source that `location` knows, in pieces; the other kinds know no limit."""

    @model_validator(mode="after")
    def _coverage_is_additive(self) -> "AttentionFields":
        if self.coverage and self.attention != "additive":
            raise ValueError(f"coverage is added inside the score of attention: additive, not of {self.attention}")
        return self


def build(cell: str, settings: TranslatorFields, source_size: int, target_size: int) -> "Seq2Seq":
    """A freshly initialised encoder and decoder, with attention where the settings have it.

    Raises:
        UserError: all embeddings shall be tied, but the vocabularies differ in size.
    """
    from baselines.attention import Additive, Attention, CoverageAttention, score_of
    from baselines.cells import Stack
    from baselines.decoder import AttentiveDecoder, Bridge, SummaryDecoder
    from s2s.models.base import Seq2Seq
    from s2s.nn.embeddings import build_embeddings

    width, rate, scaled = settings.width, settings.dropout, settings.scale_embeddings
    source, target, projection = build_embeddings(settings.tie, width, source_size, target_size)
    encoder = _encoder(cell, settings, source)
    feeding = isinstance(settings, AttentionFields) and settings.input_feeding
    stack = Stack(cell, 2 * width if feeding else width, width, settings.decoder_layers, rate, settings.residual)
    bridge = Bridge(width, stack.parts)
    if not isinstance(settings, AttentionFields):
        return Seq2Seq(encoder, SummaryDecoder(target, stack, bridge, rate, scaled=scaled), projection)
    if settings.attention == "location":
        encoder.max_positions = settings.max_positions
    if settings.coverage:
        attention = CoverageAttention(Additive(width), width)
    else:
        attention = Attention(score_of(settings.attention, width, settings.max_positions))
    decoder = AttentiveDecoder(target, stack, bridge, attention, rate, input_feeding=feeding, scaled=scaled)
    return Seq2Seq(encoder, decoder, projection)


def build_encoder(cell: str, settings: EncoderFields, source_size: int) -> "tuple[Encoder, int]":
    """The encoder alone and the width of its summary, for classification."""
    from s2s.nn.embeddings import build_embedding_table

    return _encoder(cell, settings, build_embedding_table(source_size, settings.width)), settings.width


def build_language_model(cell: str, settings: LanguageFields, size: int) -> "LanguageModel":
    """Freshly initialised layers without a source, for so many pieces."""
    from baselines.causal import CausalRecurrent
    from baselines.cells import Stack
    from s2s.models.language_model import LanguageModel
    from s2s.nn.embeddings import build_embeddings

    width, rate = settings.width, settings.dropout
    _, table, projection = build_embeddings("all" if settings.tie else "none", width, size, size)
    stack = Stack(cell, width, width, settings.decoder_layers, rate, settings.residual)
    return LanguageModel(CausalRecurrent(table, stack, rate, scaled=settings.scale_embeddings), projection)


def _encoder(cell: str, settings: EncoderFields, tokens: "nn.Embedding") -> "Encoder":
    from baselines.encoder import RecurrentEncoder

    return RecurrentEncoder(
        cell,
        tokens,
        layers=settings.encoder_layers,
        bidirectional=settings.bidirectional,
        reverse=settings.reverse_source,
        residual=settings.residual,
        dropout=settings.dropout,
        scaled=settings.scale_embeddings,
    )
