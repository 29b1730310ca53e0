"""A model that cannot be trained here is refused before memory is filled; one that can is built as ever."""

import pytest
import torch

from s2s.errors import UserError
from s2s.recipe.reading import recipe_path
from s2s.run import room
from s2s.run.room import room_to_train
from s2s.run.tasks import read
from s2s.tasks.translation.task import TASK, build_model


def _recipe(*overrides: str):
    from pathlib import Path

    return read(recipe_path(Path("translate")), ["model.width=16", "model.feedforward=32", *overrides])


def test_a_model_that_fits_is_built_as_without_being_counted():
    recipe = _recipe()
    alone = build_model(recipe, 9, 9).state_dict()
    with room_to_train(TASK, recipe):
        counted = build_model(recipe, 9, 9).state_dict()
    assert counted.keys() == alone.keys()
    assert all(torch.equal(counted[name], alone[name]) for name in alone)
    # and the hook is gone
    assert len(torch.nn.modules.module._global_parameter_registration_hooks) == 0


def test_a_model_with_one_layer_too_many_is_refused_when_it_is_asked_for(monkeypatch):
    parameters = sum(p.numel() for p in build_model(_recipe(), 5, 5).parameters())
    monkeypatch.setattr(room, "_memory", lambda kind: 16 * (parameters + 200))
    with room_to_train(TASK, _recipe()):
        pass
    with (
        pytest.raises(UserError, match=r"parameters takes .* GiB and more to\s+train"),
        room_to_train(TASK, _recipe("model.encoder_layers=4")),
    ):
        raise AssertionError("it was let in")


def test_a_vocabulary_that_does_not_fit_is_refused_while_the_model_is_built(monkeypatch):
    parameters = sum(p.numel() for p in build_model(_recipe(), 5, 5).parameters())
    monkeypatch.setattr(room, "_memory", lambda kind: 32 * parameters)
    with pytest.raises(UserError, match=r"tokenizer\.size"), room_to_train(TASK, _recipe()):
        build_model(_recipe(), 10_000, 10_000)


def test_a_single_tensor_that_no_memory_holds_is_told_like_many(monkeypatch):
    with pytest.raises(UserError, match="GiB"), room_to_train(TASK, _recipe()):
        torch.empty(2**60)
    with pytest.raises(RuntimeError, match="another"), room_to_train(TASK, _recipe()):
        raise RuntimeError("another")
