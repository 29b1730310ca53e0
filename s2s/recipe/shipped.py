"""The recipes that come with s2s."""

from pathlib import Path

from s2s.errors import UserError, quoted
from s2s.files import write_atomically
from s2s.recipe.wording import suggestion


def shipped() -> dict[str, Path]:
    """The recipes that come with s2s, by name: from the installed package, or from the source tree's `recipes/`."""
    package = Path(__file__).parents[1]
    folder = package / "recipes"
    if not folder.is_dir():
        folder = package.parent / "recipes"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def copy(name: str, destination: Path, overwrite: bool = False) -> Path:
    """Copies a recipe that comes with s2s, comments included.

    Args:
        name: as `s2s recipe list` shows it.
        destination: a file, or a folder to put `<name>.yaml` in.
        overwrite: replace a file that is there.

    Raises:
        UserError: there is no such recipe, or the file is there already.
    """
    known = shipped()
    if name not in known:
        raise UserError(f"no recipe {name!r} comes with s2s", remedy=suggestion(name, list(known)))
    target = destination / f"{name}.yaml" if destination.is_dir() else destination
    write_new(target, known[name].read_text(encoding="utf-8"), overwrite)
    return target


def write_new(path: Path, text: str, overwrite: bool) -> None:
    """Writes a file that should not be there yet.

    Raises:
        UserError: see `check_new`.
    """
    check_new(path, overwrite)
    write_atomically(path, text)


def check_new(path: Path, overwrite: bool) -> None:
    """Refuses to write a file where it cannot be, before anything is made for it.

    Raises:
        UserError: it is there and shall not be overwritten, or its folder is missing.
    """
    if path.exists() and not overwrite:
        raise UserError("is there already", where=str(path), remedy="name another file, or use --overwrite")
    if not path.parent.is_dir():
        raise UserError("its folder does not exist", where=str(path), remedy=f"mkdir -p {quoted(path.parent)}")
