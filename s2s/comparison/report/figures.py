"""Figures as SVG and PNG files, without pyplot and global state; the same data give the same bytes.

On the page, a drawing takes the page's colours and fonts, in light and in dark mode.
"""

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import matplotlib.style
from markupsafe import Markup
from matplotlib import figure as canvas
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG

from s2s.comparison.report.plots import GREY, GRID, INK, PAGE, PALETTE, Plot, draw_heatmaps
from s2s.comparison.results import Figure
from s2s.training.fonts import use_installed_fonts

_RESOLUTION = 150
_WIDTH, _HEIGHT = 7.2, 3.3
# height of a line of the legend, in inches
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
    # one unit of the drawing is one unit of the SVG
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


# variables of report.css, with values for light and dark mode
VARIABLES = {INK: "var(--ink)", GREY: "var(--grey)", GRID: "var(--grid)", PAGE: "var(--page)"} | {
    colour: f"var(--model-{i})" for i, colour in enumerate(PALETTE)
}

_COLOUR = re.compile("|".join(VARIABLES))
_STYLE = re.compile(r'(?<= style=")[^"]*(?=")')
_REFERENCE = re.compile(r'(?:url\(#|href="#)([^")]+)')
_NUMBER = re.compile(r"-?\d+\.\d{2,}")

Spot = tuple[float, float, str]
"""Distance from the left and the top edge in units of the SVG, and a text."""
Panel = tuple[float, float, float, float]
"""Left and top edge, width and height of a heat-map."""


@dataclass(frozen=True)
class Drawing:
    """A drawn figure."""

    svg: str
    png: bytes  # empty for linear drawings
    pdf: bytes  # likewise
    spots: Sequence[Spot] = ()  # one for each visible point and bar
    panels: Sequence[Panel] = ()  # one for each heat-map
    hidden: int = 0  # number of values that a logarithmic axis cannot show

    def inline(self, key: str) -> dict[str, object]:
        """Return what a page needs: width, height, and the inside of the `svg` element, whose ids start with `key`."""
        size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', self.svg)
        width, height = (float(size[1]), float(size[2])) if size else (0.0, 0.0)
        return {"width": width, "height": height, "inside": Markup(_inlined(self.svg, key))}


def drawn(figure: Figure, models: Sequence[str], linear: bool = False) -> Drawing:
    """Draw a figure.

    Args:
        figure: Its data.
        models: Candidates, whose order gives colours and markers.
        linear: True to draw logarithmic axes as linear ones, without PNG and PDF files.
    """
    with _look():
        page = canvas.Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
        FigureCanvasAgg(page)
        if figure.kind == "heatmaps":
            panels = draw_heatmaps(page, figure, linear)
            _lay_out(page)
            boxes, height = [panel.get_window_extent() for panel in panels], page.bbox.height
            places = [(_tenths(b.x0), _tenths(height - b.y1), _tenths(b.width), _tenths(b.height)) for b in boxes]
            return Drawing(*_files(page, linear), panels=places)
        plot, axes = Plot(figure, models, linear), page.subplots()
        plot.draw(axes)
        # a single series needs no legend
        if plot.drawn and len(figure.series) > 1:
            lines = sum(1 + str(entry.get_label()).count("\n") for entry in plot.drawn)
            page.set_size_inches(_WIDTH, max(_HEIGHT, lines * _LEGEND_LINE + 0.3))
            page.legend(handles=plot.drawn, loc="outside right upper")
        _lay_out(page)
        spots: list[Spot] = []
        for x, y, text in plot.spots() if axes.axison else ():
            across, up = axes.transData.transform((x, y))
            spots.append((_tenths(across), _tenths(page.bbox.height - up), text))
        return Drawing(*_files(page, linear), spots=spots, hidden=plot.hidden())


def _tenths(place: float) -> float:
    return round(float(place), 1)


def _files(page: canvas.Figure, linear: bool) -> tuple[str, bytes, bytes]:
    """Return the text of the SVG file and the bytes of the PNG and PDF files; `savefig` would repeat the layout."""
    text, picture, document = io.StringIO(), io.BytesIO(), io.BytesIO()
    FigureCanvasSVG(page).print_svg(text, metadata={"Date": None, "Creator": None})
    if not linear:
        dots, page.dpi = page.dpi, _RESOLUTION
        FigureCanvasAgg(page).print_png(picture, metadata={"Software": None})
        page.dpi = dots
        FigureCanvasPdf(page).print_pdf(document, metadata={"CreationDate": None, "Creator": None, "Producer": None})
    return text.getvalue(), picture.getvalue(), document.getvalue()


@contextmanager
def _look() -> Iterator[None]:
    """Context manager with our settings of matplotlib, independent of the user's."""
    with warnings.catch_warnings(), matplotlib.style.context(["default", _LOOK]):
        # a glyph that the font lacks is a box in the PNG file alone
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def _lay_out(page: canvas.Figure) -> None:
    """Compute the layout once, so that all files and the spots agree."""
    use_installed_fonts(page)
    # once is enough: later drawings keep this layout
    engine = page.get_layout_engine()
    if page.axes and engine:
        engine.execute(page)
    page.set_layout_engine("none")


def _inlined(svg: str, key: str) -> str:
    """Return the inside of the `svg` element of a file, minified for HTML.

    Args:
        svg: Text of a file of matplotlib.
        key: Prefix of all ids, unique in the page.
    """
    inside = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
    inside = re.sub(r"\s*<metadata>.*?</metadata>", "", inside, flags=re.DOTALL)
    # this style would apply to the whole page
    inside = re.sub(r"\s*<defs>\s*<style[^>]*>[^<]*</style>\s*</defs>", "", inside)
    inside = re.sub(r"<!--.*?-->", "", inside, flags=re.DOTALL)
    # short ids, because each point repeats one
    used = {name: f"{key}-{i}" for i, name in enumerate(dict.fromkeys(_REFERENCE.findall(inside)))}
    inside = re.sub(r' id="([^"]+)"', lambda found: f' id="{used[found[1]]}"' if found[1] in used else "", inside)
    inside = _REFERENCE.sub(lambda found: found[0].replace(found[1], used[found[1]]), inside)
    inside = _STYLE.sub(lambda found: _restyled(found[0]), inside)
    inside = re.sub(r' transform="rotate\(-0 [^"]*"', "", inside)
    # round to tenths of a point
    inside = re.sub(r'(?<= d=")[^"]*', lambda path: _rounded(path[0]), inside)
    # no spaces around the letters of a path
    inside = re.sub(r'(?<= d=")[^"]*', lambda path: re.sub(r"\s*([A-Za-z])\s*", r"\1", path[0]).strip(), inside)
    inside = re.sub(r'(?<= [xy]=")-?\d+\.\d+', lambda place: _rounded(place[0]), inside)
    return re.sub(r"\s*\n\s*", "\n", inside).strip()


def _restyled(style: str) -> str:
    style = re.sub(r"\s*font-family: [^;]*;?", "", style)
    return _COLOUR.sub(lambda colour: VARIABLES[colour[0]], style).replace(": ", ":").replace("; ", ";")


def _rounded(text: str) -> str:
    return _NUMBER.sub(lambda number: f"{round(float(number[0]), 1):g}", text)
