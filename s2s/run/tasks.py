"""Tasks by name. A task's package is imported when the task is first used."""

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from s2s.errors import UserError
from s2s.recipe import reading
from s2s.recipe.installed import task_module, task_schema, tasks
from s2s.recipe.schema import TaskSchema, TrainRecipe

if TYPE_CHECKING:
    from s2s.recipe.labelled import LabelledRecipe
    from s2s.tasks.base import AnyTask
    from s2s.tasks.classification_base import ClassificationTask, LabelledData


class _Schemas(Mapping[str, TaskSchema]):
    """Loads each schema on first use: most commands need a single task."""

    def __getitem__(self, task: str) -> TaskSchema:
        if task not in tasks():
            raise KeyError(task)
        return task_schema(task)

    def __iter__(self) -> Iterator[str]:
        return iter(tasks())

    def __len__(self) -> int:
        return len(tasks())


def schemas() -> Mapping[str, TaskSchema]:
    """Return the recipe schemas of all tasks by name, loaded lazily.

    Example:
        >>> "translation" in schemas()
        True
    """
    return _Schemas()


def schema_of(recipe: TrainRecipe) -> TaskSchema:
    """Return the schema of a recipe's task, without importing torch."""
    return schemas()[recipe.task]


def task_of(recipe: TrainRecipe) -> "AnyTask":
    """Return the task of a recipe."""
    # Its methods get the recipe, the data and the model of the same task, which a type checker cannot know.
    return task_module(recipe.task, "task").TASK


def classification_task(recipe: "LabelledRecipe") -> "ClassificationTask[LabelledRecipe, LabelledData]":
    """Return the task of a classifier's recipe."""
    return task_module(recipe.task, "task").TASK


def serialize_recipe(recipe: TrainRecipe) -> tuple[str, str, str]:
    """Serialize a recipe for another process.

    Recipe classes are created per model section and cannot be pickled.

    Returns:
        Task, model kind and the recipe as JSON.
    """
    return recipe.task, recipe.model.kind, recipe.model_dump_json()


def deserialize_recipe(serialized: tuple[str, str, str]) -> TrainRecipe:
    """Return the recipe that `serialize_recipe` serialized."""
    task, kind, written = serialized
    schema = schemas()[task]
    return schema.recipe_class(schema.settings(kind)).model_validate_json(written)


def read(path: Path, overrides: Sequence[str] = ()) -> TrainRecipe:
    """Read and validate a recipe of any task; see `s2s.recipe.reading.read`.

    Args:
        overrides: `section.key=value` arguments.

    Raises:
        UserError: The file cannot be read, or the recipe has mistakes; the message lists all of them.
    """
    return reading.read(path, overrides, schemas())


def inspected(recipe: TrainRecipe) -> str:
    """Report common problems of a recipe's data, before training, as text.

    Raises:
        UserError: The data cannot be read, or the task has no data check (`diagnosis.py`).
    """
    if find_spec(f"{tasks()[recipe.task].value}.diagnosis") is None:
        raise UserError(f"task {recipe.task} has no data check", remedy="see the first lines of `s2s train`")
    return task_module(recipe.task, "diagnosis").inspected(recipe)
