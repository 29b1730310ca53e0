"""GRU (Cho et al. 2014) with attention."""

from functools import partial
from typing import Literal

from baselines import recurrent
from baselines.recurrent import AttentionFields, EncoderFields


class EncoderSettings(EncoderFields):
    """Settings of a GRU encoder, for models with attention."""

    kind: Literal["gru-attention"] = "gru-attention"
    """The GRU, with attention over the source."""


class Settings(AttentionFields, EncoderSettings):
    """Settings of a GRU encoder and decoder with attention."""


build = partial(recurrent.build, "gru")
build_encoder = partial(recurrent.build_encoder, "gru")
