"""The pictures of language models."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from s2s.training.drawing import blank

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# as in the pictures of other tasks (Okabe & Ito 2008)
_BLUE, _ORANGE, _GREY = "#0072b2", "#d55e00", "#737373"


def by_place_picture(spans: Sequence[tuple[int, int, float]]) -> "Figure":
    """The loss by the place in a document: first place, last one, nats per piece."""
    figure = blank(5.2, 3.2)
    panel = figure.subplots()
    for first, last, loss in spans:
        # places are counted from 1 here, for an axis of doublings
        panel.plot((first + 1, last + 2), (loss, loss), color=_BLUE, linewidth=2, solid_capstyle="butt")
    panel.set_xscale("log", base=2)
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
    panel.set(xlabel="place in the document, from 1 on", ylabel="nats per piece", ylim=(0, None))
    panel.spines[["top", "right"]].set_visible(False)
    return figure


def recall_picture(first: Sequence[float], second: Sequence[float], guessing: float) -> "Figure":
    """The loss of random pieces, place by place, when they come for the first time and when they are repeated."""
    figure = blank(5.6, 3.4)
    panel = figure.subplots()
    places = range(1, len(first) + 1)
    panel.axhline(guessing, color=_GREY, linestyle=":", linewidth=1, label="guessing")
    panel.plot(places, first, color=_ORANGE, marker="o", markersize=3, linewidth=1.2, label="the first time")
    panel.plot(places, second, color=_BLUE, marker="o", markersize=3, linewidth=1.2, label="repeated")
    panel.set(xlabel="place in the sequence", ylabel="nats per piece", ylim=(0, None))
    panel.legend(frameon=False, fontsize=8)
    panel.spines[["top", "right"]].set_visible(False)
    return figure
