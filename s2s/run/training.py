"""Trains and continues a run of any task, with the module that knows the task."""

import importlib
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from s2s.recipe.reading import read
from s2s.recipe.schema import AnyRecipe
from s2s.run.course import Course, follow, plain, start
from s2s.run.folder import RECIPE, check_free, check_resumable, folder_of, of_now
from s2s.run.room import room_to_train
from s2s.run.tasks import task_of

# each has `course(recipe, say, folder, overrides)`
_MODULES = {
    "translation": "s2s.run.translation",
    "classification": "s2s.run.classification",
    "masked-lm": "s2s.run.masked_lm",
    "images": "s2s.run.images",
}


def train(recipe: AnyRecipe, console: Console, overwrite: bool = False) -> Path:
    """Trains a new run; its folder is made only when data, tokenizers and model are found good.

    Args:
        recipe: the resolved recipe.
        console: where progress is shown.
        overwrite: replace a run that is there.

    Returns:
        The run's folder.
    """
    check_free(folder_of(recipe), overwrite)
    return start(_course(recipe, console), console, overwrite)


def resume(folder: Path, console: Console, overrides: Sequence[str] = ()) -> Path:
    """Continues a run from its last checkpoint, as if it had never stopped.

    Args:
        folder: the run's folder.
        console: where progress is shown.
        overrides: `section.key=value`, for `data` and `device`; and `training.updates`, which the run keeps.

    Raises:
        UserError: it is not a run, or its recipe or its training data has changed since.
    """
    check_resumable(folder, overrides)
    its = of_now(overrides)
    follow(_course(read(folder / RECIPE, overrides), console, folder, its), folder, console, overrides)
    return folder


def _course(recipe: AnyRecipe, console: Console, folder: Path | None = None, overrides: Sequence[str] = ()) -> Course:
    module = importlib.import_module(_MODULES[task_of(recipe)])
    with room_to_train(recipe):
        return module.course(recipe, plain(console), folder, overrides)
