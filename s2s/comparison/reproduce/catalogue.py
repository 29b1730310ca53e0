"""The reproductions, by the name that the command knows."""

from s2s.comparison.reproduce.agreement import Agreement
from s2s.comparison.reproduce.contract import Reproduction
from s2s.comparison.reproduce.counting import Counting
from s2s.comparison.reproduce.depth import Depth
from s2s.comparison.reproduce.gradients import ForgetBias, Radius
from s2s.comparison.reproduce.law import Law
from s2s.comparison.reproduce.memory import Adding, CopyMemory
from s2s.comparison.reproduce.recall import Mqar
from s2s.comparison.reproduce.sentences import Length, ReverseSource
from s2s.comparison.reproduce.tiny import Tiny
from s2s.comparison.reproduce.warm_up import WarmUp

_ALL = (
    Depth(),
    Radius(),
    ForgetBias(),
    Counting(),
    Adding(),
    CopyMemory(),
    WarmUp(),
    Mqar(),
    Agreement(),
    ReverseSource(),
    Length(),
    Tiny(),
    Law(),
)

REPRODUCTIONS: dict[str, Reproduction] = {each.name: each for each in _ALL}
"""In the order in which they are listed."""
