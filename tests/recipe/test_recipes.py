"""Shipped recipes, the reference page and the JSON schema agree."""

import json
import operator
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from s2s.errors import UserError
from s2s.recipe.catalog import copy_shipped
from s2s.recipe.installed import models, module_of
from s2s.recipe.page import read_page, read_value
from s2s.recipe.reading import shipped
from s2s.recipe.reference import json_schema, reference
from s2s.recipe.wording import section_of
from s2s.run.tasks import read, schemas

ROOT = Path(__file__).parents[2]


def test_every_shipped_recipe_is_valid_and_described():
    found = shipped()
    assert len(found) == len(list((ROOT / "recipes").glob("*.yaml"))) >= 2
    for name, path in found.items():
        recipe = read(path)
        assert recipe.name == name
        assert recipe.description


def test_wheel_holds_every_package_and_the_recipes():
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    there = {
        ".".join(p.parent.relative_to(ROOT).parts) for room in ("s2s", "baselines") for p in (ROOT / room).rglob("*.py")
    }
    assert sorted(setuptools["packages"]) == sorted(there | {"s2s.recipes"})
    assert setuptools["package-dir"]["s2s.recipes"] == "recipes"
    assert setuptools["package-data"]["s2s.recipes"] == ["*.yaml", "measured.json"]


def test_shipped_recipe_page_of_keys_is_made_from_the_schema():
    assert (ROOT / "docs" / "recipe.md").read_text(encoding="utf-8") == reference(schemas()), (
        "s2s recipe reference > docs/recipe.md"
    )


def _fields(section: type[BaseModel]) -> Iterator[tuple[type[BaseModel], str]]:
    for name, field in section.model_fields.items():
        yield section, name
        if inner := section_of(field):
            yield from _fields(inner)


ROOTS = (*(schema.recipe for schema in schemas().values()), *(module_of(kind).Settings for kind in models()))
EVERY_KEY = [key for root in ROOTS for key in _fields(root)]


def test_every_recipe_key_has_a_description():
    assert len(EVERY_KEY) > 70
    assert [f"{s.__name__}.{name}" for s, name in EVERY_KEY if not s.model_fields[name].description] == []


def test_page_shows_every_default_that_the_recipe_takes():
    page = reference(schemas())
    for section, name in EVERY_KEY:
        field = section.model_fields[name]
        if section_of(field) or field.is_required():
            continue
        meaning = " ".join(str(field.description).split())
        assert re.search(
            rf"^\| `{name}` \| .* \| `{re.escape(json.dumps(field.default))}` \| {re.escape(meaning)} \|$", page, re.M
        )


_TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "null": type(None)}
_TYPES |= {"number": (int, float)}
_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "enum": lambda value, words: value in words,
    "const": lambda value, word: value == word,
    "minimum": operator.ge,
    "maximum": operator.le,
    "exclusiveMinimum": operator.gt,
    "exclusiveMaximum": operator.lt,
    "minLength": lambda value, limit: len(value) >= limit,
    "maxLength": lambda value, limit: len(value) <= limit,
    "minItems": lambda value, limit: len(value) >= limit,
    "maxItems": lambda value, limit: len(value) <= limit,
    "pattern": lambda value, pattern: re.search(pattern, value) is not None,
    "required": lambda value, keys: set(keys) <= value.keys(),
    "minProperties": lambda value, limit: len(value) >= limit,
}
_SAYS_NOTHING = ("$schema", "$defs", "title", "description", "default", "type")


def _fits(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    """Whether a value fits a JSON schema: as much of the standard as our schema uses, another keyword is an error."""
    if kind := schema.get("type"):
        bool_for_number = isinstance(value, bool) and kind in ("integer", "number")
        if bool_for_number or not isinstance(value, _TYPES[kind]):
            return False
    return all(_holds(word, limit, value, schema, root) for word, limit in schema.items() if word not in _SAYS_NOTHING)


def _holds(word: str, limit: Any, value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    if word == "$ref":
        return _fits(value, root["$defs"][limit.removeprefix("#/$defs/")], root)
    if word in ("anyOf", "oneOf"):
        fitting = sum(_fits(value, option, root) for option in limit)
        return fitting == 1 if word == "oneOf" else fitting > 0
    if word == "properties":
        return all(_fits(value[key], limit[key], root) for key in value.keys() & limit.keys())
    if word == "patternProperties":
        chosen = [(inner, part) for name, part in value.items() for key, inner in limit.items() if re.search(key, name)]
        return all(_fits(part, inner, root) for inner, part in chosen)
    if word == "propertyNames":
        return all(_fits(name, limit, root) for name in value)
    if word == "additionalProperties" and limit is False:
        return value.keys() <= schema["properties"].keys()
    if word == "items":
        return all(_fits(item, limit, root) for item in value[len(schema.get("prefixItems", ())) :])
    if word == "prefixItems":
        return all(_fits(item, part, root) for item, part in zip(value, limit, strict=False))
    return _HOLDS[word](value, limit)


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json.loads(json_schema(schemas()))


def test_schema_for_editors_takes_every_shipped_recipe_as_written_and_resolved(schema):
    for path in shipped().values():
        assert _fits(read_page(path).values, schema, schema)
        assert _fits(read(path).model_dump(mode="json"), schema, schema)


WRONG = [
    "training.updats=1",
    "trainin={}",
    "training.updates=0",
    "training.updates=true",
    "training.clip=many",
    "training.betas=[0.9]",
    "training.betas=[0.9, 1.0]",
    "training.schedule=cosin",
    "model.kind=transfomer",
    "model.head=4",
    "model={width: 8}",
    "name=a b",
    "data.train=0",
    "device.compile=no",
    "seeds.data=-1",
]


@pytest.mark.parametrize("override", WRONG)
def test_shipped_recipe_schema_for_editors_refuses_what_reading_refuses(override, schema):
    path = shipped()["translate"]
    with pytest.raises(UserError):
        read(path, [override])
    tree = read_page(path).values
    key, _, value = override.partition("=")
    section, _, name = key.rpartition(".")
    (tree.setdefault(section, {}) if section else tree)[name] = read_value(value)
    assert not _fits(tree, schema, schema)


def test_shipped_recipe_schema_of_one_model_knows_no_other():
    schema = json.loads(json_schema(schemas(), ["transformer"]))
    wholes = [schema["$defs"][part["$ref"].removeprefix("#/$defs/")] for part in schema["oneOf"]]
    assert len(wholes) == len(schemas())
    sections = [part["$ref"] for whole in wholes for part in whole["properties"]["model"]["oneOf"]]
    assert set(sections) == {f"#/$defs/{part}_transformer" for part in ("model", "encoder", "language")}
    assert set(schema["$defs"]["model_transformer"]["properties"]) == set(
        module_of("transformer").Settings.model_fields
    )
    with pytest.raises(UserError, match="did you mean transformer"):
        json_schema(schemas(), ["transfomer"])


def test_copied_recipe_is_never_overwritten_by_accident(tmp_path):
    path = copy_shipped("translate", tmp_path)
    assert path.read_text() == shipped()["translate"].read_text()
    with pytest.raises(UserError, match=r"translate.yaml: already exists(.|\n)*--overwrite"):
        copy_shipped("translate", tmp_path)
    with pytest.raises(UserError, match=r"no recipe 'tranlate'(.|\n)*did you mean translate"):
        copy_shipped("tranlate", tmp_path)
