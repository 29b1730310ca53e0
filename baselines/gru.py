"""The GRU (Cho et al. 2014) without attention: the source is squeezed through the final state."""

from functools import partial
from typing import Literal

from baselines import recurrent
from baselines.recurrent import EncoderFields, LanguageFields, TranslatorFields


class EncoderSettings(EncoderFields):
    """What a recipe says of its encoder alone."""

    kind: Literal["gru"] = "gru"
    """The GRU, without attention."""


class Settings(TranslatorFields, EncoderSettings):
    """The GRU's section of a recipe."""


class LanguageSettings(LanguageFields):
    """The section of the GRU in a language model's recipe."""

    kind: Literal["gru"] = "gru"
    """The GRU."""


build = partial(recurrent.build, "gru")
build_encoder = partial(recurrent.build_encoder, "gru")
build_language_model = partial(recurrent.build_language_model, "gru")
