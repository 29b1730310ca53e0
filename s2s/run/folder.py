"""The folder of a run: where it is, how it comes to be, and that nothing in it is lost by accident."""

import fcntl
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from s2s.errors import UserError
from s2s.recipe.reading import read, write
from s2s.recipe.schema import AnyRecipe, TokenizerSettings

if TYPE_CHECKING:
    from s2s.data.tokenizers import Tokenizer

RECIPE = "recipe.yaml"
TOKENIZER = "tokenizer"
MANIFEST = "manifest.json"
_LOCK = ".lock"
_UNFINISHED = ".unfinished-"
# what may change when a run goes on: where its data lies (their hash is checked), and what computes
_MAY_CHANGE = ("data", "device")


def folder_of(recipe: AnyRecipe) -> Path:
    """`run.dir`, or `runs/<name>`."""
    return Path(recipe.run.dir) if recipe.run.dir else Path("runs") / recipe.name


def check_free(folder: Path, overwrite: bool) -> None:
    """Refuses a folder that a new run may not take.

    Raises:
        UserError: the folder holds a run already and shall not be overwritten, or it holds something else.
    """
    # what an interrupted start left is no more than nothing
    if not folder.exists() or (folder.is_dir() and all(p.name.startswith(_UNFINISHED) for p in folder.iterdir())):
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


def create(recipe: AnyRecipe, tokenizers: "Mapping[str, Tokenizer]", overwrite: bool) -> Path:
    """Makes the folder of a new run, with its recipe and tokenizers, whole or not at all.

    Args:
        recipe: the resolved recipe.
        tokenizers: by the names under which they are kept.
        overwrite: replace a run that is there.

    Raises:
        UserError: the folder is taken, see `check_free`.
    """
    folder = folder_of(recipe)
    check_free(folder, overwrite)
    # a link to a folder stays one, and `.` has a name
    place = folder.resolve()
    if (place / RECIPE).exists():
        with alone(place):
            shutil.rmtree(place)
    # an empty folder that is there may be somebody's mount point or working directory: it is filled, not replaced
    unfinished = (place if place.exists() else place.parent) / f"{_UNFINISHED}{place.name}"
    shutil.rmtree(unfinished, ignore_errors=True)
    (unfinished / TOKENIZER).mkdir(parents=True)
    write(recipe, unfinished / RECIPE)
    for name, tokenizer in tokenizers.items():
        tokenizer.save(unfinished / TOKENIZER, name)
    if place.exists():
        for name in (TOKENIZER, RECIPE):
            (unfinished / name).rename(place / name)
        unfinished.rmdir()
    else:
        unfinished.rename(place)
    return folder


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Within it, no other process trains this run.

    Raises:
        UserError: one does already.
    """
    with (folder / _LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(
                "is being trained by another process", where=str(folder), remedy="wait for it, or stop it"
            ) from None
        yield


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


def check_resumable(folder: Path, overrides: Sequence[str] = ()) -> None:
    """Refuses to continue what is no run, and to continue a run by another recipe than its own.

    Raises:
        UserError: the folder is no run, or an override or an edit would make it another one.
    """
    check_is_run(folder)
    if (folder / "model.safetensors").exists():
        raise UserError("is a checkpoint", where=str(folder), remedy=f"name its run: {folder.resolve().parent.parent}")
    check_sections(overrides, _MAY_CHANGE, "--resume continues the run by its own recipe")
    checkpoints = sorted(p for p in (folder / "checkpoints").glob("[0-9]*") if (p / RECIPE).exists())
    if not checkpoints:
        return
    now, then = (flat(read(path / RECIPE).model_dump(mode="json")) for path in (folder, checkpoints[-1]))
    changed = sorted(key for key in now.keys() | then.keys() if now.get(key) != then.get(key))
    if changed:
        raise UserError(
            f"{', '.join(changed)} changed since the last checkpoint",
            where=str(folder / RECIPE),
            remedy=f"copy {checkpoints[-1] / RECIPE} over it, or start a new run with run.dir=DIR",
        )


def check_sections(overrides: Sequence[str], allowed: Sequence[str], reason: str) -> None:
    """Refuses overrides that would be ignored, or would make the model another one.

    Args:
        overrides: `section.key=value`.
        allowed: sections that may be changed.
        reason: why the others may not.

    Raises:
        UserError: one is of another section.
    """
    for override in overrides:
        if override.partition("=")[0].partition(".")[0].strip() not in allowed:
            raise UserError(
                f"{reason}; {override!r} cannot change it",
                remedy=f"leave it out (only {', '.join(allowed)} may differ), or start a new run with run.dir=DIR",
            )


def flat(tree: dict, prefix: str = "") -> dict[str, object]:
    """The leaves of a tree of dictionaries, by their dotted names."""
    found: dict[str, object] = {}
    for key, value in tree.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found
