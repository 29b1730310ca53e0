"""Bias of the LSTM's forget gate: reach of the gradient and time to learn (Jozefowicz et al. 2015)."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import truediv

import torch
from torch import Tensor, nn
from torch.nn import functional

from s2s.comparison.reporting import axis, figure, series
from s2s.comparison.reproduce.contract import Numbers, Reproduction, by_seed, paired
from s2s.comparison.reproduce.radius import factor_per_step
from s2s.comparison.reproduce.training import (
    Budget,
    LossCurve,
    TextClassifier,
    curves_figure,
    draw_first_and_noise,
    encoder_of,
    train,
)
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Trial
from s2s.models.base import Encoder

_TEXTS, _NOISE = 4, 32
_SOLVE = Budget(updates=1_500, rate=0.004, every=25)


@dataclass(frozen=True)
class Factors:
    """Factor of a gradient per step in an untrained LSTM, for each bias."""

    factors: list[float]


@dataclass(frozen=True)
class Solving:
    """A training with one bias."""

    curve: LossCurve


@dataclass(frozen=True)
class ForgetBias(Reproduction[Factors | Solving]):
    """LSTMs with several biases of the forget gate."""

    name = "forget-bias"
    finding = "With a forget-gate bias of 1, an LSTM's gradients reach further back, and it learns to remember sooner."
    source = (
        "Jozefowicz, Zaremba & Sutskever 2015, abstract: a bias of 1 closes the gap between LSTM and GRU. The factors "
        "are derived, not published: near rest they are σ(bias) + 1/4 = 0.750 and 0.981, the spectral radius of the "
        "step with orthogonal weights"
    )
    method = (
        "The gradient's factor per step in an untrained LSTM of width 64 that reads random symbols. Then training on "
        "first-token recall over 64 noise symbols (10 keys, 32 noise symbols; Adam at 0.004, 64 fresh sequences per "
        "update, up to 1,500 updates). Measured: updates until the loss is below 0.03 nats. Unsolved trainings count "
        "as 1,500 updates, so the ratio is a lower bound."
    )
    bands = (
        Band(key="zero", what="factor per step with bias 0", published="0.750 (derived)", low=0.69, high=0.80),
        Band(key="one", what="factor per step with bias 1", published="0.981 (derived)", low=0.93, high=1.0),
        Band(key="sooner", what="updates to the solution with bias 0 / with bias 1", published="> 1", low=1.2),
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
        factors = [Trial("lstm", "factors", seed) for seed in seeds]
        return factors + [Trial("lstm", f"bias-{bias:g}", seed) for seed in seeds for bias in self.biases[:2]]

    def measure(self, trial: Trial) -> Factors | Solving:
        """Measure the factor for each bias, or train with one bias."""
        seed = trial.seed or 0
        if trial.part == "factors":
            return Factors([self._factor(bias, seed) for bias in self.biases])
        encoder, width = self._encoder(float(trial.part.removeprefix("bias-")), seed)
        model = TextClassifier(encoder, width, self.keys, over="last")
        return Solving(train(model, self.draw, functional.cross_entropy, self.budget, seed, enough=0.03))

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw texts of a key and noise, and the keys."""
        return draw_first_and_noise(self.keys, _NOISE, (self.rows, self.noise), generator)

    def numbers(self, measured: Mapping[Trial, Factors | Solving]) -> Numbers:
        factors = {trial: run.factors for trial, run in measured.items() if isinstance(run, Factors)}
        zero, one = (by_seed(factors, lambda found, i=i: found[i], "lstm", "factors") for i in (0, 1))
        curves = self._curves(measured)
        late, soon = (
            by_seed(curves, lambda curve: curve.ended or self.budget.updates, "lstm", f"bias-{bias:g}")
            for bias in self.biases[:2]
        )
        return {"zero": zero, "one": one, "sooner": paired(late, soon, truediv)}

    def figures(self, measured: Mapping[Trial, Factors | Solving]) -> list[Figure]:
        runs = [run.factors for run in measured.values() if isinstance(run, Factors)]
        means = [statistics.mean(at) for at in zip(*runs, strict=True)]
        shown = [series("LSTM, untrained", "lstm", list(self.biases), means)] if means else []
        return [
            figure("factor", "Factor per step of the gradient", (axis("bias"), axis("factor per step")), shown),
            curves_figure("First-token recall over 64 symbols: training loss", self._curves(measured), "nats"),
        ]

    def _curves(self, measured: Mapping[Trial, Factors | Solving]) -> dict[Trial, LossCurve]:
        return {trial: run.curve for trial, run in measured.items() if isinstance(run, Solving)}

    def _factor(self, bias: float, seed: int) -> float:
        encoder, _ = self._encoder(bias, seed)
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(self.keys + _NOISE, (_TEXTS, self.steps), generator=generator)
        return factor_per_step(encoder, encoder.embedding(tokens).detach(), seed)

    def _encoder(self, bias: float, seed: int) -> tuple[Encoder, int]:
        options = {"width": self.width, "scale_embeddings": False}
        encoder, width = encoder_of("lstm", self.keys + _NOISE, seed, options)
        for layer in encoder.modules():
            if isinstance(layer, nn.LSTM):
                # torch's order of gates is i, f, g, o, and it adds two biases
                layer.get_parameter("bias_ih_l0").detach()[width : 2 * width] = bias
                layer.get_parameter("bias_hh_l0").detach()[width : 2 * width] = 0.0
        return encoder, width
