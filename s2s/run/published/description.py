"""What a published folder says of its model, and what our recipe of it says."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from s2s.errors import UserError
from s2s.files import LARGE_BYTES
from s2s.json_files import parse_json, read_json
from s2s.recipe.reading import write
from s2s.run.tasks import schemas

M = TypeVar("M", bound=BaseModel)

CONFIG = "config.json"


AGAIN = "fetch the model again"
"""The remedy for a damaged file of a published folder."""


def read_object(path: Path) -> dict[str, Any]:
    """The contents of a JSON file that holds an object.

    Raises:
        UserError: it is not there, or holds something else.
    """
    return read_json(path, dict[str, Any], AGAIN, LARGE_BYTES)


def keys_of(found: Mapping[str, Any], kind: type[M], path: Path) -> M:
    """The keys of a description that a model of pydantic wants, of the right types.

    Raises:
        UserError: one is missing, or has another type or an impossible value.
    """
    return parse_json(json.dumps(found), kind, str(path), AGAIN)


def check_values(found: Mapping[str, Any], known: Mapping[str, tuple[object, ...]], path: Path) -> None:
    """Refuses a description in which a key has another value than the known ones.

    Raises:
        UserError: for the first such key.
    """
    for key, values in known.items():
        if found.get(key) not in values:
            raise UserError(
                f"{key} is {found.get(key)!r:.60}, and s2s reads {' or '.join(map(repr, values))}",
                where=str(path),
                remedy="choose another model",
            )


def write_recipe(given: dict[str, Any], place: Path, path: Path) -> None:
    """Writes the recipe of a run that was made of published weights of a Transformer.

    Raises:
        UserError: `path`, the description, names a model that no recipe describes.
    """
    schema = schemas()[given["task"]]
    remedy = f"{AGAIN}, or choose another model"
    recipe = parse_json(json.dumps(given), schema.whole(schema.settings("transformer")), str(path), remedy)
    write(recipe, place / "recipe.yaml")
