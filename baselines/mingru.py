"""minGRU (Feng et al. 2024) without attention: gates that see the input alone, so that training is a parallel scan."""

from functools import partial
from typing import Literal

from baselines import recurrent
from baselines.recurrent import EncoderFields, LanguageFields, TranslatorFields


class EncoderSettings(EncoderFields):
    """What a recipe says of its encoder alone."""

    kind: Literal["mingru"] = "mingru"
    """minGRU, without attention."""


class Settings(TranslatorFields, EncoderSettings):
    """minGRU's section of a recipe."""


class LanguageSettings(LanguageFields):
    """The section of minGRU in a language model's recipe."""

    kind: Literal["mingru"] = "mingru"
    """minGRU."""


build = partial(recurrent.build, "mingru")
build_encoder = partial(recurrent.build_encoder, "mingru")
build_language_model = partial(recurrent.build_language_model, "mingru")
