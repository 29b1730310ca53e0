"""minLSTM (Feng et al. 2024) without attention: gates that see the input alone, so that training is a parallel scan."""

from typing import Literal

from baselines.building import builders
from baselines.settings import Recurrent


class Settings(Recurrent):
    """minLSTM's section of a recipe."""

    kind: Literal["minlstm"] = "minlstm"
    """minLSTM, without attention."""


build, build_encoder = builders("minlstm")
