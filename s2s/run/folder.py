"""Folder of a run: location, creation, locking and protection of its files."""

import glob
import itertools
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from ruamel.yaml.error import YAMLError

from s2s.errors import UserError, quote_path
from s2s.files import (
    EXPORTED,
    UNFINISHED,
    file_lock,
    foreign_files,
    identify_folder,
    is_number,
    open_regular,
    remove_unfinished,
    write_atomically,
    write_folder_atomically,
)
from s2s.recipe.page import read_value
from s2s.recipe.reading import dump, local_paths, write
from s2s.recipe.schema import TrainRecipe
from s2s.run.tasks import read, schema_of

if TYPE_CHECKING:
    from s2s.data.tokenizers import Tokenizer

RECIPE = "recipe.yaml"
TOKENIZER = "tokenizer"
MANIFEST = "manifest.json"
TEST_SCORES = "evaluation-test.json"
LOCK = ".lock"
MEASURED = "another process is measuring in it"
"""Message of `run_lock` for a comparison."""
# File names of training, TensorBoard, evaluations and probes; and the cost of runs of a comparison.
_OURS = (
    *(RECIPE, TOKENIZER, MANIFEST, LOCK, f"{UNFINISHED}*", "checkpoints", "metrics.jsonl", "events.out.tfevents.*"),
    *("init_from.json", "figures", "lengths.png", "evaluation-*.json", "scores.json"),
    *("probe-bias.*", "probe-induction.*", "cost.json"),
)
# Files that a run, a checkpoint or an export cannot do without.
_NEEDED = (
    *(RECIPE, TOKENIZER, MANIFEST, LOCK, "checkpoints", "metrics.jsonl", "init_from.json", "evaluation-*.json"),
    *("*.safetensors", "state.json", "device.txt", EXPORTED),
)
LENGTH = "training.updates"
"""Key of the number of steps, which may change on resume."""
# Sections that may change on resume: paths of the data (their hash is verified), the device, and the number of
# steps.
_MAY_CHANGE = ("data", "device", LENGTH)
# Data settings that a model depends on but that hashes of texts or pixels do not cover.
_FIXED = {"size", "channels", "mean", "deviation", "mixing", "weight"}
# Further settings that must stay on resume: the objective, and the metric that compares checkpoints.
_FIXED_ON_RESUME = {"prefix", "objective", "share", "span", "answers", "metric"}


def run_dir(recipe: TrainRecipe) -> Path:
    """Return the folder of a recipe's run: `run.dir`, or `runs/<name>`."""
    return Path(recipe.run.dir) if recipe.run.dir else Path("runs") / recipe.name


def check_free(recipe: TrainRecipe, overwrite: bool) -> None:
    """Refuse a folder that a new run may not use.

    Args:
        recipe: Recipe of the new run.
        overwrite: Allow replacing an existing run.

    Raises:
        UserError: The folder has other files, a run that must not be replaced or is being trained, or data that the
            recipe reads.
    """
    folder = run_dir(recipe)
    try:
        folder.exists()
    except OSError as error:
        raise UserError(f"cannot be a folder: {error.strerror}", str(folder), "shorten name or run.dir") from None
    if (folder / RECIPE).is_file() and (folder / LOCK).is_file():
        # during a training, neither --resume nor --overwrite would work
        with run_lock(folder):
            pass
    _check_replaceable(recipe, overwrite)


def _check_replaceable(recipe: TrainRecipe, overwrite: bool) -> None:
    folder, another = run_dir(recipe), "name another folder with run.dir=DIR"
    where = str(folder)
    if not folder.exists() or (folder.is_dir() and is_unstarted(folder, TOKENIZER)):
        return
    if other := identify_folder(folder):
        raise UserError(f"is not a run but {other[0]}", where, f"{another}; {other[1]}")
    if not (folder / RECIPE).exists():
        raise UserError("exists and is not a run", where, another)
    if not overwrite:
        remedy = f"resume it with `s2s train {quote_path(folder)} --resume`, replace it with --overwrite, or {another}"
        raise UserError("already contains a run", where, remedy)
    # A folder with a recipe.yaml next to a corpus looks like a run.
    if some := foreign_files(folder, _OURS):
        what = f"contains files that do not belong to a run, which --overwrite would delete: {some}"
        raise UserError(what, where, f"{another}, or move these files elsewhere")
    for key, path in local_paths(recipe):
        if path.resolve().is_relative_to(folder.resolve()):
            raise UserError(f"is inside {folder}, which --overwrite would empty", f"{key}: {path}", another)


def run_of_file(path: Path) -> Path | None:
    """Return the run, or the checkpoint, that needs an existing file; None for other files."""
    place = path.resolve()
    for folder in list(place.parents)[:3] if place.exists() else ():
        first = place.relative_to(folder).parts[0]
        if (folder / RECIPE).is_file() and any(fnmatch(first, each) for each in _NEEDED):
            return folder
    return None


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
    text = dump(recipe)
    _check_rereadable(recipe, text)
    # A symbolic link is followed, and an existing folder may be a mount point: it is filled, not replaced.
    place, new = folder.resolve(), not folder.exists()
    place.mkdir(parents=True, exist_ok=True)
    with run_lock(folder):
        try:
            # Another process may have created it meanwhile.
            _check_replaceable(recipe, overwrite)
            remove_unfinished(place, alone=True)
            # The recipe is removed last, so that an interrupted clean-up can be repeated.
            for path in sorted(place.iterdir(), key=lambda path: path.name == RECIPE):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                elif path.name != LOCK:
                    path.unlink()
            with write_folder_atomically(place / TOKENIZER) as tokenizer_folder:
                tokenizer_folder.mkdir()
                for name, tokenizer in tokenizers.items():
                    tokenizer.save(tokenizer_folder, name)
            write_atomically(place / RECIPE, text)
        except BaseException:
            if new and not (place / RECIPE).exists():
                shutil.rmtree(place, ignore_errors=True)
            raise
        yield folder


def _check_rereadable(recipe: TrainRecipe, text: str) -> None:
    """Check that the text of a recipe can be read again: names of classes come from the data, not validated before."""
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / RECIPE
        write_atomically(path, text)
        try:
            read(path)
        except UserError as error:
            found = f"{error.where}: {error.what}" if error.where else error.what
            raise UserError(
                "the recipe with the values from the data could not be read again: "
                + found.replace(f"{temporary}/", ""),
                where=str(run_dir(recipe)),
                remedy="shorten the names of classes and files in the data",
            ) from None


@contextmanager
def run_lock(folder: Path, taken: str = "another process is training this run") -> Iterator[Path]:
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
            raise UserError(taken, where=str(folder), remedy="wait until it ends, or stop it") from None
        yield folder


def check_is_run(folder: Path) -> None:
    """Refuse a folder that is not a run: one without a recipe, a comparison or a reproduction."""
    if other := identify_folder(folder):
        raise UserError(f"is not a run but {other[0]}", str(folder), other[1])
    if len(members := members_of(folder)) > 1 and all((Path(member) / RECIPE).is_file() for member in members):
        raise UserError("is an ensemble, and this needs one run", where=str(folder), remedy=f"name {members[0]}")
    if folder.is_file() and folder.suffix in (".yaml", ".yml"):
        remedy = f"name the folder of its run, such as {quote_path(Path('runs') / folder.stem)}"
        raise UserError("is not a run but a recipe", str(folder), remedy)
    if not (folder / RECIPE).is_file():
        found = f"it has no {RECIPE}" if folder.is_dir() else "there is no such folder"
        raise UserError(f"is not a run: {found}", where=str(folder), remedy="name a folder such as runs/translate")


def run_dir_of(path: Path) -> Path:
    """Return the folder of a run, given the run or one of its checkpoints (also as a link or `.`)."""
    return path if (path / MANIFEST).exists() else path.resolve().parent.parent


def resolve_run_path(path: Path) -> Path:
    """Return the local folder of a run: download it from the hub, or convert published weights, if needed."""
    if not str(path).startswith("hf:") and ((path / RECIPE).exists() or not (path / "config.json").is_file()):
        return path
    from s2s.run.published import local_run

    return local_run(str(path))


def check_resumable(folder: Path, overrides: Sequence[str] = ()) -> TrainRecipe:
    """Check that a run can be resumed, and return its recipe with the overrides.

    Args:
        overrides: `section.key=value` arguments for data paths, device or number of steps.

    Raises:
        UserError: The folder is not a run, or an override or an edited recipe would make it a different run.
    """
    check_is_run(folder)
    where = str(folder)
    if (folder / EXPORTED).exists():
        raise UserError("is an export, which cannot be resumed", where, "name the run that was exported")
    if (folder / "model.safetensors").exists():
        raise UserError("is a checkpoint", where, f"name its run: {folder.resolve().parent.parent}")
    _check_sections(overrides, _MAY_CHANGE, "--resume uses the recipe of the run")
    # A training process removes checkpoints, so the lock must be held while they are read.
    with run_lock(folder):
        if has_lost_checkpoints(folder):
            raise lost_checkpoints_error(folder)
        _check_same(folder, [override for override in overrides if _key(override) == LENGTH])
    recipe = read(folder / RECIPE, overrides)
    _check_data_settings(folder, read(folder / RECIPE), recipe, _FIXED | _FIXED_ON_RESUME)
    return recipe


def has_lost_checkpoints(folder: Path) -> bool:
    """Return True if a run has no checkpoint, although it was evaluated, or trained on after a validation."""
    if any(is_number(path.name) for path in (folder / "checkpoints").glob("*")):
        return False
    if any(folder.glob("evaluation-*.json")):
        return True
    # A checkpoint is saved after each validation, before the next update is logged.
    metrics, validated = folder / "metrics.jsonl", False
    if metrics.exists():
        with open_regular(metrics) as lines:
            for line in lines:
                if validated and line.startswith(b'{"update"') and b'"validation"' not in line:
                    return True
                validated = validated or b'"validation"' in line
    return False


def lost_checkpoints_error(folder: Path) -> UserError:
    """Return the error for a run that `has_lost_checkpoints`."""
    return UserError(
        "has no checkpoints any more, although its training saved some",
        where=str(folder / "checkpoints"),
        remedy=f"restore this folder if it was moved, or train again: s2s train {quote_path(folder / RECIPE)} "
        f"run.dir={quote_path(folder)} --overwrite",
    )


def may_change_on_resume(override: str) -> bool:
    """Return True if a run can be resumed with an override: of data paths, the device or the number of steps."""
    return _is_within(override, _MAY_CHANGE)


def _check_same(folder: Path, length: list[str]) -> None:
    """Refuse a recipe that differs from the last checkpoint's, except for more steps."""
    saved = {int(p.name): p for p in (folder / "checkpoints").glob("*") if is_number(p.name) and (p / RECIPE).exists()}
    if not saved:
        return
    last = saved[max(saved)]
    # Checked before the recipe is validated, because a warm-up may not fit the fewer updates, and cannot be changed.
    updates = _wanted_updates(length[-1]) if length else None
    if updates is not None and updates < max(saved):
        raise UserError(f"the run already has {max(saved)} updates", where=length[-1], remedy="set a larger number")
    now, then = (read(path / RECIPE, length) for path in (folder, last))
    if keys := changed_settings(now, then):
        raise UserError(
            f"{', '.join(keys)} changed since the last checkpoint",
            where=str(folder / RECIPE),
            remedy=f"copy {quote_path(last / RECIPE)} over it, or start a new run with run.dir=DIR",
        )


def _wanted_updates(override: str) -> int | None:
    """Return the number of an override of `training.updates`; None if it is none, which reading the recipe reports."""
    try:
        value = read_value(override.partition("=")[2])
    except YAMLError:
        return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def changed_settings(one: TrainRecipe, other: TrainRecipe) -> list[str]:
    """Return the dotted names of settings that differ between two recipes, sorted."""
    now, then = (flatten(recipe.model_dump(mode="json")) for recipe in (one, other))
    return sorted(key for key in now.keys() | then.keys() if now.get(key) != then.get(key))


def _check_data_settings(folder: Path, kept: TrainRecipe, now: TrainRecipe, fixed: Collection[str] = _FIXED) -> None:
    """Refuse data settings that differ from those of the training."""
    then, wanted = (flatten(recipe.model_dump(mode="json")["data"], "data.") for recipe in (kept, now))
    ours = [key for key in then.keys() | wanted.keys() if key.rpartition(".")[2] in fixed]
    if changed := sorted(key for key in ours if then.get(key) != wanted.get(key)):
        had = ", ".join(f"{key} was {then.get(key)}" for key in changed)
        raise UserError(f"{had} in training", where=str(folder), remedy=f"leave out {', '.join(changed)}")


def _check_sections(overrides: Sequence[str], allowed: Sequence[str], reason: str) -> None:
    """Refuse overrides of sections that may not change."""
    for override in overrides:
        if not _is_within(override, allowed):
            raise UserError(
                f"{reason}; {override!r} cannot change it",
                remedy=f"leave it out (only {', '.join(allowed)} may change), or start a new run with run.dir=DIR",
            )


def set_num_updates(recipe: Path, updates: int) -> None:
    """Rewrite the recipe file of a run or a checkpoint with another number of steps."""
    write(read(recipe, [f"{LENGTH}={updates}"]), recipe)


def _is_within(override: str, allowed: Sequence[str]) -> bool:
    return not {_key(override), _key(override).partition(".")[0]}.isdisjoint(allowed)


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
        others: Further members of an ensemble; this run is the first.
    """

    path: Path
    overrides: tuple[str, ...]
    kept: TrainRecipe
    recipe: TrainRecipe
    fetched: bool = False
    others: "tuple[RunConfig, ...]" = ()

    @property
    def name(self) -> Path:
        """Path of the run; of an ensemble, the paths of its members with `+` between them."""
        return Path("+".join(str(run.path) for run in (self, *self.others)))


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
    _check_sections(overrides, schema.changeable, "the recipe of a trained model is fixed")
    recipe = read(path / RECIPE, overrides) if overrides else kept
    _check_data_settings(path, kept, recipe)
    return RunConfig(path, tuple(overrides), kept, recipe, fetched=path != asked)


def members_of(path: Path) -> list[str]:
    """Return the paths of an ensemble's members, `RUN+RUN`; the path itself if it exists or names one run."""
    return [str(path)] if path.exists() else str(path).split("+")


def open_ensemble(path: Path, overrides: Sequence[str] = (), tasks: Sequence[str] = ()) -> RunConfig:
    """Read the recipe of a run, or those of an ensemble, `RUN+RUN`; the arguments are those of `open_run`.

    Raises:
        UserError: A member is not a run, or a run of another task; see `open_run`.
    """
    first, *others = [open_run(Path(member), overrides, tasks) for member in members_of(path)]
    if different := [run for run in others if run.kept.task != first.kept.task]:
        raise UserError(
            f"{different[0].path} is a run of task {different[0].kept.task}, {first.path} of task {first.kept.task}",
            where=str(path),
            remedy="join runs of one task",
        )
    return replace(first, others=tuple(others))


def seed_group(path: Path) -> list[Path]:
    """Return the runs of a group of seeds.

    Args:
        path: A run or an ensemble, which is a group of its own; a quoted pattern, such as `runs/lstm-seed*`; or the
            name that `s2s train --seeds` extended, such as `runs/lstm` for `runs/lstm-seed1`, if it is no run itself.
    """
    if path.exists() or str(path).startswith("hf:"):
        return [path]
    pattern = path.name if set(path.name) & set("*?[") else f"{glob.escape(path.name)}-seed[0-9]*"
    return sorted(each for each in path.parent.glob(pattern) if (each / RECIPE).is_file()) or [path]


def seeds_only(one: TrainRecipe, other: TrainRecipe) -> bool:
    """Return True if two recipes differ in their seeds, and otherwise at most in name, description and folder."""
    sections = {key.partition(".")[0] for key in changed_settings(one, other)}
    return "seeds" in sections and sections <= {"seeds", "name", "description", "run"}


def check_groups(groups: Mapping[str, Sequence[RunConfig]]) -> None:
    """Refuse a group of one run, and runs of a group that differ in more than their seeds, or not in these."""
    for name, runs in groups.items():
        if len(runs) < 2:
            what = f"{name} is one run, and a test over seeds needs two of each group"
            raise UserError(what, remedy="train more seeds (s2s train RECIPE --seeds 3), and name only groups")
        for one, other in itertools.combinations(runs, 2):
            if not seeds_only(one.kept, other.kept):
                keys = changed_settings(one.kept, other.kept)
                others = [key for key in keys if key.partition(".")[0] not in ("seeds", "name", "description", "run")]
                what = f"{one.path} and {other.path} differ in {', '.join(others) or 'no seed'}"
                raise UserError(what, name, "name runs that differ only in their seeds")


def open_runs(paths: Sequence[Path], overrides: Sequence[str], options: Mapping[str, object]) -> list[RunConfig]:
    """Read the recipes of runs that are evaluated together.

    Args:
        overrides: `section.key=value` arguments for all of them.
        options: Values of task-specific options of `s2s evaluate`.

    Raises:
        UserError: No run is given, a run is given twice, the tasks differ, or an option does not apply to the task.
    """
    if not paths:
        raise UserError("no run is given", remedy="s2s evaluate runs/NAME")
    if len({path.resolve() for path in paths}) < len(paths):
        raise UserError("a run is given twice", remedy="name each run once")
    runs = [open_ensemble(path) for path in paths]
    if len({run.kept.task for run in runs}) > 1:
        raise UserError(
            f"runs of different tasks: {', '.join(f'{run.path} ({run.kept.task})' for run in runs)}",
            remedy="evaluate runs of one task together",
        )
    known = schema_of(runs[0].kept).scored_by
    if wrong := [option for option, value in options.items() if value and option not in known]:
        do = "does" if len(wrong) == 1 else "do"
        # A recipe of text-to-text names a test set for each corpus.
        is_file = "--source" in wrong and "test" in type(runs[0].kept.data).model_fields
        raise UserError(
            f"{', '.join(wrong)} {do} not apply to runs of {runs[0].kept.task}",
            remedy="leave it out; data.test=FILE scores another file" if is_file else "leave it out",
        )
    return [open_ensemble(path, overrides) for path in paths] if overrides else runs
