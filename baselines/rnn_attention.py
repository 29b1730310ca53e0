"""The Elman network (Elman 1990) with attention over the source."""

from typing import Literal

from baselines.building import builders
from baselines.settings import Attentive, Reading


class EncoderSettings(Reading):
    """What a recipe says of its encoder alone."""

    kind: Literal["rnn-attention"] = "rnn-attention"
    """The Elman network with attention."""


class Settings(Attentive, EncoderSettings):
    """The section of the Elman network with attention."""


build, build_encoder = builders("rnn")
