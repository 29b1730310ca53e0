"""The tasks: the one place that knows them all. Nothing heavy is loaded before a task is asked for."""

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
    """What a recipe may be; its key `task` says which."""

TASKS = {
    "translation": "s2s.tasks.translation",
    "classification": "s2s.tasks.classification",
    "masked-lm": "s2s.tasks.masked_lm",
    "images": "s2s.tasks.images",
    "captioning": "s2s.tasks.captioning",
    "language-model": "s2s.tasks.language_model",
    "text-to-text": "s2s.tasks.text_to_text",
}
"""The room of each task, by the word that a recipe's `task` holds; the first is that of a recipe that names none.

A room has `recipe.py`, which needs no torch and offers `SCHEMA`; `task.py`, which offers `TASK`; and, where there is
something to look for in its data, `inspection.py`, which offers `inspected`.
"""


class _Schemas(Mapping[str, TaskSchema]):
    """Each is loaded when it is asked for: most commands need that of one task."""

    def __getitem__(self, task: str) -> TaskSchema:
        return import_module(f"{TASKS[task]}.recipe").SCHEMA

    def __iter__(self) -> Iterator[str]:
        return iter(TASKS)

    def __len__(self) -> int:
        return len(TASKS)


def schemas() -> Mapping[str, TaskSchema]:
    """What recipes of each task are held against, by the task's name."""
    return _Schemas()


def schema_of(recipe: "AnyTask") -> TaskSchema:
    """What is known of a recipe's task before anything heavy is loaded."""
    return schemas()[recipe.task]


def task_of(recipe: "AnyTask") -> "Task[Any, Any, Any]":
    """The task of a recipe."""
    return import_module(f"{TASKS[recipe.task]}.task").TASK


def serialize_recipe(recipe: "AnyTask") -> tuple[str, str, str]:
    """A recipe as another process can be told it: classes that are made for a model's settings cannot be pickled."""
    return recipe.task, recipe.model.kind, recipe.model_dump_json()


def deserialize_recipe(told: tuple[str, str, str]) -> "AnyTask":
    """The recipe that another process has `sent`."""
    task, kind, written = told
    schema = schemas()[task]
    return cast("AnyTask", schema.whole(schema.settings(kind)).model_validate_json(written))


def read(path: Path, overrides: Sequence[str] = ()) -> "AnyTask":
    """A checked recipe of any task; see `s2s.recipe.reading.read`."""
    return cast("AnyTask", reading.read(path, overrides, schemas()))
