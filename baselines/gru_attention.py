"""The GRU (Cho et al. 2014) with attention over the source."""

from functools import partial
from typing import Literal

from baselines import recurrent
from baselines.recurrent import AttentionFields, EncoderFields


class EncoderSettings(EncoderFields):
    """What a recipe says of its encoder alone."""

    kind: Literal["gru-attention"] = "gru-attention"
    """The GRU with attention."""


class Settings(AttentionFields, EncoderSettings):
    """The section of the GRU with attention."""


build = partial(recurrent.build, "gru")
build_encoder = partial(recurrent.build_encoder, "gru")
