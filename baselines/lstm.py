"""The LSTM (Hochreiter & Schmidhuber 1997) without attention: the source is squeezed through the final state."""

from typing import Literal

from baselines.building import builders
from baselines.settings import Recurrent


class Settings(Recurrent):
    """The LSTM's section of a recipe."""

    kind: Literal["lstm"] = "lstm"
    """The LSTM, without attention."""


build, build_encoder = builders("lstm")
