"""Registry of tasks. A task's package is imported when the task is first used."""

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from s2s.recipe import reading
from s2s.recipe.schema import TaskSchema

if TYPE_CHECKING:
    from s2s.tasks.base import Task
    from s2s.tasks.captioning.recipe import CaptionRecipe
    from s2s.tasks.classification.recipe import ClassificationRecipe
    from s2s.tasks.images.recipe import ImageRecipe
    from s2s.tasks.language_model.recipe import LanguageRecipe
    from s2s.tasks.masked_lm.recipe import MaskedRecipe
    from s2s.tasks.text_to_text.recipe import TextToTextRecipe
    from s2s.tasks.translation.recipe import Recipe

    AnyTask = (
        Recipe[Any]
        | ClassificationRecipe[Any]
        | MaskedRecipe[Any]
        | ImageRecipe[Any]
        | CaptionRecipe[Any]
        | LanguageRecipe[Any]
        | TextToTextRecipe[Any]
    )
    """Recipe of any task; its key `task` names the task."""

TASKS = {
    "translation": "s2s.tasks.translation",
    "classification": "s2s.tasks.classification",
    "masked-lm": "s2s.tasks.masked_lm",
    "images": "s2s.tasks.images",
    "captioning": "s2s.tasks.captioning",
    "language-model": "s2s.tasks.language_model",
    "text-to-text": "s2s.tasks.text_to_text",
}
"""Package of each task by the name in a recipe's `task`; the first is the default.

A package has `recipe.py`, which defines `SCHEMA` and needs no torch; `task.py`, which defines `TASK`; and optionally
`data_check.py`, which defines the data check `inspected`."""


class _Schemas(Mapping[str, TaskSchema]):
    """Loads each schema on first use: most commands need a single task."""

    def __getitem__(self, task: str) -> TaskSchema:
        return import_module(f"{TASKS[task]}.recipe").SCHEMA

    def __iter__(self) -> Iterator[str]:
        return iter(TASKS)

    def __len__(self) -> int:
        return len(TASKS)


def schemas() -> Mapping[str, TaskSchema]:
    """Return the recipe schemas of all tasks by name, loaded lazily.

    Example:
        >>> "translation" in schemas()
        True
    """
    return _Schemas()


def schema_of(recipe: "AnyTask") -> TaskSchema:
    """Return the schema of a recipe's task, without importing torch."""
    return schemas()[recipe.task]


def task_of(recipe: "AnyTask") -> "Task[Any, Any, Any]":
    """Return the task of a recipe."""
    return import_module(f"{TASKS[recipe.task]}.task").TASK


def serialize_recipe(recipe: "AnyTask") -> tuple[str, str, str]:
    """Serialize a recipe for another process.

    Recipe classes are created per model section and cannot be pickled.

    Returns:
        Task, model kind and the recipe as JSON.
    """
    return recipe.task, recipe.model.kind, recipe.model_dump_json()


def deserialize_recipe(told: tuple[str, str, str]) -> "AnyTask":
    """Return the recipe that `serialize_recipe` serialized."""
    task, kind, written = told
    schema = schemas()[task]
    return cast("AnyTask", schema.whole(schema.settings(kind)).model_validate_json(written))


def read(path: Path, overrides: Sequence[str] = ()) -> "AnyTask":
    """Read and validate a recipe of any task; see `s2s.recipe.reading.read`.

    Args:
        path: YAML file.
        overrides: `section.key=value` arguments.

    Returns:
        The recipe.

    Raises:
        UserError: The file cannot be read, or the recipe has mistakes; the message lists all of them.
    """
    return cast("AnyTask", reading.read(path, overrides, schemas()))
