"""The recipes of the model ladder differ in the model, its learning rate and its time only."""

import re
import warnings
from pathlib import Path

import pytest

from s2s.models.base import count_parameters
from s2s.recipe.installed import models, module_of
from s2s.recipe.reading import shipped
from s2s.recipe.schema import Section
from s2s.run.tasks import read

TOP = "multi30k_transformer"
RUNGS = sorted(name for name in shipped() if name.startswith("multi30k_") and name != TOP)


PAGE = Path(__file__).parents[2] / "docs" / "ladder.md"


def _parameters(name: str) -> int:
    recipe = read(shipped()[name])
    return _size(recipe.model, recipe.tokenizer.size)


def _size(settings: Section, pieces: int) -> int:
    with warnings.catch_warnings():
        # torch warns of initialising a zero-sized bias, which some layers have
        warnings.simplefilter("ignore")
        return count_parameters(module_of(settings.kind).build(settings, pieces, pieces))


def test_ladder_every_baseline_that_translates_has_a_rung():
    kinds = {read(shipped()[name]).model.kind for name in RUNGS}
    ours = {kind for kind, point in models().items() if point.value.startswith("baselines.")}
    assert kinds == ours - {"rnn-tagger"}


@pytest.mark.parametrize("name", RUNGS)
def test_ladder_rung_differs_from_the_transformer_in_model_and_rate_alone(name):
    rung, top = read(shipped()[name]), read(shipped()[TOP])
    same = {"name": "", "description": "", "model": None}
    training = rung.training.model_copy(update={"learning_rate": top.training.learning_rate})
    assert rung.model_copy(update=same | {"training": training}) == top.model_copy(update=same)


@pytest.mark.parametrize("name", RUNGS)
def test_ladder_rung_has_the_transformers_number_of_parameters_within_five_per_cent(name):
    assert _parameters(name) == pytest.approx(_parameters(TOP), rel=0.05)


def test_ladder_page_tells_the_parameters_of_each_rung_at_its_default_size():
    told = re.findall(r"^\| `([\w-]+)` \|.*\| ([\d,]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    rungs = {read(shipped()[name]).model.kind for name in [*RUNGS, TOP]}
    sizes = {kind: f"{_size(module_of(kind).Settings.model_validate({'kind': kind}), 8000):,}" for kind in rungs}
    assert {kind: size for kind, size in told if "," in size} == sizes
