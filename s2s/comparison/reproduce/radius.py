"""Gradients of a plain recurrence by the spectral radius of its weights (Pascanu et al. 2013)."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from s2s.comparison.questions.gradients.decay import fit_decay
from s2s.comparison.reporting import axis, figure, series
from s2s.comparison.reproduce.contract import Numbers, Reproduction
from s2s.comparison.reproduce.training import encoder_of
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Trial
from s2s.data.exercises import FIRST
from s2s.models.base import Encoder

_TEXTS = 4


def factor_per_step(encoder: Encoder, vectors: Float[Tensor, "batch steps width"], seed: int) -> float:
    """Return the factor by which a gradient changes per step from the last state to earlier inputs, in float64."""
    vectors = vectors.cpu().double().requires_grad_()
    valid = torch.ones(vectors.shape[:2], dtype=torch.bool)
    last = encoder.cpu().double().read(vectors, valid).states[:, -1]
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(last.shape[1], generator=generator, dtype=last.dtype)
    (gradient,) = torch.autograd.grad((last @ direction).sum(), vectors)
    norms = gradient.norm(dim=2).flip(1).numpy()
    slope = fit_decay(norms[:, norms.shape[1] // 4 :], first=norms.shape[1] // 4).slope
    return math.exp(slope) if slope is not None else 0.0


@dataclass(frozen=True)
class Factors:
    """Factor of a gradient per step, at each spectral radius."""

    radii: list[float]
    still: list[float]  # with inputs of zero, where tanh is the identity
    driven: list[float]  # with random inputs of length one


@dataclass(frozen=True)
class Radius(Reproduction[Factors]):
    """A tanh-RNN with recurrent weights of several spectral radii."""

    name = "radius"
    finding = "Gradients of a plain recurrence vanish or explode with the spectral radius of its recurrent weights."
    source = (
        "Pascanu, Mikolov & Bengio 2013, section 2.1, the linear case: a largest eigenvalue below 1 is sufficient for "
        "vanishing gradients, one above 1 is necessary for exploding ones. The factor per step follows from it"
    )
    method = (
        "A tanh-RNN of width 64 with Gaussian recurrent weights, scaled to spectral radii from 0.5 to 1.5. With inputs "
        "of zero, tanh is the identity, and the gradient's factor per step over 300 steps is compared with the radius. "
        "With random inputs of length one, tanh saturates and the factor is smaller."
    )
    bands = (
        Band(
            key="ratio",
            what="factor per step / spectral radius without input, the value furthest from 1",
            published="1 (derived)",
            low=0.97,
            high=1.03,
        ),
        Band(
            key="driven",
            what="largest factor per step / spectral radius with random inputs",
            published="≤ 1",
            high=1.03,
        ),
        Band(key="vanishing", what="factor per step at radius 0.9 with random inputs", published="< 1", high=0.9999),
        Band(key="exploding", what="factor per step at radius 1.5 without input", published="> 1", low=1.0001),
    )
    seconds = (1, 5)

    width: int = 64
    steps: int = 300
    radii: tuple[float, ...] = (0.5, 0.7, 0.9, 1.0, 1.1, 1.3, 1.5)

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        return [Trial("rnn", seed=seed) for seed in seeds]

    def measure(self, trial: Trial) -> Factors:
        """Measure the factor at each radius, without input and with random inputs."""
        seed = trial.seed or 0
        still, driven = [], []
        for radius in self.radii:
            encoder, width = encoder_of("rnn", FIRST + 32, seed, {"width": self.width})
            (layer,) = [module for module in encoder.modules() if isinstance(module, nn.RNN)]
            weight = layer.get_parameter("weight_hh_l0").detach()
            generator = torch.Generator().manual_seed(seed)
            weight.copy_(torch.randn(width, width, generator=generator))
            weight.mul_(radius / float(torch.linalg.eigvals(weight.cpu().double()).abs().max()))
            still.append(factor_per_step(encoder, torch.zeros(1, self.steps, width), seed))
            # with the norm of the models' embeddings
            inputs = torch.randn(_TEXTS, self.steps, width, generator=generator) / math.sqrt(width)
            driven.append(factor_per_step(encoder, inputs, seed))
        return Factors(list(self.radii), still, driven)

    def numbers(self, measured: Mapping[Trial, Factors]) -> Numbers:
        found: dict[str, dict[int, float]] = {band.key: {} for band in self.bands}
        for trial, run in measured.items():
            seed = trial.seed or 0
            ratios = [factor / radius for factor, radius in zip(run.still, run.radii, strict=True)]
            found["ratio"][seed] = max(ratios, key=lambda ratio: abs(math.log(ratio)))
            found["driven"][seed] = max(f / r for f, r in zip(run.driven, run.radii, strict=True))
            found["vanishing"][seed] = run.driven[run.radii.index(0.9)]
            found["exploding"][seed] = run.still[-1]
        return found

    def figures(self, measured: Mapping[Trial, Factors]) -> list[Figure]:
        radii = list(self.radii)
        curves = {
            "without input": [run.still for run in measured.values()],
            "with random inputs": [run.driven for run in measured.values()],
        }
        shown = [
            series(label, "rnn", radii, [statistics.mean(at) for at in zip(*runs, strict=True)])
            for label, runs in curves.items()
        ]
        equal = series("factor = radius", "", radii, radii, reference=True)
        one = series("neither vanishing nor exploding", "", [radii[0], radii[-1]], [1.0, 1.0], reference=True)
        title = "Factor per step of the gradient by spectral radius of the recurrent weights"
        return [figure("factor", title, (axis("spectral radius"), axis("factor per step")), [*shown, equal, one])]
