"""Copy memory over a thousand blanks, by recurrent networks and a dilated convolution (Bai et al. 2018)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from s2s.comparison.reproduce.contract import Numbers, Reproduction, by_seed
from s2s.comparison.reproduce.training import (
    Budget,
    LossCurve,
    TextClassifier,
    curves_figure,
    encoder_of,
    target_cross_entropy,
    train,
)
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Trial
from s2s.training.device import derive_seed

_LAST = 4  # points of the learning curve whose mean is the final loss
_SYMBOLS, _LENGTH = 8, 10
_BUDGET = Budget(updates=1_500, rate=0.004, every=20)
# sequences with one blank are fifty times shorter
_NEAR_BUDGET = Budget(updates=6_000, rate=0.004, every=20)
_FAR, _NEAR = "far", "near"


class DilatedConvolution(nn.Module):
    """Temporal convolutional network of Bai et al. 2018: causal convolutions with doubling dilations.

    Each level has two convolutions of the same dilation, each followed by a ReLU, and a residual connection.

    Args:
        symbols: Size of the vocabulary.
        outputs: Outputs at each position.
        width: Channels.
        kernel: Kernel size.
        levels: Levels; the receptive field is 1 + 2 (kernel − 1) (2^levels − 1) positions.
    """

    def __init__(self, symbols: int, outputs: int, width: int, kernel: int, levels: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.pasts = [(kernel - 1) * 2**level for level in range(levels)]
        self.first, self.second = (
            nn.ModuleList(nn.Conv1d(width, width, kernel, dilation=2**level) for level in range(levels))
            for _ in range(2)
        )
        self.head = nn.Linear(width, outputs)

    def forward(self, source: Int[Tensor, "batch steps"]) -> Float[Tensor, "batch steps outputs"]:
        """Return the outputs at each position."""
        x = self.embedding(source).transpose(1, 2)
        # padding on the left only: the convolution is causal
        for past, first, second in zip(self.pasts, self.first, self.second, strict=True):
            y = functional.relu(first(functional.pad(x, (past, 0))))
            y = functional.relu(second(functional.pad(y, (past, 0))))
            x = functional.relu(x + y)
        return self.head(x.transpose(1, 2))


@dataclass(frozen=True)
class CopyMemory(Reproduction[LossCurve]):
    """Copying of ten symbols after hundreds of blanks."""

    name = "copy-memory"
    finding = (
        "Over 1,000 blanks, a dilated convolution learns to copy; RNN, LSTM and GRU only reach the loss without memory."
    )
    source = (
        "Bai, Kolter & Koltun 2018, table 1, T = 1,000: LSTM 0.0204, GRU 0.0197, TCN 3.5e-5; its tanh-RNN, 0.0202, is "
        "not verified. The loss without memory is 10 ln 8 / (T + 20) = 0.0204 (derived; Arjovsky, Shah & Bengio 2016)"
    )
    method = (
        "Ten symbols of eight kinds, then T = 1,000 blanks, the last of them a delimiter. The targets of the last ten "
        "positions are the symbols, those of all others blanks. Cross-entropy over all positions, as a multiple of the "
        "loss without memory. Recurrent networks: one layer of width 64, Adam at 0.004, 1,500 updates of 16 fresh "
        "sequences, mean loss of the last 80 updates. The publication trains longer, so networks may learn later. "
        "Validity check: the LSTM copies with T = 1 (6,000 updates). TCN: 8 levels of width 16, kernel 8, without "
        "weight normalization and dropout, the same number of updates at a rate of 0.002."
    )
    bands = (
        *(
            Band(
                key=kind,
                what=f"loss of {name} / loss without memory",
                published=f"{published / 0.020387:.2f} ({published} at T = 1,000)",
                low=0.93,
                high=1.05,
                valid_if=("near",),
            )
            for kind, name, published in (
                ("rnn", "the tanh-RNN", 0.0202),
                ("lstm", "the LSTM", 0.0204),
                ("gru", "the GRU", 0.0197),
            )
        ),
        Band(key="tcn", what="loss of the TCN / loss without memory", published="0.002 (3.5e-5)", high=0.1),
        Band(
            key="near",
            what="loss of the LSTM / loss without memory, with T = 1",
            published="(control)",
            high=0.8,
            validity=True,
        ),
    )
    seconds = (1_500, 5_000)

    blanks: int = 1_000
    near: int = 1
    width: int = 64
    levels: int = 8
    rows: int = 16
    budget: Budget = _BUDGET
    near_budget: Budget = _NEAR_BUDGET
    tcn_rate: float = 0.002

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        kinds = [("rnn", _FAR), ("lstm", _FAR), ("gru", _FAR), ("lstm", _NEAR), ("tcn", _FAR)]
        return [Trial(kind, part, seed) for seed in seeds for kind, part in kinds]

    def measure(self, trial: Trial) -> LossCurve:
        """Train a network over the blanks, or over one blank."""
        seed = trial.seed or 0
        blanks, budget = (self.near, self.near_budget) if trial.part == _NEAR else (self.blanks, self.budget)
        if trial.model == "tcn":
            torch.manual_seed(derive_seed(seed))
            model = DilatedConvolution(_SYMBOLS + 2, _SYMBOLS + 1, width=16, kernel=8, levels=self.levels)
            budget = Budget(budget.updates, self.tcn_rate, budget.every)
        else:
            encoder, width = encoder_of(trial.model, _SYMBOLS + 2, seed, {"width": self.width})
            model = TextClassifier(encoder, width, _SYMBOLS + 1)
        return train(model, partial(self.draw, blanks), target_cross_entropy, budget, seed)

    def draw(self, blanks: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw texts and their targets: 0 is blank, 9 the delimiter."""
        symbols = torch.randint(1, _SYMBOLS + 1, (self.rows, _LENGTH), generator=generator)
        empty = symbols.new_zeros(self.rows, blanks + _LENGTH)
        source = torch.cat((symbols, empty), dim=1)
        source[:, _LENGTH + blanks - 1] = _SYMBOLS + 1
        return source, torch.cat((empty, symbols), dim=1)

    def numbers(self, measured: Mapping[Trial, LossCurve]) -> Numbers:
        far = {
            kind: by_seed(measured, lambda curve: _final(curve) / loss_without_memory(self.blanks), kind, _FAR)
            for kind in ("rnn", "lstm", "gru", "tcn")
        }
        near = by_seed(measured, lambda curve: _final(curve) / loss_without_memory(self.near), "lstm", _NEAR)
        return far | {"near": near}

    def figures(self, measured: Mapping[Trial, LossCurve]) -> list[Figure]:
        far = {trial: curve for trial, curve in measured.items() if trial.part == _FAR}
        baseline = ("without memory", loss_without_memory(self.blanks))
        return [
            curves_figure(f"Copy memory over {self.blanks:,} blanks: training loss", far, "nats per position", baseline)
        ]


def loss_without_memory(blanks: int) -> float:
    """Return the lowest loss without memory of the symbols: 10 ln 8 / (T + 20), in nats per position."""
    return _LENGTH * math.log(_SYMBOLS) / (blanks + 2 * _LENGTH)


def _final(curve: LossCurve) -> float:
    last = curve.losses[-_LAST:]
    return sum(last) / len(last)
