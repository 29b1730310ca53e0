"""Data check of `s2s data check`: common problems of a recipe's data."""

from importlib.util import find_spec

from s2s.errors import UserError
from s2s.recipe.installed import task_module, tasks
from s2s.recipe.schema import TrainRecipe


def inspected(recipe: TrainRecipe) -> str:
    """Report common problems of a recipe's data, before training.

    Returns:
        The report, as text.

    Raises:
        UserError: The data cannot be read, or the task has no data check (`diagnosis.py`).
    """
    if find_spec(f"{tasks()[recipe.task].value}.diagnosis") is None:
        raise UserError(f"there is no check for data of task {recipe.task}", remedy="look at what `s2s train` tells")
    return task_module(recipe.task, "diagnosis").inspected(recipe)
