"""The parallel scan compared with a loop."""

import pytest
import torch

from baselines.cells import MinGRU, MinLSTM
from baselines.scan import scan


def _sequence(steps: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(steps)
    decay = torch.sigmoid(3 * torch.randn(2, steps, 3, dtype=torch.float64))
    return decay, torch.randn(2, steps, 3, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)


def _loop(decay: torch.Tensor, update: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    states = []
    for t in range(update.shape[1]):
        start = decay[:, t] * start + update[:, t]
        states.append(start)
    return torch.stack(states, dim=1)


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 8, 9, 100])
def test_scan_and_its_gradients_are_the_loops(steps):
    inputs = [x.requires_grad_() for x in _sequence(steps)]
    weights = torch.randn(2, steps, 3, dtype=torch.float64)
    torch.testing.assert_close(scan(*inputs), _loop(*inputs))
    ours = torch.autograd.grad((scan(*inputs) * weights).sum(), inputs)
    theirs = torch.autograd.grad((_loop(*inputs) * weights).sum(), inputs)
    torch.testing.assert_close(ours, theirs)


def test_gradients_of_the_scan_are_slopes():
    assert torch.autograd.gradcheck(scan, [x.requires_grad_() for x in _sequence(5)])


@pytest.mark.parametrize("gain", [1, 5])
def test_scan_in_an_exported_graph_is_the_scan(gain, monkeypatch):
    torch.manual_seed(gain)
    decay, update = torch.sigmoid(gain * torch.randn(1, 1024, 4)), torch.randn(1, 1024, 4)
    # a stretch that forgets all, after which little may be forgotten
    decay[:, 100:110] = 0.0
    decay[:, 600:] = decay[:, 600:].clamp_min(0.999)
    start = torch.randn(1, 4)
    recursive = scan(decay, update, start)
    monkeypatch.setattr("torch.compiler.is_exporting", lambda: True)
    states = scan(decay, update, start)
    assert states.dtype == torch.float32
    torch.testing.assert_close(states, recursive, rtol=1e-5, atol=1e-4)
    exact = _loop(decay.double(), update.double(), start.double())
    torch.testing.assert_close(states, exact.float(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(scan(*_sequence(9)), _loop(*_sequence(9)))


def test_scan_thousand_steps_neither_overflow_nor_forget_too_much():
    decay = torch.full((1, 1000, 1), -1e-3).exp()
    states = scan(decay, torch.zeros(1, 1000, 1), torch.ones(1, 1))
    torch.testing.assert_close(states[0, -1, 0], torch.tensor(-1.0).exp(), rtol=1e-4, atol=0)
    # nothing is kept: products of decays are zero, and the states are what each step adds
    updates = torch.randn(1, 1000, 1)
    assert torch.equal(scan(torch.zeros(1, 1000, 1), updates, torch.ones(1, 1)), updates)
    assert scan(torch.full((1, 1000, 1), 1e-20), updates, torch.ones(1, 1)).isfinite().all()


def test_scan_min_gru_is_its_equation_step_by_step():
    torch.manual_seed(0)
    cell, x, hidden = MinGRU(4, 3), torch.randn(2, 6, 4), torch.randn(2, 3)
    states, _ = cell(x, (hidden,))
    for t in range(6):
        gate, candidate = cell.gates(x[:, t]).chunk(2, dim=1)
        z = gate.sigmoid()
        hidden = (1 - z) * hidden + z * candidate
        torch.testing.assert_close(states[:, t], hidden)


def test_scan_min_lstm_is_its_equation_step_by_step():
    torch.manual_seed(0)
    cell, x, hidden = MinLSTM(4, 3), torch.randn(2, 6, 4), torch.randn(2, 3)
    states, _ = cell(x, (hidden,))
    for t in range(6):
        f, i, candidate = cell.gates(x[:, t]).chunk(3, dim=1)
        f, i = f.sigmoid(), i.sigmoid()
        hidden = f / (f + i) * hidden + i / (f + i) * candidate
        torch.testing.assert_close(states[:, t], hidden)
