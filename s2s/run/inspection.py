"""What commonly spoils data, for `s2s data check`."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from s2s.errors import UserError
from s2s.run.back_translation import with_back_translations
from s2s.run.tasks import TASKS

if TYPE_CHECKING:
    from s2s.run.tasks import AnyTask


def inspected(recipe: "AnyTask", say: Callable[[str], object] = lambda line: None, folder: Path | None = None) -> str:
    """What commonly spoils a recipe's data, or those of the run in `folder`, found before training.

    Raises:
        UserError: the data cannot be read, or the task's room has no `inspection.py`.
    """
    room = f"{TASKS[recipe.task]}.inspection"
    if find_spec(room) is None:
        raise UserError(f"there is no check for data of task {recipe.task}", remedy="look at what `s2s train` tells")
    return import_module(room).inspected(with_back_translations(recipe, say, folder))
