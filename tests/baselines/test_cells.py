"""Recurrent layers compared with their equations."""

import pytest
import torch

from baselines.cells import CELLS, LSTM, Stack, elman_step, gru_step, lstm_step

WIDTH, INPUTS = 6, 4


def _cell(kind: str):
    torch.manual_seed(0)
    cell = CELLS[kind](INPUTS, WIDTH).double()
    for p in cell.parameters():
        # zero biases would hide a wrong one
        p.data += 0.1 * torch.randn_like(p)
    return cell


def _weights(cell) -> list[torch.Tensor]:
    return [p.detach() for p in cell.parameters()]


@pytest.mark.parametrize(("kind", "equations"), [("rnn", elman_step), ("gru", gru_step), ("lstm", lstm_step)])
def test_cells_fused_layer_is_its_equations_step_by_step(kind, equations):
    cell = _cell(kind)
    x = torch.randn(3, 7, INPUTS, dtype=torch.float64)
    state = tuple(torch.randn(3, WIDTH, dtype=torch.float64) for _ in range(cell.parts))
    outputs, last = cell(x, state)
    steps = []
    for t in range(x.shape[1]):
        hidden, state = equations(x[:, t], state, *_weights(cell))
        steps.append(hidden)
    torch.testing.assert_close(outputs, torch.stack(steps, dim=1))
    torch.testing.assert_close(last, state)


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_cells_each_gates_recurrent_weights_start_orthogonal(kind):
    layer = next(CELLS[kind](INPUTS, WIDTH).children())
    for gate in layer.weight_hh_l0.detach().split(WIDTH):
        torch.testing.assert_close(gate @ gate.T, torch.eye(WIDTH))


def test_cells_forget_gate_starts_open_and_all_other_biases_at_zero():
    layer = LSTM(INPUTS, WIDTH).lstm
    bias = (layer.bias_ih_l0 + layer.bias_hh_l0).detach()
    assert bias.tolist() == [0.0] * WIDTH + [1.0] * WIDTH + [0.0] * 2 * WIDTH


def test_cells_residual_layers_add_what_they_read():
    torch.manual_seed(0)
    stack = Stack("gru", WIDTH, WIDTH, layers=2, dropout=0.0, residual=True)
    x = torch.randn(2, 5, WIDTH)
    zero = (torch.zeros(2, WIDTH),)
    first, _ = stack.layers[0](x, zero)
    second, _ = stack.layers[1](first, zero)
    torch.testing.assert_close(stack(x, (zero, zero))[0], first + second)


@pytest.mark.parametrize("kind", ["mingru", "minlstm"])
def test_cells_gates_that_see_the_input_alone_start_by_keeping_nine_tenths(kind):
    torch.manual_seed(0)
    cell, ones = CELLS[kind](INPUTS, WIDTH), torch.ones(1, WIDTH)
    kept = cell(torch.zeros(1, 1, INPUTS), (ones,))[0]
    torch.testing.assert_close(kept, torch.full_like(kept, 0.9), atol=0.01, rtol=0)


@pytest.mark.parametrize("kind", ["mingru", "minlstm"])
def test_cells_scanned_memory_is_in_full_precision_under_autocast(kind):
    cell = CELLS[kind](INPUTS, WIDTH)
    with torch.autocast("cpu", torch.bfloat16):
        states, (last,) = cell(torch.randn(2, 7, INPUTS), (torch.zeros(2, WIDTH),))
    assert states.dtype == last.dtype == torch.float32
