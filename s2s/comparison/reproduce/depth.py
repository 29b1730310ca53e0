"""Length of the chain of dependent operations, counted on the computed graph (Vaswani et al. 2017)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from s2s.comparison.instruments import unfused
from s2s.comparison.operations import Operations
from s2s.comparison.reporting import axis, figure, series
from s2s.comparison.reproduce.contract import Numbers, Reproduction, by_seed
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Trial
from s2s.data.exercises import FIRST
from s2s.evaluation.inference import growth
from s2s.recipe.installed import module_of
from s2s.training.device import derive_seed

_VOCABULARY = FIRST + 40


@dataclass(frozen=True)
class Chains:
    """Longest chains of one model."""

    depths: list[int]  # at each length
    law: str  # growth law
    per_token: float  # operations added per token; infinite if growth is neither constant nor linear


@dataclass(frozen=True)
class Depth(Reproduction[Chains]):
    """The longest chain of operations in a forward pass, by length."""

    name = "depth"
    finding = "The sequential operations of an RNN grow with the length; those of a Transformer in training do not."
    source = (
        "Vaswani et al. 2017, table 1: O(n) sequential operations for recurrent layers, O(1) for self-attention. "
        "The 12 is derived: h′ = tanh(W x + U h + b) needs a product, a sum and a tanh for each token and layer"
    )
    method = (
        "A forward pass in training of a translator with two encoder and two decoder layers. Torch's dispatched "
        "operations are traced; recurrent layers run step by step. The encoder finishes before the decoder starts, so "
        "four layers of three operations add 12 operations per token."
    )
    bands = (
        Band(
            key="rnn",
            what="operations per token in the longest chain of the tanh-RNN",
            published="12 (derived)",
            low=12,
            high=12,
            deterministic=True,
        ),
        Band(
            key="transformer",
            what="operations per token in the longest chain of the Transformer",
            published="0",
            high=0,
            deterministic=True,
        ),
    )
    seconds = (2, 5)
    usual_seeds = 1

    lengths: tuple[int, ...] = (8, 16, 32, 64)
    width: int = 16

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        return [Trial(band.key, seed=seed) for seed in seeds for band in self.bands]

    def measure(self, trial: Trial) -> Chains:
        """Count the longest chain at each length, and fit its growth law."""
        depths = [self._depth(trial.model, length, trial.seed or 0) for length in self.lengths]
        law = growth(self.lengths, depths)
        per_token = {"linear": law.rate, "constant": 0.0}.get(law.law, float("inf"))
        return Chains(depths, str(law), round(per_token, 6))

    def _depth(self, kind: str, length: int, seed: int) -> int:
        module = module_of(kind)
        options = {"width": self.width, "heads": 2, "encoder_layers": 2, "decoder_layers": 2, "bidirectional": False}
        settings = module.Settings(**{k: v for k, v in options.items() if k in module.Settings.model_fields})
        torch.manual_seed(derive_seed(seed))
        model = module.build(settings, _VOCABULARY, _VOCABULARY).eval()
        tokens = torch.randint(FIRST, _VOCABULARY, (2, length), generator=torch.Generator().manual_seed(seed))
        valid = torch.ones_like(tokens, dtype=torch.bool)
        with torch.no_grad(), unfused(), Operations() as seen:
            model.logits(tokens, valid, tokens)
        return seen.depth

    def numbers(self, measured: Mapping[Trial, Chains]) -> Numbers:
        return {band.key: by_seed(measured, lambda m: m.per_token, band.key) for band in self.bands}

    def figures(self, measured: Mapping[Trial, Chains]) -> list[Figure]:
        shown = [series(trial.model, trial.model, list(self.lengths), m.depths) for trial, m in measured.items()]
        axes = (axis("length of source and target", "tokens", log=True), axis("longest chain", "operations", log=True))
        return [figure("depth", "Sequential operations in a forward pass", axes, shown)]
