"""The GRU (Cho et al. 2014) without attention: the source is squeezed through the final state."""

from typing import Literal

from baselines.building import builders
from baselines.settings import Reading, Recurrent


class EncoderSettings(Reading):
    """What a recipe says of its encoder alone."""

    kind: Literal["gru"] = "gru"
    """The GRU, without attention."""


class Settings(Recurrent, EncoderSettings):
    """The GRU's section of a recipe."""


build, build_encoder = builders("gru")
