"""The LSTM (Hochreiter & Schmidhuber 1997) without attention: the source is squeezed through the final state."""

from functools import partial
from typing import Literal

from baselines import recurrent
from baselines.recurrent import EncoderFields, LanguageFields, TranslatorFields


class EncoderSettings(EncoderFields):
    """What a recipe says of its encoder alone."""

    kind: Literal["lstm"] = "lstm"
    """The LSTM, without attention."""


class Settings(TranslatorFields, EncoderSettings):
    """The LSTM's section of a recipe."""


class LanguageSettings(LanguageFields):
    """The section of the LSTM in a language model's recipe."""

    kind: Literal["lstm"] = "lstm"
    """The LSTM."""


build = partial(recurrent.build, "lstm")
build_encoder = partial(recurrent.build_encoder, "lstm")
build_language_model = partial(recurrent.build_language_model, "lstm")
