"""Frozen parameters do not change and have no optimizer state."""

import pytest
import torch
from torch import nn

from s2s.errors import UserError
from s2s.models.base import count_parameters
from s2s.models.transformer import Settings, build
from s2s.training.optimization import freeze


def _model(tie: str = "all") -> nn.Module:
    torch.manual_seed(0)
    return build(Settings(width=8, heads=2, feedforward=12, encoder_layers=2, decoder_layers=1, tie=tie), 20, 20)


def _frozen(model: nn.Module) -> set[str]:
    return {name for name, p in model.named_parameters() if not p.requires_grad}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("encoder.layers.0", lambda name: name.startswith("encoder.layers.0.")),
        ("encoder.layers.*", lambda name: name.startswith("encoder.layers.")),
        ("encoder", lambda name: name.startswith("encoder.")),
        ("*.bias", lambda name: name.endswith(".bias")),
        ("encoder.layers.1.attention.query.weight", lambda name: name == "encoder.layers.1.attention.query.weight"),
        ("*.self_attention", lambda name: ".self_attention." in name),
    ],
)
def test_freezing_pattern_names_a_parameter_or_a_module_with_all_that_is_in_it(pattern, expected):
    model = _model(tie="none")
    freeze(model, [pattern])
    assert _frozen(model) == {name for name, _ in model.named_parameters() if expected(name)} != set()


def test_freezing_tied_tensor_is_frozen_by_any_of_its_names():
    for pattern in ("projection", "decoder.embedding", "encoder.embedding"):
        model = _model()
        freeze(model, [pattern])
        assert _frozen(model) == {"encoder.embedding.tokens.weight"}
        assert count_parameters(model) == sum(p.numel() for p in model.parameters()) - 20 * 8


def test_freezing_pattern_that_names_nothing_and_one_that_leaves_nothing_are_refused():
    with pytest.raises(
        UserError, match=r"'encoder.layer.0' matches no parameter of the model\n.*did you mean encoder.layers.0"
    ):
        freeze(_model(), ["decoder", "encoder.layer.0"])
    with pytest.raises(UserError, match="all parameters are frozen"):
        freeze(_model(), ["encoder", "decoder"])
    untouched = _model()
    freeze(untouched, [])
    assert not _frozen(untouched)
