"""The Elman network (Elman 1990) without attention: the source is squeezed through the final state."""

from typing import Literal

from baselines.building import builders
from baselines.settings import Reading, Recurrent


class EncoderSettings(Reading):
    """What a recipe says of its encoder alone."""

    kind: Literal["rnn"] = "rnn"
    """The Elman network, without attention."""


class Settings(Recurrent, EncoderSettings):
    """The Elman network's section of a recipe."""


build, build_encoder = builders("rnn")
