"""Products in bf16 cast a weight once, whatever is around them."""

import contextlib

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from s2s.nn.precision import products_in

CPU = torch.device("cpu")


@pytest.mark.parametrize("around", [contextlib.nullcontext, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float32])
def test_a_weight_is_cast_once(around, precision):
    torch.manual_seed(1)
    layer, x = torch.nn.Linear(8, 16, bias=False), torch.randn(3, 8)
    with around(), products_in(precision, CPU), profile(activities=[ProfilerActivity.CPU]) as seen:
        found = [layer(x) for _ in range(5)]
    casts = sum(event.count for event in seen.key_averages() if event.key == "aten::copy_")
    # what is read is cast each time
    assert casts == (6 if precision == torch.bfloat16 else 0)
    assert {each.dtype for each in found} == {precision}
    expected = x.to(precision) @ layer.weight.to(precision).T
    torch.testing.assert_close(found[-1], expected)
    # and gradients are as before, or none
    assert found[0].requires_grad == (around is contextlib.nullcontext)
