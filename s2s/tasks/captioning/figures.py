"""Figures and pages of images with captions, for trainings and for `s2s caption`."""

import base64
import io
import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, UInt8

from s2s.decoding.generate import Generator, LengthLimited, Translation, length_limited
from s2s.errors import Refuse, UserError
from s2s.files import write_atomically
from s2s.models.base import Seq2Seq
from s2s.tasks.base import LoadedModel
from s2s.tasks.captioning.data import positions_of
from s2s.tasks.captioning.generation import Look, attention, length_settings, looks, write
from s2s.tasks.captioning.recipe import CaptionRecipe
from s2s.tasks.image_files import Pixels, read_some
from s2s.training import figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Shown = UInt8[np.ndarray, "side side 3"]

ENDINGS = (".png", ".html")
"""Extensions of files for attention maps."""
# Height and width of an image in a figure and on a page, in pixels.
_SIDE, _PAGE_SIDE = 192, 256
_DARK, _LIGHT = 0.25, 70
_ACROSS = 8
# Size of a panel in inches, and the space for words below it, as a share of its side.
_INCHES, _WORDS = 1.25, 0.3


def _enlarged(image: UInt8[np.ndarray, "channels height width"], side: int = _SIDE) -> Shown:
    """Enlarge an image without smoothing, so that its pixels are visible."""
    from PIL.Image import Resampling, fromarray

    colours = np.repeat(image, 3, axis=0) if len(image) == 1 else image
    shown = fromarray(np.ascontiguousarray(colours.transpose(1, 2, 0)))
    return np.asarray(shown.resize((side, side), Resampling.NEAREST))


def _lit(image: Shown, shares: Float[np.ndarray, "rows columns"]) -> Shown:
    """Brighten an image where a word attends to it."""
    from PIL.Image import Resampling, fromarray

    most = float(shares.max()) or 1.0
    light = fromarray((shares / most).astype(np.float32)).resize(image.shape[:2], Resampling.BILINEAR)
    bright = np.asarray(light)[:, :, None]
    return (image * (_DARK + (1 - _DARK) * bright) + _LIGHT * bright).round().clip(0, 255).astype(np.uint8)


def looks_picture(looks: Sequence[Look], title: str) -> "Figure":
    """Draw images, each followed by an attention map for each word of its caption."""
    panels: list[tuple[Shown, str]] = []
    for look in looks:
        image = _enlarged(np.array(look.pixels, dtype=np.uint8))
        panels.append((image, look.name))
        panels += [(_lit(image, np.array(shares)), word) for word, shares in zip(look.words, look.maps, strict=True)]
        # Each image starts a new row.
        panels += [(np.full_like(image, 255), "")] * (-len(panels) % _ACROSS)
    return _sheet(panels, _ACROSS, 12, title)


def captions_picture(pixels: Pixels, captions: Sequence[str], title: str) -> "Figure":
    """Draw images, each above its caption."""
    return _sheet([(_enlarged(i), c) for i, c in zip(pixels, captions, strict=True)], 6, 22, title)


def _sheet(panels: Sequence[tuple[Shown, str]], across: int, letters: int, title: str) -> "Figure":
    """Draw panels row by row, each above a few words, truncated if too long.

    The panels form a single image, because hundreds of axes would take seconds.
    """
    down, step = -(-len(panels) // across), round(_SIDE * (1 + _WORDS))
    sheet = np.full((down * step, across * (_SIDE + 8), 3), 255, dtype=np.uint8)
    figure = figures.new_figure(across * _INCHES, down * _INCHES * (1 + _WORDS) + 0.3)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0.0, 0.0, 1.0, 1 - 0.3 / (down * _INCHES * (1 + _WORDS) + 0.3)))
    axes.set_axis_off()
    for place, (panel, words) in enumerate(panels):
        row, column = divmod(place, across)
        top, left = row * step, column * (_SIDE + 8)
        sheet[top : top + _SIDE, left + 4 : left + 4 + _SIDE] = panel
        lines = "\n".join(textwrap.wrap(words, letters, max_lines=3, placeholder=" …"))
        axes.text(left + 4 + _SIDE / 2, top + _SIDE + 4, lines, ha="center", va="top", fontsize=6.5, parse_math=False)
    axes.imshow(sheet, aspect="auto")
    figure.text(0.01, 1 - 0.15 / figure.get_figheight(), title, va="center", fontsize=8, parse_math=False)
    return figure


@dataclass(frozen=True)
class CaptionedFiles:
    """Captions of image files, in order.

    Attributes:
        captions: Caption of each file; empty for a refused file.
        looks: Attention maps of the files that were not refused; empty if the model has no attention.
        refused: Rows of the refused files.
        length_limited: Number of captions that the length limit ended; None if there are none.
    """

    run: str
    captions: list[str]
    looks: list[Look]
    refused: Collection[int] = ()
    length_limited: LengthLimited | None = None

    def save(self, path: Path) -> None:
        """Draw the attention maps as a PNG file or as a self-contained HTML page, by the file's extension."""
        check_ending(path)
        title = f"{self.run}: attention of each word to the image"
        if path.suffix == ".html":
            captions = [caption for row, caption in enumerate(self.captions) if row not in self.refused]
            write_atomically(path, _page(self.looks, captions, title), follow=True)
        else:
            write_atomically(path, figures.render_png(looks_picture(self.looks, title)), follow=True)


def check_ending(path: Path) -> None:
    """Refuse a file for attention maps with an unknown extension."""
    if path.suffix not in ENDINGS:
        what = f"{path.suffix or 'no ending'} is not known"
        raise UserError(what, where=f"--attention {path}", remedy=f"name a file with {' or '.join(ENDINGS)}")


def caption_files(
    run: LoadedModel[CaptionRecipe, Seq2Seq], files: Sequence[Path], with_looks: bool, refuse: Refuse
) -> CaptionedFiles:
    """Caption image files.

    Args:
        with_looks: Compute attention maps.
        refuse: Receives the row and the error of each file that is missing or not an image.

    Raises:
        UserError: Attention maps are wanted, and the model has no attention.
    """
    recipe, (tokenizer,) = run.recipe, run.tokenizers
    read, refused = read_some(files, recipe.data)
    for row, error in refused.items():
        refuse(row, error)
    written: list[Translation] = []
    seen: list[Look] = []
    if read:
        pixels = np.stack(list(read.values()))
        if with_looks and attention(run.model, pixels[:1], [[]], positions_of(recipe)) is None:
            raise UserError("the model has no attention to draw", where=str(run.path), remedy="leave out --attention")
        written = write(recipe, Generator(run.model, tokenizer, recipe.decoding), pixels)
        names = [files[row].name for row in read]
        seen = looks(recipe, run.model, tokenizer, pixels, written, names) if with_looks else []
    texts = dict(zip(read, (each.text for each in written), strict=True))
    captions = [texts.get(row, "") for row in range(len(files))]
    limited = length_limited(written, length_settings(run.model))
    return CaptionedFiles(f"{run.path}, checkpoint {run.checkpoint.name}", captions, seen, refused, limited)


def _page(looks: Sequence[Look], captions: Sequence[str], title: str) -> str:
    """Render an HTML page: hovering over a word shows its attention; below is a panel for each word."""
    from s2s.templates import templates

    images = []
    for look, caption in zip(looks, captions, strict=True):
        image = _enlarged(np.array(look.pixels, dtype=np.uint8), _PAGE_SIDE)
        words = [
            {"text": word, "lit": _data_url(_lit(image, np.array(shares))), "most": f"{np.max(shares):.0%}"}
            for word, shares in zip(look.words, look.maps, strict=True)
        ]
        images.append({"name": look.name, "caption": caption, "whole": _data_url(image), "words": words})
    # Captions are text, never markup: the template escapes everything.
    return (
        templates(Path(__file__).parent)
        .get_template("page.html")
        .render(title=title, images=images, side=2 * _PAGE_SIDE)
    )


def _data_url(image: Shown) -> str:
    from PIL.Image import fromarray

    file = io.BytesIO()
    fromarray(image).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
