"""Loss functions compared with their definitions."""

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
def test_chunked_loss_and_its_gradients_are_the_plain_ones(case, smoothing, rows_at_once, monkeypatch):
    states, weight, targets, valid = case
    monkeypatch.setitem(loss_module._CHUNK, "cpu", rows_at_once * 11)
    smoothed, plain = cross_entropy(states, weight, targets, valid, smoothing)
    expected = _plain(states, weight, targets, valid, smoothing)
    assert smoothed.item() == pytest.approx(expected.item(), rel=1e-12)
    assert plain.item() == pytest.approx(_plain(states, weight, targets, valid, 0.0).item(), rel=1e-12)
    ours = torch.autograd.grad(smoothed / 7, (states, weight))
    theirs = torch.autograd.grad(expected / 7, (states, weight))
    torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=0)


@pytest.mark.parametrize("weight_dtype", [torch.float64, torch.bfloat16])
def test_loss_of_fp32_states_takes_weights_of_another_data_type(case, weight_dtype):
    states, weight, targets, valid = case
    narrow = states.detach().float().requires_grad_()
    other = weight.detach().to(weight_dtype).requires_grad_()
    same = other.detach().float().requires_grad_()
    ours, theirs = (
        torch.autograd.grad(cross_entropy(narrow, each, targets, valid, 0.1)[0], (narrow, each))
        for each in (other, same)
    )
    torch.testing.assert_close(ours[0], theirs[0], atol=1e-5, rtol=1e-2)
    torch.testing.assert_close(ours[1].float(), theirs[1], atol=1e-2, rtol=2e-2)


def test_loss_ignores_padding(case):
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


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_in_bf16_a_token_known_by_heart_is_learned_in_the_right_direction(smoothing):
    torch.manual_seed(0)
    weight, targets = torch.randn(300, 64) / 8, torch.arange(256)[None]
    # as large as p of the target is 0.999, in scores that differ from one wrong class to another
    states = 14 * functional.normalize(weight[:256], dim=1)[None]
    states = states * (1 + 0.05 * torch.randn(1, 256, 1))
    share = (states[0] @ weight.T).softmax(1).gather(1, targets.T)
    assert share.median() > 0.998
    gradients = {}
    for bf16 in (False, True):
        leaves = [states.detach().clone().requires_grad_(), weight.detach().clone().requires_grad_()]
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            smoothed, plain = cross_entropy(*leaves, targets, torch.ones_like(targets, dtype=torch.bool), smoothing)
        gradients[bf16] = torch.autograd.grad(smoothed, leaves)
        assert plain.item() == pytest.approx(-share.log().sum().item(), rel=0.1)
    for low, full in zip(gradients[True], gradients[False], strict=True):
        assert functional.cosine_similarity(low.flatten(), full.flatten(), dim=0) > 0.99


@pytest.mark.slow
def test_loss_in_bf16_learning_by_heart_ends_where_fp32_ends():
    ends = {}
    for bf16 in (False, True):
        torch.manual_seed(0)
        states, weight = (torch.randn(*size).requires_grad_() for size in ((1, 64, 32), (80, 32)))
        optimizer = torch.optim.Adam([states, weight], lr=0.02)
        targets = torch.randint(80, (1, 64))
        for _ in range(400):
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                loss, _ = cross_entropy(states, weight, targets, torch.ones_like(targets, dtype=torch.bool))
            optimizer.zero_grad()
            (loss / 64).backward()
            optimizer.step()
        ends[bf16] = [loss.item() / 64, weight.norm().item()]
    assert ends[True] == pytest.approx(ends[False], rel=0.2)


def test_loss_in_mixed_precision_the_errors_of_a_token_still_sum_to_zero():
    torch.manual_seed(0)
    weight = (torch.randn(2000, 64) * 64**-0.5).requires_grad_()
    # states have something in common, as those of a network do: what is lost at each token adds up
    states, targets = torch.randn(1, 256, 64) + 1, torch.randint(0, 2000, (1, 256))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, _ = cross_entropy(states, weight, targets, torch.ones_like(targets, dtype=torch.bool), smoothing=0.1)
    (gradient,) = torch.autograd.grad(loss, weight)
    # with the target's part rounded to bf16 as the others are, it is 2.5
    assert gradient.sum(dim=0).norm() < 0.8
