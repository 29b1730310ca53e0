"""The pretend device fails where a GPU would."""

import pytest
import torch


def test_pretend_device_computes_like_the_cpu(pretend):
    torch.manual_seed(0)
    here = torch.nn.Linear(3, 2)
    there = torch.nn.Linear(3, 2).to(pretend.device)
    there.load_state_dict(here.state_dict())
    x = torch.randn(4, 3)
    for layer, read in ((here, x), (there, x.to(pretend.device))):
        layer(read).tanh().sum().backward()
        torch.optim.Adam(layer.parameters(), fused=True).step()
    assert there.weight.device.type == there.weight.grad.device.type == "pretend"
    assert torch.equal(there.weight.cpu(), here.weight)


def test_pretend_device_refuses_float64_and_other_devices(pretend):
    x = torch.ones(3, device=pretend.device)
    with pytest.raises(TypeError, match="no float64"):
        x.double()
    with pytest.raises(TypeError, match="no float64"):
        torch.zeros(3, dtype=torch.float64, device=pretend.device)
    with pytest.raises(RuntimeError, match="same device"):
        x + torch.ones(3)
    with pytest.raises(TypeError, match="cpu"):
        x.numpy()
    assert x.cpu().double().dtype == torch.float64


def test_pretend_device_counts_synchronizations(pretend, counts):
    x = torch.ones(3).to(pretend.device)
    (x * 2).sum()
    assert (counts["sent"], counts["asked"]) == (1, 0)
    questions = (x.cpu, x.tolist, x.sum().item, x.nonzero, lambda: bool(x.any()), lambda: float(x[0]))
    for number, ask in enumerate(questions):
        ask()
        assert counts["asked"] == number + 1
