"""The LSTM (Hochreiter & Schmidhuber 1997) with attention over the source."""

from functools import partial
from typing import Literal

from baselines import recurrent
from baselines.recurrent import AttentionFields, EncoderFields


class EncoderSettings(EncoderFields):
    """What a recipe says of its encoder alone."""

    kind: Literal["lstm-attention"] = "lstm-attention"
    """The LSTM with attention."""


class Settings(AttentionFields, EncoderSettings):
    """The section of the LSTM with attention."""


build = partial(recurrent.build, "lstm")
build_encoder = partial(recurrent.build_encoder, "lstm")
