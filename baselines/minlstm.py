"""minLSTM (Feng et al. 2024) without attention: gates that see the input alone, so that training is a parallel scan."""

from functools import partial
from typing import Literal

from baselines import recurrent
from baselines.recurrent import EncoderFields, LanguageFields, TranslatorFields


class EncoderSettings(EncoderFields):
    """What a recipe says of its encoder alone."""

    kind: Literal["minlstm"] = "minlstm"
    """minLSTM, without attention."""


class Settings(TranslatorFields, EncoderSettings):
    """minLSTM's section of a recipe."""


class LanguageSettings(LanguageFields):
    """The section of minLSTM in a language model's recipe."""

    kind: Literal["minlstm"] = "minlstm"
    """minLSTM."""


build = partial(recurrent.build, "minlstm")
build_encoder = partial(recurrent.build_encoder, "minlstm")
build_language_model = partial(recurrent.build_language_model, "minlstm")
