"""The Elman network (Elman 1990) without attention: the source is squeezed through the final state."""

from functools import partial
from typing import Literal

from baselines import recurrent
from baselines.recurrent import EncoderFields, LanguageFields, TranslatorFields


class EncoderSettings(EncoderFields):
    """What a recipe says of its encoder alone."""

    kind: Literal["rnn"] = "rnn"
    """The Elman network, without attention."""


class Settings(TranslatorFields, EncoderSettings):
    """The Elman network's section of a recipe."""


class LanguageSettings(LanguageFields):
    """The section of the Elman network in a language model's recipe."""

    kind: Literal["rnn"] = "rnn"
    """The Elman network."""


build = partial(recurrent.build, "rnn")
build_encoder = partial(recurrent.build_encoder, "rnn")
build_language_model = partial(recurrent.build_language_model, "rnn")
