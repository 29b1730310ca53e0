"""`precision: auto` goes by what was measured, and a run keeps what it began with."""

import pytest
import torch
from torch import nn

from s2s.recipe.schema import DeviceSettings
from s2s.training import devices
from s2s.training.devices import ProductTimes, choose, measure, precision_of


class Products(torch.utils._python_dispatch.TorchDispatchMode):
    """Notes the shapes and precisions of the products that are made."""

    def __init__(self) -> None:
        super().__init__()
        self.made: set[tuple] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.mm.default:
            self.made.add((tuple(args[0].shape), tuple(args[1].shape), args[0].dtype))
        return func(*args, **(kwargs or {}))


def _model() -> nn.Module:
    model = nn.ModuleDict({"table": nn.Embedding(50, 8), "layer": nn.Linear(8, 24), "cell": nn.LSTM(8, 5)})
    model["output"] = nn.Linear(8, 50, bias=False)
    model["output"].weight = model["table"].weight
    return model


def test_the_products_measured_are_those_of_the_models_layers_forward_and_backward():
    model = _model()
    with Products() as products:
        measured = measure(model, 40)
    assert measured.rows == 40
    assert min(measured.fp32, measured.bf16) > 0
    expected = set()
    for out, into in ((24, 8), (20, 8), (20, 5), (50, 8)):
        for dtype in (torch.float32, torch.bfloat16):
            expected.add(((40, into), (into, out), dtype))
            expected.add(((40, out), (out, into), dtype))
            expected.add(((out, 40), (40, into), dtype))
    assert products.made == expected


def test_measuring_leaves_weights_gradients_and_chance_as_they_were():
    model = _model()
    torch.manual_seed(3)
    before = [p.detach().clone() for p in model.parameters()]
    measure(model, 16)
    assert all(torch.equal(p, q) and p.grad is None for p, q in zip(model.parameters(), before, strict=True))
    after = torch.rand(3)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(3), after)


def test_large_models_are_measured_in_part(monkeypatch):
    monkeypatch.setattr(devices, "_WORK", 1e6)
    with Products() as products:
        measured = measure(nn.Linear(8, 5000), 4096)
    assert measured.rows == 16
    assert max(max(a + b) for a, b, _ in products.made) == devices._LARGEST


@pytest.mark.parametrize(("fp32", "bf16", "faster"), [(1.0, 2.0, torch.float32), (2.0, 1.0, torch.bfloat16)])
def test_the_faster_one_is_taken_and_said(fp32, bf16, faster):
    measured = ProductTimes(fp32, bf16, rows=16, threads=1)
    assert measured.faster == faster
    name, other = ("bf16", "fp32") if faster == torch.bfloat16 else ("fp32", "bf16")
    assert str(measured) == f"{name}: its products take 0.50 of {other}'s time here"


def test_a_written_computer_tells_its_precision():
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        assert precision_of(str(choose(DeviceSettings(kind="cpu", precision=name)))) == dtype
    undecided = choose(DeviceSettings(kind="cpu"))
    assert undecided.undecided
    assert precision_of(str(undecided)) is None
