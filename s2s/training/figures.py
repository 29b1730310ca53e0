"""Figures as files: matplotlib is imported where something is drawn, and everything is drawn once."""

import io
import re
from typing import TYPE_CHECKING

from s2s.training.fonts import use_installed_fonts, without_font_messages

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DOTS = 150
_NOT_IN_XML = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]|\xef\xbf[\xbe\xbf]")


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure, in inches."""
    # matplotlib takes half a second to import, and only runs that draw need it
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def render_png(figure: "Figure") -> bytes:
    """A figure as PNG, by the canvas itself: `savefig` would draw everything once more to lay it out."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    file = io.BytesIO()
    figure.set_dpi(_DOTS)
    with without_font_messages():
        use_installed_fonts(figure)
        FigureCanvasAgg(figure).print_png(file)
    return file.getvalue()


def render_figure(figure: "Figure", form: str) -> bytes:
    """A figure in a form that matplotlib knows, such as `svg`."""
    file = io.BytesIO()
    with without_font_messages():
        use_installed_fonts(figure)
        figure.canvas.print_figure(file, dpi=100, format=form)
    # matplotlib keeps what a text said in a comment, and XML knows no control characters anywhere
    return _NOT_IN_XML.sub(b"", file.getvalue()) if form == "svg" else file.getvalue()
