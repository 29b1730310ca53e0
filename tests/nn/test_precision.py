"""Products in bf16 cast each weight once."""

import contextlib
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from s2s.nn import precision as precision_room
from s2s.nn.precision import UseOneDNNForLinear, autocast_matmul, slow_in_fp32

CPU = torch.device("cpu")


@pytest.mark.parametrize("around", [contextlib.nullcontext, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float32])
def test_precision_weight_is_cast_once(around, precision):
    torch.manual_seed(1)
    layer, x = torch.nn.Linear(8, 16, bias=False), torch.randn(3, 8)
    with around(), autocast_matmul(precision, CPU), profile(activities=[ProfilerActivity.CPU], acc_events=True) as seen:
        found = [layer(x) for _ in range(5)]
    casts = sum(event.count for event in seen.key_averages() if event.key == "aten::copy_")
    # what is read is cast each time
    assert casts == (6 if precision == torch.bfloat16 else 0)
    assert {each.dtype for each in found} == {precision}
    expected = x.to(precision) @ layer.weight.to(precision).T
    torch.testing.assert_close(found[-1], expected)
    # and gradients are as before, or none
    assert found[0].requires_grad == (around is contextlib.nullcontext)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
@pytest.mark.parametrize("bias", [True, False])
def test_precision_onednn_and_torch_agree_on_linear_layers(bias):
    torch.manual_seed(1)
    layer = torch.nn.Linear(24, 40, bias=bias)
    for shape in ((7, 24), (3, 5, 24), (0, 24), (2, 1, 24)):
        x = torch.randn(shape)
        for given in (x, x.transpose(0, -2)):
            with torch.inference_mode():
                expected = layer(given)
                with UseOneDNNForLinear(), profile(activities=[ProfilerActivity.CPU], acc_events=True) as seen:
                    found = layer(given)
            torch.testing.assert_close(found, expected)
            assert "mkldnn::_linear_pointwise" in {event.key for event in seen.key_averages()}
    # other precisions are torch's
    with torch.inference_mode(), UseOneDNNForLinear():
        assert layer.double()(torch.zeros(2, 24, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize("slow", [True, False])
def test_precision_products_are_onednns_where_torchs_are_slow_and_nothing_is_learned(slow, monkeypatch):
    monkeypatch.setattr(precision_room, "slow_in_fp32", lambda: slow)
    layer, x, used = torch.nn.Linear(8, 16), torch.randn(3, 8), []
    for around in (contextlib.nullcontext, torch.no_grad, torch.inference_mode):
        with (
            around(),
            autocast_matmul(torch.float32, CPU),
            profile(activities=[ProfilerActivity.CPU], acc_events=True) as seen,
        ):
            layer(x)
        used.append("mkldnn::_linear_pointwise" in {event.key for event in seen.key_averages()})
    assert used == [False, False, slow]


def test_precision_intel_processor_has_torchs_own_products(monkeypatch):
    for maker, capability, slow in (
        ("AuthenticAMD", "AVX512", True),
        ("AuthenticAMD", "AVX2", False),
        ("GenuineIntel", "AVX512", False),
    ):
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda own=capability: own)
        monkeypatch.setattr(Path, "read_text", lambda *_, own=maker, **__: f"vendor_id : {own}\n")
        slow_in_fp32.cache_clear()
        assert slow_in_fp32() is slow
    slow_in_fp32.cache_clear()
