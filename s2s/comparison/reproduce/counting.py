"""Counting: aⁿbⁿ for longer n than in training (Weiss et al. 2018)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from s2s.comparison.reporting import axis, figure, series
from s2s.comparison.reproduce.contract import Numbers, Reproduction, by_seed
from s2s.comparison.reproduce.training import (
    Budget,
    LossCurve,
    TextClassifier,
    encoder_of,
    target_cross_entropy,
    train,
)
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Trial
from s2s.data.synthetic_tasks import NO_LABEL

_BEGIN, _A, _B = range(3)
# the next symbol is another b or the end; positions where it may be an a or the first b have no target
_MORE, _END = 0, 1
_BUDGET = Budget(updates=10_000, rate=0.01, every=100)


@dataclass(frozen=True)
class Reach:
    """A training, and the reach of the network."""

    curve: LossCurve
    reach: float  # largest n up to which every answer is right, as a multiple of the longest n in training
    right: float  # share of the trained lengths at which every answer is right


@dataclass(frozen=True)
class Counting(Reproduction[Reach]):
    """aⁿbⁿ, tested far beyond the trained n."""

    name = "counting"
    finding = "An LSTM counts beyond its training lengths, because its cell can add; a GRU hardly does."
    source = (
        "Weiss, Goldberg & Yahav 2018, abstract: LSTMs implement counting, GRUs cannot. That an LSTM trained to n = "
        "100 is right up to about n = 256 and a GRU up to about 109 is not verified: not found in a check of the "
        "publication"
    )
    method = (
        "One layer of width 10 reads aⁿbⁿ and predicts at each b whether another follows. Trained with n = 1 to 50, 16 "
        "fresh strings per update, Adam at 0.01, up to 10,000 updates, or until the loss is below 0.0005. The reach of "
        "a network is the largest n up to which every answer is right, as a multiple of 50. Seeds that have not "
        "learned the training lengths do not count."
    )
    bands = (
        Band(
            key="lstm",
            what="reach of the LSTM, in multiples of the longest n in training",
            published="2.56",
            low=1.5,
            valid_if=("lstm-learned",),
        ),
        Band(
            key="gru",
            what="reach of the GRU, in multiples of the longest n in training",
            published="1.09",
            high=1.5,
            valid_if=("gru-learned",),
        ),
        Band(
            key="lstm-learned",
            what="trained lengths that are right, LSTM (%)",
            published="all",
            low=95.0,
            validity=True,
        ),
        Band(
            key="gru-learned",
            what="trained lengths that are right, GRU (%)",
            published="all",
            low=95.0,
            validity=True,
        ),
    )
    seconds = (600, 2_400)
    usual_seeds = 10

    longest: int = 50
    tried: int = 200
    width: int = 10
    rows: int = 16
    budget: Budget = _BUDGET

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        return [Trial(kind, seed=seed) for seed in seeds for kind in ("lstm", "gru")]

    def measure(self, trial: Trial) -> Reach:
        """Train a network and test it at every length."""
        seed = trial.seed or 0
        encoder, width = encoder_of(trial.model, 3, seed, {"width": self.width})
        model = TextClassifier(encoder, width, 2)
        curve = train(model, self.draw, target_cross_entropy, self.budget, seed, enough=5e-4)
        right = [is_right(model, n) for n in range(1, self.tried + 1)]
        reach = right.index(False) if False in right else self.tried
        return Reach(curve, reach / self.longest, sum(right[: self.longest]) / self.longest)

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw strings, padded with symbols without targets."""
        lengths = torch.randint(1, self.longest + 1, (self.rows,), generator=generator)
        sources, targets = zip(*(_text(int(n)) for n in lengths), strict=True)
        return (
            pad_sequence(list(sources), batch_first=True, padding_value=_B),
            pad_sequence(list(targets), batch_first=True, padding_value=NO_LABEL),
        )

    def numbers(self, measured: Mapping[Trial, Reach]) -> Numbers:
        reaches = {kind: by_seed(measured, lambda m: m.reach, kind) for kind in ("lstm", "gru")}
        return reaches | {f"{kind}-learned": by_seed(measured, lambda m: 100 * m.right, kind) for kind in reaches}

    def figures(self, measured: Mapping[Trial, Reach]) -> list[Figure]:
        shown = []
        for kind in dict.fromkeys(trial.model for trial in measured):
            own = {f"seed {trial.seed}": m.reach for trial, m in measured.items() if trial.model == kind}
            shown.append(series(kind, kind, list(own), list(own.values())))
        title = "Reach of each network, in multiples of the longest n in training"
        return [figure("reach", title, (axis("seed"), axis("reach")), shown, kind="bars")]


def _text(n: int) -> tuple[Tensor, Tensor]:
    """Return aⁿbⁿ, and the answer at each b."""
    source = torch.tensor([_BEGIN] + [_A] * n + [_B] * n)
    targets = torch.tensor([NO_LABEL] * (n + 1) + [_MORE] * (n - 1) + [_END])
    return source, targets


@torch.no_grad()
def is_right(model: torch.nn.Module, n: int) -> bool:
    """Return True if every answer about aⁿbⁿ is right."""
    source, targets = _text(n)
    answers = model(source[None])[0].argmax(dim=1)
    return bool((answers == targets)[targets != NO_LABEL].all())
