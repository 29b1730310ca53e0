"""The Elman network (Elman 1990) with attention over the source."""

from typing import Literal

from baselines.building import builders
from baselines.settings import Attentive


class Settings(Attentive):
    """The section of the Elman network with attention."""

    kind: Literal["rnn-attention"] = "rnn-attention"
    """The Elman network with attention."""


build, build_encoder = builders("rnn")
