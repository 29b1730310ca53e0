"""In bf16 on a CPU no model uses torch's slow attention kernel."""

import pytest
import torch
from torch.nn import functional

from s2s.nn.precision import autocast_matmul


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float32])
def test_bf16_attention_short_sources_are_read_by_products_and_a_softmax(precision, fresh, batch, monkeypatch):
    model = fresh(0)
    kernel, called = functional.scaled_dot_product_attention, []

    def counted(*asked, **how):
        called.append(asked[0].dtype)
        return kernel(*asked, **how)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", counted)
    with torch.no_grad(), autocast_matmul(precision, torch.device("cpu")):
        model(*batch)
    if precision == torch.bfloat16:
        assert not called
    else:
        # where there is a kernel, it is the way in fp32
        assert {*called} <= {precision}
