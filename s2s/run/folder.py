"""The folder of a run: where it is, how it comes to be, and that nothing in it is lost by accident."""

import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from s2s.errors import UserError, quote_path
from s2s.files import UNFINISHED, file_lock, is_number, remove_unfinished, write_folder_atomically
from s2s.folders import foreign_files, identify_folder
from s2s.recipe.reading import learned_from, write
from s2s.recipe.schema import AnyRecipe
from s2s.run.exported import EXPORTED
from s2s.run.hub import is_on_hub, resolve_run_path
from s2s.run.tasks import read, schema_of

if TYPE_CHECKING:
    from s2s.data.tokenizers import Tokenizer
    from s2s.run.tasks import AnyTask

RECIPE = "recipe.yaml"
TOKENIZER = "tokenizer"
MANIFEST = "manifest.json"
LOCK = ".lock"
# what a training writes, and TensorBoard, evaluations and probes beside it; of a comparison's runs their cost, too
_OURS = (
    *(RECIPE, TOKENIZER, MANIFEST, LOCK, f"{UNFINISHED}*", "checkpoints", "metrics.jsonl", "events.out.tfevents.*"),
    *("init_from.json", "figures", "lengths.png", "evaluation-*.json", "scores.json"),
    *("probe-bias.*", "probe-induction.*", "cost.json"),
)
_LENGTH = "training.updates"
# what may change when a run goes on: where its data lies (their hash is checked), what computes, and its length
_MAY_CHANGE = ("data", "device", _LENGTH)
# what no hash of texts or pixels tells, and yet is part of what a model has learned from
_LEARNED = {"size", "channels", "mean", "deviation", "mixing", "weight"}
# and of what a run goes on with: what is asked for, and by what its checkpoints are compared
_ASKED = {"prefix", "objective", "share", "span", "answers", "metric"}


def run_dir(recipe: AnyRecipe) -> Path:
    """`run.dir`, or `runs/<name>`."""
    return Path(recipe.run.dir) if recipe.run.dir else Path("runs") / recipe.name


def check_free(recipe: AnyRecipe, overwrite: bool) -> None:
    """Refuses a folder that a new run may not take: it holds something else, or a run that shall stay."""
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
    # whoever has a recipe.yaml beside a corpus has a folder that looks like a run
    if some := foreign_files(folder, _OURS):
        remedy = f"{another}, or move away what is not the run's"
        raise UserError(f"holds what no run writes, and --overwrite would remove: {some}", str(folder), remedy)
    for key, path in learned_from(recipe):
        if path.resolve().is_relative_to(folder.resolve()):
            raise UserError(f"lies in {folder}, which --overwrite would empty", f"{key}: {path}", another)


def is_unstarted(folder: Path, *begun: str) -> bool:
    """Whether a folder holds nothing but what an interrupted start leaves, which is no more than nothing.

    What such a start may have begun, before its last file, is ours only where there is a lock, too.
    """
    names = {path.name for path in folder.iterdir() if not path.name.startswith(UNFINISHED)}
    return names <= {LOCK, *(begun if LOCK in names else ())}


@contextmanager
def create_run_dir(recipe: AnyRecipe, tokenizers: "Mapping[str, Tokenizer]", overwrite: bool) -> Iterator[Path]:
    """Makes the folder of a new run, with its recipe and tokenizers, whole or not at all; within it, see `alone`."""
    folder = run_dir(recipe)
    check_free(recipe, overwrite)
    _check_rereadable(recipe)
    # a link to a folder stays one, and one that is there may be a mount point: it is filled, not replaced
    place, new = folder.resolve(), not folder.exists()
    place.mkdir(parents=True, exist_ok=True)
    with run_lock(folder):
        try:
            # another process may have been faster
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


def _check_rereadable(recipe: AnyRecipe) -> None:
    """Refuses a recipe whose file could not be read: what the data add to it, such as names of classes, is unchecked.

    Raises:
        UserError: that is so.
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
    """Empties a folder but for its lock; it is a run, to be replaced again, until all else is gone."""
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
    """Within it, no other process works in this folder; gives it, or refuses one where that is so, in these words."""
    with ExitStack() as stack:
        try:
            stack.enter_context(file_lock(folder / LOCK))
        except BlockingIOError:
            raise UserError(taken, where=str(folder), remedy="wait for it, or stop it") from None
        yield folder


def check_is_run(folder: Path) -> None:
    """Refuses what is not a run's folder: there is no recipe in it."""
    if other := identify_folder(folder):
        raise UserError(f"not a run, but {other[0]}", str(folder), other[1])
    if not (folder / RECIPE).is_file():
        found = f"no {RECIPE} in it" if folder.is_dir() else "there is no such folder"
        raise UserError(f"not a run: {found}", where=str(folder), remedy="name a folder such as runs/translate")


def run_dir_of(path: Path) -> Path:
    """The folder of a run, also where a checkpoint in it is named, were it by a link or by `.`."""
    return path if (path / MANIFEST).exists() else path.resolve().parent.parent


def check_resumable(folder: Path, overrides: Sequence[str] = ()) -> "AnyTask":
    """The recipe of a run that goes on: its own, but for what may change.

    Raises:
        UserError: the folder is no run, or an override or an edit would make it another one.
    """
    check_is_run(folder)
    if (folder / EXPORTED).exists():
        raise UserError("is an export, which nothing goes on from", str(folder), "name the run that was exported")
    if (folder / "model.safetensors").exists():
        raise UserError("is a checkpoint", where=str(folder), remedy=f"name its run: {folder.resolve().parent.parent}")
    check_sections(overrides, _MAY_CHANGE, "--resume continues the run by its own recipe")
    # what trains it removes checkpoints while they are read
    with run_lock(folder):
        _check_same(folder, [override for override in overrides if _key(override) == _LENGTH])
    recipe = read(folder / RECIPE, overrides)
    _check_learned(folder, read(folder / RECIPE), recipe, _LEARNED | _ASKED)
    return recipe


def _check_same(folder: Path, length: list[str]) -> None:
    """Refuses a recipe that is not its last checkpoint's, but for a length that the checkpoint has not passed."""
    saved = {int(p.name): p for p in (folder / "checkpoints").glob("*") if is_number(p.name) and (p / RECIPE).exists()}
    if not saved:
        return
    last = saved[max(saved)]
    recipes = [read(path / RECIPE, length) for path in (folder, last)]
    if length and recipes[0].model_dump()["training"]["updates"] < max(saved):
        had = f"the run has had {max(saved)} updates"
        raise UserError(had, where=length[-1], remedy="name more of them")
    if keys := changed_settings(*recipes):
        raise UserError(
            f"{', '.join(keys)} changed since the last checkpoint",
            where=str(folder / RECIPE),
            remedy=f"copy {quote_path(last / RECIPE)} over it, or start a new run with run.dir=DIR",
        )


def changed_settings(one: AnyRecipe, other: AnyRecipe) -> list[str]:
    """The settings in which two recipes differ, by their dotted names."""
    now, then = (flatten(recipe.model_dump(mode="json")) for recipe in (one, other))
    return sorted(key for key in now.keys() | then.keys() if now.get(key) != then.get(key))


def _check_learned(folder: Path, kept: AnyRecipe, now: AnyRecipe, fixed: Collection[str] = _LEARNED) -> None:
    """Refuses another way of reading the same data than the one that the model has learned."""
    then, wanted = (flatten(recipe.model_dump(mode="json")["data"], "data.") for recipe in (kept, now))
    ours = [key for key in then.keys() | wanted.keys() if key.rpartition(".")[2] in fixed]
    if changed := sorted(key for key in ours if then.get(key) != wanted.get(key)):
        had = ", ".join(f"{key} was {then.get(key)}" for key in changed)
        raise UserError(f"{had} when it was trained", where=str(folder), remedy=f"leave out {', '.join(changed)}")


def check_sections(overrides: Sequence[str], allowed: Sequence[str], reason: str) -> None:
    """Refuses overrides that would be ignored, or would make the model another one, and says why."""
    for override in overrides:
        if not {_key(override), _key(override).partition(".")[0]} & set(allowed):
            raise UserError(
                f"{reason}; {override!r} cannot change it",
                remedy=f"leave it out (only {', '.join(allowed)} may differ), or start a new run with run.dir=DIR",
            )


def without_length_override(overrides: Sequence[str]) -> list[str]:
    """The overrides that are of one start of a run alone; the others become part of its recipe."""
    return [override for override in overrides if _key(override) != _LENGTH]


def set_num_updates(recipe: Path, updates: int) -> None:
    """Writes another length into a recipe that a run, or a checkpoint, keeps."""
    write(read(recipe, [f"{_LENGTH}={updates}"]), recipe)


def _key(override: str) -> str:
    return override.partition("=")[0].strip()


def flatten(tree: dict, prefix: str = "") -> dict[str, object]:
    """The leaves of a tree of dictionaries, by their dotted names."""
    found: dict[str, object] = {}
    for key, value in tree.items():
        found |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


@dataclass(frozen=True)
class RunConfig:
    """A run, or a checkpoint, whose recipe was read: as kept, and with overrides of what may change after training.

    What was fetched from the hub is a copy that others may use, too: nothing is written into it.
    """

    path: Path
    overrides: tuple[str, ...]
    kept: "AnyTask"
    recipe: "AnyTask"
    fetched: bool = False


def open_run(path: Path, overrides: Sequence[str] = (), tasks: Sequence[str] = ()) -> RunConfig:
    """Reads the recipe of a run or a checkpoint, which must be of one of these tasks, or of any when there are none.

    A path `hf:USER/NAME` is that of a run on the Hugging Face hub.

    Raises:
        UserError: it is neither, or of another task, or an override would make the model another one.
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
    check_sections(overrides, schema.changeable, "a trained model keeps its recipe")
    recipe = read(path / RECIPE, overrides) if overrides else kept
    _check_learned(path, kept, recipe)
    return RunConfig(path, tuple(overrides), kept, recipe, fetched=is_on_hub(asked) or path != asked)


def open_runs(paths: Sequence[Path], overrides: Sequence[str], options: Mapping[str, object]) -> list[RunConfig]:
    """Reads the recipes of runs that are to be scored together, with what options of `s2s evaluate` were given.

    Raises:
        UserError: no run is named, or one twice, or they are of different tasks; or an option says nothing to them.
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
