"""Elman network (Elman 1990) without attention.

The decoder reads the source through the final encoder state only.
"""

from functools import partial
from typing import Literal

from baselines import recurrent
from baselines.recurrent import EncoderFields, LanguageFields, TranslatorFields


class EncoderSettings(EncoderFields):
    """Settings of an Elman network encoder."""

    kind: Literal["rnn"] = "rnn"
    """The Elman network, without attention."""


class Settings(TranslatorFields, EncoderSettings):
    """Settings of an Elman network encoder and decoder."""


class LanguageSettings(LanguageFields):
    """Settings of an Elman network language model."""

    kind: Literal["rnn"] = "rnn"
    """The Elman network."""


build = partial(recurrent.build, "rnn")
build_encoder = partial(recurrent.build_encoder, "rnn")
build_language_model = partial(recurrent.build_language_model, "rnn")
