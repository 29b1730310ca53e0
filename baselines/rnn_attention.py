"""The Elman network (Elman 1990) with attention over the source."""

from functools import partial
from typing import Literal

from baselines import recurrent
from baselines.recurrent import AttentionFields, EncoderFields


class EncoderSettings(EncoderFields):
    """What a recipe says of its encoder alone."""

    kind: Literal["rnn-attention"] = "rnn-attention"
    """The Elman network with attention."""


class Settings(AttentionFields, EncoderSettings):
    """The section of the Elman network with attention."""


build = partial(recurrent.build, "rnn")
build_encoder = partial(recurrent.build_encoder, "rnn")
