"""Sweep of the initialization from vanishing to exploding gradients: spectral radius, or bias of a gate.

The factor per step depends on the initialization as much as on the architecture, so one parameter is varied, and
everything else stays.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

Kind = Literal["radius", "bias"]

WORDS: dict[Kind, str] = {
    "radius": "spectral radius of the recurrent weights",
    "bias": "bias of the gate that keeps the state",
}
VALUES: dict[Kind, tuple[float, ...]] = {
    "radius": (0.5, 0.7, 0.9, 1.0, 1.1, 1.3, 1.5, 2.0),
    "bias": (0.0, 1.0, 2.0, 4.0),
}


@dataclass(frozen=True)
class SweepParameter:
    """Parameter of an initialization that the sweep varies."""

    kind: Kind
    own: float  # its value in the model's own initialization
    turn: Callable[[float], None]  # sets its value


def sweep_parameter_of(module: nn.Module) -> SweepParameter | None:
    """Find the parameter of a model's recurrent layers; None without any, as in a Transformer.

    A layer with a gate has a method `forget_gate_biases`, see `baselines.cells.Cell`; a plain one is an `nn.RNN`.
    """
    gated: list[tuple[Tensor, float]] = []
    for part in module.modules():
        biases: Any = getattr(part, "forget_gate_biases", tuple)
        gated += biases()
    if gated:

        def _fill(value: float) -> None:
            for bias, sign in gated:
                bias.fill_(sign * value)

        return SweepParameter("bias", sum(sign * float(bias.mean()) for bias, sign in gated) / len(gated), _fill)
    plain = [
        weight.detach()
        for part in module.modules()
        if isinstance(part, nn.RNN)
        for name, weight in part.named_parameters()
        if name.startswith("weight_hh")
    ]

    def _scale(value: float) -> None:
        for weight in plain:
            weight.mul_(value / radius(weight))

    return SweepParameter("radius", sum(map(radius, plain)) / len(plain), _scale) if plain else None


def radius(weight: Tensor) -> float:
    """Return the spectral radius of a square matrix."""
    return float(torch.linalg.eigvals(weight.detach().cpu().double()).abs().max())
