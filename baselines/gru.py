"""GRU (Cho et al. 2014) without attention.

The decoder reads the source through the final encoder state only.
"""

from functools import partial
from typing import Literal

from baselines import recurrent
from baselines.recurrent import EncoderFields, LanguageFields, TranslatorFields


class EncoderSettings(EncoderFields):
    """Settings of a GRU encoder."""

    kind: Literal["gru"] = "gru"
    """The GRU, without attention."""


class Settings(TranslatorFields, EncoderSettings):
    """Settings of a GRU encoder and decoder."""


class LanguageSettings(LanguageFields):
    """Settings of a GRU language model."""

    kind: Literal["gru"] = "gru"
    """The GRU."""


build = partial(recurrent.build, "gru")
build_encoder = partial(recurrent.build_encoder, "gru")
build_language_model = partial(recurrent.build_language_model, "gru")
