"""The LSTM (Hochreiter & Schmidhuber 1997) with attention over the source."""

from typing import Literal

from baselines.building import builders
from baselines.settings import Attentive, Reading


class EncoderSettings(Reading):
    """What a recipe says of its encoder alone."""

    kind: Literal["lstm-attention"] = "lstm-attention"
    """The LSTM with attention."""


class Settings(Attentive, EncoderSettings):
    """The section of the LSTM with attention."""


build, build_encoder = builders("lstm")
