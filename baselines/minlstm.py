"""minLSTM (Feng et al. 2024) without attention: gates that see the input alone, so that training is a parallel scan."""

from typing import Literal

from baselines.building import builders
from baselines.settings import Reading, Recurrent


class EncoderSettings(Reading):
    """What a recipe says of its encoder alone."""

    kind: Literal["minlstm"] = "minlstm"
    """minLSTM, without attention."""


class Settings(Recurrent, EncoderSettings):
    """minLSTM's section of a recipe."""


build, build_encoder = builders("minlstm")
