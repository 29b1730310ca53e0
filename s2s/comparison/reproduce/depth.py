"""Length of the chain of dependent operations, counted on the computed graph."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from s2s.comparison.instruments import unfused
from s2s.comparison.operations import Operations
from s2s.comparison.reporting import axis, figure, series
from s2s.comparison.reproduce.contract import Numbers, Reproduction, by_seed
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Measured, Trial, Trials
from s2s.data.exercises import FIRST
from s2s.evaluation.inference import growth
from s2s.recipe.installed import module_of
from s2s.training.device import derive_seed

_PIECES = FIRST + 40


@dataclass(frozen=True)
class Depth(Reproduction):
    """The longest chain in a forward pass, against the length of both sides."""

    name = "depth"
    finding = (
        "A recurrent network's chain of operations grows with every token, a Transformer's in training not at all."
    )
    source = (
        "Vaswani et al. 2017, table 1: O(n) sequential operations for recurrent layers, O(1) for self-attention (not "
        "verified); that it is three operations for each layer and token follows from h′ = tanh(W x + U h + b), where "
        "the products with x of all tokens are one: a product, a sum, and tanh"
    )
    method = (
        "A whole translator of two layers that read and two that write, in a forward pass of training: the operations "
        "that torch sends to its kernels are followed one by one, recurrent layers step by step. Four layers of three "
        "operations make 12 for each token; the two layers of a side are computed one after the other."
    )
    bands = (
        Band(
            key="rnn", what="operations that each token adds to the tanh-RNN's chain", published="12", low=12, high=12
        ),
        Band(key="transformer", what="operations that each token adds to the Transformer's", published="0", high=0),
    )
    seconds = (2, 5)
    usual_seeds = 1

    lengths: tuple[int, ...] = (8, 16, 32, 64)
    width: int = 16

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        """One for each kind; nothing is left to chance but the weights."""
        return [Trial(band.key, seed=seed) for seed in seeds for band in self.bands]

    def measure(self, trial: Trial) -> Measured:
        """The longest chain at each length, and the law that it grows by."""
        depths = [self._depth(trial.model, length, trial.seed or 0) for length in self.lengths]
        law = growth(self.lengths, depths)
        # a law that is not a line has no number of operations for each token
        per_token = {"linear": law.rate, "constant": 0.0}.get(law.law, float("inf"))
        return {"depths": depths, "law": str(law), "per_token": round(per_token, 6)}

    def _depth(self, kind: str, length: int, seed: int) -> int:
        module = module_of(kind)
        wanted = {"width": self.width, "heads": 2, "encoder_layers": 2, "decoder_layers": 2, "bidirectional": False}
        settings = module.Settings(**{k: v for k, v in wanted.items() if k in module.Settings.model_fields})
        torch.manual_seed(derive_seed(seed))
        model = module.build(settings, _PIECES, _PIECES).eval()
        tokens = torch.randint(FIRST, _PIECES, (2, length), generator=torch.Generator().manual_seed(seed))
        valid = torch.ones_like(tokens, dtype=torch.bool)
        with torch.no_grad(), unfused(), Operations() as seen:
            model.logits(tokens, valid, tokens)
        return seen.depth

    def numbers(self, measured: Trials) -> Numbers:
        """Operations for each token."""
        return {band.key: by_seed(measured, "per_token", band.key) for band in self.bands}

    def figures(self, measured: Trials) -> list[Figure]:
        """Chains against length."""
        shown = [series(trial.model, trial.model, list(self.lengths), m["depths"]) for trial, m in measured.items()]
        axes = (axis("length of source and target", "tokens", log=True), axis("longest chain", "operations", log=True))
        return [figure("depth", "Operations that must wait for each other, in a forward pass", axes, shown)]
