"""Is there a law from a gradient's factor per step to the longest distance that is learned? Nobody has measured it.

Gradient and task are those of one encoder with a linear head. The formula is fixed here, before anything is measured:

    log D50 = a + b log ξ,  ξ = 1 / |log factor|

where D50 is the longest distance that is learned when nothing shorter was ever seen, and ξ is in how many steps a
gradient changes by a factor of e. Signals in a random network die out over ξ (Chen, Pennington & Schoenholz 2018); if
the longest learnable distance is a multiple of it, b is 1. With ξ itself in place of its logarithm, distances would
grow without bound as a factor comes near 1.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from s2s.comparison.questions.gradients.sweep import radius, sweep_parameter_of
from s2s.comparison.reporting import axis, figure, series
from s2s.comparison.reproduce.contract import Numbers, Reproduction
from s2s.comparison.reproduce.gradients import factor_per_step
from s2s.comparison.reproduce.training import Budget, TextClassifier, encoder_of, first_and_noise, train
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Measured, Trial, Trials
from s2s.evaluation.survival import CensoredLine, censored_line
from s2s.models.base import Encoder

_NOISE = 32
_TEXTS = 4
_TESTED = 200
# beyond, a gradient over 200 steps is not to be told from one that neither vanishes nor explodes, or from none
_SHORTEST_XI, _LONGEST_XI = 0.1, 1_000.0
_BUDGET = Budget(updates=800, rate=0.002, every=50)
# nats per key
_ENOUGH = 0.05
_HELD_OUT = 4  # every so many points
_DRAWN = 1000  # times that initialisations are drawn anew


@dataclass(frozen=True)
class Point:
    """One initialisation.

    Attributes:
        kind: of the cell.
        gain: what its recurrent matrices are multiplied by; of a plain recurrence, their spectral radius.
        bias: of the gate that keeps the state; 0 for a plain recurrence.
        width: of its state.
    """

    kind: str
    gain: float
    bias: float
    width: int

    @property
    def part(self) -> str:
        """Its name among the measurements."""
        return f"gain-{round(100 * self.gain)}-bias-{round(100 * self.bias)}-width-{self.width}"


def points() -> list[Point]:
    """All initializations: 8 radii of the tanh-RNN, 12 of an LSTM and 4 of a minGRU, for each width."""
    widths = (16, 32, 64)
    plain = [Point("rnn", gain, 0.0, w) for gain, w in product((0.5, 0.7, 0.9, 1.0, 1.1, 1.3, 1.5, 2.0), widths)]
    gated = [Point("lstm", g, b, w) for g, b, w in product((0.7, 1.0, 1.3), (0.0, 1.0, 2.0, 4.0), widths)]
    return plain + gated + [Point("mingru", 1.0, b, w) for b, w in product((0.0, 1.0, 2.0, 4.0), widths)]


def log_xi(factor: float) -> float:
    """Logarithm of 1 / |log factor|, the steps in which a gradient changes by a factor of e; they are 0.1 to 1,000."""
    away = abs(math.log(factor)) if factor > 0 else math.inf
    return -math.log(min(max(away, 1 / _LONGEST_XI), 1 / _SHORTEST_XI))


def d50(distances: Sequence[int], right: Sequence[float], chance: float) -> tuple[float, int]:
    """The distance at which half of what is above chance is left, and whether it lies beyond what was tried.

    On the line between two distances, in log distance. Beyond: 1 where even the largest has more, −1 where even the
    smallest has less; 0 otherwise.
    """
    half = (1 + chance) / 2
    if right[0] < half:
        return float(distances[0]), -1
    for i in range(1, len(distances)):
        if right[i] < half:
            share = (right[i - 1] - half) / (right[i - 1] - right[i])
            low, high = math.log(distances[i - 1]), math.log(distances[i])
            return math.exp(low + share * (high - low)), 0
    return float(distances[-1]), 1


@dataclass(frozen=True)
class Law(Reproduction):
    """Gradient and longest distance of the same initialisation, many times."""

    name = "law"
    finding = "How far a gradient reaches in an untrained recurrence says over which distance it learns to remember."
    source = (
        "nobody; Chen, Pennington & Schoenholz 2018 derive the depth to which signals reach in random recurrent "
        "networks and find that training succeeds up to it (from memory, not verified)"
    )
    method = (
        "72 initialisations (recurrent gain × gate's bias × cell × width): in each the gradient's factor per step over "
        "200 random symbols; then the first symbol is to be named after so many others (ten keys, 32 kinds of noise), "
        "by a network that was trained at this one distance: Adam at 0.002, at most 800 updates of 32 fresh texts. "
        "Distances are tried from 1 on, each twice the last, until two in a row are not learned. D50 is where half of "
        "what is above chance is left. log D50 = a + b log ξ with ξ = 1/|log factor|, noise normal, D50 beyond 128 or "
        "below 1 censored; fitted to three quarters of the initialisations, every fourth is predicted. The interval of "
        "b is that of gains and biases drawn with replacement, all widths of one together. At first the "
        "distances of one training were drawn from 1 to 128: then all 72 learned all of them, for who has learned to "
        "keep a symbol over a short distance need not learn it again over a long one."
    )
    bands = (
        Band(key="slope", what="b", published="1 (derived, if D50 is a multiple of ξ)", low=0.5, high=1.5, derived=1.0),
        Band(
            key="within", what="held-out D50 within a factor of 2 of the prediction (%)", published="(none)", low=60.0
        ),
        Band(
            key="gain",
            what="error of the prediction over that of the other cells' median, in log D50, held out",
            published="(none)",
            high=0.7,
        ),
    )
    seconds = (900, 3_000)
    usual_seeds = 1
    published = False

    initialisations: tuple[Point, ...] = tuple(points())
    distances: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128)
    steps: int = 200
    keys: int = 10
    rows: int = 32
    budget: Budget = _BUDGET
    least: int = 10  # distances, neither beyond nor below all, that make a line

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        """One for each initialisation."""
        return [Trial(p.kind, p.part, seed) for seed in seeds for p in self.initialisations]

    def measure(self, trial: Trial) -> Measured:
        """The factor, and what is learned from there."""
        seed = trial.seed or 0
        point = next(p for p in self.initialisations if (p.kind, p.part) == (trial.model, trial.part))
        tokens = torch.randint(self.keys + _NOISE, (_TEXTS, self.steps), generator=torch.Generator().manual_seed(seed))
        vectors = self._encoder(point, seed)[0].embedding(tokens).detach()
        factor = factor_per_step(self._encoder(point, seed)[0], vectors, seed)
        right = self._learned(point, seed)
        reach, beyond = d50(self.distances, right, 1 / self.keys)
        return {"factor": factor, "right": right, "d50": reach, "beyond": beyond}

    def _learned(self, point: Point, seed: int) -> list[float]:
        """The share of right answers at each distance of a network that was trained at it, and at no other."""
        right: list[float] = []
        for distance in self.distances:
            if len(right) > 1 and max(right[-2:]) < (1 + 1 / self.keys) / 2:
                # what is not learned over two distances is not tried over longer ones
                right.append(1 / self.keys)
                continue
            encoder, width = self._encoder(point, seed)
            model = TextClassifier(encoder, width, self.keys, over="last")
            draw = partial(first_and_noise, self.keys, _NOISE, (self.rows, distance))
            train(model, draw, functional.cross_entropy, self.budget, seed, enough=lambda loss: loss < _ENOUGH)
            right.append(self._right(model, distance, torch.Generator().manual_seed(10**6 + seed)))
        return right

    @torch.no_grad()
    def _right(self, model: TextClassifier, distance: int, chance: torch.Generator) -> float:
        source, wanted = first_and_noise(self.keys, _NOISE, (_TESTED, distance), chance)
        return float((model(source).argmax(dim=1) == wanted).float().mean())

    def _encoder(self, point: Point, seed: int) -> tuple[Encoder, int]:
        """An encoder of this initialisation; the same whenever it is made."""
        options = {"width": point.width, "scale_embeddings": False}
        encoder, width = encoder_of(point.kind, self.keys + _NOISE, seed, options)
        for layer in encoder.modules():
            if isinstance(layer, nn.RNNBase):
                for gate in layer.get_parameter("weight_hh_l0").detach().split(width):
                    gate.mul_(point.gain / radius(gate))
        knob = sweep_parameter_of(encoder)
        if knob is not None and knob.kind == "bias":
            knob.turn(point.bias)
        return encoder, width

    def fitted(
        self, measured: Trials, seed: int
    ) -> tuple[CensoredLine | None, list[dict[str, Any]], list[dict[str, Any]]]:
        """The law of one seed, what it was fitted to, and what was held out; none where too few distances are known."""
        own = {(trial.model, trial.part): run for trial, run in measured.items() if trial.seed == seed}
        known = [own.get((p.kind, p.part)) for p in self.initialisations]
        learned = [run for i, run in enumerate(known) if run is not None and i % _HELD_OUT != _HELD_OUT - 1]
        held_out = [run for i, run in enumerate(known) if run is not None and i % _HELD_OUT == _HELD_OUT - 1]
        if sum(run["beyond"] == 0 for run in learned) < self.least:
            return None, learned, held_out
        return line_through(learned), learned, held_out

    def numbers(self, measured: Trials) -> Numbers:
        """The slope, and how good predictions are."""
        found: dict[str, list[float]] = {band.key: [] for band in self.bands}
        for seed in sorted({trial.seed or 0 for trial in measured}):
            line, learned, held_out = self.fitted(measured, seed)
            if line is None or not held_out:
                continue
            middle = sorted(math.log(run["d50"]) for run in learned)[len(learned) // 2]
            errors = [missed(line.at(log_xi(run["factor"])), run) for run in held_out]
            plain = [missed(middle, run) for run in held_out]
            found["slope"].append(line.b)
            found["within"].append(100 * sum(error <= math.log(2) for error in errors) / len(errors))
            found["gain"].append(sum(errors) / max(sum(plain), 1e-9))
        return found

    def intervals(self, measured: Trials) -> dict[str, tuple[float, float]]:
        """The slope's: what the fitted initialisations give that are drawn anew, all widths of one together.

        Widths of one gain and bias have nearly the same factor, and are no values of their own.
        """
        groups: dict[tuple[str, float, float], list[Point]] = {}
        for i, point in enumerate(self.initialisations):
            if i % _HELD_OUT != _HELD_OUT - 1:
                groups.setdefault((point.kind, point.gain, point.bias), []).append(point)
        runs = {(trial.seed or 0, trial.model, trial.part): run for trial, run in measured.items()}
        seeds = sorted({seed for seed, _, _ in runs})
        if not seeds or not all(self.fitted(measured, seed)[0] for seed in seeds):
            return {}
        together, chance, slopes = list(groups.values()), np.random.default_rng(1), list[float]()
        for _ in range(_DRAWN):
            drawn = [p for i in chance.integers(len(together), size=len(together)) for p in together[i]]
            keys = [[(seed, p.kind, p.part) for p in drawn] for seed in seeds]
            lines = [line_through([runs[key] for key in own if key in runs]) for own in keys]
            slopes.append(statistics.median(line.b if line else math.nan for line in lines))
        low, high = np.nanquantile(slopes, [0.025, 0.975])
        return {"slope": (float(low), float(high))}

    def figures(self, measured: Trials) -> list[Figure]:
        """Distance against ξ."""
        if not measured:
            return []
        shown = [
            series(kind, kind, [math.exp(log_xi(run["factor"])) for run in own], [run["d50"] for run in own])
            for kind in dict.fromkeys(trial.model for trial in measured)
            if (own := [run for trial, run in measured.items() if trial.model == kind])
        ]
        line, _, _ = self.fitted(measured, min(trial.seed or 0 for trial in measured))
        if line is not None:
            ends = [min(log_xi(run["factor"]) for run in measured.values()), math.log(_LONGEST_XI)]
            fit = [math.exp(line.at(end)) for end in ends]
            shown.append(series("fitted to three quarters", "", [math.exp(end) for end in ends], fit, reference=True))
        axes = (axis("1 / |log factor|", "steps", log=True), axis("D50", "symbols", log=True))
        title = "How far is learned, against how far an untrained gradient reaches"
        return [figure("law", title, axes, shown, kind="points")]


def line_through(runs: Sequence[Measured]) -> CensoredLine | None:
    """The law that fits these initialisations best; None where they are too few."""
    return censored_line(
        [log_xi(run["factor"]) for run in runs], [math.log(run["d50"]) for run in runs], [run["beyond"] for run in runs]
    )


def missed(predicted: float, run: Measured) -> float:
    """Error of a predicted log D50; 0 if both lie beyond the same limit."""
    away = predicted - math.log(run["d50"])
    return 0.0 if run["beyond"] * away > 0 else abs(away)
