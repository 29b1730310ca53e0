import pytest
import torch
from torch.nn import functional

import s2s.training.loss as loss_module
from s2s.training.loss import cross_entropy


@pytest.fixture
def case():
    torch.manual_seed(0)
    states = torch.randn(3, 5, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 8, dtype=torch.float64, requires_grad=True)
    valid = torch.ones(3, 5, dtype=torch.bool)
    valid[1, 2:] = False
    return states, weight, torch.randint(0, 11, (3, 5)), valid


def _plain(states, weight, targets, valid, smoothing):
    scores = (states @ weight.T)[valid]
    return functional.cross_entropy(scores, targets[valid], reduction="sum", label_smoothing=smoothing)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows_at_once", [1, 4, 1000])
def test_the_chunked_loss_and_its_gradients_are_the_plain_ones(case, smoothing, rows_at_once, monkeypatch):
    states, weight, targets, valid = case
    monkeypatch.setitem(loss_module._CHUNK, "cpu", rows_at_once * 11)
    smoothed, plain = cross_entropy(states, weight, targets, valid, smoothing)
    expected = _plain(states, weight, targets, valid, smoothing)
    assert smoothed.item() == pytest.approx(expected.item(), rel=1e-12)
    assert plain.item() == pytest.approx(_plain(states, weight, targets, valid, 0.0).item(), rel=1e-12)
    ours = torch.autograd.grad(smoothed / 7, (states, weight))
    theirs = torch.autograd.grad(expected / 7, (states, weight))
    torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=0)


def test_what_lies_in_the_padding_changes_no_loss(case):
    states, weight, targets, valid = case
    other = torch.where(valid, targets, (targets + 1) % 11)
    assert not torch.equal(other, targets)
    assert torch.equal(
        cross_entropy(states, weight, other, valid, 0.1)[0], cross_entropy(states, weight, targets, valid, 0.1)[0]
    )


def test_in_bf16_the_loss_is_that_of_autocast_products(case):
    states, weight, targets, valid = (x.float() if x.is_floating_point() else x for x in case)
    states, weight = states.detach().requires_grad_(), weight.detach().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        smoothed, _ = cross_entropy(states, weight, targets, valid, 0.1)
    (gradient,) = torch.autograd.grad(smoothed, weight)
    expected = _plain(states, weight, targets, valid, 0.1)
    assert smoothed.item() == pytest.approx(expected.item(), rel=0.02)
    assert gradient.dtype == torch.float32
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, weight)[0], atol=0.1, rtol=0.1)
