"""LSTM (Hochreiter & Schmidhuber 1997) with attention."""

from functools import partial
from typing import Literal

from baselines import recurrent
from baselines.recurrent import AttentionFields, EncoderFields


class EncoderSettings(EncoderFields):
    """Settings of an LSTM encoder, for models with attention."""

    kind: Literal["lstm-attention"] = "lstm-attention"
    """The LSTM, with attention over the source."""


class Settings(AttentionFields, EncoderSettings):
    """Settings of an LSTM encoder and decoder with attention."""


build = partial(recurrent.build, "lstm")
build_encoder = partial(recurrent.build_encoder, "lstm")
