"""Widths that give every model the same number of parameters."""

import pytest
from torch import nn

from s2s.comparison.matching import TOLERANCE, ModelSpec, match_parameters, match_translator, settings_of, size_of
from s2s.comparison.spec import NoSuchSize
from s2s.errors import UserError
from s2s.models.base import count_parameters
from s2s.recipe.installed import models, module_of
from s2s.recipe.schema import Section

OPTIONS = {"encoder_layers": 2, "decoder_layers": 2, "feedforward_ratio": 2, "dropout": 0.0, "max_positions": 64}


@pytest.mark.parametrize("kind", sorted(models()))
def test_every_model_comes_to_the_wanted_size(kind):
    settings = match_translator(kind, 500, 200_000, OPTIONS)
    count = count_parameters(module_of(kind).build(settings, 500, 500))
    assert abs(count - 200_000) <= TOLERANCE * 200_000
    assert size_of(kind, settings, 500, 500) == count


@pytest.mark.parametrize("kind", sorted(models()))
def test_no_other_width_comes_nearer(kind):
    settings = match_translator(kind, 500, 200_000, OPTIONS)
    best = abs(size_of(kind, settings, 500, 500) - 200_000)
    for width in (settings.width - 4, settings.width + 4):
        inner = {"width": width, "feedforward": 2 * width}
        other = settings_of(kind, OPTIONS | inner)
        assert abs(size_of(kind, other, 500, 500) - 200_000) >= best


def test_options_that_a_model_does_not_know_are_left_out():
    assert settings_of("rnn", {"heads": 3, "decoder_layers": 1}).decoder_layers == 1


def test_the_inner_size_keeps_its_ratio():
    settings = match_translator("transformer", 500, 200_000, OPTIONS)
    assert settings.feedforward == 2 * settings.width


def test_a_size_that_no_width_gives_is_refused():
    with pytest.raises(UserError, match=r"cannot have 600 parameters within 5 %: nearest is"):
        match_translator("lstm", 500, 600, OPTIONS)


class _WithoutWidth(Section):
    """Settings of a model of one size."""

    kind: str = "rnn"
    layers: int = 2


def test_a_model_without_a_width_is_refused_for_that_reason():
    spec = ModelSpec(lambda kind: _WithoutWidth, lambda kind, settings: nn.Linear(10, 10), 4000, "test without width")
    assert match_parameters("rnn", spec, 110, {}).model_dump() == {"kind": "rnn", "layers": 2}
    with pytest.raises(NoSuchSize) as refused:
        match_parameters("rnn", spec, 489_728, {})
    assert refused.value.what == "rnn has 110 parameters instead of 489,728, and no setting width to vary"
    assert refused.value.remedy == "add width to its Settings, or leave it out"
