"""Copying of strings by attention and by states of fixed size (Jelassi et al. 2024)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import sub

import torch
from torch import Tensor, nn

from s2s.comparison.matching import settings_of
from s2s.comparison.reproduce.contract import Numbers, Reproduction, by_seed, paired
from s2s.comparison.reproduce.training import (
    AccuracyByLength,
    Budget,
    accuracy,
    accuracy_figure,
    heldout_generator,
    target_cross_entropy,
    train,
)
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Trial
from s2s.data import synthetic_tasks
from s2s.data.exercises import Cheat
from s2s.data.tokenizers import BOS
from s2s.models.base import Seq2Seq
from s2s.recipe.installed import module_of
from s2s.training.device import derive_seed

_BUDGET = Budget(updates=1_500, rate=0.002, every=50, warmup=100, decay=0.3)
_OPTIONS = {"dropout": 0.0, "heads": 4, "bidirectional": False, "scale_embeddings": True, "max_positions": 256}


class Copier(nn.Module):
    """A translator that copies a string, with teacher forcing.

    Args:
        model: The translator.
    """

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor) -> Tensor:
        """Return the scores of each symbol of the copy and of its end, `(batch, steps, vocabulary)`."""
        previous = torch.cat((torch.full_like(source[:, :1], BOS), source[:, :-1]), dim=1)
        return self.model.logits(source, torch.ones_like(source, dtype=torch.bool), previous)


@dataclass(frozen=True)
class Copying(Reproduction[AccuracyByLength]):
    """Strings of up to 30 symbols, copied by a Transformer and by recurrent networks of several widths."""

    name = "copying"
    finding = (
        "A Transformer learns to copy strings; a recurrent network copies fewer symbols, more with a larger state."
    )
    source = (
        "Jelassi et al. 2024 (Repeat after me), abstract: a two-layer Transformer can copy strings of exponential "
        "length, models with a fixed-size state are limited by it; Transformers are more efficient to train on "
        "copying. Per-symbol accuracies of LSTMs are not verified"
    )
    method = (
        "Random strings of 1 to 30 of 26 letters, read by an encoder and written by a decoder with teacher forcing "
        "(publication: decoder-only models, strings of up to 300). Transformer of width 64 with two layers per side "
        "and sinusoidal positions; LSTM and minGRU with one layer per side and no attention. Adam at 0.002, 1,500 "
        "updates of 64 fresh strings. Measured: accuracy per symbol in 128 strings of 30, the longest in training; 60 "
        "is only plotted. Sizes were chosen on seed 100, which is not measured."
    )
    bands = (
        Band(key="attention", what="accuracy of a Transformer of width 64 (%)", published="about 100", low=95.0),
        Band(key="lstm", what="accuracy of an LSTM of width 64 (%)", published="far below 100", high=60.0),
        Band(key="mingru", what="accuracy of a minGRU of width 64 (%)", published="far below 100", high=60.0),
        Band(
            key="state",
            what="accuracy of an LSTM of width 128 minus that of width 32 (points)",
            published="above 0",
            low=3.0,
        ),
    )
    seconds = (200, 800)

    candidates: tuple[tuple[str, int], ...] = (
        ("transformer", 64),
        ("lstm", 32),
        ("lstm", 64),
        ("lstm", 128),
        ("mingru", 64),
    )
    letters: int = 26
    longest: int = 30
    tested: tuple[int, ...] = (5, 10, 20, 30, 60)
    rows: int = 64
    texts: int = 128
    budget: Budget = _BUDGET

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        return [Trial(kind, f"width-{width}", seed) for seed in seeds for kind, width in self.candidates]

    def measure(self, trial: Trial) -> AccuracyByLength:
        """Train a model and test it at every length."""
        seed, width = trial.seed or 0, int(trial.part.removeprefix("width-"))
        layers = 2 if trial.model == "transformer" else 1
        sizes = {"width": width, "feedforward": 2 * width, "encoder_layers": layers, "decoder_layers": layers}
        size = self._task.vocabulary_size
        torch.manual_seed(derive_seed(seed))
        model = Copier(module_of(trial.model).build(settings_of(trial.model, _OPTIONS | sizes), size, size))
        curve = train(model, self.draw, target_cross_entropy, self.budget, seed)
        right = {n: accuracy(model, self.strings(self.texts, n, heldout_generator(seed))) for n in self.tested}
        return AccuracyByLength(curve, right)

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw strings of one random length, and their copies."""
        return self.strings(self.rows, int(torch.randint(1, self.longest + 1, (), generator=generator)), generator)

    def strings(self, rows: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw strings with the end-of-sequence token; the targets are the same."""
        batch = self._task.draw(length, rows, generator)
        return batch.source, batch.wanted

    @property
    def _task(self) -> synthetic_tasks.Copying:
        return synthetic_tasks.Copying(self.letters, range(1, self.longest + 1), self.tested, whole=False)

    def numbers(self, measured: Mapping[Trial, AccuracyByLength]) -> Numbers:
        right = {
            (kind, width): by_seed(measured, lambda m: m.right[self.longest], kind, f"width-{width}")
            for kind, width in self.candidates
        }
        lstms = sorted(width for kind, width in self.candidates if kind == "lstm")
        return {
            "attention": next(found for (kind, _), found in right.items() if kind == "transformer"),
            "lstm": right["lstm", lstms[1]],
            "mingru": next(found for (kind, _), found in right.items() if kind == "mingru"),
            "state": paired(right["lstm", lstms[-1]], right["lstm", lstms[0]], sub),
        }

    def figures(self, measured: Mapping[Trial, AccuracyByLength]) -> list[Figure]:
        title = f"Accuracy per symbol of copied strings; trained up to {self.longest} symbols"
        return [accuracy_figure(title, measured, Cheat(self._task.shortcut, self._task.shortcut_accuracy), "symbols")]
