"""What every installed model must keep: run over the entry points, so a stranger's model is tested too."""

import pytest
import torch

from s2s.models.contract import Seq2Seq
from s2s.recipe.installed import models, module_of

SIZE = 23
KINDS = sorted(models())
# a model's other faces: settings that lead through other code than the defaults do
VARIANTS = [
    ("transformer", {"norm": "post", "encoder_positions": "learned", "decoder_positions": "none", "tie": "target"}),
    ("transformer", {"attention": "explicit", "activation": "gelu", "tie": "none"}),
    ("rnn", {"bidirectional": False, "residual": True}),
    ("gru", {"bidirectional": False, "encoder_layers": 1, "decoder_layers": 3}),
    ("lstm", {"bidirectional": False, "reverse_source": True, "residual": True}),
    ("rnn-attention", {"attention": "dot", "tie": "none"}),
    ("gru-attention", {"attention": "concat", "input_feeding": True}),
    ("gru-attention", {"attention": "additive"}),
    ("conv", {"kernel": 4, "encoder_layers": 2, "decoder_layers": 2, "tie": "none"}),
    ("minlstm", {"bidirectional": False, "residual": True}),
    ("lstm-attention", {"attention": "location", "tie": "target"}),
    ("rnn-tagger", {"cell": "rnn", "bidirectional": False}),
    ("lstm-attention", {"attention": "additive", "coverage": True}),
    ("lstm-attention", {"attention": "additive", "coverage": True, "input_feeding": True, "reverse_source": False}),
]
CASES = [(kind, {}) for kind in KINDS] + VARIANTS


def _build(kind: str, options: dict) -> Seq2Seq:
    torch.manual_seed(0)
    module = module_of(kind)
    return module.build(module.Settings(kind=kind, **options), SIZE, SIZE).double().eval()


def _name(case: tuple[str, dict]) -> str:
    return " ".join([case[0], *(f"{key}={value}" for key, value in case[1].items())])


@pytest.fixture(params=CASES, ids=_name)
def model(request) -> Seq2Seq:
    return _build(*request.param)


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    valid = torch.ones(4, 6, dtype=torch.bool)
    valid[1, 4:] = False
    valid[3, 1:] = False
    return torch.randint(4, SIZE, (4, 6)), valid, torch.randint(4, SIZE, (4, 5))


def test_there_are_models():
    assert "transformer" in KINDS


def test_token_by_token_is_teacher_forcing(model, batch):
    source, valid, target = batch
    whole = model(source, valid, target)
    context, state = model.decoder.start(model.encoder(source, valid), target.shape[1])
    steps = []
    for i in range(target.shape[1]):
        states, state = model.decoder(context, state, target[:, i : i + 1])
        steps.append(states)
    torch.testing.assert_close(torch.cat(steps, dim=1), whole)


def test_feeding_in_two_parts_is_feeding_at_once(model, batch):
    source, valid, target = batch
    context, state = model.decoder.start(model.encoder(source, valid), target.shape[1])
    first, state = model.decoder(context, state, target[:, :2])
    second, _ = model.decoder(context, state, target[:, 2:])
    torch.testing.assert_close(torch.cat((first, second), dim=1), model(source, valid, target))


def test_a_batch_is_its_rows_alone(model, batch):
    source, valid, target = batch
    together = model(source, valid, target)
    for i in range(len(source)):
        length = int(valid[i].sum())
        alone = model(source[i : i + 1, :length], valid[i : i + 1, :length], target[i : i + 1])
        torch.testing.assert_close(together[i : i + 1], alone)


def test_what_lies_in_the_padding_changes_nothing(model, batch):
    source, valid, target = batch
    memory = model.encoder(source, valid)
    other = torch.where(valid, source, 4 + (source + 3) % (SIZE - 4))
    torch.testing.assert_close(model(other, valid, target), model(source, valid, target))
    torch.testing.assert_close(model.encoder(other, valid).summary, memory.summary)


def test_selected_state_goes_on_as_the_selected_rows_would(model, batch):
    source, valid, target = batch
    rows = torch.tensor([2, 0, 0, 3, 1])
    context, state = model.decoder.start(model.encoder(source, valid), target.shape[1])
    _, state = model.decoder(context, state, target[:, :2])
    states, _ = model.decoder(context.select(rows), state.select(rows), target[rows, 2:])
    torch.testing.assert_close(states, model(source, valid, target)[rows, 2:])


def test_feeding_does_not_change_the_state_it_was_given(model, batch):
    source, valid, target = batch
    context, state = model.decoder.start(model.encoder(source, valid), target.shape[1])
    _, state = model.decoder(context, state, target[:, :1])
    once, _ = model.decoder(context, state, target[:, 1:2])
    model.decoder(context, state, target[:, 2:3])
    again, _ = model.decoder(context, state, target[:, 1:2])
    torch.testing.assert_close(once, again)


def test_attention_rows_sum_to_one_over_real_tokens(model, batch):
    source, valid, target = batch
    weights = model.decoder.attention_weights(model.encoder(source, valid), target)
    assert weights.shape[0] == 4
    assert weights.shape[3:] == (5, 6)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))
    assert weights.masked_select(~valid[:, None, None, None, :]).abs().sum() == 0


def test_gradients_reach_every_parameter(model, batch):
    source, valid, target = batch
    model.train()
    model.logits(source, valid, target).log_softmax(-1)[..., 5].sum().backward()
    unreached = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    # a softmax does not see what is added to all its scores: the key's bias has no gradient by nature
    assert [n for n in unreached if not n.endswith("key.bias")] == []


def test_the_gradient_is_the_slope_of_the_loss(model, batch):
    source, valid, target = batch
    parameters = list(model.parameters())

    def loss() -> torch.Tensor:
        return model.logits(source, valid, target).log_softmax(-1)[..., 5].sum()

    loss().backward()
    torch.manual_seed(2)
    direction = [torch.randn_like(p) for p in parameters]
    # of length one: a long step would cross the kinks of a ReLU
    length = torch.stack([d.norm() for d in direction]).norm()
    direction = [d / length for d in direction]
    slope = sum((p.grad * d).sum() for p, d in zip(parameters, direction, strict=True) if p.grad is not None)
    around, step = [], 1e-5
    with torch.no_grad():
        for distance in (step, -2 * step):
            for p, d in zip(parameters, direction, strict=True):
                p += distance * d
            around.append(loss())
    torch.testing.assert_close((around[0] - around[1]) / (2 * step), slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_builds_the_same_model(kind):
    first, second = _build(kind, {}), _build(kind, {})
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)
