"""minLSTM (Feng et al. 2024) without attention.

Its gates depend on the input only, so that training is a parallel scan. The decoder reads the source through the
final encoder state only.
"""

from functools import partial
from typing import Literal

from baselines import recurrent
from baselines.recurrent import EncoderFields, LanguageFields, TranslatorFields


class EncoderSettings(EncoderFields):
    """Settings of a minLSTM encoder."""

    kind: Literal["minlstm"] = "minlstm"
    """minLSTM, without attention."""


class Settings(TranslatorFields, EncoderSettings):
    """Settings of a minLSTM encoder and decoder."""


class LanguageSettings(LanguageFields):
    """Settings of a minLSTM language model."""

    kind: Literal["minlstm"] = "minlstm"
    """minLSTM."""


build = partial(recurrent.build, "minlstm")
build_encoder = partial(recurrent.build_encoder, "minlstm")
build_language_model = partial(recurrent.build_language_model, "minlstm")
