"""Data check of `s2s data check`: common problems of a recipe's data."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from s2s.errors import UserError
from s2s.run.tasks import TASKS

if TYPE_CHECKING:
    from s2s.run.tasks import AnyTask


def inspected(recipe: "AnyTask") -> str:
    """Report common problems of a recipe's data, before training.

    Returns:
        The report, as text.

    Raises:
        UserError: The data cannot be read, or the task has no data check (`data_check.py`).
    """
    module = f"{TASKS[recipe.task]}.data_check"
    if find_spec(module) is None:
        raise UserError(f"there is no check for data of task {recipe.task}", remedy="look at what `s2s train` tells")
    return import_module(module).inspected(recipe)
