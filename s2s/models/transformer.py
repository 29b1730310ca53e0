"""The Transformer (Vaswani et al. 2017, "Attention Is All You Need"): its settings, and how it is built.

The network's parts are in `transformer_network.py` and `s2s/nn`; this module stays free of torch until `build` is
called, so that a mistake in a recipe is answered at once.
"""

from typing import TYPE_CHECKING, Literal

from pydantic import model_validator

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
    """What a recipe says of layers that read and of layers that write."""

    kind: Literal["transformer"] = "transformer"
    """The Transformer."""
    width: Width = 256
    """Size of every vector between layers (d_model)."""
    heads: Width = 4
    """Attention heads, of queries."""
    heads_kind: Literal["split", "wide"] = "split"
    """Heads divide the width among them, or each has the whole width, for `heads` times as many parameters (Bloem 2019,
    "Transformers from scratch")."""
    key_value_heads: Width | None = None
    """Heads of keys and values, each of which serves equally many heads of queries (Ainslie et al. 2023); as many as
    `heads` when null."""
    feedforward: Inner = 1024
    """Inner size of the feed-forward blocks (d_ff)."""
    norm: Literal["pre", "post"] = "pre"
    """Normalisation before each block (Xiong et al. 2020) or after the sum, as first published."""
    norm_kind: Literal["layer", "rms"] = "layer"
    """`layer` takes away the mean and divides by the deviation (Ba et al. 2016); `rms` divides by the root of the mean
    square (Zhang & Sennrich 2019)."""
    embedding_norm: bool = False
    """Normalise what the first layer reads: token vectors with their positions, as BERT does."""
    norm_epsilon: Epsilon = 1e-5
    """Guard of the norms against division by zero; BERT's is 1e-12."""
    scale_embeddings: bool = True
    """Whether token vectors are multiplied by √width; BERT's are not."""
    activation: Literal["relu", "gelu", "swish", "swiglu"] = "relu"
    """Non-linearity of the feed-forward blocks; `swish` is x · σ(x) (Ramachandran et al. 2017), and `swiglu` has a
    gate, a third matrix of width times `feedforward` (Shazeer 2020)."""
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
    def _fits(self) -> "Blocks":
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
        """Numbers of one head's queries, keys and values."""
        return self.width if self.heads_kind == "wide" else self.width // self.heads


class EncoderSettings(Blocks):
    """What a recipe says of its encoder alone."""

    encoder_layers: Layers = 3
    """Layers that read the source."""
    encoder_positions: Positions = "sinusoidal"
    """How the encoder knows where a token stands: by a vector that is added to it (`sinusoidal`, `learned`), in each
    layer's self-attention (`rope`, Su et al. 2021; `alibi`, Press et al. 2022; `relative`, as in T5, Raffel et al.
    2020), or not."""


class Settings(EncoderSettings):
    """The Transformer's section of a recipe."""

    decoder_layers: Layers = 3
    """Layers that write the target."""
    decoder_positions: Positions = "sinusoidal"
    """How the decoder knows; without positions, the causal mask still tells it something (Haviv et al. 2022)."""
    tie: Literal["all", "target", "none"] = "all"
    """Which embeddings are one matrix: source, target and output; target and output; none. `all` needs a shared
    vocabulary."""
    output_bias: bool = False
    """Add a learned number to the score of each piece, as Marian does."""


class LanguageSettings(Blocks):
    """The Transformer's section of a language model's recipe."""

    decoder_layers: Layers = 3
    """Layers that read the text so far."""
    decoder_positions: Positions = "sinusoidal"
    """How it knows where a piece stands, as `encoder_positions` has it; without positions, the causal mask still tells
    it something (Haviv et al. 2022)."""
    tie: bool = True
    """Whether the projection onto the pieces is the table of their vectors (Press & Wolf 2017)."""


def build(settings: Settings, source_size: int, target_size: int) -> "Seq2Seq":
    """A freshly initialised Transformer.

    Raises:
        UserError: all embeddings shall be tied, but the vocabularies differ in size.
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
    """The encoder alone and the width of its summary, for classification."""
    from s2s.nn.embeddings import build_embedding_table

    return _encoder(settings, build_embedding_table(source_size, settings.width)), settings.width


def build_language_model(settings: LanguageSettings, size: int) -> "LanguageModel":
    """A freshly initialised decoder without a source, for so many pieces."""
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
    """Makes the parts of an encoder or a decoder, each a fresh one, by the settings and its own kind of positions."""

    def __init__(self, settings: Blocks, positions: Positions) -> None:
        from s2s.nn.positions import Rotary

        self.settings, self.positions = settings, positions
        # all layers turn by the same angles
        self.rotary = Rotary(settings.head_size) if positions == "rope" else None

    def embedding(self, tokens: "nn.Embedding") -> "Embedding":
        """Vectors of tokens, with those of positions where there are any."""
        from s2s.nn.embeddings import Embedding

        s, kind = self.settings, self.positions
        added = kind if kind == "sinusoidal" or kind == "learned" else "none"
        norm = self._norm() if s.embedding_norm else None
        return Embedding(tokens, added, s.max_positions, s.scale_embeddings, norm)

    def attention(self, among: bool = False) -> "Attention":
        """Attention `among` the positions of one side, or from one side to the other, where no distances are."""
        from s2s.nn.attention import Attention

        s = self.settings
        rotary = self.rotary if among else None
        return Attention(s.width, s.heads, s.attention_dropout, s.attention, s.head_size, s.key_value_heads, rotary)

    def feedforward(self) -> "FeedForward":
        """The feed-forward block of a layer."""
        from s2s.nn.layers import FeedForward

        s = self.settings
        return FeedForward(s.width, s.feedforward, s.activation, s.activation_dropout)

    def residual(self) -> "Residual":
        """What is around each block."""
        from s2s.nn.layers import Dropout, Residual

        return Residual(self._norm(), Dropout(self.settings.dropout), self.settings.norm == "pre")

    def bias(self, side: "Side") -> "PositionBias | None":
        """What distances add to the scores of self-attention."""
        from s2s.nn.positions import Alibi, RelativeBuckets

        s = self.settings
        if self.positions == "alibi":
            return Alibi(s.heads, side)
        return RelativeBuckets(s.heads, s.width, side) if self.positions == "relative" else None

    def last_norm(self) -> "nn.Module":
        """What is normalised before each block is normalised behind the last one, too."""
        from torch import nn

        return self._norm() if self.settings.norm == "pre" else nn.Identity()

    def _norm(self) -> "nn.Module":
        from s2s.nn.layers import build_norm

        s = self.settings
        return build_norm(s.norm_kind, s.width, s.norm_epsilon)
