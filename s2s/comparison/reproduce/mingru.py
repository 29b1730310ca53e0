"""minGRU: selective copying by number of layers, and longest chain of operations of its scan (Feng et al. 2024)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import sub

import torch
from torch import Tensor

from s2s.comparison.instruments import unfused
from s2s.comparison.operations import Operations
from s2s.comparison.reporting import axis, figure, series
from s2s.comparison.reproduce.contract import Numbers, Reproduction, by_seed, paired
from s2s.comparison.reproduce.training import (
    Budget,
    LossCurve,
    TextClassifier,
    accuracy,
    curves_figure,
    encoder_of,
    heldout_generator,
    target_cross_entropy,
    train,
)
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Trial
from s2s.data.synthetic_tasks import NO_LABEL

_BUDGET = Budget(updates=2_500, rate=0.004, every=50, warmup=50, decay=0.3)
_CHAIN = "chain"


@dataclass(frozen=True)
class Copied:
    """A training, and its accuracy in percent."""

    curve: LossCurve
    right: float


@dataclass(frozen=True)
class Chains:
    """Longest chain of operations at each length."""

    depths: list[int]


@dataclass(frozen=True)
class MinGru(Reproduction[Copied | Chains]):
    """minGRU with one to three layers on selective copying; longest chains of minGRU and GRU."""

    name = "mingru"
    finding = (
        "minGRU solves selective copying with two or more layers, not with one; its scan needs few sequential steps."
    )
    source = (
        "Feng et al. 2024 (Were RNNs all we needed?), table on selective copying by layers: 37.0, 96.8 and 99.5 % with "
        "1, 2 and 3 layers (not verified); training of minGRU is 175 times as fast as of a GRU at 512 tokens (abstract)"
    )
    method = (
        "8 of 16 symbols at random places among 56 blanks, then 8 markers; a linear head predicts the symbols at the "
        "markers, in order (publication: 16 symbols among 4,096 tokens). minGRU of width 64, Adam at 0.004, 2,500 "
        "updates of 64 fresh sequences. Measured: accuracy per symbol in 256 sequences. Sizes were chosen on seed 100, "
        "which is not measured. The longest chain of dependent operations in a forward pass of one layer is counted, "
        "not timed, for minGRU (scan) and for a GRU (step by step), at 512 and 1,024 tokens."
    )
    setting = "with shorter texts (64 tokens; published: 4,096)"
    bands = (
        Band(key="one", what="accuracy with one layer (%)", published="37.0", low=20.0, high=60.0),
        Band(key="gain", what="gain of the second layer (points)", published="+59.8", low=30.0),
        Band(key="three", what="accuracy with three layers (%)", published="99.5", low=90.0),
        Band(
            key=_CHAIN,
            what="operations that 512 more tokens add to the longest chain, minGRU / GRU",
            published="log n over n (derived)",
            high=0.05,
            deterministic=True,
        ),
    )
    seconds = (250, 900)

    width: int = 64
    symbols: int = 16
    kept: int = 8
    length: int = 64
    rows: int = 64
    texts: int = 256
    chains: tuple[int, int] = (512, 1_024)
    budget: Budget = _BUDGET

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        trainings = [Trial("mingru", f"layers-{layers}", seed) for seed in seeds for layers in (1, 2, 3)]
        return trainings + [Trial(kind, _CHAIN, seed) for seed in seeds for kind in ("mingru", "gru")]

    def measure(self, trial: Trial) -> Copied | Chains:
        """Train a minGRU, or count the longest chains of a network."""
        seed = trial.seed or 0
        if trial.part == _CHAIN:
            return Chains([self._depth(trial.model, length, seed) for length in self.chains])
        options = {"width": self.width, "encoder_layers": int(trial.part.removeprefix("layers-"))}
        model = TextClassifier(*encoder_of("mingru", self.symbols + 2, seed, options), self.symbols)
        curve = train(model, self.draw, target_cross_entropy, self.budget, seed)
        return Copied(curve, accuracy(model, self._texts(self.texts, heldout_generator(seed))))

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw texts, and the symbols at the markers."""
        return self._texts(self.rows, generator)

    def _texts(self, rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        symbols = torch.randint(self.symbols, (rows, self.kept), generator=generator)
        places = torch.rand(rows, self.length, generator=generator).argsort(dim=1)[:, : self.kept].sort(dim=1).values
        blank, marker = self.symbols, self.symbols + 1
        source = torch.full((rows, self.length + self.kept), blank).scatter_(1, places, symbols)
        source[:, self.length :] = marker
        targets = torch.full_like(source, NO_LABEL)
        targets[:, self.length :] = symbols
        return source, targets

    def _depth(self, kind: str, length: int, seed: int) -> int:
        encoder, _ = encoder_of(kind, 4, seed, {"width": 8})
        tokens = torch.randint(4, (1, length), generator=torch.Generator().manual_seed(seed))
        with torch.no_grad(), unfused(), Operations() as seen:
            encoder(tokens, torch.ones_like(tokens, dtype=torch.bool))
        return seen.depth

    def numbers(self, measured: Mapping[Trial, Copied | Chains]) -> Numbers:
        copied = {trial: run for trial, run in measured.items() if isinstance(run, Copied)}
        one, two, three = (by_seed(copied, lambda m: m.right, "mingru", f"layers-{n}") for n in (1, 2, 3))
        chains = {trial: run for trial, run in measured.items() if isinstance(run, Chains)}
        scan, loop = (by_seed(chains, lambda m: m.depths[1] - m.depths[0], kind, _CHAIN) for kind in ("mingru", "gru"))
        ratio = paired(scan, loop, lambda few, many: few / many)
        return {"one": one, "gain": paired(two, one, sub), "three": three, _CHAIN: ratio}

    def figures(self, measured: Mapping[Trial, Copied | Chains]) -> list[Figure]:
        copied = {trial: run for trial, run in measured.items() if isinstance(run, Copied)}
        bars = [
            series(
                f"seed {seed}",
                "mingru",
                ["1 layer", "2 layers", "3 layers"],
                [run.right for trial, run in copied.items() if trial.seed == seed],
            )
            for seed in dict.fromkeys(trial.seed for trial in copied)
        ]
        axes = (axis("layers"), axis("accuracy per symbol", "%"))
        return [
            figure("layers", "Accuracy in selective copying by number of layers", axes, bars, kind="bars"),
            curves_figure(
                "Selective copying: training loss", {trial: run.curve for trial, run in copied.items()}, "nats"
            ),
        ]
