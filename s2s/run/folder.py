"""Folder of a run: location, creation, locking and protection of its files."""

import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from s2s.errors import UserError, quote_path
from s2s.files import (
    UNFINISHED,
    file_lock,
    foreign_files,
    identify_folder,
    is_number,
    remove_unfinished,
    write_folder_atomically,
)
from s2s.recipe.reading import learned_from, write
from s2s.recipe.schema import TrainRecipe
from s2s.run.exported import EXPORTED
from s2s.run.hub import is_on_hub, resolve_run_path
from s2s.run.tasks import read, schema_of

if TYPE_CHECKING:
    from s2s.data.tokenizers import Tokenizer

RECIPE = "recipe.yaml"
TOKENIZER = "tokenizer"
MANIFEST = "manifest.json"
LOCK = ".lock"
# File names of training, TensorBoard, evaluations and probes; and the cost of runs of a comparison.
_OURS = (
    *(RECIPE, TOKENIZER, MANIFEST, LOCK, f"{UNFINISHED}*", "checkpoints", "metrics.jsonl", "events.out.tfevents.*"),
    *("init_from.json", "figures", "lengths.png", "evaluation-*.json", "scores.json"),
    *("probe-bias.*", "probe-induction.*", "cost.json"),
)
_LENGTH = "training.updates"
# Sections that may change on resume: paths of the data (their hash is verified), the device, and the number of
# steps.
_MAY_CHANGE = ("data", "device", _LENGTH)
# Data settings that a model depends on but that hashes of texts or pixels do not cover.
_LEARNED = {"size", "channels", "mean", "deviation", "mixing", "weight"}
# Further settings that must stay on resume: the objective, and the metric that compares checkpoints.
_ASKED = {"prefix", "objective", "share", "span", "answers", "metric"}


def run_dir(recipe: TrainRecipe) -> Path:
    """Return the folder of a recipe's run: `run.dir`, or `runs/<name>`.

    Example:
        >>> run_dir(read(Path("recipes/translate.yaml"))).as_posix()  # doctest: +SKIP
        'runs/translate'
    """
    return Path(recipe.run.dir) if recipe.run.dir else Path("runs") / recipe.name


def check_free(recipe: TrainRecipe, overwrite: bool) -> None:
    """Refuse a folder that a new run may not use.

    Args:
        recipe: Recipe of the new run.
        overwrite: Allow replacing an existing run.

    Raises:
        UserError: The folder has other files, a run that must not be replaced, or data that the recipe reads.
    """
    folder, another = run_dir(recipe), "name another folder with run.dir=DIR"
    try:
        folder.exists()
    except OSError as error:
        raise UserError(f"cannot be a folder: {error.strerror}", str(folder), "shorten name or run.dir") from None
    if not folder.exists() or (folder.is_dir() and is_unstarted(folder, TOKENIZER)):
        return
    if other := identify_folder(folder):
        raise UserError(f"is no run, but {other[0]}", where=str(folder), remedy=f"{another}; {other[1]}")
    if not (folder / RECIPE).exists():
        raise UserError("exists and is not a run", where=str(folder), remedy=another)
    if not overwrite:
        raise UserError(
            "holds a run already",
            where=str(folder),
            remedy=f"continue it with `s2s train {quote_path(folder)} --resume`, "
            f"replace it with --overwrite, or {another}",
        )
    # A folder with a recipe.yaml next to a corpus looks like a run.
    if some := foreign_files(folder, _OURS):
        remedy = f"{another}, or move away what is not the run's"
        raise UserError(f"holds what no run writes, and --overwrite would remove: {some}", str(folder), remedy)
    for key, path in learned_from(recipe):
        if path.resolve().is_relative_to(folder.resolve()):
            raise UserError(f"lies in {folder}, which --overwrite would empty", f"{key}: {path}", another)


def is_unstarted(folder: Path, *begun: str) -> bool:
    """Return True if a folder has at most the files of an interrupted start.

    Args:
        begun: Names that such a start may have created; they count only if there is also a lock file.
    """
    names = {path.name for path in folder.iterdir() if not path.name.startswith(UNFINISHED)}
    return names <= {LOCK, *(begun if LOCK in names else ())}


@contextmanager
def create_run_dir(recipe: TrainRecipe, tokenizers: "Mapping[str, Tokenizer]", overwrite: bool) -> Iterator[Path]:
    """Create the folder of a new run with recipe and tokenizers; a context manager.

    The folder is complete or does not exist. The body runs with the lock of the folder; see `run_lock`.

    Args:
        overwrite: Replace an existing run.

    Yields:
        The folder.

    Raises:
        UserError: The folder is in use, or the recipe could not be read again; see `check_free`.
    """
    folder = run_dir(recipe)
    check_free(recipe, overwrite)
    _check_rereadable(recipe)
    # A symbolic link is followed, and an existing folder may be a mount point: it is filled, not replaced.
    place, new = folder.resolve(), not folder.exists()
    place.mkdir(parents=True, exist_ok=True)
    with run_lock(folder):
        try:
            # Another process may have created it meanwhile.
            check_free(recipe, overwrite)
            _clear(place)
            with write_folder_atomically(place / TOKENIZER) as tokenizer_folder:
                tokenizer_folder.mkdir()
                for name, tokenizer in tokenizers.items():
                    tokenizer.save(tokenizer_folder, name)
            write(recipe, place / RECIPE)
        except BaseException:
            if new and not (place / RECIPE).exists():
                shutil.rmtree(place, ignore_errors=True)
            raise
        yield folder


def _check_rereadable(recipe: TrainRecipe) -> None:
    """Check that the recipe file can be read again.

    Names of classes that come from the data are not validated before.
    """
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / RECIPE
        write(recipe, path)
        try:
            read(path)
        except UserError as error:
            found = f"{error.where}: {error.what}" if error.where else error.what
            raise UserError(
                "the run's recipe, with what the data add to it, could not be read again: "
                + found.replace(f"{temporary}/", ""),
                where=str(run_dir(recipe)),
                remedy="shorten the names of classes and files in the data",
            ) from None


def _clear(place: Path) -> None:
    """Empty a folder except for its lock.

    The recipe is removed last, so that an interrupted clean-up can be repeated.
    """
    remove_unfinished(place, alone=True)
    for path in sorted(place.iterdir(), key=lambda path: path.name == RECIPE):
        if path.name == LOCK:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


MEASURED = "is being measured by another process"


@contextmanager
def run_lock(folder: Path, taken: str = "is being trained by another process") -> Iterator[Path]:
    """Lock the folder of a run; a context manager.

    Args:
        taken: Message if the lock is held.

    Yields:
        The folder.

    Raises:
        UserError: Another process holds the lock.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(file_lock(folder / LOCK))
        except BlockingIOError:
            raise UserError(taken, where=str(folder), remedy="wait for it, or stop it") from None
        yield folder


def check_is_run(folder: Path) -> None:
    """Refuse a folder that is not a run.

    Raises:
        UserError: The folder has no recipe, or is a comparison or a reproduction.
    """
    if other := identify_folder(folder):
        raise UserError(f"not a run, but {other[0]}", str(folder), other[1])
    if not (folder / RECIPE).is_file():
        found = f"no {RECIPE} in it" if folder.is_dir() else "there is no such folder"
        raise UserError(f"not a run: {found}", where=str(folder), remedy="name a folder such as runs/translate")


def run_dir_of(path: Path) -> Path:
    """Return the folder of a run, given the run or one of its checkpoints.

    The path of a checkpoint may be a link or `.`.
    """
    return path if (path / MANIFEST).exists() else path.resolve().parent.parent


def check_resumable(folder: Path, overrides: Sequence[str] = ()) -> TrainRecipe:
    """Check that a run can be resumed, and return its recipe with the overrides.

    Args:
        overrides: `section.key=value` arguments for data paths, device or number of steps.

    Returns:
        The recipe of the run with the overrides.

    Raises:
        UserError: The folder is not a run, or an override or an edited recipe would make it a different run.
    """
    check_is_run(folder)
    if (folder / EXPORTED).exists():
        raise UserError("is an export, which nothing goes on from", str(folder), "name the run that was exported")
    if (folder / "model.safetensors").exists():
        raise UserError("is a checkpoint", where=str(folder), remedy=f"name its run: {folder.resolve().parent.parent}")
    _check_sections(overrides, _MAY_CHANGE, "--resume continues the run by its own recipe")
    # A training process removes checkpoints, so the lock must be held while they are read.
    with run_lock(folder):
        _check_same(folder, [override for override in overrides if _key(override) == _LENGTH])
    recipe = read(folder / RECIPE, overrides)
    _check_learned(folder, read(folder / RECIPE), recipe, _LEARNED | _ASKED)
    return recipe


def _check_same(folder: Path, length: list[str]) -> None:
    """Refuse a recipe that differs from the last checkpoint's, except for more steps."""
    saved = {int(p.name): p for p in (folder / "checkpoints").glob("*") if is_number(p.name) and (p / RECIPE).exists()}
    if not saved:
        return
    last = saved[max(saved)]
    recipes = [read(path / RECIPE, length) for path in (folder, last)]
    if length and recipes[0].training.updates < max(saved):
        had = f"the run has had {max(saved)} updates"
        raise UserError(had, where=length[-1], remedy="name more of them")
    if keys := changed_settings(*recipes):
        raise UserError(
            f"{', '.join(keys)} changed since the last checkpoint",
            where=str(folder / RECIPE),
            remedy=f"copy {quote_path(last / RECIPE)} over it, or start a new run with run.dir=DIR",
        )


def changed_settings(one: TrainRecipe, other: TrainRecipe) -> list[str]:
    """Compare two recipes.

    Returns:
        The dotted names of settings that differ, sorted.
    """
    now, then = (flatten(recipe.model_dump(mode="json")) for recipe in (one, other))
    return sorted(key for key in now.keys() | then.keys() if now.get(key) != then.get(key))


def _check_learned(folder: Path, kept: TrainRecipe, now: TrainRecipe, fixed: Collection[str] = _LEARNED) -> None:
    """Refuse data settings that differ from those of the training."""
    then, wanted = (flatten(recipe.model_dump(mode="json")["data"], "data.") for recipe in (kept, now))
    ours = [key for key in then.keys() | wanted.keys() if key.rpartition(".")[2] in fixed]
    if changed := sorted(key for key in ours if then.get(key) != wanted.get(key)):
        had = ", ".join(f"{key} was {then.get(key)}" for key in changed)
        raise UserError(f"{had} when it was trained", where=str(folder), remedy=f"leave out {', '.join(changed)}")


def _check_sections(overrides: Sequence[str], allowed: Sequence[str], reason: str) -> None:
    """Refuse overrides of sections that may not change."""
    for override in overrides:
        if not {_key(override), _key(override).partition(".")[0]} & set(allowed):
            raise UserError(
                f"{reason}; {override!r} cannot change it",
                remedy=f"leave it out (only {', '.join(allowed)} may differ), or start a new run with run.dir=DIR",
            )


def without_length_override(overrides: Sequence[str]) -> list[str]:
    """Return the overrides except the number of steps, which the run's recipe keeps."""
    return [override for override in overrides if _key(override) != _LENGTH]


def set_num_updates(recipe: Path, updates: int) -> None:
    """Rewrite the recipe file of a run or a checkpoint with another number of steps."""
    write(read(recipe, [f"{_LENGTH}={updates}"]), recipe)


def _key(override: str) -> str:
    return override.partition("=")[0].strip()


def flatten(tree: dict, prefix: str = "") -> dict[str, object]:
    """Flatten nested dictionaries to dotted keys.

    Example:
        >>> flatten({"a": {"b": 1, "c": 2}, "d": 3})
        {'a.b': 1, 'a.c': 2, 'd': 3}
    """
    found: dict[str, object] = {}
    for key, value in tree.items():
        found |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


@dataclass(frozen=True)
class RunConfig:
    """An opened run or checkpoint: its recipe, without and with overrides.

    Attributes:
        path: Folder of the run or checkpoint.
        overrides: `section.key=value` arguments.
        kept: Recipe as saved with the run.
        fetched: The run was downloaded from the hub. Its folder is a shared cache, so nothing is written into it.
    """

    path: Path
    overrides: tuple[str, ...]
    kept: TrainRecipe
    recipe: TrainRecipe
    fetched: bool = False


def open_run(path: Path, overrides: Sequence[str] = (), tasks: Sequence[str] = ()) -> RunConfig:
    """Read the recipe of a run or a checkpoint.

    Args:
        path: Folder of the run or checkpoint, or `hf:USER/NAME` on the Hugging Face hub.
        overrides: `section.key=value` arguments that may change after training.
        tasks: Accepted tasks; empty: any.

    Raises:
        UserError: The folder is not a run, the task is another one, or an override would change the model.
    """
    asked, path = path, resolve_run_path(path)
    check_is_run(path)
    kept = read(path / RECIPE)
    schema = schema_of(kept)
    if tasks and kept.task not in tasks:
        other = schema.command in ("translate", "classify")
        raise UserError(
            f"is a run of task {kept.task}, not {tasks[0]}",
            where=str(path),
            remedy=f"use `s2s {schema.command} {quote_path(path)}`" if other else f"name a run of task {tasks[0]}",
        )
    _check_sections(overrides, schema.changeable, "a trained model keeps its recipe")
    recipe = read(path / RECIPE, overrides) if overrides else kept
    _check_learned(path, kept, recipe)
    return RunConfig(path, tuple(overrides), kept, recipe, fetched=is_on_hub(asked) or path != asked)


def open_runs(paths: Sequence[Path], overrides: Sequence[str], options: Mapping[str, object]) -> list[RunConfig]:
    """Read the recipes of runs that are evaluated together.

    Args:
        overrides: `section.key=value` arguments for all of them.
        options: Values of task-specific options of `s2s evaluate`.

    Raises:
        UserError: No run is given, a run is given twice, the tasks differ, or an option does not apply to the task.
    """
    if not paths:
        raise UserError("no run is named", remedy="s2s evaluate runs/NAME")
    if len({path.resolve() for path in paths}) < len(paths):
        raise UserError("the same run is named twice", remedy="name each run once")
    runs = [open_run(path) for path in paths]
    if len({run.kept.task for run in runs}) > 1:
        raise UserError(
            f"runs of different tasks: {', '.join(f'{run.path} ({run.kept.task})' for run in runs)}",
            remedy="evaluate runs of one task together",
        )
    known = schema_of(runs[0].kept).scored_by
    if wrong := [option for option, value in options.items() if value and option not in known]:
        raise UserError(f"{', '.join(wrong)} says nothing to runs of {runs[0].kept.task}", remedy="leave it out")
    return [open_run(path, overrides) for path in paths] if overrides else runs
