"""Captions of image files, and where the model looked for each word, as a picture or a page."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from s2s.decoding.translator import Writer
from s2s.errors import UserError
from s2s.files import write_atomically
from s2s.models.contract import Seq2Seq
from s2s.tasks.captioning.page import page
from s2s.tasks.captioning.pictures import looks_picture
from s2s.tasks.captioning.recipe import CaptionRecipe
from s2s.tasks.captioning.writing import Look, looks, write
from s2s.tasks.contract import Loaded
from s2s.tasks.pixels import read_all
from s2s.training import drawing

ENDINGS = (".png", ".html")
"""Of the files that attention is drawn into."""


@dataclass(frozen=True)
class CaptionedFiles:
    """What was written for image files, in their order, and where the model looked; no look where it cannot."""

    run: str
    captions: list[str]
    looks: list[Look]

    def save(self, path: Path) -> None:
        """Draws where the model looked for each word: a picture or a page that needs no network.

        Raises:
            UserError: the model has no attention, or the file's ending is another one.
        """
        check_ending(path)
        if not self.looks:
            raise UserError("the model has no attention to be drawn", where=self.run, remedy="name another run")
        title = f"{self.run}: where the model looks for each word"
        if path.suffix == ".html":
            write_atomically(path, page(self.looks, self.captions, title))
            return
        write_atomically(path, drawing.png(looks_picture(self.looks, title)))


def check_ending(path: Path) -> None:
    """Refuses a file that attention is not drawn into."""
    if path.suffix not in ENDINGS:
        raise UserError(
            f"{path.suffix or 'no ending'} is not known", where=f"--attention {path}", remedy=" or ".join(ENDINGS)
        )


def captioned(run: Loaded[CaptionRecipe, Seq2Seq], files: Sequence[Path], with_looks: bool) -> CaptionedFiles:
    """Writes a caption for each image file.

    Raises:
        UserError: one is missing, or no image.
    """
    recipe, (tokenizer,) = run.recipe, run.tokenizers
    pixels = read_all(files, recipe.data)
    written = write(recipe, Writer(run.model, tokenizer, recipe.decoding), pixels)
    names = [file.name for file in files]
    seen = looks(recipe, run.model, tokenizer, pixels, written, names) if with_looks else []
    return CaptionedFiles(f"{run.path}, checkpoint {run.checkpoint.name}", [each.text for each in written], seen)
