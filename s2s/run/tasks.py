"""Which module runs which task."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from rich.console import Console

from s2s.errors import UserError
from s2s.recipe.reading import read
from s2s.recipe.schema import AnyRecipe
from s2s.recipe.tasks import TASK
from s2s.run.folder import RECIPE, check_is_run

# each has `train(recipe, console, overwrite)` and `resume(folder, console, overrides)`
_MODULES = {
    "translation": "s2s.run.training",
    "classification": "s2s.run.classification",
    "masked-lm": "s2s.run.masked_lm",
    "images": "s2s.run.images",
}


def train(recipe: AnyRecipe, console: Console, overwrite: bool = False) -> Path:
    """Trains a new run of the recipe's task.

    Args:
        recipe: the resolved recipe.
        console: where progress is shown.
        overwrite: replace a run that is there.

    Returns:
        The run's folder.
    """
    return _module(task_of(recipe)).train(recipe, console, overwrite)


def resume(folder: Path, console: Console, overrides: Sequence[str] = ()) -> Path:
    """Continues a run from its last checkpoint, as if it had never stopped.

    Args:
        folder: the run's folder.
        console: where progress is shown.
        overrides: `section.key=value`, for `data` and `device`.

    Raises:
        UserError: it is not a run, or its recipe or its training data has changed since.
    """
    return _module(task_of_run(folder)).resume(folder, console, overrides)


def task_of(recipe: AnyRecipe) -> str:
    """The word that the recipe's key `task` holds."""
    return getattr(recipe, TASK)


def task_of_run(folder: Path) -> str:
    """The task of a run, or of a checkpoint.

    Raises:
        UserError: it is not a run.
    """
    check_is_run(folder)
    return task_of(read(folder / RECIPE))


def check_task(folder: Path, task: str, instead: dict[str, str]) -> None:
    """Refuses a run of another task than a command is for.

    Args:
        folder: the run's folder.
        task: what the command is for.
        instead: for other tasks, the command to use.

    Raises:
        UserError: it is not a run, or one of another task.
    """
    found = task_of_run(folder)
    if found != task:
        remedy = f"use `{instead[found]}`" if found in instead else f"name a run of task {task}"
        raise UserError(f"is a run of task {found}, not {task}", where=str(folder), remedy=remedy)


def _module(task: str) -> ModuleType:
    return importlib.import_module(_MODULES[task])
