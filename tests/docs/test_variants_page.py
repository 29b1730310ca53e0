"""The parameters of docs/variants.md are those of the models."""

import re
from pathlib import Path

import pytest

from s2s.models.base import count_parameters
from s2s.models.transformer import Settings, build
from s2s.run.tasks import read

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/variants.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (`[^|]+) \|.*\| ([^|]+) \|$", PAGE, re.MULTILINE)

_TYPED = {"true": True, "1": 1}


@pytest.fixture(scope="module")
def recipe():
    return read(ROOT / "recipes/translate.yaml")


def _parameters(recipe, **changes: object) -> int:
    settings = Settings.model_validate(recipe.model.model_dump() | changes)
    return count_parameters(build(settings, recipe.tokenizer.size, recipe.tokenizer.size))


def test_variants_page_describes_the_model_of_the_recipe(recipe):
    model = recipe.model
    described = (
        f"width k = {model.width}, h = {model.heads} heads, inner size f = {model.feedforward}, "
        f"{model.encoder_layers} + {model.decoder_layers} layers, {model.encoder_positions} positions, "
        f"a vocabulary of {recipe.tokenizer.size:,} tokens, {_parameters(recipe):,} parameters"
    )
    assert described in " ".join(PAGE.split())


@pytest.mark.parametrize(("keys", "change"), ROWS)
def test_variants_page_has_the_change_in_parameters_of_each_row(keys, change, recipe):
    pairs = [key.split(": ") for key in re.findall("`([^`]+)`", keys)]
    # A row with several values of one key has the same number for each of them.
    for key, value in pairs:
        changes = {name: _TYPED.get(own, own) for name, own in [*pairs, (key, value)]}
        found = _parameters(recipe, **changes) - _parameters(recipe)
        assert change == (f"{found:+,}".replace("-", "−") if found else "none")
