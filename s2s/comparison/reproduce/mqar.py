"""Multi-query associative recall by attention and by states of fixed size (Arora et al. 2023)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import sub

import torch
from torch import Tensor

from s2s.comparison.reporting import axis, figure, series
from s2s.comparison.reproduce.contract import Numbers, Reproduction, by_seed, paired
from s2s.comparison.reproduce.training import (
    Budget,
    LossCurve,
    TextClassifier,
    accuracy,
    encoder_of,
    heldout_generator,
    target_cross_entropy,
    train,
)
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Trial
from s2s.data.synthetic_tasks import NO_LABEL, AssociativeRecall, most_frequent_share

_BUDGET = Budget(updates=2_000, rate=0.002, every=100)
_TESTED = 256


@dataclass(frozen=True)
class Recalled:
    """A training, and its accuracy on fresh texts."""

    curve: LossCurve
    right: float  # accuracy in percent
    width: int


@dataclass(frozen=True)
class Mqar(Reproduction[Recalled]):
    """Recall of the value of each key, after pairs of keys and values."""

    name = "mqar"
    finding = "Attention recalls all pairs; a recurrent network recalls fewer, and more with a larger state."
    source = (
        "Arora et al. 2023 (Zoology), abstract: attention outperforms gated convolutions on recall. That attention "
        "reaches about 100 % is not verified. The publication has longer texts, more symbols and no LSTM"
    )
    method = (
        "8 of 16 keys, each in one token with one of 16 values, then the 8 keys in another order; a linear head "
        "predicts the value at each key. In the publication, key and value are two tokens, so a model must also learn "
        "to combine neighbouring tokens. Two layers; Adam at 0.002, up to 2,000 updates of 64 fresh sequences, or "
        "until the loss is below 0.02. Measured: accuracy in 256 fresh sequences."
    )
    setting = "on an easier task (key and value in one token)"
    bands = (
        Band(key="attention", what="accuracy of a Transformer of width 64 (%)", published="about 100", low=99.0),
        Band(key="narrow", what="accuracy of an LSTM of width 16 (%)", published="far below 100", high=75.0),
        Band(
            key="gain",
            what="accuracy of an LSTM of width 128 minus that of width 16 (points)",
            published="above 0",
            low=10.0,
        ),
    )
    seconds = (90, 450)

    pairs: int = 8
    keys: int = 16
    values: int = 16
    rows: int = 64
    budget: Budget = _BUDGET
    candidates: tuple[tuple[str, int], ...] = (("transformer", 64), ("lstm", 16), ("lstm", 64), ("lstm", 128))

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        return [Trial(kind, f"width-{width}", seed) for seed in seeds for kind, width in self.candidates]

    def measure(self, trial: Trial) -> Recalled:
        """Train a model and test it on fresh texts."""
        seed, width = trial.seed or 0, int(trial.part.removeprefix("width-"))
        options = {"width": width, "feedforward": 2 * width, "encoder_layers": 2}
        vocabulary_size = self.keys * self.values + self.keys
        model = TextClassifier(*encoder_of(trial.model, vocabulary_size, seed, options), self.values)
        curve = train(model, self.draw, target_cross_entropy, self.budget, seed, enough=0.02)
        test = self._texts(_TESTED, heldout_generator(seed))
        return Recalled(curve, accuracy(model, test), width)

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw sequences, and the value at each query."""
        return self._texts(self.rows, generator)

    def _texts(self, rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        keys = torch.rand(rows, self.keys, generator=generator).argsort(dim=1)[:, : self.pairs]
        values = torch.randint(self.values, (rows, self.pairs), generator=generator)
        order = torch.rand(rows, self.pairs, generator=generator).argsort(dim=1)
        # queries have their own tokens
        stored = self.keys + keys * self.values + values
        source = torch.cat((stored, keys.gather(1, order)), dim=1)
        targets = torch.full_like(source, NO_LABEL)
        targets[:, self.pairs :] = values.gather(1, order)
        return source, targets

    def numbers(self, measured: Mapping[Trial, Recalled]) -> Numbers:
        right = {
            (kind, width): by_seed(measured, lambda m: m.right, kind, f"width-{width}")
            for kind, width in self.candidates
        }
        widths = sorted(width for kind, width in self.candidates if kind == "lstm")
        narrow, wide = (right["lstm", width] for width in (widths[0], widths[-1]))
        attention = next(found for (kind, _), found in right.items() if kind == "transformer")
        return {"attention": attention, "narrow": narrow, "gain": paired(wide, narrow, sub)}

    def figures(self, measured: Mapping[Trial, Recalled]) -> list[Figure]:
        shown = []
        for kind in dict.fromkeys(kind for kind, _ in self.candidates):
            own = sorted((m.width, m.right) for trial, m in measured.items() if trial.model == kind)
            shown.append(series(kind, kind, [float(width) for width, _ in own], [right for _, right in own]))
        widths = [float(width) for _, width in self.candidates]
        shortcut = [100 * most_frequent_share(self.pairs, self.values)] * 2
        shown.append(series("shortcut baseline", "", [min(widths), max(widths)], shortcut, reference=True))
        axes = (axis("width", log=True), axis("accuracy", "%"))
        note = f"The shortcut baseline {AssociativeRecall.shortcut}."
        return [figure("recall", f"Recall of {self.pairs} pairs by width", axes, shown, note)]
