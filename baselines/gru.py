"""The GRU (Cho et al. 2014) without attention: the source is squeezed through the final state."""

from typing import Literal

from baselines.building import builders
from baselines.settings import Recurrent


class Settings(Recurrent):
    """The GRU's section of a recipe."""

    kind: Literal["gru"] = "gru"
    """The GRU, without attention."""


build, build_encoder = builders("gru")
