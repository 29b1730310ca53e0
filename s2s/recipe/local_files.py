"""Whether the files that a recipe names are there: asked without reading them, and without what reads them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from s2s.recipe.wording import near_files


def missing_files(recipe: Any) -> list[str]:
    """What a recipe names and is not there, as lines of `key: path: what is wrong`.

    Args:
        recipe: as `read` gives it, so that paths are absolute.
    """
    return [f"{key}: {path}: {_what(path)}" for key, path in _named(recipe) if not path.exists()]


def _named(recipe: Any) -> Iterator[tuple[str, Path]]:
    if recipe.data.root is not None:
        yield "data.root", Path(recipe.data.root)
    if recipe.data.corpus == "files":
        for name in ("train", "validation", "test"):
            split = getattr(recipe.data, name)
            files = split if isinstance(split, tuple) else (split,) if isinstance(split, str) else ()
            yield from ((f"data.{name}", Path(file)) for file in files)
    if getattr(recipe, "init_from", None):
        yield "init_from", Path(recipe.init_from)


def _what(path: Path) -> str:
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    near = near_files(path.name, [other.name for other in path.parent.iterdir()])
    return "there is no such file" + (f"; did you mean {near[0]}?" if near else "; check the path")
