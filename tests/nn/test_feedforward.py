"""Gated feed-forward block and RMS norm compared with computations by hand."""

import math

import pytest
import torch

from s2s.nn.layers import FeedForward, build_norm


def test_feedforward_swiglu_is_the_published_formula_in_loops():
    torch.manual_seed(0)
    block, x = FeedForward(3, 5, "swiglu", 0.0).double(), torch.randn(1, 1, 3).double()
    with torch.no_grad():
        for p in block.parameters():
            p.normal_()
    block.requires_grad_(False)
    found = block(x)[0, 0].tolist()
    inner = []
    for n in range(5):
        # (Swish₁(x W) ⊗ x V) W₂, equation 6 of Shazeer (2020)
        gate, up = (
            sum(float(m.weight[n, i]) * float(x[0, 0, i]) for i in range(3)) + float(m.bias[n])
            for m in (block.gate, block.expand)
        )
        inner.append(gate / (1 + math.exp(-gate)) * up)
    for k in range(3):
        expected = sum(float(block.contract.weight[k, n]) * inner[n] for n in range(5)) + float(block.contract.bias[k])
        assert found[k] == pytest.approx(expected)


def test_feedforward_gate_adds_a_third_matrix_and_the_others_begin_as_without_it():
    blocks = []
    for activation in ("gelu", "swiglu"):
        torch.manual_seed(0)
        blocks.append(FeedForward(8, 12, activation, 0.0))
    plain, gated = (sum(p.numel() for p in block.parameters()) for block in blocks)
    assert gated - plain == 8 * 12 + 12
    torch.testing.assert_close(blocks[0].expand.weight.std(), blocks[1].expand.weight.std(), atol=0.1, rtol=0)


def test_feedforward_norm_of_the_mean_square_is_its_formula():
    torch.manual_seed(0)
    norm, x = build_norm("rms", 4), torch.randn(2, 3, 4) + 5
    norm.requires_grad_(False)
    norm.weight.normal_()
    for row in x.flatten(0, 1):
        root = math.sqrt(sum(float(v) ** 2 for v in row) / 4 + 1e-5)
        expected = [float(v) / root * float(g) for v, g in zip(row, norm.weight, strict=True)]
        assert norm(row).tolist() == pytest.approx(expected, rel=1e-5)
    assert [name for name, _ in norm.named_parameters()] == ["weight"]


def test_feedforward_norm_of_the_mean_square_keeps_a_mean_that_the_other_takes_away():
    x = torch.tensor([[3.0, 3.0, 3.0, 3.0]])
    assert build_norm("layer", 4)(x).abs().max() == 0
    torch.testing.assert_close(build_norm("rms", 4)(x), torch.ones(1, 4), atol=1e-5, rtol=0)
