"""Captioning of image files, with attention maps as a PNG file or an HTML page."""

import base64
import io
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jinja2 import Environment, FileSystemLoader

from s2s.decoding.generate import Generator, LengthLimited, Translation, length_limited
from s2s.errors import Refuse, UserError
from s2s.files import write_atomically
from s2s.models.base import Seq2Seq
from s2s.tasks.base import LoadedModel
from s2s.tasks.captioning.figures import Shown, enlarged, lit, looks_picture
from s2s.tasks.captioning.generation import Look, length_settings, looks, write
from s2s.tasks.captioning.recipe import CaptionRecipe
from s2s.tasks.image_files import read_some
from s2s.training import figures

ENDINGS = (".png", ".html")
"""Extensions of files for attention maps."""
_SIDE = 256


@dataclass(frozen=True)
class CaptionedFiles:
    """Captions of image files, in order.

    Attributes:
        run: Run and checkpoint.
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
        """Draw the attention maps as a PNG file or as a self-contained HTML page.

        Args:
            path: File with extension `.png` or `.html`.

        Raises:
            UserError: The model has no attention, or the file has another extension.
        """
        check_ending(path)
        if not self.looks:
            raise UserError("the model has no attention to be drawn", where=self.run, remedy="name another run")
        title = f"{self.run}: where the model looks for each word"
        if path.suffix == ".html":
            captions = [caption for row, caption in enumerate(self.captions) if row not in self.refused]
            write_atomically(path, page(self.looks, captions, title), follow=True)
            return
        write_atomically(path, figures.render_png(looks_picture(self.looks, title)), follow=True)


def check_ending(path: Path) -> None:
    """Refuse a file for attention maps with an unknown extension.

    Args:
        path: File with extension `.png` or `.html`.

    Raises:
        UserError: The file has another extension.
    """
    if path.suffix not in ENDINGS:
        raise UserError(
            f"{path.suffix or 'no ending'} is not known", where=f"--attention {path}", remedy=" or ".join(ENDINGS)
        )


def caption_files(
    run: LoadedModel[CaptionRecipe, Seq2Seq], files: Sequence[Path], with_looks: bool, refuse: Refuse
) -> CaptionedFiles:
    """Caption image files.

    Args:
        with_looks: Compute attention maps.
        refuse: Receives the row and the error of each file that is missing or not an image.
    """
    recipe, (tokenizer,) = run.recipe, run.tokenizers
    read, refused = read_some(files, recipe.data)
    for row, error in refused.items():
        refuse(row, error)
    written: list[Translation] = []
    seen: list[Look] = []
    if read:
        pixels = np.stack(list(read.values()))
        written = write(recipe, Generator(run.model, tokenizer, recipe.decoding), pixels)
        names = [files[row].name for row in read]
        seen = looks(recipe, run.model, tokenizer, pixels, written, names) if with_looks else []
    texts = dict(zip(read, (each.text for each in written), strict=True))
    captions = [texts.get(row, "") for row in range(len(files))]
    limited = length_limited(written, length_settings(run.model))
    return CaptionedFiles(f"{run.path}, checkpoint {run.checkpoint.name}", captions, seen, refused, limited)


def page(looks: Sequence[Look], captions: Sequence[str], title: str) -> str:
    """Render an HTML page with images, captions and attention maps.

    Hovering over a word shows its attention; below is a panel for each word.

    Args:
        looks: Attention maps of each image.

    Returns:
        The page as HTML.
    """
    images = []
    for look, caption in zip(looks, captions, strict=True):
        image = enlarged(np.array(look.pixels, dtype=np.uint8), _SIDE)
        words = [
            {"text": word, "lit": _inline(lit(image, np.array(shares))), "most": f"{np.max(shares):.0%}"}
            for word, shares in zip(look.words, look.maps, strict=True)
        ]
        images.append({"name": look.name, "caption": caption, "whole": _inline(image), "words": words})
    # Captions are text, never markup, so that everything is escaped.
    loader = FileSystemLoader(Path(__file__).parent, encoding="utf-8")
    surroundings = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return surroundings.get_template("page.html").render(title=title, images=images, side=2 * _SIDE)


def _inline(image: Shown) -> str:
    """Return an image as a data URL."""
    from PIL.Image import fromarray

    file = io.BytesIO()
    fromarray(image).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
