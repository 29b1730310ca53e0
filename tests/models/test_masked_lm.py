"""The masked-language model with every installed encoder."""

import pytest
import torch
from torch.nn import functional

from s2s.errors import UserError
from s2s.models.masked_lm import MaskedLM, reading_direction
from s2s.recipe.installed import models, module_of
from s2s.tasks.masked_lm.data import MaskedBatch
from s2s.tasks.masked_lm.task import masked_loss

SIZE = 23
KINDS = sorted(models())


def _encoder(kind: str, seed: int = 0, **options):
    torch.manual_seed(seed)
    module = module_of(kind)
    return module.build_encoder(module.Settings(kind=kind, width=32, **options), SIZE + 1)


def _model(kind: str, tie: bool = True, seed: int = 0, **options) -> MaskedLM:
    encoder, width = _encoder(kind, seed, **options)
    return MaskedLM(encoder, width, SIZE, tie).double().eval()


@pytest.fixture
def batch() -> MaskedBatch:
    torch.manual_seed(1)
    valid = torch.ones(4, 6, dtype=torch.bool)
    valid[1, 4:] = False
    valid[3, 1:] = False
    source = torch.randint(4, SIZE + 1, (4, 6)) * valid
    chosen = torch.tensor([0, 3, 7, 13, 14, 18])
    targets = torch.randint(4, SIZE, (6,))
    return MaskedBatch(torch.arange(4), len(chosen), int(valid.sum()), 1.0, source, valid, chosen, targets)


@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_masked_lm_loss_is_the_cross_entropy_of_the_chosen_pieces_alone(kind, tie, batch):
    model = _model(kind, tie)
    states = model.encoder(batch.source, batch.source_valid).states
    scores = model.transform(states) @ model.projection.weight[:SIZE].T
    expected = sum(
        functional.cross_entropy(scores[place // 6, place % 6], target, reduction="sum")
        for place, target in zip(batch.chosen.tolist(), batch.targets, strict=True)
    )
    wanted, plain = masked_loss(model, batch)
    torch.testing.assert_close(wanted, expected)
    torch.testing.assert_close(plain, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_masked_lm_states_that_were_not_chosen_have_no_gradient(kind, batch):
    model = _model(kind)
    seen = []
    forward = model.encoder.forward

    def watched(source, valid):
        memory = forward(source, valid)
        memory.states.retain_grad()
        seen.append(memory.states)
        return memory

    model.encoder.forward = watched
    masked_loss(model, batch)[0].backward()
    moved = seen[0].grad.abs().sum(-1).flatten() > 0
    assert moved.nonzero().squeeze(1).tolist() == batch.chosen.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_masked_lm_loss_ignores_padding(kind, batch):
    model = _model(kind)
    other = torch.where(batch.source_valid, batch.source, 9)
    changed = MaskedBatch(batch.indices, batch.count, 0, 1.0, other, batch.source_valid, batch.chosen, batch.targets)
    torch.testing.assert_close(masked_loss(model, changed)[0], masked_loss(model, batch)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_masked_lm_probabilities_are_of_real_pieces_and_sum_to_one(kind, batch):
    found = _model(kind).log_probabilities(batch.source, batch.source_valid, batch.chosen)
    assert found.shape == (6, SIZE)
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(6, dtype=torch.float64))


@pytest.mark.parametrize("kind", KINDS)
def test_masked_lm_tied_or_not_gradients_reach_every_parameter(kind, batch):
    for tie in (True, False):
        model = _model(kind, tie).train()
        masked_loss(model, batch)[0].backward()
        unreached = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
        assert [n for n in unreached if not n.endswith("key.bias")] == []


def test_masked_lm_tied_the_projection_is_the_encoders_table():
    model = _model("transformer")
    assert model.projection.weight is model.encoder.embedding.tokens.weight
    assert "projection.weight" not in dict(model.named_parameters())


def test_masked_lm_encoder_with_two_tables_of_that_size_cannot_be_tied():
    encoder, width = _encoder("transformer", encoder_positions="learned", max_positions=SIZE + 1)
    with pytest.raises(UserError, match="2 tables"):
        MaskedLM(encoder, width, SIZE)
    MaskedLM(encoder, width, SIZE, tie=False)


@pytest.mark.parametrize(
    ("kind", "options", "direction"),
    [
        ("transformer", {}, "both sides"),
        ("lstm", {}, "both sides"),
        ("conv", {}, "both sides"),
        ("lstm", {"bidirectional": False}, "before"),
        ("minlstm", {"bidirectional": False}, "before"),
        ("gru", {"bidirectional": False, "reverse_source": True}, "after"),
    ],
)
def test_masked_lm_encoder_is_asked_what_it_can_see(kind, options, direction):
    encoder, _ = _encoder(kind, **options)
    encoder.train()
    assert reading_direction(encoder) == direction
    assert encoder.training
