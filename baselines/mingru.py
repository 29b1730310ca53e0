"""minGRU (Feng et al. 2024) without attention.

Its gates depend on the input only, so that training is a parallel scan. The decoder reads the source through the
final encoder state only.
"""

from functools import partial
from typing import Literal

from baselines import recurrent
from baselines.recurrent import EncoderFields, LanguageFields, TranslatorFields


class EncoderSettings(EncoderFields):
    """Settings of a minGRU encoder."""

    kind: Literal["mingru"] = "mingru"
    """minGRU, without attention."""


class Settings(TranslatorFields, EncoderSettings):
    """Settings of a minGRU encoder and decoder."""


class LanguageSettings(LanguageFields):
    """Settings of a minGRU language model."""

    kind: Literal["mingru"] = "mingru"
    """minGRU."""


build = partial(recurrent.build, "mingru")
build_encoder = partial(recurrent.build_encoder, "mingru")
build_language_model = partial(recurrent.build_language_model, "mingru")
