"""Initialisations from vanishing to exploding: by the size of a recurrent matrix, or by the bias of a gate that keeps.

A factor per step at one initialisation says what somebody chose for it, as much as what the architecture is. So the
choice is turned, and everything else stays.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
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
    """Parameter of the initialization that the sweep varies."""

    kind: Kind
    own: float
    turn: Callable[[float], None]


def sweep_parameter_of(module: nn.Module) -> SweepParameter | None:
    """The knob of a model's recurrent layers; None where it has none of these, as a Transformer.

    A layer with a gate offers `memory_biases`, see `baselines.cells.Trial`; a plain one is an `nn.RNN`.
    """
    gated = [biases for part in module.modules() if (biases := _biases(part))]
    if gated:
        each = [(bias, sign) for biases in gated for bias, sign in biases]
        own = sum(sign * float(bias.mean()) for bias, sign in each) / len(each)
        return SweepParameter("bias", own, partial(_fill, each))
    plain = [weight for part in module.modules() if isinstance(part, nn.RNN) for weight in _recurrent(part)]
    if plain:
        return SweepParameter("radius", sum(map(radius, plain)) / len(plain), partial(_scale, plain))
    return None


def radius(weight: Tensor) -> float:
    """The largest absolute eigenvalue of a square matrix."""
    return float(torch.linalg.eigvals(weight.detach().cpu().double()).abs().max())


def _fill(biases: Sequence[tuple[Tensor, float]], value: float) -> None:
    for bias, sign in biases:
        bias.fill_(sign * value)


def _scale(weights: Sequence[Tensor], value: float) -> None:
    for weight in weights:
        weight.mul_(value / radius(weight))


def _biases(part: Any) -> tuple[tuple[Tensor, float], ...]:
    # whatever it is, a layer of any package may offer it
    offered: Any = getattr(part, "forget_gate_biases", tuple)
    return offered()


def _recurrent(layer: nn.RNN) -> Iterator[Tensor]:
    for name, weight in layer.named_parameters():
        if name.startswith("weight_hh"):
            yield weight.detach()
