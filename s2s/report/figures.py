"""Figures as files: no pyplot, no global state, the same bytes each time."""

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import matplotlib.style
from matplotlib import figure as canvas
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG

from s2s.report.heatmaps import draw_heatmaps
from s2s.report.plots import Plot
from s2s.report.styles import GRID, INK, PAGE
from s2s.results import Figure

_RESOLUTION = 150
_WIDTH, _HEIGHT = 7.2, 3.3
# an entry of the legend takes so much of the height, in inches
_LEGEND_LINE = 0.19

_LOOK: dict[str, object] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.major.size": 3.0,
    "ytick.major.size": 3.0,
    "text.color": INK,
    "text.parse_math": False,
    "figure.facecolor": PAGE,
    # one unit of the drawing is one point of the SVG
    "figure.dpi": 72.0,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.handlelength": 3.0,
    "legend.handleheight": 1.0,
    "legend.labelspacing": 0.6,
    "lines.linewidth": 1.5,
    "lines.markersize": 5.0,
    "lines.markeredgewidth": 1.1,
    "hatch.linewidth": 0.9,
    "svg.fonttype": "none",
    "svg.hashsalt": "s2s",
}


@dataclass(frozen=True)
class Spot:
    """A place in a drawing that has something to tell.

    Attributes:
        x: from the left edge, in the SVG's units.
        y: from the top edge.
        text: what is measured there.
    """

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Panel:
    """Where a heat-map lies in a drawing, in the SVG's units.

    Attributes:
        left: its left edge.
        top: its upper edge, from the top.
        width: of it.
        height: of it.
    """

    left: float
    top: float
    width: float
    height: float


@dataclass
class Drawing:
    """A drawn figure.

    Attributes:
        figure: matplotlib's, with its layout made.
        spots: one for each point and bar that is shown.
        panels: one for each heat-map.
        hidden: how many values a logarithmic axis cannot show.
    """

    figure: canvas.Figure
    spots: list[Spot] = field(default_factory=list)
    panels: list[Panel] = field(default_factory=list)
    hidden: int = 0

    def png(self) -> bytes:
        """The picture at 150 dots per inch."""
        buffer = io.BytesIO()
        dots = self.figure.dpi
        with _look():
            self.figure.dpi = _RESOLUTION
            # the canvases themselves: `savefig` draws everything once more to lay it out
            FigureCanvasAgg(self.figure).print_png(buffer, metadata={"Software": None})
            self.figure.dpi = dots
        return buffer.getvalue()

    def svg(self) -> str:
        """The picture as text."""
        buffer = io.StringIO()
        with _look():
            FigureCanvasSVG(self.figure).print_svg(buffer, metadata={"Date": None, "Creator": None})
        return buffer.getvalue()


def drawn(figure: Figure, models: Sequence[str], linear: bool = False) -> Drawing:
    """Draws a figure.

    Args:
        figure: what it shows.
        models: of the comparison, in its order, which gives colours and markers.
        linear: whether logarithmic axes are drawn as linear ones.
    """
    with _look():
        page = canvas.Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
        FigureCanvasAgg(page)
        if figure.kind == "heatmaps":
            panels = draw_heatmaps(page, figure, linear)
            _lay_out(page)
            return Drawing(page, panels=[_panel(panel, page) for panel in panels])
        plot, axes = Plot(figure, models, linear), page.subplots()
        plot.draw(axes)
        entries = plot.legend()
        if entries:
            lines = sum(1 + str(entry.get_label()).count("\n") for entry in entries)
            page.set_size_inches(_WIDTH, max(_HEIGHT, lines * _LEGEND_LINE + 0.3))
            page.legend(handles=entries, loc="outside right upper")
        _lay_out(page)
        return Drawing(page, list(_spots(plot, axes, page)), hidden=plot.hidden())


@contextmanager
def _look() -> Iterator[None]:
    """Our settings and nobody else's, for as long as a figure is drawn."""
    with warnings.catch_warnings(), matplotlib.style.context(["default", _LOOK]):
        # a letter that the font lacks is a box in the PNG file, and whole in the SVG file
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def _lay_out(page: canvas.Figure) -> None:
    """Makes the layout once, so that all files and the spots agree."""
    page.draw_without_rendering()
    page.set_layout_engine("none")


def _spots(plot: Plot, axes: Axes, page: canvas.Figure) -> Iterator[Spot]:
    if not axes.axison:
        return
    for x, y, text in plot.spots():
        across, up = axes.transData.transform((x, y))
        yield Spot(round(float(across), 1), round(float(page.bbox.height - up), 1), text)


def _panel(axes: Axes, page: canvas.Figure) -> Panel:
    box = axes.get_window_extent()
    sides = (box.x0, page.bbox.height - box.y1, box.width, box.height)
    return Panel(*(round(float(side), 1) for side in sides))
