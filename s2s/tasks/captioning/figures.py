"""Figures of captioned images, with attention for each word.

Attention is drawn as in figure 2 of "Show, attend and tell" (Xu et al. 2015): the image is dark, and the squares that a
word attends to are bright. The brightness of a square grows with its attention weight, from a quarter to the full image
plus some white at the maximum, and is interpolated between squares.
"""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, UInt8

from s2s.tasks.image_files import Pixels
from s2s.training.figures import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from s2s.tasks.captioning.generation import Look

Shown = UInt8[np.ndarray, "side side 3"]

SIDE = 192
"""Height and width of a displayed image, in pixels."""
_DARK, _LIGHT = 0.25, 70
_ACROSS = 8
# Size of a panel in inches, and the space for words below it, as a share of its side.
_INCHES, _WORDS = 1.25, 0.3


def enlarged(image: UInt8[np.ndarray, "channels height width"], side: int = SIDE) -> Shown:
    """Enlarge an image without smoothing, so that its pixels are visible.

    Args:
        image: Pixels (channels, height, width), uint8.
        side: Height and width of the result.

    Returns:
        Pixels (side, side, 3), uint8.
    """
    from PIL.Image import Resampling, fromarray

    colours = np.repeat(image, 3, axis=0) if len(image) == 1 else image
    shown = fromarray(np.ascontiguousarray(colours.transpose(1, 2, 0)))
    return np.asarray(shown.resize((side, side), Resampling.NEAREST))


def lit(image: Shown, shares: Float[np.ndarray, "rows columns"]) -> Shown:
    """Brighten an image where a word attends to it.

    Args:
        image: Pixels (side, side, 3), uint8.
        shares: Attention weight of each square.

    Returns:
        Pixels (side, side, 3), uint8.
    """
    from PIL.Image import Resampling, fromarray

    most = float(shares.max()) or 1.0
    light = fromarray((shares / most).astype(np.float32)).resize(image.shape[:2], Resampling.BILINEAR)
    bright = np.asarray(light)[:, :, None]
    return (image * (_DARK + (1 - _DARK) * bright) + _LIGHT * bright).round().clip(0, 255).astype(np.uint8)


def looks_picture(looks: Sequence["Look"], title: str) -> "Figure":
    """Draw images, each followed by an attention map for each word of its caption.

    Args:
        looks: Attention maps of each image.
    """
    panels: list[tuple[Shown, str]] = []
    for look in looks:
        image = enlarged(np.array(look.pixels, dtype=np.uint8))
        panels.append((image, look.name))
        panels += [(lit(image, np.array(shares)), word) for word, shares in zip(look.words, look.maps, strict=True)]
        # Each image starts a new row.
        panels += [(np.full_like(image, 255), "")] * (-len(panels) % _ACROSS)
    return _sheet(panels, _ACROSS, 12, title)


def captions_picture(pixels: Pixels, captions: Sequence[str], title: str) -> "Figure":
    """Draw images, each above its caption.

    Args:
        pixels: Images (images, channels, height, width), uint8.
    """
    return _sheet([(enlarged(i), c) for i, c in zip(pixels, captions, strict=True)], 6, 22, title)


def _sheet(panels: Sequence[tuple[Shown, str]], across: int, letters: int, title: str) -> "Figure":
    """Draw panels row by row, each above a few words, truncated if too long.

    The panels form a single image, because hundreds of axes would take seconds.
    """
    down, step = -(-len(panels) // across), round(SIDE * (1 + _WORDS))
    sheet = np.full((down * step, across * (SIDE + 8), 3), 255, dtype=np.uint8)
    figure = new_figure(across * _INCHES, down * _INCHES * (1 + _WORDS) + 0.3)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0.0, 0.0, 1.0, 1 - 0.3 / (down * _INCHES * (1 + _WORDS) + 0.3)))
    axes.set_axis_off()
    for place, (panel, words) in enumerate(panels):
        row, column = divmod(place, across)
        top, left = row * step, column * (SIDE + 8)
        sheet[top : top + SIDE, left + 4 : left + 4 + SIDE] = panel
        lines = textwrap.wrap(words, letters, max_lines=3, placeholder=" …")
        axes.text(
            left + 4 + SIDE / 2, top + SIDE + 4, "\n".join(lines), ha="center", va="top", fontsize=6.5, parse_math=False
        )
    axes.imshow(sheet, aspect="auto")
    figure.text(0.01, 1 - 0.15 / figure.get_figheight(), title, va="center", fontsize=8, parse_math=False)
    return figure
