"""The recipes that come with s2s, the page of keys and the schema for editors: all say the same."""

import json
from pathlib import Path

import pytest
from pydantic import BaseModel

from s2s.errors import UserError
from s2s.recipe.fitting import fitted_recipe
from s2s.recipe.installed import models, module_of
from s2s.recipe.reading import dump, read
from s2s.recipe.reference import json_schema, reference
from s2s.recipe.schema import Recipe
from s2s.recipe.shipped import copy, shipped

ROOT = Path(__file__).parents[2]


def test_every_shipped_recipe_is_valid_and_described():
    found = shipped()
    assert len(found) == len(list((ROOT / "recipes").glob("*.yaml"))) >= 2
    for name, path in found.items():
        recipe = read(path)
        assert recipe.name == name
        assert recipe.description


def test_the_page_of_keys_is_made_from_the_schema():
    assert (ROOT / "docs" / "recipe.md").read_text(encoding="utf-8") == reference()


def _fields(section: type[BaseModel]):
    for name, field in section.model_fields.items():
        yield section.__name__, name, field
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _fields(field.annotation)


def test_every_key_has_a_meaning():
    sections = [Recipe, *(module_of(kind).Settings for kind in models())]
    silent = [
        f"{section}.{name}"
        for root in sections
        for section, name, field in _fields(root)
        if not field.description
        and not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel))
    ]
    assert [name for name in silent if name != "Recipe.name"] == []


def test_the_schema_for_editors_knows_every_key_and_refuses_others():
    schema = json.loads(json_schema())
    assert set(schema["properties"]) == set(Recipe.model_fields)
    assert schema["additionalProperties"] is False
    for kind in models():
        model = schema["$defs"][f"model_{kind}"]
        assert set(model["properties"]) == set(module_of(kind).Settings.model_fields)
        assert model["additionalProperties"] is False


def test_a_copied_recipe_is_never_overwritten_by_accident(tmp_path):
    path = copy("translate", tmp_path)
    assert path.read_text() == shipped()["translate"].read_text()
    with pytest.raises(UserError, match=r"translate.yaml: is there already(.|\n)*--overwrite"):
        copy("translate", tmp_path)
    with pytest.raises(UserError, match=r"no recipe 'tranlate'(.|\n)*use translate"):
        copy("tranlate", tmp_path)


@pytest.mark.parametrize("pairs", [20, 900, 5_000, 20_000])
def test_a_fitted_recipe_is_valid_whatever_the_size(tmp_path, pairs):
    for side in ("a.en", "a.de"):
        (tmp_path / side).write_text("x\n" * pairs)
    path = tmp_path / "mine.yaml"
    path.write_text(fitted_recipe("mine", tmp_path / "a.en", tmp_path / "a.de"))
    recipe = read(path)
    assert recipe.data.train == (str(tmp_path / "a.en"), str(tmp_path / "a.de"))
    assert "seeds" in dump(recipe)


def test_a_fitted_recipe_needs_files_of_equal_length(tmp_path):
    (tmp_path / "a.en").write_text("x\n" * 30)
    (tmp_path / "a.de").write_text("x\n" * 31)
    with pytest.raises(UserError, match=r"has 30 lines, .* has 31"):
        fitted_recipe("mine", tmp_path / "a.en", tmp_path / "a.de")
    with pytest.raises(UserError, match=r"a.fr: cannot be read"):
        fitted_recipe("mine", tmp_path / "a.en", tmp_path / "a.fr")
