"""What a published folder says of its model, and what our recipe of it says."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from s2s.errors import UserError
from s2s.recipe.reading import write
from s2s.run.tasks import schemas

CONFIG = "config.json"


def read_json(path: Path) -> dict[str, Any]:
    """The contents of a file.

    Raises:
        UserError: it is not there, or holds something else.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("expected an object")
    except (ValueError, OSError) as error:
        raise UserError(f"cannot be read: {error}", str(path), "fetch the model again") from None
    return found


def check_values(found: Mapping[str, Any], known: Mapping[str, tuple[object, ...]], path: Path) -> None:
    """Refuses a description in which a key has another value than the known ones.

    Raises:
        UserError: for the first such key.
    """
    for key, values in known.items():
        if found.get(key) not in values:
            raise UserError(
                f"{key} is {found.get(key)!r}, and s2s reads {' or '.join(map(repr, values))}",
                where=str(path),
                remedy="choose another model",
            )


def write_recipe(given: dict[str, Any], place: Path) -> None:
    """Writes the recipe of a run that was made of published weights of a Transformer."""
    schema = schemas()[given["task"]]
    recipe = schema.whole(schema.settings("transformer")).model_validate_json(json.dumps(given))
    write(recipe, place / "recipe.yaml")
