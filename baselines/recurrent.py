"""Recipe settings and builders of recurrent models.

Each model is a small module that names its cell and its settings, such as `baselines.lstm_attention`. Its `Settings`
add the key `kind` to one of the classes here. torch is imported only when a model is built, so that mistakes in a
recipe are reported at once.
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
    """Settings of all recurrent layers."""

    width: Width = 256
    """Size of embeddings and hidden states."""
    residual: bool = False
    """Add the input of each layer but the first to its output (Wu et al. 2016, section 3.1)."""
    dropout: Probability = 0.2
    """Dropout rate of embeddings, between layers and of the output, not on the recurrent connections (Zaremba et al.
    2014)."""
    scale_embeddings: bool = False
    """Multiply embeddings by √width, so that at the start they have the scale of hidden states, as in the Transformer.
    Models then learn faster if all tokens are frequent, and have a higher final loss if many are rare
    (docs/dev/log.md)."""


class EncoderFields(LayerFields):
    """Settings of all recurrent encoders."""

    encoder_layers: Layers = 2
    """Number of encoder layers."""
    bidirectional: bool = True
    """Encode with two networks of half the width, one for each direction (Schuster & Paliwal 1997)."""
    reverse_source: bool = False
    """A unidirectional encoder reads from the end to the beginning, so that the words that are translated first are
    read last (Sutskever et al. 2014, section 3.3)."""

    @model_validator(mode="after")
    def _check_directions(self) -> "EncoderFields":
        if self.bidirectional and self.width % 2:
            raise ValueError(f"width ({self.width}) must be even when bidirectional: each direction has one half")
        if self.bidirectional and self.reverse_source:
            raise ValueError(
                "reverse_source needs bidirectional: false; with both directions, one half reads backwards already"
            )
        return self


class LanguageFields(LayerFields):
    """Settings of all recurrent language models; they have no source and no attention."""

    decoder_layers: Layers = 2
    """Number of layers."""
    tie: bool = True
    """Tie the output projection to the token embeddings (Press & Wolf 2017)."""


class TranslatorFields(EncoderFields):
    """Settings of all recurrent encoder-decoder models."""

    decoder_layers: Layers = 2
    """Number of decoder layers."""
    tie: Literal["all", "target", "none"] = "all"
    """Tied embeddings: `all` shares one matrix between source, target and output (needs a shared vocabulary), `target`
    between target and output, `none` shares nothing."""


class AttentionFields(TranslatorFields):
    """Settings of recurrent models with attention."""

    attention: AttentionKind = "general"
    """Attention score: `additive` (Bahdanau et al. 2015); `dot`, `general`, `concat` or `location` (Luong et al.
    2015)."""
    input_feeding: bool = False
    """Feed the output of each step into the next one (Luong et al. 2015, section 3.3). The decoder then also trains
    step by step and is slower."""
    coverage: bool = False
    """Add coverage, the sum of earlier attention weights, to the score (Tu et al. 2016); needs `additive`."""
    max_positions: Length = 256
    """Longest source in tokens for `location`; the other kinds have no limit."""

    @model_validator(mode="after")
    def _check_coverage(self) -> "AttentionFields":
        if self.coverage and self.attention != "additive":
            raise ValueError(f"coverage is added inside the score of attention: additive, not of {self.attention}")
        return self


def build(cell: str, settings: TranslatorFields, source_size: int, target_size: int) -> "Seq2Seq":
    """Build an initialized recurrent encoder and decoder, with attention if set.

    Args:
        cell: Kind of the recurrent layers, a key of `baselines.cells.CELLS`.
        settings: Settings of the model; `AttentionFields` for a decoder with attention.
        source_size: Size of the source vocabulary.
        target_size: Size of the target vocabulary.

    Raises:
        UserError: `tie` is `all`, but the vocabularies differ in size.

    Example:
        >>> from baselines.lstm_attention import Settings
        >>> model = build("lstm", Settings(width=16, attention="dot"), source_size=100, target_size=100)
        >>> type(model.decoder).__name__
        'AttentiveDecoder'
    """
    from baselines.attention import Additive, Attention, CoverageAttention, build_score
    from baselines.cells import Stack
    from baselines.decoder import AttentiveDecoder, Bridge, SummaryDecoder
    from s2s.models.base import Seq2Seq
    from s2s.nn.embeddings import build_embeddings

    width, dropout, scaled = settings.width, settings.dropout, settings.scale_embeddings
    source, target, projection = build_embeddings(settings.tie, width, source_size, target_size)
    encoder = _encoder(cell, settings, source)
    input_feeding = isinstance(settings, AttentionFields) and settings.input_feeding
    # With input feeding, the layers read the embedding and the last output, concatenated.
    inputs = 2 * width if input_feeding else width
    stack = Stack(cell, inputs, width, settings.decoder_layers, dropout, settings.residual)
    bridge = Bridge(width, stack.parts)
    if not isinstance(settings, AttentionFields):
        return Seq2Seq(encoder, SummaryDecoder(target, stack, bridge, dropout, scaled=scaled), projection)
    if settings.attention == "location":
        encoder.max_positions = settings.max_positions
    if settings.coverage:
        attention = CoverageAttention(Additive(width), width)
    else:
        attention = Attention(build_score(settings.attention, width, settings.max_positions))
    decoder = AttentiveDecoder(target, stack, bridge, attention, dropout, input_feeding=input_feeding, scaled=scaled)
    return Seq2Seq(encoder, decoder, projection)


def build_encoder(cell: str, settings: EncoderFields, source_size: int) -> "tuple[Encoder, int]":
    """Build an initialized recurrent encoder, for classification and tagging.

    Returns:
        The encoder, and the width of its states and summary.
    """
    from s2s.nn.embeddings import build_embedding_table

    return _encoder(cell, settings, build_embedding_table(source_size, settings.width)), settings.width


def build_language_model(cell: str, settings: LanguageFields, size: int) -> "LanguageModel":
    """Build an initialized recurrent language model.

    Args:
        cell: Kind of the recurrent layers, a key of `baselines.cells.CELLS`.
        settings: Settings of the model.
        size: Size of the vocabulary.
    """
    from baselines.causal import CausalRecurrent
    from baselines.cells import Stack
    from s2s.models.language_model import LanguageModel
    from s2s.nn.embeddings import build_embeddings

    width, dropout = settings.width, settings.dropout
    # A language model has no source, so that table is not used.
    _, table, projection = build_embeddings("all" if settings.tie else "none", width, size, size)
    stack = Stack(cell, width, width, settings.decoder_layers, dropout, settings.residual)
    return LanguageModel(CausalRecurrent(table, stack, dropout, scaled=settings.scale_embeddings), projection)


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
