"""Figures as image files, with matplotlib (imported when a figure is drawn)."""

import io
import re
from typing import TYPE_CHECKING

from s2s.training.fonts import use_installed_fonts, without_font_messages

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DOTS = 150
_NOT_IN_XML = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]|\xef\xbf[\xbe\xbf]")


def new_figure(width: float, height: float) -> "Figure":
    """Create an empty figure.

    Args:
        width: Width in inches.
        height: Height in inches.
    """
    # matplotlib takes half a second to import, and only runs that draw figures need it.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def render_png(figure: "Figure") -> bytes:
    """Render a figure as PNG.

    The canvas is used directly, because `savefig` would draw everything a second time for the layout.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    file = io.BytesIO()
    figure.set_dpi(_DOTS)
    with without_font_messages():
        use_installed_fonts(figure)
        FigureCanvasAgg(figure).print_png(file)
    return file.getvalue()


def render_figure(figure: "Figure", form: str) -> bytes:
    """Render a figure in a format of matplotlib, such as `svg`."""
    file = io.BytesIO()
    with without_font_messages():
        use_installed_fonts(figure)
        figure.canvas.print_figure(file, dpi=100, format=form)
    # matplotlib writes each text in a comment, too, and XML allows no control characters, not even there.
    return _NOT_IN_XML.sub(b"", file.getvalue()) if form == "svg" else file.getvalue()
