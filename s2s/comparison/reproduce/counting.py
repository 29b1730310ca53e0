"""Counting: aⁿbⁿ read symbol by symbol, and how far beyond what it learned a network still knows when it is over."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from s2s.comparison.reporting import axis, figure, series
from s2s.comparison.reproduce.contract import Numbers, Reproduction, by_seed
from s2s.comparison.reproduce.training import UNASKED, Budget, TextClassifier, encoder_of, over_places, train
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Measured, Trial, Trials

_BEGIN, _A, _B = range(3)
# what comes next: another b, or the end; nothing is asked where it could be either an a or the first b
_MORE, _END = 0, 1
_BUDGET = Budget(updates=10_000, rate=0.01, every=100)


@dataclass(frozen=True)
class Counting(Reproduction):
    """aⁿbⁿ, learned up to some n and tried far beyond."""

    name = "counting"
    finding = "An LSTM counts beyond the lengths it has learned, since its cell can add; a GRU hardly does."
    source = (
        "Weiss, Goldberg & Yahav 2018: trained to n = 100, the LSTM is right up to about n = 256, the GRU to about 109 "
        "(the finding is in the abstract; the two numbers are not verified)"
    )
    method = (
        "One layer of 10 reads aⁿbⁿ and says at each b whether another follows; learned from n = 1 to 50, 16 fresh "
        "texts an update, Adam at 0.01, at most 10,000 updates, fewer once the loss is below 0.0005. A network's reach "
        "is the largest n up to which every answer is right at every length; it is given as a multiple of 50. With "
        "2,000 updates the GRU had not learned the lengths that it was shown."
    )
    bands = (
        Band(key="lstm", what="reach of the LSTM, in multiples of the longest n learned", published="2.56", low=1.5),
        Band(key="gru", what="reach of the GRU, likewise", published="1.09", high=1.5),
        # a network that has not learned what it was shown says nothing of what lies beyond
        Band(key="lstm-learned", what="lengths from 1 to 50 that the LSTM has right (%)", published="all", low=95.0),
        Band(key="gru-learned", what="lengths from 1 to 50 that the GRU has right (%)", published="all", low=95.0),
    )
    seconds = (250, 600)

    longest: int = 50
    tried: int = 200
    width: int = 10
    rows: int = 16
    budget: Budget = _BUDGET

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        """A training of each kind."""
        return [Trial(kind, seed=seed) for seed in seeds for kind in ("lstm", "gru")]

    def measure(self, trial: Trial) -> Measured:
        """Trains one of them, and asks it at every length."""
        seed = trial.seed or 0
        encoder, width = encoder_of(trial.model, 3, seed, {"width": self.width})
        model = TextClassifier(encoder, width, 2)
        course = train(model, self.draw, over_places, self.budget, seed, enough=lambda loss: loss < 5e-4)
        right = [_right(model, n) for n in range(1, self.tried + 1)]
        reach = right.index(False) if False in right else self.tried
        return {
            "updates": course.updates,
            "losses": course.losses,
            "loss": course.losses[-1],
            "reach": reach / self.longest,
            "right": sum(right[: self.longest]) / self.longest,
        }

    def draw(self, chance: torch.Generator) -> tuple[Tensor, Tensor]:
        """Texts of one length each, padded with what is not asked about."""
        lengths = torch.randint(1, self.longest + 1, (self.rows,), generator=chance)
        texts = [_text(int(n)) for n in lengths]
        return (
            torch.nn.utils.rnn.pad_sequence([source for source, _ in texts], batch_first=True, padding_value=_B),
            torch.nn.utils.rnn.pad_sequence([wanted for _, wanted in texts], batch_first=True, padding_value=UNASKED),
        )

    def numbers(self, measured: Trials) -> Numbers:
        """The reaches, and whether there is anything to reach beyond."""
        reaches = {kind: by_seed(measured, "reach", kind) for kind in ("lstm", "gru")}
        learned = {f"{kind}-learned": [100 * each for each in by_seed(measured, "right", kind)] for kind in reaches}
        return reaches | learned

    def figures(self, measured: Trials) -> list[Figure]:
        """Reach of every network."""
        kinds = dict.fromkeys(trial.model for trial in measured)
        shown = []
        for kind in kinds:
            own = [(f"seed {trial.seed}", m["reach"]) for trial, m in measured.items() if trial.model == kind]
            shown.append(series(kind, kind, [name for name, _ in own], [reach for _, reach in own]))
        title = "How far each network counts, in multiples of the longest n it has learned"
        return [figure("reach", title, (axis("seed"), axis("reach")), shown, kind="bars")]


def _text(n: int) -> tuple[Tensor, Tensor]:
    """aⁿbⁿ, and what is to be said at each b."""
    source = torch.tensor([_BEGIN] + [_A] * n + [_B] * n)
    wanted = torch.tensor([UNASKED] * (n + 1) + [_MORE] * (n - 1) + [_END])
    return source, wanted


@torch.no_grad()
def _right(model: TextClassifier, n: int) -> bool:
    source, wanted = _text(n)
    said = model(source[None])[0].argmax(dim=1)
    return bool((said == wanted)[wanted != UNASKED].all())
