"""Gradient decay per step: spectral radius of a plain recurrence, and bias of the forget gate."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from s2s.comparison.questions.gradients.decay import fit_decay
from s2s.comparison.reporting import axis, figure, series
from s2s.comparison.reproduce.contract import Numbers, Reproduction, by_seed, pairs
from s2s.comparison.reproduce.training import Budget, TextClassifier, encoder_of, first_and_noise, train
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Measured, Trial, Trials
from s2s.data.exercises import FIRST
from s2s.models.base import Encoder

_TEXTS = 4
_SOLVE = Budget(updates=1_500, rate=0.004, every=25)


def factor_per_step(encoder: Encoder, vectors: Tensor, seed: int) -> float:
    """Factor of a gradient per step from the last state to earlier inputs, in float64."""
    vectors = vectors.cpu().double().requires_grad_()
    valid = torch.ones(vectors.shape[:2], dtype=torch.bool)
    last = encoder.cpu().double().read(vectors, valid).states[:, -1]
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(last.shape[1], generator=generator, dtype=last.dtype)
    (given,) = torch.autograd.grad((last @ direction).sum(), vectors)
    norms = given.norm(dim=2).flip(1).numpy()
    slope = fit_decay(norms[:, norms.shape[1] // 4 :], first=norms.shape[1] // 4).slope
    return math.exp(slope) if slope is not None else 0.0


def recurrent_weights(encoder: Encoder, kind: type[nn.RNNBase]) -> list[nn.RNNBase]:
    """The recurrent layers of torch within an encoder."""
    return [module for module in encoder.modules() if isinstance(module, kind)]


@dataclass(frozen=True)
class Radius(Reproduction):
    """A plain recurrence at several sizes of its weights."""

    name = "radius"
    finding = "Gradients of a plain recurrence vanish or explode with the largest eigenvalue of its recurrent weights."
    source = (
        "Pascanu, Mikolov & Bengio 2013, section 2.1: for a linear recurrence it is sufficient for vanishing that the "
        "largest eigenvalue is below 1, and necessary for exploding that it is above (the statement is from memory, "
        "not verified; that the factor per step is the eigenvalue's size follows from it)"
    )
    method = (
        "A tanh-network of width 64 with Gaussian recurrent weights, of spectral radius 0.5 to 1.5. At rest, where "
        "tanh is the identity, the gradient's factor per step over 300 steps is compared with the radius that the "
        "eigenvalues give; driven by random inputs of length one, tanh bends and the factor is smaller: "
        "beyond a radius of 1 it stays near 1, on either side."
    )
    bands = (
        Band(
            key="ratio",
            what="factor per step over spectral radius, at rest: the one furthest from 1",
            published="1",
            low=0.97,
            high=1.03,
        ),
        Band(key="driven", what="largest factor over radius when driven by inputs", published="≤ 1", high=1.03),
        Band(key="vanishing", what="factor of radius 0.9 when driven", published="< 1", high=0.9999),
        Band(key="exploding", what="factor of radius 1.5 at rest", published="> 1", low=1.0001),
    )
    seconds = (1, 5)

    width: int = 64
    steps: int = 300
    radii: tuple[float, ...] = (0.5, 0.7, 0.9, 1.0, 1.1, 1.3, 1.5)

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        """One set of weights for each seed."""
        return [Trial("rnn", seed=seed) for seed in seeds]

    def measure(self, trial: Trial) -> Measured:
        """The factors at every radius, at rest and driven."""
        seed = trial.seed or 0
        still, driven = [], []
        for radius in self.radii:
            encoder, width = encoder_of("rnn", FIRST + 32, seed, {"width": self.width})
            (layer,) = recurrent_weights(encoder, nn.RNN)
            weight = layer.get_parameter("weight_hh_l0").detach()
            generator = torch.Generator().manual_seed(seed)
            weight.copy_(torch.randn(width, width, generator=generator))
            weight.mul_(radius / float(torch.linalg.eigvals(weight.cpu().double()).abs().max()))
            still.append(factor_per_step(encoder, torch.zeros(1, self.steps, width), seed))
            # as large as the models' token vectors
            inputs = torch.randn(_TEXTS, self.steps, width, generator=generator) / math.sqrt(width)
            driven.append(factor_per_step(encoder, inputs, seed))
        return {"radii": list(self.radii), "still": still, "driven": driven}

    def numbers(self, measured: Trials) -> Numbers:
        """Ratios of factor and radius, and the two sides of 1."""
        found: dict[str, list[float]] = {band.key: [] for band in self.bands}
        for run in measured.values():
            ratios = [factor / radius for factor, radius in zip(run["still"], run["radii"], strict=True)]
            found["ratio"].append(max(ratios, key=lambda ratio: abs(math.log(ratio))))
            found["driven"].append(max(f / r for f, r in zip(run["driven"], run["radii"], strict=True)))
            found["vanishing"].append(run["driven"][run["radii"].index(0.9)])
            found["exploding"].append(run["still"][-1])
        return found

    def figures(self, measured: Trials) -> list[Figure]:
        """From vanishing through neutral to exploding."""
        runs = list(measured.values())
        if not runs:
            return []
        shown = [
            series(
                label,
                "rnn",
                runs[0]["radii"],
                [statistics.mean(run[key][i] for run in runs) for i in range(len(self.radii))],
            )
            for key, label in (("still", "at rest"), ("driven", "driven by inputs"))
        ]
        radii = list(self.radii)
        equal = series("factor = radius", "", radii, radii, reference=True)
        one = series("neither vanishing nor exploding", "", [radii[0], radii[-1]], [1.0, 1.0], reference=True)
        title = "What is left of a gradient per step, against the spectral radius of the recurrent weights"
        return [figure("factor", title, (axis("spectral radius"), axis("factor per step")), [*shown, equal, one])]


@dataclass(frozen=True)
class ForgetBias(Reproduction):
    """The LSTM's forget gate, at first half open or more than that."""

    name = "forget-bias"
    finding = "With a forget-gate bias of 1 an LSTM's gradients reach further back, and it learns sooner to remember."
    source = (
        "Jozefowicz, Zaremba & Sutskever 2015: a bias of 1 closes the gap between LSTM and GRU (abstract). The factors "
        "are not the paper's: near rest they are σ(bias) + 1/4 = 0.750 and 0.981, the spectral radius of the step with "
        "orthogonal weights, and an independent implementation found 0.744 and 0.972"
    )
    method = (
        "The gradient's factor per step in an untrained LSTM of width 64 that reads random symbols. Then the first of "
        "65 symbols is to be named after the others (ten keys, 32 kinds of noise; Adam at 0.004, 64 fresh texts an "
        "update, at most 1,500 updates): updates until the loss is below 0.03 nats. Where that is never, 1,500 are "
        "counted, and the ratio is a lower bound."
    )
    bands = (
        Band(key="zero", what="factor per step with bias 0", published="0.750 (derived)", low=0.69, high=0.80),
        Band(key="one", what="factor per step with bias 1", published="0.981 (derived)", low=0.93, high=1.0),
        Band(key="sooner", what="updates to solve it with bias 0 over those with bias 1", published="> 1", low=1.2),
    )
    seconds = (80, 150)

    width: int = 64
    steps: int = 200
    noise: int = 64
    rows: int = 64
    keys: int = 10
    budget: Budget = _SOLVE
    biases: tuple[float, ...] = (0.0, 1.0, 2.0, 4.0)

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        """Factors for each seed; trainings with the first two biases."""
        factors = [Trial("lstm", "factors", seed) for seed in seeds]
        return factors + [Trial("lstm", f"bias-{bias:g}", seed) for seed in seeds for bias in self.biases[:2]]

    def measure(self, trial: Trial) -> Measured:
        """The factor for each bias, or a training with one of them."""
        seed = trial.seed or 0
        if trial.part == "factors":
            found = []
            for bias in self.biases:
                encoder, width = self._encoder(bias, seed)
                generator = torch.Generator().manual_seed(seed)
                tokens = torch.randint(self.keys + 32, (_TEXTS, self.steps), generator=generator)
                found.append(factor_per_step(encoder, encoder.embedding(tokens).detach(), seed))
            return {"factors": found}
        encoder, width = self._encoder(float(trial.part.removeprefix("bias-")), seed)
        model = TextClassifier(encoder, width, self.keys, over="last")
        course = train(model, self.draw, functional.cross_entropy, self.budget, seed, enough=lambda loss: loss < 0.03)
        return {"updates": course.updates, "losses": course.losses, "solved": course.ended or self.budget.updates}

    def draw(self, chance: torch.Generator) -> tuple[Tensor, Tensor]:
        """A key and noise, and the key."""
        return first_and_noise(self.keys, 32, (self.rows, self.noise), chance)

    def numbers(self, measured: Trials) -> Numbers:
        """Factors, and how much sooner it is learned."""
        factors = by_seed(measured, "factors", "lstm", "factors")
        late, soon = (("lstm", f"bias-{bias:g}") for bias in self.biases[:2])
        return {
            "zero": [each[0] for each in factors],
            "one": [each[1] for each in factors],
            "sooner": [zero / one for zero, one in pairs(measured, "solved", late, soon)],
        }

    def figures(self, measured: Trials) -> list[Figure]:
        """Factor against bias, and learning curves."""
        factors = by_seed(measured, "factors", "lstm", "factors")
        means = [statistics.mean(each[i] for each in factors) for i in range(len(self.biases))] if factors else []
        shown = [series("LSTM, untrained", "lstm", list(self.biases), means)] if means else []
        curves = [
            series(f"{trial.part.replace('-', ' ')}, seed {trial.seed}", trial.part, run["updates"], run["losses"])
            for trial, run in measured.items()
            if trial.part != "factors"
        ]
        return [
            figure("factor", "A gradient's factor per step", (axis("bias"), axis("factor per step")), shown),
            figure(
                "losses", "Naming the first of 65 symbols", (axis("updates"), axis("loss", "nats", log=True)), curves
            ),
        ]

    def _encoder(self, bias: float, seed: int) -> tuple[Encoder, int]:
        options = {"width": self.width, "scale_embeddings": False}
        encoder, width = encoder_of("lstm", self.keys + 32, seed, options)
        for layer in recurrent_weights(encoder, nn.LSTM):
            # torch's order of gates is i, f, g, o, and it adds two biases
            layer.get_parameter("bias_ih_l0").detach()[width : 2 * width] = bias
            layer.get_parameter("bias_hh_l0").detach()[width : 2 * width] = 0.0
        return encoder, width
