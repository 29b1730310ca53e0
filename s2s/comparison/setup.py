"""Creation of a comparison's folder, and checks that its task and data stay the same.

`recipe.yaml` is the task, `comparison.json` the plan. Copies are stored with the trials.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from s2s.comparison.candidates import check_kinds, entries_of
from s2s.comparison.results import Summary, read_summary
from s2s.comparison.results import write as write_part
from s2s.comparison.spec import CELLS, ComparedRecipe, NotForThisModel, comparable
from s2s.comparison.tasks import data_digests, finalize_recipe, trainer_of
from s2s.errors import UserError, quote_path
from s2s.files import COMPARISON, check_outermost, identify_folder, make_folder, read_file, write_atomically
from s2s.json_files import read_json
from s2s.nn.precision import PrecisionError
from s2s.recipe.reading import dump, write
from s2s.run.folder import MEASURED, RECIPE, changed_settings, is_unstarted, run_lock
from s2s.run.tasks import read
from s2s.training.device import PRECISION_NAMES, select_device
from s2s.training.precision import PrecisionBenchmark, benchmark_precision, check_precision

if TYPE_CHECKING:
    from s2s.recipe.schema import TrainRecipe

# Settings that do not change results on one machine, and the exceptions.
_MAY_CHANGE = ("data.root", "device", "run", "name", "description")
_MAY_NOT = ("device.precision",)
_DATA = "data.json"


def create(folder: Path, base: "TrainRecipe", summary: Summary, log: Callable[[str], None] = lambda line: None) -> None:
    """Create the folder of a new comparison after checking all its models.

    Args:
        base: Recipe of the task.
        summary: Plan of the comparison.
        log: Prints a line, such as the precision that was selected.

    Raises:
        UserError: The folder is not free, a setting is wrong, or a model cannot do the task.
    """
    check_kinds(comparable(base), summary)
    base = finalize_task(base)
    entries = entries_of(base, summary)
    if select_device(base.device).autoselect_precision:
        # All models share one precision.
        times = _gradient_times(list(entries.values()))
        log(str(times))
        faster = PRECISION_NAMES[times.faster]
        base = base.model_copy(update={"device": base.device.model_copy(update={"precision": faster})})
    elif base.device.precision == "bf16":
        _check_bf16(entries)
    _check_free(folder, base)
    folder.mkdir(parents=True, exist_ok=True)
    with run_lock(folder, MEASURED):
        _check_free(folder, base)
        write(base, folder / RECIPE)
        sized = {"sized_for": select_device(base.device).device.type}
        write_part(summary.model_copy(update=sized), folder / COMPARISON)


def finalize_task(base: "TrainRecipe") -> ComparedRecipe:
    """Return the recipe of a task with all settings that depend on the data; see `finalize_recipe`.

    Raises:
        UserError: Models are not compared on this task.
    """
    return finalize_recipe(comparable(base))


def load_summary(folder: Path) -> Summary:
    """Read the plan of a comparison, or the copy stored with its trials.

    Raises:
        UserError: The folder holds no comparison, or the plan cannot be read.
    """
    check_outermost(folder)
    kept = next((path for path in (folder / COMPARISON, folder / CELLS / COMPARISON) if path.exists()), None)
    if kept is None:
        what, remedy = identify_folder(folder) or ("no comparison, or one that was not started", "")
        raise UserError(
            f"is {what}",
            where=str(folder),
            remedy=remedy or "repeat the command that starts it, or name a folder such as runs/compare-rnn-transformer",
        )
    return read_summary(kept)


def load_task(folder: Path) -> ComparedRecipe:
    """Read the recipe of a comparison's task, or the copy stored with its trials.

    Raises:
        UserError: The recipe cannot be read, or it changed since the trials were run.
    """
    copy = folder / CELLS / RECIPE
    if not copy.exists():
        return comparable(read(folder / RECIPE))
    try:
        recipe = comparable(read(folder / RECIPE if (folder / RECIPE).exists() else copy))
    except UserError as error:
        raise UserError(error.what, error.where, f"copy {quote_path(copy)} over it") from None
    keys = [
        key
        for key in changed_settings(recipe, read(copy))
        if key in _MAY_NOT or not {key, key.partition(".")[0]} & {*_MAY_CHANGE}
    ]
    if keys:
        raise UserError(
            f"{', '.join(keys)} changed since the trials were run",
            where=str(folder / RECIPE),
            remedy=f"copy {quote_path(copy)} over it (only {', '.join(_MAY_CHANGE)} may differ, except "
            f"{', '.join(_MAY_NOT)}), or start another comparison with --out",
        )
    return recipe


def check_data(folder: Path, recipe: ComparedRecipe) -> None:
    """Check by digests that the data are those of the trials; store the digests if there are none yet.

    Raises:
        UserError: A split of the corpus changed.
    """
    path, now = folder / CELLS / _DATA, data_digests(recipe)
    if not path.exists():
        make_folder(path.parent)
        write_atomically(path, json.dumps(now, indent=1) + "\n")
        return
    remedy = "remove it if the data are still the same, or start another comparison with --out"
    before = read_json(path, dict[str, str], remedy)
    if changed := [name for name in {**before, **now} if before.get(name) != now.get(name)]:
        raise UserError(
            f"{', '.join(changed)}: the data changed since the trials were run",
            where=str(folder / RECIPE),
            remedy="restore the data, or start another comparison with --out",
        )


def save_summary(folder: Path, summary: Summary) -> None:
    """Save the plan of a comparison, and copies of plan and task with the trials."""
    make_folder(folder / CELLS)
    recipes = [folder / CELLS / RECIPE, folder / RECIPE]
    for one, other in (recipes, recipes[::-1]):
        if not one.exists():
            write_atomically(one, read_file(other))
    for place in (folder / CELLS, folder):
        write_part(summary, place / COMPARISON)


def _gradient_times(recipes: Sequence[ComparedRecipe]) -> PrecisionBenchmark:
    """Sum the gradient times of all models, on one thread."""
    times, threads = [], torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for recipe in recipes:
            with suppress(NotForThisModel):
                times.append(benchmark_precision(trainer_of(recipe, 1, select_device(recipe.device))))
    finally:
        torch.set_num_threads(threads)
    # A model that runs out of memory in fp32, or cannot be computed in bf16, decides for all.
    error = next((each.bf16_error for each in times if each.bf16 is None), "")
    fp32, bf16 = [each.fp32 for each in times], [each.bf16 for each in times]
    return PrecisionBenchmark(_sum(fp32), _sum(bf16), 1, error)


def _sum(seconds: Sequence[float | None]) -> float | None:
    known = [each for each in seconds if each is not None]
    return sum(known) if len(known) == len(seconds) else None


def _check_bf16(recipes: Mapping[str, ComparedRecipe]) -> None:
    """Refuse bf16 if this device cannot compute one of the models in it."""
    for name, recipe in recipes.items():
        with suppress(NotForThisModel):
            try:
                check_precision(trainer_of(recipe, 1, select_device(recipe.device)))
            except PrecisionError as error:
                raise UserError(f"{name}: {error.what}", error.where, "set device.precision=fp32") from None


def _check_free(folder: Path, base: ComparedRecipe) -> None:
    if not folder.exists() or (folder.is_dir() and is_unstarted(folder)):
        return
    # An interrupted start leaves the same recipe without a plan.
    begun = folder.is_dir() and is_unstarted(folder, RECIPE)
    if begun and read_file(folder / RECIPE) == dump(base).encode():
        return
    there = any((place / COMPARISON).exists() for place in (folder, folder / CELLS))
    again = f"resume it with `s2s compare --resume {quote_path(folder)}`, or " if there else ""
    raise UserError("already exists", where=str(folder), remedy=f"{again}name another folder with --out")
