"""Equal budgets: what each model of a comparison starts with."""

import pickle

import pytest

from s2s.comparison.candidates import candidate_recipe, equal_time
from s2s.comparison.matching import TOLERANCE, size_of
from s2s.comparison.spec import Candidate
from s2s.errors import UserError
from s2s.recipe.installed import models
from s2s.recipe.reading import dump, shipped
from s2s.run.tasks import read


@pytest.fixture(scope="module")
def base():
    return read(shipped()["compare"])


@pytest.mark.parametrize("recipe", ["compare", "compare_multi30k"])
@pytest.mark.parametrize("kind", sorted(models()))
def test_every_model_enters_with_the_parameters_layers_and_data_of_the_reference(recipe, kind):
    base = read(shipped()[recipe])
    pieces = base.tokenizer.size
    wanted = size_of(base.model.kind, base.model, pieces, pieces)
    found = candidate_recipe(kind, base, {})
    assert abs(size_of(kind, found.model, pieces, pieces) - wanted) <= TOLERANCE * wanted
    assert found.model.encoder_layers == base.model.encoder_layers
    same = {"name": "", "model": None}
    assert found.model_copy(update=same) == base.model_copy(update=same)


def test_the_reference_itself_is_unchanged(base):
    assert candidate_recipe("transformer", base, {}).model == base.model


def test_a_models_own_setting_comes_first_and_its_size_stays(base):
    found = candidate_recipe("lstm-attention", base, {"input_feeding": True, "encoder_layers": 1})
    assert (found.model.input_feeding, found.model.encoder_layers, found.model.decoder_layers) == (True, 1, 2)
    ours, reference = (size_of(r.model.kind, r.model, *[base.tokenizer.size] * 2) for r in (found, base))
    assert abs(ours - reference) <= TOLERANCE * reference


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"hedas": 2}, r"lstm.hedas=2: lstm has no setting 'hedas'.*\n.*bidirectional"),
        ({"width": 2}, r"width cannot be set\n.*widths are computed"),
        ({"dropout": 2}, r"command line: lstm: dropout: .*less than 1"),
        ({"reverse_source": True}, r"reverse_source needs bidirectional: false"),
    ],
)
def test_a_wrong_setting_of_a_model_is_named(base, own, message):
    with pytest.raises(UserError, match=message):
        candidate_recipe("lstm", base, own)


def test_equal_time_gives_slow_models_fewer_updates(base):
    recipes = {name: base.model_copy(update={"name": "any"}) for name in ("slow", "middle", "fast")}
    updates = equal_time(recipes, {"slow": 0.4, "middle": 0.2, "fast": 0.1})
    total = base.training.updates
    assert updates == {"slow": total // 2, "middle": total, "fast": 2 * total}
    assert "fast" not in equal_time(recipes, {"slow": 0.4})


@pytest.mark.parametrize("kind", sorted(models()))
def test_a_contestant_sent_to_another_process_stays_what_it_is(base, kind):
    candidate = Candidate(kind, candidate_recipe(kind, base, {}), depths=(2, 1), slope=-0.1)
    assert pickle.loads(pickle.dumps(candidate)) == candidate


def test_what_only_one_model_knows_is_kept_in_its_recipe_and_on_its_way_to_another_process(base):
    own = {"bidirectional": False, "attention": "additive"}
    candidate = Candidate("lstm-attention", candidate_recipe("lstm-attention", base, own))
    for kept in (pickle.loads(pickle.dumps(candidate)).recipe.model, candidate.recipe.model):
        assert (kept.bidirectional, kept.attention) == (False, "additive")
    told = dump(candidate.recipe)
    assert "bidirectional: false" in told
    assert "attention: additive" in told


@pytest.mark.parametrize(("recipe", "scaled"), [("compare", True), ("compare_multi30k", False)])
def test_vectors_are_as_large_as_states_where_all_pieces_are_frequent(recipe, scaled):
    base = read(shipped()[recipe])
    assert candidate_recipe("lstm", base, {}).model.scale_embeddings is scaled
    assert candidate_recipe("lstm", base, {"scale_embeddings": not scaled}).model.scale_embeddings is not scaled
