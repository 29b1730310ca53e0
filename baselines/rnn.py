"""The Elman network (Elman 1990) without attention: the source is squeezed through the final state."""

from typing import Literal

from baselines.building import builders
from baselines.settings import Recurrent


class Settings(Recurrent):
    """The Elman network's section of a recipe."""

    kind: Literal["rnn"] = "rnn"
    """The Elman network, without attention."""


build, build_encoder = builders("rnn")
