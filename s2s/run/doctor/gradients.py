"""Gradients against finite differences, in fp64: the loss must change along a direction as its gradient says.

Central differences, f′ ≈ (f₁ − f₋₁) / 2h, err by h² where f is smooth and by ε/h where it is rounded: least where
h = ε^(1/3) (Press et al. 2007, section 5.7). Directions are random and of length one over all weights that learn, so a
step moves each weight a little, and seldom across the kink of a ReLU.
"""

import copy
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from s2s.run.doctor.equalities import Patient
from s2s.run.doctor.findings import Finding, held, not_applicable

DIRECTIONS = 4
_ROWS = 3
_STEP = torch.finfo(torch.float64).eps ** (1 / 3)
_TOLERANCE = 1e-4


def slopes(name: str, patient: Patient) -> Finding:
    """The largest relative error over some directions, on a tiny batch, dropout off."""
    if patient.run.computer.device.type == "mps":
        return not_applicable(name, "Apple's GPUs know no fp64")
    # the copy keeps the bits of the run's own weights as they are
    model = copy.deepcopy(patient.run.model).cpu().double().eval()
    learning = [p for p in model.parameters() if p.requires_grad]
    batch, loss = patient.batch(patient.rows[:_ROWS]).to("cpu"), patient.task.loss(patient.run.recipe)

    def value() -> Tensor:
        """The loss that training makes small, in nats per item."""
        return loss(model, batch)[0] / max(1, batch.count)

    gradient = torch.autograd.grad(value(), learning, allow_unused=True)
    found = [p.new_zeros(p.shape) if g is None else g for p, g in zip(learning, gradient, strict=True)]
    size = math.sqrt(sum(float(g.square().sum()) for g in found))
    # what a random direction has of a gradient: its length over the root of the number of weights
    usual = size / math.sqrt(max(1, sum(p.numel() for p in learning)))
    worst = max(_error(value, learning, found, usual, seed) for seed in range(DIRECTIONS))
    said = f"slopes of the loss of {len(patient.rows[:_ROWS])} examples along {DIRECTIONS} random directions, in fp64"
    reason = f"allowed: {_TOLERANCE:g} of the slope; steps of {_STEP:.1g} cross a ReLU's kink now and then"
    return held(name, said, worst, _TOLERANCE, reason)


@torch.no_grad()
def _error(
    value: Callable[[], Tensor], weights: list[nn.Parameter], gradient: list[Tensor], usual: float, seed: int
) -> float:
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p.device) for p in weights]
    length = math.sqrt(sum(float(d.square().sum()) for d in drawn))
    direction = [d / length for d in drawn]
    slope = sum(float((g * d).sum()) for g, d in zip(gradient, direction, strict=True))
    start, around = [p.clone() for p in weights], []
    for step in (_STEP, -_STEP):
        for p, s, d in zip(weights, start, direction, strict=True):
            p.copy_(s + step * d)
        around.append(float(value()))
    for p, s in zip(weights, start, strict=True):
        p.copy_(s)
    measured = (around[0] - around[1]) / (2 * _STEP)
    scale = max(abs(slope), usual)
    return abs(measured - slope) / scale if scale else abs(measured)
