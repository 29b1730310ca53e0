"""Length generalization of a Transformer by kind of positions (Kazemnejad et al. 2023; Press et al. 2022)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import sub

import torch
from torch import Tensor

from s2s.comparison.reproduce.contract import Numbers, Reproduction, by_seed, paired
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
from s2s.data.synthetic_tasks import FIRST, NO_LABEL, Copying
from s2s.data.tokenizers import BOS, EOS

_BUDGET = Budget(updates=2_500, rate=0.004, every=50, warmup=50, decay=0.3)
_OPTIONS = {"width": 64, "heads": 4, "feedforward": 128, "decoder_layers": 4, "max_positions": 256}
_KINDS = ("alibi", "relative", "none", "rope", "sinusoidal", "learned")


def _valid(*kinds: str) -> tuple[str, ...]:
    return tuple(f"{kind}-learned" for kind in kinds)


@dataclass(frozen=True)
class PositionsLength(Reproduction[AccuracyByLength]):
    """Causal Transformers with six kinds of positions that copy strings, trained up to 20 symbols and tested to 40."""

    name = "positions-length"
    finding = "Relative biases (ALiBi, T5) generalize to longer strings than absolute and rotary positions."
    source = (
        "Press, Smith & Lewis 2022, abstract: ALiBi extrapolates to longer inputs, where sinusoidal positions do not. "
        "Kazemnejad et al. 2023, abstract: ALiBi, rotary and absolute positions are not well suited for length "
        "generalization, no positions outperform all of them and behave like T5's relative biases. Accuracies of "
        "single tasks are not verified"
    )
    method = (
        "Causal Transformers of width 64 with four layers read a string over 16 symbols and a separator, and copy the "
        "string: up to 20 symbols in training, 25, 30 and 40 in the test (publication: 107 million parameters, ten "
        "tasks). Adam at 0.004, 2,500 updates of 64 fresh strings, teacher forcing. Measured: accuracy per symbol in "
        "128 strings of 40. Seeds with an accuracy below 90 % at 20 do not count. Sizes were chosen on seed 100, which "
        "is not measured."
    )
    setting = "on copying only"
    bands = (
        Band(
            key="alibi",
            what="accuracy at 40 symbols, ALiBi minus sinusoidal (points)",
            published="above 0",
            low=20.0,
            valid_if=_valid("alibi", "sinusoidal"),
        ),
        Band(
            key="relative",
            what="accuracy at 40 symbols, T5's relative biases minus rotary (points)",
            published="above 0",
            low=10.0,
            valid_if=_valid("relative", "rope"),
        ),
        Band(
            key="none",
            what="accuracy at 40 symbols, no positions minus sinusoidal (points)",
            published="above 0",
            low=5.0,
            valid_if=_valid("none", "sinusoidal"),
        ),
        *(
            Band(
                key=f"{kind}-learned",
                what=f"accuracy at 20 symbols, positions: {kind} (%)",
                published="about 100",
                low=90.0,
                validity=True,
            )
            for kind in _KINDS[:-1]
        ),
    )
    seconds = (4_000, 16_000)
    usual_seeds = 8

    symbols: int = 16
    longest: int = 20
    tested: tuple[int, ...] = (5, 10, 20, 25, 30, 40)
    rows: int = 64
    texts: int = 128
    budget: Budget = _BUDGET

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        return [Trial("transformer", kind, seed) for seed in seeds for kind in _KINDS]

    def measure(self, trial: Trial) -> AccuracyByLength:
        """Train a model with one kind of positions and test it at every length."""
        seed = trial.seed or 0
        model = NextToken(FIRST + 1 + self.symbols, seed, _OPTIONS | {"decoder_positions": trial.part})
        curve = train(model, self.draw, target_cross_entropy, self.budget, seed)
        right = {n: accuracy(model, self.strings(self.texts, n, heldout_generator(seed))) for n in self.tested}
        return AccuracyByLength(curve, right)

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw strings of one random length."""
        return self.strings(self.rows, int(torch.randint(1, self.longest + 1, (), generator=generator)), generator)

    def strings(self, rows: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw strings, a separator and the strings again; targets are the copy and its end."""
        string = FIRST + 1 + torch.randint(self.symbols, (rows, length), generator=generator)
        begin, separator, end = (torch.full((rows, 1), token) for token in (BOS, FIRST, EOS))
        text = torch.cat((begin, string, separator, string, end), dim=1)
        targets = text[:, 1:].clone()
        targets[:, : length + 1] = NO_LABEL
        return text[:, :-1], targets

    def numbers(self, measured: Mapping[Trial, AccuracyByLength]) -> Numbers:
        far = {kind: by_seed(measured, lambda m: m.right[self.tested[-1]], "transformer", kind) for kind in _KINDS}
        near = {kind: by_seed(measured, lambda m: m.right[self.longest], "transformer", kind) for kind in _KINDS[:-1]}
        return {
            "alibi": paired(far["alibi"], far["sinusoidal"], sub),
            "relative": paired(far["relative"], far["rope"], sub),
            "none": paired(far["none"], far["sinusoidal"], sub),
            **{f"{kind}-learned": found for kind, found in near.items()},
        }

    def figures(self, measured: Mapping[Trial, AccuracyByLength]) -> list[Figure]:
        title = f"Accuracy per symbol of copied strings; trained up to {self.longest} symbols"
        task = Copying(self.symbols, range(1, self.longest + 1), self.tested, whole=False)
        return [accuracy_figure(title, measured, Cheat(task.shortcut, task.shortcut_accuracy), "symbols")]
