"""The LSTM (Hochreiter & Schmidhuber 1997) with attention over the source."""

from typing import Literal

from baselines.building import builders
from baselines.settings import Attentive


class Settings(Attentive):
    """The section of the LSTM with attention."""

    kind: Literal["lstm-attention"] = "lstm-attention"
    """The LSTM with attention."""


build, build_encoder = builders("lstm")
