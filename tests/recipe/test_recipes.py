"""The recipes that come with s2s, the page of keys and the schema for editors: all say the same."""

import gzip
import json
import lzma
import operator
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from s2s.errors import UserError
from s2s.recipe.fitting import fitted_recipe
from s2s.recipe.installed import models, module_of
from s2s.recipe.page import read_page, read_value
from s2s.recipe.reading import read
from s2s.recipe.reference import json_schema, reference
from s2s.recipe.shipped import copy, shipped
from s2s.recipe.tasks import TASKS
from s2s.recipe.wording import section_of

ROOT = Path(__file__).parents[2]


def test_every_shipped_recipe_is_valid_and_described():
    found = shipped()
    assert len(found) == len(list((ROOT / "recipes").iterdir())) >= 2
    for name, path in found.items():
        recipe = read(path)
        assert recipe.name == name
        assert recipe.description


def test_a_wheel_holds_every_package_and_the_recipes():
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    there = {
        ".".join(p.parent.relative_to(ROOT).parts) for room in ("s2s", "baselines") for p in (ROOT / room).rglob("*.py")
    }
    assert sorted(setuptools["packages"]) == sorted(there | {"s2s.recipes"})
    assert setuptools["package-dir"]["s2s.recipes"] == "recipes"
    assert setuptools["package-data"]["s2s.recipes"] == ["*.yaml"]


def test_the_page_of_keys_is_made_from_the_schema():
    assert (ROOT / "docs" / "recipe.md").read_text(encoding="utf-8") == reference()


def _fields(section: type[BaseModel]) -> Iterator[tuple[type[BaseModel], str]]:
    for name, field in section.model_fields.items():
        yield section, name
        if inner := section_of(field):
            yield from _fields(inner)


ROOTS = (*(schema.recipe for schema in TASKS.values()), *(module_of(kind).Settings for kind in models()))
EVERY_KEY = [key for root in ROOTS for key in _fields(root)]


def test_every_key_says_what_it_means():
    assert len(EVERY_KEY) > 70
    assert [f"{s.__name__}.{name}" for s, name in EVERY_KEY if not s.model_fields[name].description] == []


def test_the_page_shows_every_default_that_the_recipe_takes():
    page = reference()
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
    "minItems": lambda value, limit: len(value) >= limit,
    "maxItems": lambda value, limit: len(value) <= limit,
    "pattern": lambda value, pattern: re.search(pattern, value) is not None,
    "required": lambda value, keys: set(keys) <= value.keys(),
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
    if word == "additionalProperties" and limit is False:
        return value.keys() <= schema["properties"].keys()
    if word == "items":
        return all(_fits(item, limit, root) for item in value[len(schema.get("prefixItems", ())) :])
    if word == "prefixItems":
        return all(_fits(item, part, root) for item, part in zip(value, limit, strict=False))
    return _HOLDS[word](value, limit)


def test_the_schema_for_editors_takes_every_shipped_recipe_as_written_and_resolved():
    schema = json.loads(json_schema())
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
def test_the_schema_for_editors_refuses_what_reading_refuses(override):
    path = shipped()["translate"]
    with pytest.raises(UserError):
        read(path, [override])
    tree = read_page(path).values
    key, _, value = override.partition("=")
    section, _, name = key.rpartition(".")
    (tree.setdefault(section, {}) if section else tree)[name] = read_value(value)
    schema = json.loads(json_schema())
    assert not _fits(tree, schema, schema)


def test_the_schema_of_one_model_knows_no_other():
    schema = json.loads(json_schema(["transformer"]))
    wholes = [schema["$defs"][part["$ref"].removeprefix("#/$defs/")] for part in schema["oneOf"]]
    assert len(wholes) == len(TASKS)
    sections = [part["$ref"] for whole in wholes for part in whole["properties"]["model"]["oneOf"]]
    assert set(sections) == {"#/$defs/model_transformer", "#/$defs/encoder_transformer"}
    assert set(schema["$defs"]["model_transformer"]["properties"]) == set(
        module_of("transformer").Settings.model_fields
    )
    with pytest.raises(UserError, match="did you mean transformer"):
        json_schema(["transfomer"])


def test_a_copied_recipe_is_never_overwritten_by_accident(tmp_path):
    path = copy("translate", tmp_path)
    assert path.read_text() == shipped()["translate"].read_text()
    with pytest.raises(UserError, match=r"translate.yaml: is there already(.|\n)*--overwrite"):
        copy("translate", tmp_path)
    with pytest.raises(UserError, match=r"no recipe 'tranlate'(.|\n)*did you mean translate"):
        copy("tranlate", tmp_path)


def _lines(path: Path, count: int) -> Path:
    path.write_text("x\n" * count)
    return path


@pytest.mark.parametrize("pairs", [20, 900, 5_000, 20_000, 200_000, 400_000])
def test_a_fitted_recipe_is_valid_whatever_the_size(tmp_path, pairs):
    files = _lines(tmp_path / "a.en", pairs), _lines(tmp_path / "a.de", pairs)
    (tmp_path / "mine.yaml").write_text(fitted_recipe("mine", files))
    recipe = read(tmp_path / "mine.yaml")
    assert recipe.data.train == (str(files[0]), str(files[1]))
    assert 0 < recipe.data.validation + recipe.data.test <= pairs / 10
    assert recipe.tokenizer.size <= max(500, pairs)
    assert recipe.training.warmup < recipe.training.updates


def test_larger_corpora_get_larger_models_and_vocabularies(tmp_path):
    sizes = []
    for pairs in (500, 5_000, 50_000, 200_000, 400_000):
        files = _lines(tmp_path / "a.en", pairs), _lines(tmp_path / "a.de", pairs)
        (tmp_path / "mine.yaml").write_text(fitted_recipe("mine", files))
        recipe = read(tmp_path / "mine.yaml")
        sizes.append((recipe.tokenizer.size, recipe.model.width, recipe.training.updates))
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 5


def test_a_fitted_recipe_bears_any_file_name_and_any_ending(tmp_path):
    odd = tmp_path / "null, [x]: #1 'ü' \"q\""
    odd.mkdir()
    files = _lines(odd / "no.en", 30), _lines(odd / "true", 30)
    (tmp_path / "mine.yaml").write_text(fitted_recipe("mein erstes Rezept!", files, files), encoding="utf-8")
    recipe = read(tmp_path / "mine.yaml")
    assert recipe.data.train == recipe.data.validation == (str(files[0]), str(files[1]))
    assert (recipe.data.source, recipe.data.target, recipe.name) == ("en", "true", "mein-erstes-Rezept")


def test_a_fitted_recipe_needs_files_of_equal_length(tmp_path):
    files = _lines(tmp_path / "a.en", 30), _lines(tmp_path / "a.de", 31)
    with pytest.raises(UserError, match=r"has 30 lines, .* has 31"):
        fitted_recipe("mine", files)
    with pytest.raises(UserError, match=r"a.de has 31 lines"):
        fitted_recipe("mine", (files[0], files[0]), (files[1], files[0]))
    with pytest.raises(UserError, match=r"a.fr: cannot be read: No such file"):
        fitted_recipe("mine", (files[0], tmp_path / "a.fr"))
    with pytest.raises(UserError, match=r"5 sentence pairs are too few(.|\n)*collect"):
        fitted_recipe("mine", (_lines(tmp_path / "b.en", 5), _lines(tmp_path / "b.de", 5)))


def test_lines_are_counted_at_line_feeds_only_also_in_compressed_files(tmp_path):
    text = "one\u2028two\x85three\rfour\n" * 30 + "last without an end"
    (tmp_path / "a.en.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "a.de.xz").write_bytes(lzma.compress(("eins\n" * 31).encode()))
    recipe = fitted_recipe("mine", (tmp_path / "a.en.gz", tmp_path / "a.de.xz"))
    assert "for 31 sentence pairs" in recipe
    assert "source: en\n  target: de\n" in recipe
    (tmp_path / "a.en.gz").write_bytes(gzip.compress(text.encode())[:-9])
    with pytest.raises(UserError, match=r"a.en.gz: cannot be read: Compressed file ended"):
        fitted_recipe("mine", (tmp_path / "a.en.gz", tmp_path / "a.de.xz"))
