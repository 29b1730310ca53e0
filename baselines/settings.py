"""What a recipe may say of a recurrent model; free of torch, so that a typo is answered at once."""

from typing import Literal

from pydantic import model_validator

from s2s.recipe.limits import Layers, Length, Probability, Width
from s2s.recipe.schema import Section

AttentionKind = Literal["additive", "dot", "general", "concat", "location"]


class Reading(Section):
    """What all recurrent encoders share."""

    width: Width = 256
    """Size of embeddings and hidden states."""
    encoder_layers: Layers = 2
    """Recurrent layers that read the source."""
    bidirectional: bool = True
    """Whether half of the encoder's width reads from the end to the beginning (Schuster & Paliwal 1997)."""
    reverse_source: bool = False
    """Whether a one-directional encoder reads from the end to the beginning, so that the first words to write are the
    last ones read (Sutskever et al. 2014, section 3.3)."""
    residual: bool = False
    """Whether the input of each layer but the first is added to its output (Wu et al. 2016, section 3.1)."""
    dropout: Probability = 0.2
    """Applied to embeddings, between layers and to the output, never from step to step (Zaremba et al. 2014)."""

    @model_validator(mode="after")
    def _directions(self) -> "Reading":
        if self.bidirectional and self.width % 2:
            raise ValueError(f"width ({self.width}) must be even when bidirectional: each direction has one half")
        if self.bidirectional and self.reverse_source:
            raise ValueError(
                "reverse_source needs bidirectional: false; with both directions, one half reads backwards already"
            )
        return self


class Recurrent(Reading):
    """What all recurrent models that translate share."""

    decoder_layers: Layers = 2
    """Recurrent layers that write the target."""
    tie: Literal["all", "target", "none"] = "all"
    """Which embeddings are one matrix: source, target and output; target and output; none. `all` needs a shared
    vocabulary."""


class Attentive(Recurrent):
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
    def _coverage_is_additive(self) -> "Attentive":
        if self.coverage and self.attention != "additive":
            raise ValueError(f"coverage is added inside the score of attention: additive, not of {self.attention}")
        return self
