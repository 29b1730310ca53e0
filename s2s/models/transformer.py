"""Transformer (Vaswani et al. 2017): recipe settings and builders.

The modules are in `transformer_layers.py`, `transformer_causal.py` and `s2s/nn`. This module imports torch only when a
model is built, so that mistakes in a recipe are reported at once.
"""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from s2s.recipe.schema import Epsilon, Inner, Layers, Length, Probability, Section, Width

if TYPE_CHECKING:
    from torch import nn

    from s2s.models.base import Encoder, Seq2Seq
    from s2s.models.language_model import LanguageModel
    from s2s.nn.attention import Attention
    from s2s.nn.embeddings import Embedding
    from s2s.nn.layers import FeedForward, Residual
    from s2s.nn.positions import PositionBias, Side

Positions = Literal["sinusoidal", "learned", "rope", "alibi", "relative", "none"]


class Blocks(Section):
    """Settings of all Transformer layers, in encoders and decoders."""

    kind: Literal["transformer"] = "transformer"
    """The Transformer."""
    width: Width = 256
    """Size of every vector between layers (d_model)."""
    heads: Width = 4
    """Attention heads of the queries."""
    heads_kind: Literal["split", "wide"] = "split"
    """`split`: heads divide the width among them. `wide`: each head has the whole width, for `heads` times as many
    parameters (Bloem 2019, "Transformers from scratch")."""
    key_value_heads: Width | None = None
    """Key/value heads, each of which serves equally many query heads (grouped-query attention, Ainslie et al. 2023);
    null: `heads`."""
    feedforward: Inner = 1024
    """Hidden size of the feed-forward blocks (d_ff)."""
    norm: Literal["pre", "post"] = "pre"
    """`pre`: normalization before each block (Xiong et al. 2020). `post`: after the sum (Vaswani et al. 2017)."""
    norm_kind: Literal["layer", "rms"] = "layer"
    """`layer`: subtract the mean and divide by the standard deviation (Ba et al. 2016). `rms`: divide by the root mean
    square (Zhang & Sennrich 2019)."""
    embedding_norm: bool = False
    """Normalize the sum of token and position embeddings, as BERT does."""
    norm_epsilon: Epsilon = 1e-5
    """Guard of the norms against division by zero; BERT has 1e-12."""
    scale_embeddings: bool = True
    """Multiply token embeddings by √width; BERT does not."""
    activation: Literal["relu", "gelu", "swish", "swiglu"] = "relu"
    """Activation of the feed-forward blocks. `swish` is x · σ(x) (Ramachandran et al. 2017); `swiglu` adds a gate, a
    third matrix of width times `feedforward` (Shazeer 2020)."""
    max_positions: Length = 1024
    """Longest sequence in tokens for learned positions; the other kinds have no limit."""
    max_distance: Annotated[int, Field(ge=17, le=1_000_000)] = 128
    """Distance in tokens from which on all distances share one bias of `relative` positions. Distances that no training
    text reaches stay untrained: if longer texts are expected, set at most half of the length of the training texts."""
    dropout: Probability = 0.1
    """Dropout rate of the embeddings and of each block's output."""
    attention_dropout: Probability = 0.0
    """Dropout rate of attention weights."""
    activation_dropout: Probability = 0.0
    """Dropout rate inside of the feed-forward blocks."""
    attention: Literal["auto", "fused", "explicit"] = "auto"
    """`fused`: torch's scaled_dot_product_attention. `explicit`: the softmax written out. Both are equal; `auto` uses
    the faster one for the device, the precision and the length."""

    @model_validator(mode="after")
    def _check_sizes_of_heads(self) -> "Blocks":
        if self.width % self.heads and self.heads_kind == "split":
            raise ValueError(f"heads ({self.heads}) must divide width ({self.width})")
        if self.heads % (self.key_value_heads or 1):
            raise ValueError(f"key_value_heads ({self.key_value_heads}) must divide heads ({self.heads})")
        positions = {getattr(self, f"{side}_positions", "none") for side in ("encoder", "decoder")}
        if self.width % 2 and "sinusoidal" in positions:
            raise ValueError(f"width ({self.width}) must be even for sinusoidal positions")
        if self.head_size % 2 and "rope" in positions:
            raise ValueError(f"a head of {self.head_size} numbers has no pairs to turn; rope needs an even number")
        return self

    @property
    def head_size(self) -> int:
        """Size of a head's queries, keys and values."""
        return self.width if self.heads_kind == "wide" else self.width // self.heads


class EncoderSettings(Blocks):
    """Settings of a Transformer encoder."""

    encoder_layers: Layers = 3
    """Number of encoder layers."""
    encoder_positions: Positions = "sinusoidal"
    """Positions of the encoder: embeddings that are added to the token vectors (`sinusoidal`, `learned`), positions in
    self-attention (`rope`, Su et al. 2021; `alibi`, Press et al. 2022; `relative`, as in T5, Raffel et al. 2020), or
    `none`."""


class Settings(EncoderSettings):
    """Settings of a Transformer encoder and decoder."""

    decoder_layers: Layers = 3
    """Number of decoder layers."""
    decoder_positions: Positions = "sinusoidal"
    """Positions of the decoder, of the same kinds. With `none`, the causal mask still gives some information on
    positions (Haviv et al. 2022)."""
    tie: Literal["all", "target", "none"] = "all"
    """Tied embeddings: `all` shares one matrix between source, target and output (needs a shared vocabulary), `target`
    between target and output, `none` shares nothing."""
    output_bias: bool = False
    """Add a learned bias to the score of each token, as Marian does."""


class LanguageSettings(Blocks):
    """Settings of a Transformer language model."""

    decoder_layers: Layers = 3
    """Number of layers."""
    decoder_positions: Positions = "sinusoidal"
    """Positions, of the kinds of `encoder_positions`. With `none`, the causal mask still gives some information on
    positions (Haviv et al. 2022)."""
    tie: bool = True
    """Tie the output projection to the token embeddings (Press & Wolf 2017)."""


def build(settings: Settings, source_size: int, target_size: int) -> "Seq2Seq":
    """Build an initialized Transformer encoder and decoder.

    Args:
        settings: Settings of the model.
        source_size: Size of the source vocabulary.
        target_size: Size of the target vocabulary.

    Raises:
        UserError: `tie` is `all`, but the vocabularies differ in size.

    Example:
        >>> model = build(Settings(width=16, heads=2, feedforward=32), source_size=100, target_size=100)
        >>> sum(p.numel() for p in model.parameters())
        18368
    """
    import torch
    from torch import nn

    from s2s.models.base import Seq2Seq
    from s2s.models.transformer_layers import DecoderLayer, TransformerDecoder
    from s2s.nn.embeddings import build_embeddings

    source, target, projection = build_embeddings(settings.tie, settings.width, source_size, target_size)
    if settings.output_bias:
        projection.bias = nn.Parameter(torch.zeros(target_size))
    encoder = _encoder(settings, source)
    parts = _Parts(settings, settings.decoder_positions)
    embedding = parts.embedding(target)
    layers = [
        DecoderLayer(
            parts.attention(among=True),
            parts.attention(),
            parts.feedforward(),
            (parts.residual(), parts.residual(), parts.residual()),
        )
        for _ in range(settings.decoder_layers)
    ]
    decoder = TransformerDecoder(embedding, layers, parts.last_norm(), settings.dropout, parts.bias("decoder"))
    return Seq2Seq(encoder, decoder, projection)


def build_encoder(settings: EncoderSettings, source_size: int) -> "tuple[Encoder, int]":
    """Build an initialized encoder, for classification and masked language models.

    Returns:
        The encoder, and the width of its states and summary.
    """
    from s2s.nn.embeddings import build_embedding_table

    return _encoder(settings, build_embedding_table(source_size, settings.width)), settings.width


def build_language_model(settings: LanguageSettings, size: int) -> "LanguageModel":
    """Build an initialized Transformer language model.

    Args:
        settings: Settings of the model.
        size: Size of the vocabulary.

    Example:
        >>> model = build_language_model(LanguageSettings(width=16, heads=2, feedforward=32), size=100)
        >>> type(model.decoder).__name__
        'CausalTransformer'
    """
    from s2s.models.language_model import LanguageModel
    from s2s.models.transformer_causal import CausalLayer, CausalTransformer
    from s2s.nn.embeddings import build_embeddings

    _, table, projection = build_embeddings("all" if settings.tie else "none", settings.width, size, size)
    parts = _Parts(settings, settings.decoder_positions)
    embedding = parts.embedding(table)
    layers = [
        CausalLayer(parts.attention(among=True), parts.feedforward(), (parts.residual(), parts.residual()))
        for _ in range(settings.decoder_layers)
    ]
    decoder = CausalTransformer(embedding, layers, parts.last_norm(), settings.dropout, parts.bias("decoder"))
    return LanguageModel(decoder, projection)


def _encoder(settings: EncoderSettings, tokens: "nn.Embedding") -> "Encoder":
    from s2s.models.transformer_layers import EncoderLayer, TransformerEncoder

    parts = _Parts(settings, settings.encoder_positions)
    embedding = parts.embedding(tokens)
    layers = [
        EncoderLayer(parts.attention(among=True), parts.feedforward(), (parts.residual(), parts.residual()))
        for _ in range(settings.encoder_layers)
    ]
    return TransformerEncoder(embedding, layers, parts.last_norm(), settings.dropout, parts.bias("encoder"))


class _Parts:
    """Builder of the parts of an encoder or decoder; each call returns a new module."""

    def __init__(self, settings: Blocks, positions: Positions) -> None:
        from s2s.nn.positions import Rotary

        self.settings, self.positions = settings, positions
        # All layers share one table of angles.
        self.rotary = Rotary(settings.head_size) if positions == "rope" else None

    def embedding(self, tokens: "nn.Embedding") -> "Embedding":
        """Build token embeddings, with position embeddings for the kinds that add them."""
        from s2s.nn.embeddings import Embedding

        s, kind = self.settings, self.positions
        added = kind if kind == "sinusoidal" or kind == "learned" else "none"
        norm = self._norm() if s.embedding_norm else None
        return Embedding(tokens, added, s.max_positions, s.scale_embeddings, norm)

    def attention(self, among: bool = False) -> "Attention":
        """Build self-attention (`among`), or cross-attention, which has no rotary positions."""
        from s2s.nn.attention import Attention

        s = self.settings
        rotary = self.rotary if among else None
        return Attention(s.width, s.heads, s.attention_dropout, s.attention, s.head_size, s.key_value_heads, rotary)

    def feedforward(self) -> "FeedForward":
        """Build a feed-forward block."""
        from s2s.nn.layers import FeedForward

        s = self.settings
        return FeedForward(s.width, s.feedforward, s.activation, s.activation_dropout)

    def residual(self) -> "Residual":
        """Build the residual connection of a block."""
        from s2s.nn.layers import Dropout, Residual

        return Residual(self._norm(), Dropout(self.settings.dropout), self.settings.norm == "pre")

    def bias(self, side: "Side") -> "PositionBias | None":
        """Build the position bias of self-attention; None for other kinds of positions."""
        from s2s.nn.positions import Alibi, RelativeBuckets

        s = self.settings
        if self.positions == "alibi":
            return Alibi(s.heads, side)
        return RelativeBuckets(s.heads, s.width, side, s.max_distance) if self.positions == "relative" else None

    def last_norm(self) -> "nn.Module":
        """Build the final norm of a pre-norm model; post-norm models have none."""
        from torch import nn

        return self._norm() if self.settings.norm == "pre" else nn.Identity()

    def _norm(self) -> "nn.Module":
        from s2s.nn.layers import build_norm

        s = self.settings
        return build_norm(s.norm_kind, s.width, s.norm_epsilon)
