"""Variance of inputs, states and gradients at initialization."""

import math

import pytest
import torch

from s2s.models.base import Seq2Seq
from s2s.recipe.installed import models, module_of
from s2s.training.loss import cross_entropy

WIDTH, SIZE, LENGTH = 128, 500, 24
# a stranger's model may be of another make
KINDS = [kind for kind in sorted(models()) if models()[kind].value.startswith(("s2s.", "baselines."))]
TIES = ("all", "target", "none")


def _rms(x: torch.Tensor) -> float:
    return x.detach().pow(2).mean().sqrt().item()


def _built(kind: str, tie: str, **chosen: bool) -> Seq2Seq:
    torch.manual_seed(0)
    module = module_of(kind)
    wanted = {"tie": tie, "scale_embeddings": True} | chosen
    own = {key: value for key, value in wanted.items() if key in module.Settings.model_fields}
    return module.build(module.Settings(kind=kind, width=WIDTH, **own), SIZE, SIZE).eval()


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    source, target = torch.randint(4, SIZE, (2, 16, LENGTH))
    return source, torch.ones_like(source, dtype=torch.bool), target


@pytest.mark.parametrize("tie", TIES)
@pytest.mark.parametrize("kind", KINDS)
def test_initialization_gives_embeddings_unit_scale(kind, tie, batch):
    model = _built(kind, tie)
    source, _, target = batch
    assert 0.9 < _rms(model.encoder.embedding(source)) < 1.3
    if hasattr(model.decoder, "embedding"):
        assert 0.9 < _rms(model.decoder.embedding(target)) < 1.3


@pytest.mark.parametrize("kind", ["lstm", "lstm-attention"])
def test_initialization_recipe_may_read_what_is_in_the_table(kind, batch):
    model = _built(kind, "all", scale_embeddings=False)
    for part, tokens in ((model.encoder, batch[0]), (model.decoder, batch[2])):
        torch.testing.assert_close(part.embedding(tokens), model.projection.weight[tokens])


@pytest.mark.parametrize("tie", TIES)
@pytest.mark.parametrize("kind", KINDS)
def test_initialization_states_and_scores_start_neither_dead_nor_sure(kind, tie, batch):
    model = _built(kind, tie)
    source, valid, target = batch
    memory = model.encoder(source, valid)
    states = model(source, valid, target)
    # an LSTM's gates are half open, so that a sixth comes out; unscaled inputs would leave a twentieth
    assert 0.12 < _rms(memory.states) < 1.5
    assert 0.12 < _rms(memory.summary) < 1.5
    assert 0.12 < _rms(states) < 1.5
    loss, _ = cross_entropy(states, model.projection.weight, target.roll(-1, 1), valid)
    assert loss.item() / target.numel() == pytest.approx(math.log(SIZE), rel=0.2)


@pytest.mark.parametrize("kind", KINDS)
def test_initialization_gives_first_weights_gradients_of_their_size(kind, batch):
    model = _built(kind, "none")
    source, valid, target = batch
    loss, _ = cross_entropy(model(source, valid, target), model.projection.weight, target.roll(-1, 1), valid)
    (loss / target.numel()).backward()
    first = next(p for n, p in model.encoder.named_parameters() if p.dim() == 2 and "embedding" not in n)
    table = next(p for p in model.encoder.parameters() if len(p) == SIZE)
    for p in (first, table):
        assert p.grad is not None
        assert 8e-4 < (p.grad.norm() / p.norm()).item() < 0.1
