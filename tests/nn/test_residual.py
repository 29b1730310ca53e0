"""Residual connections with pre- and post-norm."""

import pytest
import torch
from torch import nn

from s2s.nn.layers import Residual


@pytest.mark.parametrize("before", [True, False])
def test_residual_is_its_formula(before):
    torch.manual_seed(0)
    norm, change, x = nn.LayerNorm(4), nn.Linear(4, 4), torch.randn(2, 3, 4)
    residual = Residual(norm, nn.Identity(), before)
    torch.testing.assert_close(residual(x, change), x + change(norm(x)) if before else norm(x + change(x)))
    torch.testing.assert_close(residual.branch_input(x), norm(x) if before else x)


def test_residual_dropout_drops_the_update_only():
    residual = Residual(nn.Identity(), nn.Dropout(1.0), before=True)
    x = torch.randn(2, 3, 4)
    assert torch.equal(residual(x, torch.exp), x)
