"""The folder of a run: where it is, how it comes to be, and that nothing in it is lost by accident."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from s2s.errors import UserError
from s2s.recipe.reading import write
from s2s.recipe.schema import Recipe, TokenizerSettings

if TYPE_CHECKING:
    from s2s.data.tokenizers import Tokenizer

RECIPE = "recipe.yaml"
TOKENIZER = "tokenizer"
MANIFEST = "manifest.json"


def folder_of(recipe: Recipe) -> Path:
    """`run.dir`, or `runs/<name>`."""
    return Path(recipe.run.dir) if recipe.run.dir else Path("runs") / recipe.name


def check_free(folder: Path, overwrite: bool) -> None:
    """Refuses a folder that a new run may not take.

    Raises:
        UserError: the folder holds a run already and shall not be overwritten, or it holds something else.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / RECIPE).exists():
        raise UserError("exists and is not a run", where=str(folder), remedy="name another folder with run.dir=DIR")
    if not overwrite:
        raise UserError(
            "holds a run already",
            where=str(folder),
            remedy=f"continue it with `s2s train {folder} --resume`, replace it with --overwrite, "
            "or name another folder with run.dir=DIR",
        )


def create(recipe: Recipe, tokenizers: "tuple[Tokenizer, Tokenizer]", overwrite: bool) -> Path:
    """Makes the folder of a new run, with its recipe and tokenizers, whole or not at all.

    Raises:
        UserError: the folder is taken, see `check_free`.
    """
    folder = folder_of(recipe)
    check_free(folder, overwrite)
    unfinished = folder.with_name(f".unfinished-{folder.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    (unfinished / TOKENIZER).mkdir(parents=True)
    write(recipe, unfinished / RECIPE)
    for tokenizer, side in zip(tokenizers, sides(recipe.tokenizer), strict=False):
        tokenizer.save(unfinished / TOKENIZER, side)
    if folder.exists():
        shutil.rmtree(folder)
    unfinished.rename(folder)
    return folder


def sides(settings: TokenizerSettings) -> tuple[str, ...]:
    """The names under which tokenizers are kept."""
    return ("shared",) if settings.shared else ("source", "target")


def check_is_run(folder: Path) -> None:
    """Refuses what is not a run's folder.

    Raises:
        UserError: there is no recipe in it.
    """
    if not (folder / RECIPE).is_file():
        found = f"no {RECIPE} in it" if folder.is_dir() else "there is no such folder"
        raise UserError(f"not a run: {found}", where=str(folder), remedy="name a folder such as runs/translate")
