"""What a comparison does the same way for every cell: equal sizes, one vocabulary, trainings of equal length."""

import pickle
from pathlib import Path

import pytest

from s2s.comparison.candidates import candidate_recipe
from s2s.comparison.matching import TOLERANCE
from s2s.comparison.runs import prepared, prepared_texts, validation_points
from s2s.comparison.spec import Candidate, NotForThisModel
from s2s.comparison.tasks import check_kind, data_digests, finalize_recipe, model_spec, trained, trainer_of
from s2s.comparison.tuning import Tried, short_training, summarize, tuned
from s2s.comparison.tuning_search import TuningTrial
from s2s.errors import UserError
from s2s.models.base import count_parameters
from s2s.recipe.installed import models
from s2s.recipe.reading import dump, shipped
from s2s.recipe.schema import TokenizerSettings
from s2s.run.tasks import read
from s2s.tasks.classification.task import build_classifier
from s2s.training.device import select_device

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def ag_news():
    """A recipe whose classes and pieces are written in it, so that no data is read."""
    return read(shipped()["ag_news"])


@pytest.mark.parametrize("kind", sorted(models()))
def test_every_classifier_enters_with_the_parameters_and_the_head_of_the_reference(ag_news, kind):
    pieces = ag_news.tokenizer.size
    wanted = count_parameters(build_classifier(ag_news, pieces))
    found = candidate_recipe(kind, ag_news, {})
    assert abs(count_parameters(build_classifier(found, pieces)) - wanted) <= TOLERANCE * wanted
    assert found.model.encoder_layers == ag_news.model.encoder_layers
    assert not hasattr(found.model, "decoder_layers")
    same = {"name": "", "model": None}
    assert found.model_copy(update=same) == ag_news.model_copy(update=same)
    losses = {TuningTrial(0.002): 0.3}
    candidate = tuned(Candidate(found.name, found), Tried(losses, 1.0, None, None), 7)
    assert pickle.loads(pickle.dumps(candidate)) == candidate
    told = summarize(candidate, Tried(losses, 1.0, None, None))
    assert told.parameters == count_parameters(build_classifier(found, pieces))
    assert told.recipe == dump(candidate.recipe)


def test_a_recurrent_classifier_reads_both_ways_unless_told_otherwise(ag_news):
    both, one = candidate_recipe("lstm", ag_news, {}), candidate_recipe("lstm", ag_news, {"bidirectional": False})
    assert (both.model.bidirectional, one.model.bidirectional) == (True, False)
    sizes = [model_spec(ag_news).parameters("lstm", recipe.model) for recipe in (both, one)]
    assert abs(sizes[0] - sizes[1]) <= 2 * TOLERANCE * sizes[0]
    with pytest.raises(UserError, match=r"lstm.decoder_layers=2: lstm has no setting 'decoder_layers'"):
        candidate_recipe("lstm", ag_news, {"decoder_layers": 2})


def test_what_only_the_data_tells_is_found_once_and_changes_nothing(labelled):
    base = read(labelled / "tiny.yaml")
    found = finalize_recipe(base)
    assert found.data.classes == ("Business", "Sports", "World")
    data = prepared_texts(base)
    assert found.tokenizer.size == data.tokenizer.size < base.tokenizer.size
    again = prepared_texts(found)
    assert again.hashes() == data.hashes()
    assert finalize_recipe(found) == found


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("kind", ["word", "char", "bytes", "unigram"])
def test_translators_are_matched_by_the_vocabulary_that_there_is(contest, kind, shared):
    """A recipe says no more than a limit for words and characters; by that, models of equal size would not be equal."""
    recipe = contest(["transformer"]).candidates[0].recipe
    settings = TokenizerSettings(kind=kind, size=400 if kind == "unigram" else 8000, shared=shared)
    tie = recipe.model.model_copy(update={"tie": "all" if shared else "target"})
    found = finalize_recipe(recipe.model_copy(update={"tokenizer": settings, "model": tie}))
    data = prepared(found)
    assert found.tokenizer.sizes == (data.source_tokenizer.size, data.target_tokenizer.size)
    assert found.tokenizer.shared is shared
    # with that as its limit, the pieces are the same
    before = prepared(recipe.model_copy(update={"tokenizer": settings}))
    assert before.hashes()["training_data"] == data.hashes()["training_data"]
    blueprint = model_spec(found)
    trainer = trainer_of(found, 1, select_device(found.device))
    assert count_parameters(trainer.model) == blueprint.parameters(found.model.kind, found.model)
    again = finalize_recipe(found)
    assert again == found


def test_texts_are_known_by_what_they_say(contest):
    translation = contest(["transformer"]).candidates[0].recipe
    found = data_digests(translation)
    assert set(found) == {"train", "validation", "test"}
    fewer = translation.model_copy(update={"data": translation.data.model_copy(update={"test": 20})})
    assert {name for name, each in data_digests(fewer).items() if each != found[name]} >= {"test"}


def test_a_short_training_ends_at_the_loss_of_a_whole_run(classifiers):
    made = classifiers(["transformer"])
    recipe = made.candidate("transformer").recipe
    loss, seconds = short_training(recipe, 2, made.device_context)
    points = list(validation_points(trained(made, "transformer", 2)))
    assert loss == pytest.approx(points[-1].scores["loss"], rel=1e-5)
    assert seconds > 0
    # and it has learned something
    assert loss < points[0].scores["loss"]


def test_all_models_learn_from_the_same_texts_in_the_same_order(classifiers):
    made = classifiers(["gru", "transformer"])
    recipes = [candidate.recipe for candidate in made.candidates]
    plans = [trainer_of(recipe, 1, made.device_context).groups for recipe in recipes]
    assert all((a == b).all() for one, two in zip(*plans, strict=True) for a, b in zip(one, two, strict=True))
    assert prepared_texts(recipes[0]) is prepared_texts(recipes[1])


def test_a_model_without_an_encoder_of_its_own_cannot_classify(ag_news, monkeypatch):
    monkeypatch.setattr("baselines.gru.build_encoder", None)
    with pytest.raises(NotForThisModel, match="gru only translates"):
        check_kind(ag_news, "gru")
