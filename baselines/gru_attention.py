"""The GRU (Cho et al. 2014) with attention over the source."""

from typing import Literal

from baselines.building import builders
from baselines.settings import Attentive, Reading


class EncoderSettings(Reading):
    """What a recipe says of its encoder alone."""

    kind: Literal["gru-attention"] = "gru-attention"
    """The GRU with attention."""


class Settings(Attentive, EncoderSettings):
    """The section of the GRU with attention."""


build, build_encoder = builders("gru")
