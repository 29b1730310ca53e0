"""Recipes that come with s2s: measured scores, missing data, and copies for the user."""

import json
from pathlib import Path

from pydantic import BaseModel

from s2s.errors import UserError, quote_path
from s2s.files import write_atomically
from s2s.recipe.reading import data_sections, local_paths, shipped
from s2s.recipe.schema import MADE, TrainRecipe
from s2s.recipe.wording import near_files, suggestion


class Measured(BaseModel):
    """Test score and training time of a recipe, measured once and kept in `measured.json` beside the recipes.

    Attributes:
        score: Name and value of the score.
        minutes: Training time in minutes, on two CPU cores unless a GPU is named.
    """

    score: str = "–"
    minutes: str = "–"


def measured(name: str) -> Measured:
    """Return the measured score of a recipe that comes with s2s; dashes if it was not measured."""
    found = json.loads((shipped()[name].parent / "measured.json").read_text(encoding="utf-8"))
    return Measured.model_validate(found.get(name, {}))


def corpora_of(recipe: TrainRecipe) -> list[str]:
    """Return the hub data sets and files that a recipe reads; empty if its data comes with s2s."""
    names = dict.fromkeys(str(dict(section)["corpus"]) for _, section in data_sections(recipe.data))
    return [name for name in names if name not in MADE]


def missing_files(recipe: TrainRecipe) -> list[str]:
    """List local paths of a recipe that do not exist, without reading any file.

    Args:
        recipe: A recipe with absolute paths.

    Returns:
        Lines of the form `key: path: what is wrong`.
    """
    return [f"{key}: {file}: {_missing(file)}" for key, file in local_paths(recipe) if not file.exists()]


def _missing(path: Path) -> str:
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    near = near_files(path.name, [other.name for other in path.parent.iterdir()])
    return "there is no such file" + (f"; did you mean {near[0]}?" if near else "; check the path")


def copy_shipped(name: str, destination: Path, overwrite: bool = False) -> Path:
    """Copy a recipe that comes with s2s, including its comments.

    Args:
        destination: A file, or a folder that gets `<name>.yaml`.
        overwrite: Replace an existing file.

    Raises:
        UserError: The recipe does not exist, or the file exists already.
    """
    known = shipped()
    if name not in known:
        raise UserError(f"no recipe {name!r} comes with s2s", remedy=suggestion(name, list(known)))
    target = destination / f"{name}.yaml" if destination.is_dir() else destination
    write_new(target, known[name].read_text(encoding="utf-8"), overwrite)
    return target


def write_new(path: Path, text: str, overwrite: bool) -> None:
    """Write a text file.

    Args:
        overwrite: Replace an existing file.

    Raises:
        UserError: The file exists already, or its folder does not.
    """
    check_new(path, overwrite)
    write_atomically(path, text, follow=True)


def check_new(path: Path, overwrite: bool) -> None:
    """Refuse an output file that exists or has no parent folder, before other work.

    Args:
        overwrite: Allow replacing an existing file.

    Raises:
        UserError: The file exists already, or its folder does not.
    """
    if path.exists() and not overwrite:
        raise UserError("already exists", where=str(path), remedy="name another file, or use --overwrite")
    if not path.parent.is_dir():
        raise UserError("its folder does not exist", where=str(path), remedy=f"mkdir -p {quote_path(path.parent)}")
