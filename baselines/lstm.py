"""LSTM (Hochreiter & Schmidhuber 1997) without attention.

The decoder reads the source through the final encoder state only.
"""

from functools import partial
from typing import Literal

from baselines import recurrent
from baselines.recurrent import EncoderFields, LanguageFields, TranslatorFields


class EncoderSettings(EncoderFields):
    """Settings of an LSTM encoder."""

    kind: Literal["lstm"] = "lstm"
    """The LSTM, without attention."""


class Settings(TranslatorFields, EncoderSettings):
    """Settings of an LSTM encoder and decoder."""


class LanguageSettings(LanguageFields):
    """Settings of an LSTM language model."""

    kind: Literal["lstm"] = "lstm"
    """The LSTM."""


build = partial(recurrent.build, "lstm")
build_encoder = partial(recurrent.build_encoder, "lstm")
build_language_model = partial(recurrent.build_language_model, "lstm")
