"""Figures as files: no pyplot, no global state, the same bytes each time.

On the page an SVG file takes the page's colours and letters, by day and by night.
"""

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib.style
from matplotlib import figure as canvas
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG

from s2s.comparison.report.heatmaps import draw_heatmaps
from s2s.comparison.report.plots import Plot
from s2s.comparison.report.styles import GREY, GRID, INK, PAGE, PALETTE
from s2s.comparison.results import Figure
from s2s.training.fonts import use_installed_fonts

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
    **{f"{side}tick.color": INK for side in "xy"},
    **{f"{side}tick.labelsize": 8.5 for side in "xy"},
    **{f"{side}tick.major.width": 0.7 for side in "xy"},
    **{f"{side}tick.major.size": 3.0 for side in "xy"},
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


# the page's style sheet defines these for light and dark
VARIABLES = {INK: "var(--ink)", GREY: "var(--grey)", GRID: "var(--grid)", PAGE: "var(--page)"} | {
    colour: f"var(--model-{i})" for i, colour in enumerate(PALETTE)
}

_COLOUR = re.compile("|".join(VARIABLES))
_STYLE = re.compile(r'(?<= style=")[^"]*(?=")')
_REFERENCE = re.compile(r'(?:url\(#|href="#)([^")]+)')
_NUMBER = re.compile(r"-?\d+\.\d{2,}")

# a place in a drawing, from its left and its top edge in the SVG's units, and what is measured there
Spot = tuple[float, float, str]
# where a heat-map lies: its left and its upper edge, width and height
Panel = tuple[float, float, float, float]


@dataclass(frozen=True)
class Drawing:
    """A drawn figure."""

    svg: str  # the file's text
    png: bytes  # the file at 150 dots per inch; empty where it is not wanted
    spots: Sequence[Spot] = ()  # one for each point and bar that is shown
    panels: Sequence[Panel] = ()  # one for each heat-map
    hidden: int = 0  # how many values a logarithmic axis cannot show


def drawn(figure: Figure, models: Sequence[str], linear: bool = False) -> Drawing:
    """Draws a figure; the order of the models gives colours and markers.

    With `linear`, logarithmic axes are drawn as linear ones, and there is no PNG file.
    """
    with _look():
        page = canvas.Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
        FigureCanvasAgg(page)
        if figure.kind == "heatmaps":
            panels = draw_heatmaps(page, figure, linear)
            _lay_out(page)
            boxes, height = [panel.get_window_extent() for panel in panels], page.bbox.height
            places = [(_seen(b.x0), _seen(height - b.y1), _seen(b.width), _seen(b.height)) for b in boxes]
            return Drawing(*_files(page, linear), panels=places)
        plot, axes = Plot(figure, models, linear), page.subplots()
        plot.draw(axes)
        # one series needs no name
        if plot.drawn and len(figure.series) > 1:
            lines = sum(1 + str(entry.get_label()).count("\n") for entry in plot.drawn)
            page.set_size_inches(_WIDTH, max(_HEIGHT, lines * _LEGEND_LINE + 0.3))
            page.legend(handles=plot.drawn, loc="outside right upper")
        _lay_out(page)
        spots: list[Spot] = []
        for x, y, text in plot.spots() if axes.axison else ():
            across, up = axes.transData.transform((x, y))
            spots.append((_seen(across), _seen(page.bbox.height - up), text))
        return Drawing(*_files(page, linear), spots=spots, hidden=plot.hidden())


def _seen(place: float) -> float:
    return round(float(place), 1)


def _files(page: canvas.Figure, linear: bool) -> tuple[str, bytes]:
    """SVG and PNG of a figure. `savefig` would lay it out a second time."""
    text, picture = io.StringIO(), io.BytesIO()
    FigureCanvasSVG(page).print_svg(text, metadata={"Date": None, "Creator": None})
    if not linear:
        dots, page.dpi = page.dpi, _RESOLUTION
        FigureCanvasAgg(page).print_png(picture, metadata={"Software": None})
        page.dpi = dots
    return text.getvalue(), picture.getvalue()


@contextmanager
def _look() -> Iterator[None]:
    """Our settings and nobody else's, for as long as a figure is drawn."""
    with warnings.catch_warnings(), matplotlib.style.context(["default", _LOOK]):
        # a letter that the font lacks is a box in the PNG file, and whole in the SVG file
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def _lay_out(page: canvas.Figure) -> None:
    """Makes the layout once, so that all files and the spots agree."""
    use_installed_fonts(page)
    page.draw_without_rendering()
    page.set_layout_engine("none")


def inlined(svg: str, key: str) -> str:
    """The inside of matplotlib's file as HTML takes it; the `svg` element around it is the caller's.

    The key is unique in the page: ids of different drawings must differ.
    """
    inside = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
    inside = re.sub(r"\s*<metadata>.*?</metadata>", "", inside, flags=re.DOTALL)
    # it would hold for the whole page, which says it itself
    inside = re.sub(r"\s*<defs>\s*<style[^>]*>[^<]*</style>\s*</defs>", "", inside)
    inside = re.sub(r"<!--.*?-->", "", inside, flags=re.DOTALL)
    # matplotlib's ids are long, and each point repeats one
    used = {name: f"{key}-{i}" for i, name in enumerate(dict.fromkeys(_REFERENCE.findall(inside)))}
    inside = re.sub(r' id="([^"]+)"', lambda found: f' id="{used[found[1]]}"' if found[1] in used else "", inside)
    inside = _REFERENCE.sub(lambda found: found[0].replace(found[1], used[found[1]]), inside)
    inside = _STYLE.sub(lambda found: _restyled(found[0]), inside)
    inside = re.sub(r' transform="rotate\(-0 [^"]*"', "", inside)
    # a twentieth of a point is nothing that can be seen
    inside = re.sub(r'(?<= d=")[^"]*', lambda path: _rounded(path[0]), inside)
    # in a path, letters make spaces superfluous
    inside = re.sub(r'(?<= d=")[^"]*', lambda path: re.sub(r"\s*([A-Za-z])\s*", r"\1", path[0]).strip(), inside)
    inside = re.sub(r'(?<= [xy]=")-?\d+\.\d+', lambda place: _rounded(place[0]), inside)
    return re.sub(r"\s*\n\s*", "\n", inside).strip()


def size(svg: str) -> tuple[float, float]:
    """Width and height of a drawing, in its own units."""
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    return (float(found[1]), float(found[2])) if found else (0.0, 0.0)


def _restyled(style: str) -> str:
    style = re.sub(r"\s*font-family: [^;]*;?", "", style)
    return _COLOUR.sub(lambda colour: VARIABLES[colour[0]], style).replace(": ", ":").replace("; ", ";")


def _rounded(text: str) -> str:
    return _NUMBER.sub(lambda number: f"{round(float(number[0]), 1):g}", text)
