"""The adding problem over hundreds of steps (Hochreiter & Schmidhuber 1997; Le et al. 2015; Bai et al. 2018)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from s2s.comparison.reproduce.contract import Numbers, Reproduction, by_seed
from s2s.comparison.reproduce.training import (
    Budget,
    LossCurve,
    TextClassifier,
    curves_figure,
    encoder_of,
    train,
)
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Trial

_BUDGET = Budget(updates=2_500, rate=0.002, every=50)


@dataclass(frozen=True)
class Adding(Reproduction[LossCurve]):
    """The sum of two marked numbers among hundreds."""

    name = "adding"
    finding = "Over 600 steps, a GRU learns to add two marked numbers; an LSTM and a tanh-RNN predict the mean."
    source = (
        "Bai, Kolter & Koltun 2018, table 1, T = 600: GRU 5.3e-5, LSTM 0.164; its tanh-RNN, 0.177, is not verified. "
        "Le, Jaitly & Hinton 2015: a tanh-RNN fails from about 150 steps on (not verified). Predicting the mean, 1, "
        "has an error of 1/6 (derived)"
    )
    method = (
        "200 or 600 numbers from 0 to 1, with one marked in each half; one layer of width 64 and a linear head predict "
        "the sum of the marked ones. Mean squared error; Adam at 0.002, up to 2,500 updates of 32 fresh sequences, or "
        "until the error is below 0.002."
    )
    bands = (
        Band(key="gru-200", what="mean squared error of the GRU over 200 steps", published="(none)", high=0.01),
        Band(
            key="rnn-200",
            what="mean squared error of the tanh-RNN over 200 steps",
            published="about 1/6",
            low=0.15,
            high=0.19,
        ),
        Band(key="gru-600", what="mean squared error of the GRU over 600 steps", published="5.3e-5", high=0.01),
        Band(
            key="rnn-600",
            what="mean squared error of the tanh-RNN over 600 steps",
            published="0.177",
            low=0.15,
            high=0.19,
        ),
        Band(
            key="lstm-600", what="mean squared error of the LSTM over 600 steps", published="0.164", low=0.15, high=0.19
        ),
    )
    seconds = (750, 3_000)

    kinds: tuple[tuple[str, int], ...] = (("gru", 200), ("rnn", 200), ("gru", 600), ("rnn", 600), ("lstm", 600))
    width: int = 64
    rows: int = 32
    budget: Budget = _BUDGET

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        return [Trial(kind, str(steps), seed) for seed in seeds for kind, steps in self.kinds]

    def measure(self, trial: Trial) -> LossCurve:
        """Train a network over a number of steps."""
        seed = trial.seed or 0
        encoder, width = encoder_of(trial.model, 4, seed, {"width": self.width})
        model = TextClassifier(encoder, width, 1, over="last")
        # the input is numbers instead of tokens
        encoder.set_input_embeddings(nn.Linear(2, width))
        return train(model, partial(self.draw, int(trial.part)), _squared_error, self.budget, seed, enough=0.002)

    def draw(self, steps: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw numbers with marks, and the sums of the marked ones."""
        half, rows = steps // 2, torch.arange(self.rows)
        numbers = torch.rand(self.rows, steps, generator=generator)
        marks = torch.zeros_like(numbers)
        for first in (0, half):
            marks[rows, first + torch.randint(half, (self.rows,), generator=generator)] = 1
        return torch.stack((numbers, marks), dim=2), (numbers * marks).sum(dim=1)

    def numbers(self, measured: Mapping[Trial, LossCurve]) -> Numbers:
        return {
            f"{kind}-{steps}": by_seed(measured, lambda curve: curve.losses[-1], kind, str(steps))
            for kind, steps in self.kinds
        }

    def figures(self, measured: Mapping[Trial, LossCurve]) -> list[Figure]:
        longest = max(steps for _, steps in self.kinds)
        curves = {trial: curve for trial, curve in measured.items() if trial.part == str(longest)}
        return [curves_figure(f"Adding over {longest} steps", curves, "squared error", ("predicting the mean", 1 / 6))]


def _squared_error(outputs: Tensor, sums: Tensor) -> Tensor:
    return functional.mse_loss(outputs[:, 0], sums)
