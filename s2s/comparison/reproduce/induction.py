"""Induction: copying from a repeated random sequence needs two layers of attention (Olsson et al. 2022)."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from s2s.comparison.reproduce.contract import Numbers, Reproduction, by_seed
from s2s.comparison.reproduce.training import (
    AccuracyByLength,
    Budget,
    NextToken,
    accuracy,
    accuracy_figure,
    heldout_generator,
    target_cross_entropy,
    train,
)
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Trial
from s2s.data.exercises import Cheat
from s2s.data.synthetic_tasks import FIRST, NO_LABEL, Copying, most_frequent_share

_BUDGET = Budget(updates=1_500, rate=0.004, every=50, warmup=50, decay=0.3)
_OPTIONS = {"width": 64, "heads": 4, "feedforward": 1}


@dataclass(frozen=True)
class Induction(Reproduction[AccuracyByLength]):
    """Causal Transformers with one and two layers on repeated random tokens."""

    name = "induction"
    finding = "A two-layer attention model learns to copy from a repeated random sequence; a one-layer model does not."
    source = (
        "Olsson et al. 2022, In-context learning and induction heads, argument 1: induction heads form in models of "
        "two and more layers, and not in models of one layer. The statement is not verified word by word; the "
        "publication has no accuracy on this task"
    )
    method = (
        "8 to 32 random tokens out of 32, then the same again; the model predicts each repeated token except the "
        "first. The length is drawn for each update, so positions do not show where the repetition begins. Causal "
        "Transformers of width 64 with four heads and sinusoidal positions; feed-forward blocks have one hidden unit, "
        "so only attention can solve the task. Adam at 0.004, 1,500 updates of 64 fresh sequences. Measured: accuracy "
        "per token in 256 sequences. Sizes were chosen on seed 100, which is not measured."
    )
    bands = (
        Band(
            key="two",
            what="accuracy of two layers, 32 repeated tokens (%)",
            published="(induction heads form)",
            low=50.0,
        ),
        Band(key="one", what="accuracy of one layer, 32 repeated tokens (%)", published="(none form)", high=20.0),
    )
    seconds = (150, 600)

    symbols: int = 32
    lengths: tuple[int, int] = (8, 32)
    tested: tuple[int, ...] = (8, 16, 32, 64)
    rows: int = 64
    texts: int = 256
    budget: Budget = _BUDGET

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        return [Trial("transformer", f"layers-{layers}", seed) for seed in seeds for layers in (1, 2)]

    def measure(self, trial: Trial) -> AccuracyByLength:
        """Train a model and test it at every length."""
        seed, layers = trial.seed or 0, int(trial.part.removeprefix("layers-"))
        model = NextToken(FIRST + self.symbols, seed, _OPTIONS | {"decoder_layers": layers})
        curve = train(model, self.draw, target_cross_entropy, self.budget, seed)
        right = {n: accuracy(model, self.repeated(self.texts, n, heldout_generator(seed))) for n in self.tested}
        return AccuracyByLength(curve, right)

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw texts of one random length."""
        shortest, longest = self.lengths
        return self.repeated(self.rows, int(torch.randint(shortest, longest + 1, (), generator=generator)), generator)

    def repeated(self, rows: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw random tokens and repeat them; targets are the repeated tokens except the first."""
        once = FIRST + torch.randint(self.symbols, (rows, length), generator=generator)
        text = torch.cat((once, once), dim=1)
        targets = text[:, 1:].clone()
        targets[:, :length] = NO_LABEL
        return text[:, :-1], targets

    def numbers(self, measured: Mapping[Trial, AccuracyByLength]) -> Numbers:
        longest = self.lengths[1]
        return {
            key: by_seed(measured, lambda m: m.right[longest], "transformer", part)
            for key, part in (("one", "layers-1"), ("two", "layers-2"))
        }

    def figures(self, measured: Mapping[Trial, AccuracyByLength]) -> list[Figure]:
        title = "Accuracy of repeated tokens by length"
        shortcut = Cheat(Copying.shortcut, self._shortcut_accuracy)
        return [accuracy_figure(title, measured, shortcut, "number of repeated tokens")]

    def _shortcut_accuracy(self, length: int) -> float:
        """Return the accuracy of the most frequent token of the first half that was not yet repeated."""
        return statistics.mean(most_frequent_share(left, self.symbols) for left in range(1, length))
