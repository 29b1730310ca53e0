"""Figures as image files, with matplotlib (imported when a figure is drawn)."""

import io
import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Shaped
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure, FigureBase

_DOTS = 150
_SMALL = 8
ATTENTION_AXES = {
    "encoder": ("query tokens", "source tokens"),
    "decoder": ("target tokens", "earlier target tokens"),
    "cross": ("target tokens", "source tokens"),
}
"""Names of the rows and columns of an attention map, by its kind."""
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

    from s2s.training.fonts import use_installed_fonts, without_font_messages

    file = io.BytesIO()
    figure.set_dpi(_DOTS)
    with without_font_messages():
        use_installed_fonts(figure)
        FigureCanvasAgg(figure).print_png(file)
    return file.getvalue()


def render_figure(figure: "Figure", form: str) -> bytes:
    """Render a figure in a format of matplotlib, such as `svg`."""
    from s2s.training.fonts import use_installed_fonts, without_font_messages

    file = io.BytesIO()
    with without_font_messages():
        use_installed_fonts(figure)
        figure.canvas.print_figure(file, dpi=100, format=form)
    # matplotlib writes each text in a comment, too, and XML allows no control characters, not even there.
    return _NOT_IN_XML.sub(b"", file.getvalue()) if form == "svg" else file.getvalue()


def attention_picture(
    weights: Float[Tensor, "head target source"], source: list[str], target: list[str], title: str
) -> "Figure":
    """Draw the cross-attention of a layer, one panel per head; dark is high.

    Args:
        weights: Attention weights.
        source: Source tokens (columns).
        target: Target tokens (rows).
        title: Title of the figure.

    Returns:
        The figure.
    """
    figure = new_figure(heads_width(len(weights), len(source)), heads_height(len(target)))
    draw_heads(figure, weights.float().cpu().numpy(), target, source, (*ATTENTION_AXES["cross"], title))
    return figure


def heads_width(heads: int, columns: int) -> float:
    """Return the width of a figure of attention heads, in inches."""
    return heads * (1.5 + 0.22 * columns) + 0.8


def heads_height(rows: int) -> float:
    """Return the height of a figure of attention heads, in inches."""
    return 2.0 + 0.22 * rows


def draw_heads(
    figure: "FigureBase", shares: np.ndarray, rows: Sequence[str], columns: Sequence[str], said: tuple[str, str, str]
) -> None:
    """Draw attention heads side by side.

    Args:
        figure: Figure, or a part of one.
        shares: Weights (head, row, column), from 0 to 1.
        rows: Names of the rows.
        columns: Names of the columns.
        said: Labels of both axes, and the title.
    """
    down, across, title = said
    width = heads_width(len(shares), len(columns))
    # The title of a narrow figure is wrapped.
    figure.suptitle(textwrap.fill(title, max(24, int(11 * width))), fontsize=9, parse_math=False)
    panels = figure.subplots(1, len(shares), sharey=True, squeeze=False)[0]
    panels[0].set_yticks(range(len(rows)), rows, fontsize=_SMALL, parse_math=False)
    images = [p.imshow(s, cmap="Greys", vmin=0, vmax=1, aspect="auto") for p, s in zip(panels, shares, strict=True)]
    for head, panel in enumerate(panels):
        panel.set_xticks(range(len(columns)), columns, rotation=90, fontsize=_SMALL, parse_math=False)
        if len(panels) > 1:
            panel.set_title(f"head {head}", fontsize=_SMALL)
        panel.set_xlabel(across, fontsize=_SMALL)
    panels[0].set_ylabel(down, fontsize=_SMALL)
    bar = figure.colorbar(images[0], ax=panels, fraction=0.02)
    bar.set_label("attention weight", fontsize=_SMALL)
    bar.ax.tick_params(labelsize=_SMALL)


def show_image(panel: "Axes", image: Shaped[np.ndarray, "channels height width"]) -> None:
    """Draw a grayscale or RGB image with values from 0 to 255."""
    panel.imshow(image[0] if len(image) == 1 else image.transpose(1, 2, 0), cmap="gray", vmin=0, vmax=255)


def diverging() -> "Colormap":
    """Return the color map of saliency: blue for positive, orange for negative values."""
    from matplotlib.colors import LinearSegmentedColormap

    # A color-blind safe palette (Okabe & Ito 2008), as in all figures with positive and negative values.
    return LinearSegmentedColormap.from_list("weights", ["#d55e00", "white", "#0072b2"])
