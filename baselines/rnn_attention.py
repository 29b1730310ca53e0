"""Elman network (Elman 1990) with attention."""

from functools import partial
from typing import Literal

from baselines import recurrent
from baselines.recurrent import AttentionFields, EncoderFields


class EncoderSettings(EncoderFields):
    """Settings of an Elman network encoder, for models with attention."""

    kind: Literal["rnn-attention"] = "rnn-attention"
    """The Elman network, with attention over the source."""


class Settings(AttentionFields, EncoderSettings):
    """Settings of an Elman network encoder and decoder with attention."""


build = partial(recurrent.build, "rnn")
build_encoder = partial(recurrent.build_encoder, "rnn")
