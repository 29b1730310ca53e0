"""Gradients of untrained Transformers by depth, with post-norm and pre-norm (Xiong et al. 2020)."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from s2s.comparison.reporting import axis, figure, series
from s2s.comparison.reproduce.contract import Numbers, Reproduction, by_seed
from s2s.comparison.reproduce.training import (
    TextClassifier,
    encoder_of,
    power_law_exponent,
    target_cross_entropy,
)
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Trial
from s2s.data.synthetic_tasks import FIRST
from s2s.evaluation.inference import Estimate, mean
from s2s.training.device import derive_seed


@dataclass(frozen=True)
class GradientsByDepth:
    """Gradient norms of untrained networks."""

    last: dict[int, float]  # number of layers: norm of the gradient of the last feed-forward block's output weights


@dataclass(frozen=True)
class NormGradients(Reproduction[GradientsByDepth]):
    """Untrained Transformers of 8 to 128 layers, with post-norm and pre-norm."""

    name = "norm-gradients"
    finding = (
        "The last layer's gradient in an untrained pre-norm Transformer falls as 1/√depth; with post-norm it stays."
    )
    source = (
        "Xiong et al. 2020, theorem 1: the gradient of the last feed-forward block's output weights is O(d √(ln d)) "
        "with post-norm, whatever the depth L, and O(d √(ln d / L)) with pre-norm. The exponents of L are the "
        "theorem's; figure 3 (c, d) shows 6 to 14 layers, with a constant norm of about 1.6 with post-norm"
    )
    method = (
        "Untrained Transformer encoders of width 64 (feed-forward blocks of 64, as in the theorem) with 8, 16, 32, 64 "
        "and 128 layers. The theorem has one head, and queries and keys of zero; here four heads have random ones. "
        "Cross-entropy of a random linear head with random targets, in 16 sequences of 32 random tokens. Measured: "
        "norm of the gradient of the last feed-forward block's output weights, mean over 8 networks; then the exponent "
        "b of L^b, by least squares of the logarithms. The depths were chosen on seed 100, which is not measured: with "
        "2 layers, the embeddings are a large part of the sum that pre-norm normalizes (lemma 2)."
    )
    setting = "from 8 layers on"
    bands = (
        Band(
            key="post",
            what="exponent of the depth, post-norm",
            published="0 (upper bound)",
            low=-0.2,
            high=0.2,
            derived=0.0,
        ),
        Band(
            key="pre",
            what="exponent of the depth, pre-norm",
            published="−1/2 (upper bound)",
            low=-0.6,
            high=-0.4,
            derived=-0.5,
        ),
    )
    seconds = (150, 1_000)
    usual_seeds = 30

    width: int = 64
    depths: tuple[int, ...] = (8, 16, 32, 64, 128)
    networks: int = 8
    rows: int = 16
    length: int = 32
    symbols: int = 32

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        return [Trial("transformer", norm, seed) for seed in seeds for norm in ("post", "pre")]

    def measure(self, trial: Trial) -> GradientsByDepth:
        """Measure the gradient's norm at each depth."""
        seeds = [derive_seed(trial.seed or 0, network) % 2**31 for network in range(self.networks)]
        return GradientsByDepth(
            {depth: statistics.mean(self.gradient(trial.part, depth, seed) for seed in seeds) for depth in self.depths}
        )

    def gradient(self, norm: str, depth: int, seed: int) -> float:
        """Return the norm of the gradient of one network's last feed-forward output weights."""
        model, tokens, targets = self.draw(norm, depth, seed)
        weight = self.last_weight(model, depth)
        (gradient,) = torch.autograd.grad(target_cross_entropy(model(tokens), targets), weight)
        return float(gradient.norm())

    def draw(self, norm: str, depth: int, seed: int) -> tuple[TextClassifier, Tensor, Tensor]:
        """Draw a network, random tokens and random targets."""
        options = {"width": self.width, "feedforward": self.width, "heads": 4, "encoder_layers": depth, "norm": norm}
        encoder, width = encoder_of("transformer", FIRST + self.symbols, seed, options)
        model = TextClassifier(encoder, width, self.symbols)
        nn.init.normal_(model.head.weight, std=width**-0.5)
        generator = torch.Generator().manual_seed(seed)
        tokens, targets = torch.randint(self.symbols, (2, self.rows, self.length), generator=generator)
        return model, FIRST + tokens, targets

    def last_weight(self, model: TextClassifier, depth: int) -> nn.Parameter:
        """Return the output weights of the last feed-forward block."""
        return model.encoder.get_parameter(f"layers.{depth - 1}.feedforward.contract.weight")

    def numbers(self, measured: Mapping[Trial, GradientsByDepth]) -> Numbers:
        return {
            norm: by_seed(measured, lambda run: power_law_exponent(run.last), "transformer", norm)
            for norm in ("post", "pre")
        }

    def figures(self, measured: Mapping[Trial, GradientsByDepth]) -> list[Figure]:
        depths, means = list(self.depths), dict[str, list[Estimate]]()
        for norm in ("post", "pre"):
            runs = [run.last for trial, run in measured.items() if trial.part == norm]
            means[norm] = [mean([run[depth] for run in runs]) for depth in depths]
        shown = [series(f"{norm}-norm", norm, depths, values) for norm, values in means.items()]
        law = [means["pre"][0].value * math.sqrt(depths[0] / depth) for depth in depths]
        shown.append(series("1/√depth", "", depths, law, reference=True))
        axes = (axis("layers", log=True), axis("norm of the gradient", log=True))
        return [figure("gradients", "Gradient of the last layer in untrained Transformers by depth", axes, shown)]
