"""Which task a recipe, a run or a checkpoint is of."""

from collections.abc import Sequence
from pathlib import Path

from s2s.errors import UserError
from s2s.recipe.reading import read
from s2s.recipe.schema import AnyRecipe
from s2s.recipe.tasks import TASK
from s2s.run.folder import RECIPE, check_is_run


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


def check_classes(kept: Sequence[str] | None, wanted: Sequence[str] | None) -> None:
    """Refuses other classes than those that a model has learned: its outputs have no names but by their order.

    Args:
        kept: names in the run's recipe.
        wanted: names after a caller's overrides.

    Raises:
        UserError: they differ.
    """
    if kept != wanted:
        raise UserError(
            f"data.classes is {listed(wanted)}, but the model was trained with {listed(kept)}",
            remedy="leave data.classes out; data.first_label says what number the first class has in a table",
        )


def listed(classes: Sequence[str] | None) -> str:
    """The first names of classes, for messages."""
    names = list(classes or ())
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "")


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
