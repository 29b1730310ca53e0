"""Sensitivity: how much one symbol of n changes the output of a Transformer and of an LSTM (Hahn 2020)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from s2s.comparison.reporting import axis, figure, series
from s2s.comparison.reproduce.contract import Numbers, Reproduction, by_seed
from s2s.comparison.reproduce.training import (
    Budget,
    TextClassifier,
    accuracy,
    encoder_of,
    heldout_generator,
    power_law_exponent,
    random_lengths,
    target_cross_entropy,
    train,
)
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Trial
from s2s.data.synthetic_tasks import FIRST, NO_LABEL
from s2s.data.synthetic_tasks import StateTracking as Automaton
from s2s.evaluation.inference import mean

_BUDGET = Budget(updates=600, rate=0.003, every=50, warmup=50, decay=0.3)
_UNTRAINED, _TRAINED = "untrained", "trained"


def flip_one(symbols: Int[Tensor, "rows steps"], generator: torch.Generator) -> Int[Tensor, "rows steps"]:
    """Exchange one random symbol of each string of zeros and ones, but not the last one.

    Args:
        symbols: Strings; `FIRST` is a zero and `FIRST + 1` a one.
        generator: Source of randomness.
    """
    rows, steps = symbols.shape
    at = torch.randint(steps - 1, (rows, 1), generator=generator)
    return symbols.scatter(1, at, 2 * FIRST + 1 - symbols.gather(1, at))


@dataclass(frozen=True)
class ChangeByLength:
    """Change of a model's last output by one symbol."""

    change: dict[int, float]  # length of the string: mean Euclidean distance between the outputs
    accuracy: float  # share of the last outputs that are right at the shortest length, in percent


@dataclass(frozen=True)
class Sensitivity(Reproduction[ChangeByLength]):
    """An untrained Transformer, and a Transformer and an LSTM trained on parity, on strings that differ in a symbol."""

    name = "sensitivity"
    finding = "One symbol of n changes a Transformer's output by O(1/n); in a trained LSTM, it matters at any length."
    source = (
        "Hahn 2020 (Theoretical limitations of self-attention), section 5, soft attention: exchanging one input symbol "
        "changes an activation by O(1/n), so long strings with different parities have nearly the same output (not "
        "verified word by word). The exponents −1 and 0 are derived from it and from what parity asks"
    )
    method = (
        "Parity of random strings of zeros and ones; a linear head on the last of two layers of width 64, sinusoidal "
        "positions. Training: 1 to 40 symbols with the parity after each symbol as target, Adam at 0.003, 600 updates "
        "of 64 fresh strings. Measured: mean Euclidean distance between the last outputs of 128 strings and of the "
        "same strings with one symbol exchanged (not the last), at 16, 32, 64 … 1,024 symbols; the exponent b of n^b "
        "by least squares of the logarithms. Publication: a bound for any weights as n grows, without a measurement."
    )
    bands = (
        Band(
            key="untrained",
            what="exponent of the length, untrained Transformer",
            published="−1 (upper bound)",
            low=-1.2,
            high=-0.8,
            derived=-1.0,
        ),
        Band(
            key="transformer",
            what="exponent of the length, Transformer trained on parity",
            published="−1 (upper bound)",
            low=-1.5,
            high=-0.5,
            derived=-1.0,
        ),
        Band(
            key="lstm",
            what="exponent of the length, LSTM trained on parity",
            published="0 (derived)",
            low=-0.05,
            high=0.05,
            derived=0.0,
            valid_if=("learned",),
        ),
        Band(
            key="learned",
            what="parities of 16 symbols that are right, LSTM (%)",
            published="(validity check)",
            low=99.0,
            validity=True,
        ),
    )
    seconds = (150, 900)
    usual_seeds = 10

    width: int = 64
    max_length: int = 40
    tested: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024)
    rows: int = 64
    texts: int = 128
    budget: Budget = _BUDGET

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        cases = (("transformer", _UNTRAINED), ("transformer", _TRAINED), ("lstm", _TRAINED))
        return [Trial(kind, part, seed) for seed in seeds for kind, part in cases]

    def measure(self, trial: Trial) -> ChangeByLength:
        """Train a model, or not, and measure the change at every length."""
        seed, task = trial.seed or 0, Automaton("parity", range(1, self.max_length + 1), self.tested)
        options = {"width": self.width, "feedforward": 2 * self.width, "encoder_layers": 2}
        model = TextClassifier(*encoder_of(trial.model, task.vocabulary_size, seed, options), task.classes)
        if trial.part == _TRAINED:
            train(model, random_lengths(task, self.max_length, self.rows), target_cross_entropy, self.budget, seed)
        model.eval()
        generator = heldout_generator(seed)
        batch = task.draw(self.tested[0], self.texts, generator)
        targets = batch.wanted.clone()
        targets[:, :-1] = NO_LABEL
        right = accuracy(model, (batch.source, targets))
        return ChangeByLength({n: self.change(model, task, n, generator) for n in self.tested}, right)

    @torch.no_grad()
    def change(self, model: TextClassifier, task: Automaton, length: int, generator: torch.Generator) -> float:
        """Return the mean distance between the last outputs of strings and of these with one symbol exchanged."""
        strings = task.draw(length, self.texts, generator).source
        last = [model(each)[:, -1] for each in (strings, flip_one(strings, generator))]
        return float((last[0] - last[1]).norm(dim=1).mean())

    def numbers(self, measured: Mapping[Trial, ChangeByLength]) -> Numbers:
        cases = {
            "untrained": ("transformer", _UNTRAINED),
            "transformer": ("transformer", _TRAINED),
            "lstm": ("lstm", _TRAINED),
        }
        found = {
            key: by_seed(measured, lambda run: power_law_exponent(run.change), *case) for key, case in cases.items()
        }
        return {**found, "learned": by_seed(measured, lambda run: run.accuracy, *cases["lstm"])}

    def figures(self, measured: Mapping[Trial, ChangeByLength]) -> list[Figure]:
        runs: dict[str, list[ChangeByLength]] = {}
        for trial, run in measured.items():
            runs.setdefault(f"{trial.model}, {trial.part}", []).append(run)
        shown = [
            series(label, label, list(self.tested), [mean([run.change[n] for run in own]) for n in self.tested])
            for label, own in runs.items()
        ]
        start = shown[0].y[0]
        if start is not None:
            law = [start * self.tested[0] / n for n in self.tested]
            shown.append(series("1/n", "", list(self.tested), law, reference=True))
        axes = (axis("symbols", log=True), axis("change of the last output", log=True))
        return [figure("change", "Change of the output by one exchanged symbol, by length", axes, shown)]
