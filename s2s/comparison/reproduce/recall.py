"""Looking things up: multi-query associative recall by attention and by a state of fixed size (Arora et al. 2023)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from s2s.comparison.reporting import axis, figure, series
from s2s.comparison.reproduce.contract import Numbers, Reproduction, by_seed, pairs
from s2s.comparison.reproduce.training import UNASKED, Budget, TextClassifier, encoder_of, over_places, train
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Measured, Trial, Trials

_BUDGET = Budget(updates=2_000, rate=0.002, every=100)
_TESTED = 256


@dataclass(frozen=True)
class Mqar(Reproduction):
    """Pairs of keys and values, then every key again: which value went with it?"""

    name = "mqar"
    finding = "Attention looks all pairs up; a recurrent network of fixed state does as well as its state is large."
    source = (
        "Arora et al. 2023 (Zoology): attention outperforms gated convolutions by a large margin (abstract), which "
        "need more and more width for longer texts while attention does not (the authors' summary). That attention "
        "reaches about 100 % is not verified; the publication has longer texts, more pieces and no LSTM"
    )
    method = (
        "8 of 16 keys, each in one piece with one of 16 values, then the 8 keys in another order; a linear head names "
        "the value at each. In the publication key and value are two pieces that follow each other, and a Transformer "
        "must first learn to look one piece back; that takes it longer than the minutes that are given here, so it is "
        "left out. Two layers; Adam at 0.002, at most 2,000 updates of 64 fresh texts, fewer once the loss is below "
        "0.02. Share of right answers in 256 fresh texts."
    )
    bands = (
        Band(key="attention", what="right answers of a Transformer of width 64 (%)", published="about 100", low=99.0),
        Band(key="narrow", what="right answers of an LSTM of width 16 (%)", published="far below 100", high=75.0),
        Band(key="gain", what="what an LSTM of width 128 gains over it (points)", published="above 0", low=10.0),
    )
    seconds = (90, 450)

    pairs: int = 8
    keys: int = 16
    values: int = 16
    rows: int = 64
    budget: Budget = _BUDGET
    candidates: tuple[tuple[str, int], ...] = (("transformer", 64), ("lstm", 16), ("lstm", 64), ("lstm", 128))

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        """A training of each kind and width."""
        return [Trial(kind, f"width-{width}", seed) for seed in seeds for kind, width in self.candidates]

    def measure(self, trial: Trial) -> Measured:
        """Trains one of them, and asks it."""
        seed, width = trial.seed or 0, int(trial.part.removeprefix("width-"))
        options = {"width": width, "feedforward": 2 * width, "encoder_layers": 2}
        pieces = self.keys * self.values + self.keys
        model = TextClassifier(*encoder_of(trial.model, pieces, seed, options), self.values)
        course = train(model, self.draw, over_places, self.budget, seed, enough=lambda loss: loss < 0.02)
        with torch.no_grad():
            source, wanted = self._texts(_TESTED, torch.Generator().manual_seed(10**6 + seed))
            right = (model(source).argmax(dim=2) == wanted)[wanted != UNASKED].float().mean()
        return {"updates": course.updates, "losses": course.losses, "right": 100 * float(right), "width": width}

    def draw(self, chance: torch.Generator) -> tuple[Tensor, Tensor]:
        """Texts, and the value at each key that is asked."""
        return self._texts(self.rows, chance)

    def _texts(self, rows: int, chance: torch.Generator) -> tuple[Tensor, Tensor]:
        keys = torch.rand(rows, self.keys, generator=chance).argsort(dim=1)[:, : self.pairs]
        values = torch.randint(self.values, (rows, self.pairs), generator=chance)
        order = torch.rand(rows, self.pairs, generator=chance).argsort(dim=1)
        # a key that is asked for is a piece of its own
        stored = self.keys + keys * self.values + values
        source = torch.cat((stored, keys.gather(1, order)), dim=1)
        wanted = torch.full_like(source, UNASKED)
        wanted[:, self.pairs :] = values.gather(1, order)
        return source, wanted

    def numbers(self, measured: Trials) -> Numbers:
        """Shares of right answers."""
        widths = [width for kind, width in self.candidates if kind == "lstm"]
        attention = by_seed(measured, "right", "transformer", f"width-{dict(self.candidates)['transformer']}")
        narrow, wide = (("lstm", f"width-{width}") for width in (min(widths), max(widths)))
        gains = [more - less for less, more in pairs(measured, "right", narrow, wide)]
        return {"attention": attention, "narrow": by_seed(measured, "right", *narrow), "gain": gains}

    def figures(self, measured: Trials) -> list[Figure]:
        """Right answers against width."""
        shown = []
        for kind in dict.fromkeys(kind for kind, _ in self.candidates):
            own = sorted((m["width"], m["right"]) for trial, m in measured.items() if trial.model == kind)
            shown.append(series(kind, kind, [float(width) for width, _ in own], [right for _, right in own]))
        chance = [100 / self.values] * 2
        ends = [float(min(w for _, w in self.candidates)), float(max(w for _, w in self.candidates))]
        shown.append(series("guessing", "", ends, chance, reference=True))
        axes = (axis("width", log=True), axis("right answers", "%"))
        return [figure("recall", f"Looking up {self.pairs} pairs, against width", axes, shown)]
