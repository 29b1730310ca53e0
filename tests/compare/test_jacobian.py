"""Products with the Jacobian, against the dense Jacobian."""

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.attention import SDPBackend, sdpa_kernel

from s2s.comparison.questions.gradients.jacobian import (
    Transition,
    flatten_state,
    has_fixed_size,
    lyapunov,
    numbers,
    spectral_norm,
    spectral_radius,
    unflatten_state,
)
from s2s.models.base import BatchedState, Decoder, EncoderOutput
from s2s.recipe.installed import models, module_of

SIZE = 19
# by what they are: those whose state has numbers, and as many after each token
FIXED = ["conv", "gru", "gru-attention", "lstm", "lstm-attention", "mingru", "minlstm", "rnn", "rnn-attention"]


@dataclass(frozen=True)
class Held(BatchedState):
    values: tuple[Tensor, ...]
    steps: int = 0


class Forgetful(torch.autograd.Function):
    """Multiplies; torch is told that it has no second derivative."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(weight)
        return x * weight

    @staticmethod
    @once_differentiable
    def backward(ctx, *gradients):
        return gradients[0] * ctx.saved_tensors[0], None


class Diagonal(Decoder[BatchedState, Held]):
    """s′ = d ∘ s + token: a linear recurrence whose Jacobian is known."""

    def __init__(self, factors, times=torch.mul):
        super().__init__()
        self.factors, self.times = torch.tensor(factors, dtype=torch.float64), times

    def start(self, memory, limit):
        return BatchedState(), Held((torch.ones(len(memory.states), len(self.factors), dtype=torch.float64),))

    def forward(self, context, state, tokens):
        (kept,) = state.values
        for token in tokens.unbind(dim=1):
            kept = self.times(kept, self.factors) + token[:, None].double()
        return kept[:, None], Held((kept,), state.steps + tokens.shape[1])


def _diagonal(factors, steps=1, times=torch.mul):
    decoder = Diagonal(factors, times)
    context, state = decoder.start(EncoderOutput(torch.zeros(2, 1, 1), torch.ones(2, 1) > 0, torch.zeros(2, 1)), steps)
    return decoder, context, state, torch.arange(2 * steps).view(2, steps)


def _decoder(kind, options=()):
    torch.manual_seed(3)
    module = module_of(kind)
    own = {"width": 8, "encoder_layers": 1, "decoder_layers": 2, "heads": 2, "feedforward": 16} | dict(options)
    known = {key: value for key, value in own.items() if key in module.Settings.model_fields}
    model = module.build(module.Settings(kind=kind, **known), SIZE, SIZE).double().eval()
    source = torch.randint(4, SIZE, (3, 5))
    with torch.no_grad():
        context, state = model.decoder.start(model.encoder(source, torch.ones_like(source) > 0), 12)
    return model.decoder, context, state, torch.randint(4, SIZE, (3, 12))


def _jacobian(decoder, context, state, token):
    """Row by row of the batch, by torch's own means."""

    def after(row):
        def step(s):
            return flatten_state(decoder(context.select(row), unflatten_state(state.select(row), s), token[row])[1])

        return step

    each = [torch.tensor([i]) for i in range(len(token))]
    found = [torch.autograd.functional.jacobian(after(i), flatten_state(state.select(i)).detach()) for i in each]
    return torch.stack([one[0, :, 0] for one in found])


@pytest.mark.parametrize("kind", FIXED)
def test_transition_products_equal_the_dense_jacobian(kind):
    decoder, context, state, tokens = _decoder(kind)
    # torch's kernel of attention computes a forward derivative by other means than a backward one, to fewer digits
    with sdpa_kernel(SDPBackend.MATH):
        whole = _jacobian(decoder, context, state, tokens[:, :1])
        step = Transition(decoder, context, state, tokens[:, :1])
        v = torch.randn(3, step.size, dtype=torch.float64)
        assert step.push(v) == pytest.approx((whole @ v[:, :, None])[:, :, 0], abs=1e-12)
        assert step.pull(v) == pytest.approx((v[:, None] @ whole)[:, 0], abs=1e-12)
        assert step.dense() == pytest.approx(whole, abs=1e-12)


@pytest.mark.parametrize("kind", FIXED)
def test_spectral_norm_is_the_largest_singular_value(kind):
    decoder, context, state, tokens = _decoder(kind)
    step = Transition(decoder, context, state, tokens[:, :1])
    expected = torch.linalg.svdvals(_jacobian(decoder, context, state, tokens[:, :1]))[:, 0]
    assert spectral_norm(step, seed=1) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("kind", FIXED)
def test_lyapunov_is_the_growth_under_the_product_of_jacobians(kind):
    decoder, context, state, tokens = _decoder(kind)
    # more steps, and a convolution has forgotten the first state
    steps, settle = (2, 0) if kind == "conv" else (12, 4)
    found = lyapunov(decoder, context, state, tokens[:, :steps], seed=7, settle=settle)
    v = torch.randn(3, flatten_state(state).shape[1], generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    sizes = [v.norm(dim=1)]
    for i in range(steps):
        v = (_jacobian(decoder, context, state, tokens[:, i : i + 1]) @ v[:, :, None])[:, :, 0]
        sizes.append(v.norm(dim=1))
        with torch.no_grad():
            state = decoder(context, state, tokens[:, i : i + 1])[1]
    assert found == pytest.approx((sizes[-1] / sizes[settle]).log() / (steps - settle), abs=1e-9)


def test_jacobian_of_a_diagonal_recurrence_is_known():
    decoder, context, state, tokens = _diagonal([0.3, -0.9, 0.5], steps=80)
    step = Transition(decoder, context, state, tokens[:, :1])
    assert spectral_norm(step, seed=1) == pytest.approx(torch.full((2,), 0.9, dtype=torch.float64), abs=1e-7)
    assert spectral_radius(step.dense()) == pytest.approx(torch.full((2,), 0.9, dtype=torch.float64), abs=1e-12)
    found = lyapunov(decoder, context, state, tokens, seed=1, settle=60)
    assert found == pytest.approx(torch.full((2,), math.log(0.9), dtype=torch.float64), abs=1e-9)


def test_lyapunov_is_minus_infinity_if_all_is_forgotten():
    decoder, context, state, tokens = _diagonal([0.0, 0.0], steps=3)
    assert (lyapunov(decoder, context, state, tokens, seed=1) == -math.inf).all()
    assert (spectral_norm(Transition(decoder, context, state, tokens[:, :1]), seed=1) == 0).all()


def test_lyapunov_refuses_fewer_steps_than_settle():
    with pytest.raises(ValueError, match="needs more than 3 steps, got 3"):
        lyapunov(*_diagonal([0.5], steps=3), seed=1, settle=3)


def _half_forgetful(x, weight):
    return torch.cat((x[:, :1] * weight[:1], Forgetful.apply(x[:, 1:], weight[1:])), dim=1)


@pytest.mark.parametrize("times", [Forgetful.apply, _half_forgetful])
def test_transition_push_without_second_derivative_uses_differences(times):
    decoder, context, state, tokens = _diagonal([0.3, -0.9, 0.5], times=times)
    step = Transition(decoder, context, state, tokens)
    v = torch.randn(2, 3, dtype=torch.float64)
    assert step.push(v) == pytest.approx(v * decoder.factors, abs=1e-9)
    assert spectral_norm(step, seed=1) == pytest.approx(torch.full((2,), 0.9, dtype=torch.float64), abs=1e-6)


@pytest.mark.parametrize("kind", sorted(models()))
def test_has_fixed_size_by_model(kind):
    decoder, context, state, tokens = _decoder(kind)
    with torch.no_grad():
        assert has_fixed_size(decoder, context, state, tokens) == (kind in FIXED)


def test_flatten_state_includes_input_feeding_and_coverage():
    plain = flatten_state(_decoder("lstm-attention")[2]).shape[1]
    options = {"attention": "additive", "input_feeding": True, "coverage": True}
    decoder, context, state, tokens = _decoder("lstm-attention", options.items())
    # the last output, and how much was looked at of each of five pieces
    assert flatten_state(state).shape[1] == plain + 8 + 5
    step = Transition(decoder, context, state, tokens[:, :1])
    assert step.dense() == pytest.approx(_jacobian(decoder, context, state, tokens[:, :1]), abs=1e-12)


def test_unflatten_state_inverts_flatten_state():
    state = Held((torch.randn(2, 3), torch.arange(4).view(2, 2), torch.randn(2, 2, 2)), 5)
    again = unflatten_state(state, flatten_state(state) + 1)
    assert (again.steps, len(numbers(state))) == (5, 2)
    assert torch.equal(again.values[0], state.values[0] + 1)
    assert torch.equal(again.values[1], state.values[1])
    assert torch.equal(again.values[2], state.values[2] + 1)
