"""Reading of published model descriptions, and writing of the matching recipe."""

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
HUB = "hf:"
"""Prefix of names on the Hugging Face hub."""
POOLER = "pooler.safetensors"
"""File of the pooler's weights, which a classifier may load, in the folder of a run."""
AGAIN = "download the model again"
"""Remedy for a damaged file of a published folder."""


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that contains an object.

    Raises:
        UserError: The file is missing, or has other contents.
    """
    return read_json(path, dict[str, Any], AGAIN, LARGE_BYTES)


def keys_of(found: Mapping[str, Any], kind: type[M], path: Path) -> M:
    """Validate a description against a pydantic model.

    Args:
        kind: The pydantic model; other keys are ignored.
        path: File, for the error.

    Raises:
        UserError: A key is missing, or has another type or an impossible value.
    """
    return parse_json(json.dumps(found), kind, str(path), AGAIN)


def check_values(found: Mapping[str, Any], known: Mapping[str, tuple[object, ...]], path: Path) -> None:
    """Refuse a description with unsupported values.

    Args:
        known: Supported values of each key.
        path: File, for the error.

    Raises:
        UserError: For the first unsupported value.
    """
    for key, values in known.items():
        if found.get(key) not in values:
            raise UserError(
                f"{key} is {found.get(key)!r:.60}, and s2s reads {' or '.join(map(repr, values))}",
                where=str(path),
                remedy="choose another model",
            )


def write_recipe(given: dict[str, Any], place: Path, path: Path) -> None:
    """Write the recipe of a run that was converted from a published Transformer.

    Args:
        path: The description, for the error.

    Raises:
        UserError: The values are not a valid recipe.
    """
    schema = schemas()[given["task"]]
    remedy = f"{AGAIN}, or choose another model"
    recipe = parse_json(json.dumps(given), schema.recipe_class(schema.settings("transformer")), str(path), remedy)
    write(recipe, place / "recipe.yaml")
