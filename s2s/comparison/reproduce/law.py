"""Law that relates the factor per step of an untrained gradient to the longest distance that a network learns.

We know of no earlier measurement. Gradient and task are those of one encoder with a linear head. The formula was fixed
before any measurement:

    log D50 = a + b log ξ,  ξ = 1 / |log factor|

D50 is the longest distance that is learned without training on shorter ones; ξ is the number of steps in which a
gradient changes by a factor of e. Signals in a random network die out over ξ (Chen, Pennington & Schoenholz 2018); if
the longest learnable distance is a multiple of it, b is 1. With ξ itself instead of its logarithm, distances would
grow without bound as the factor approaches 1.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from s2s.comparison.questions.gradients.sweep import radius, sweep_parameter_of
from s2s.comparison.reporting import axis, figure, series
from s2s.comparison.reproduce.contract import Numbers, Reproduction
from s2s.comparison.reproduce.radius import factor_per_step
from s2s.comparison.reproduce.training import (
    Budget,
    TextClassifier,
    accuracy,
    draw_first_and_noise,
    encoder_of,
    heldout_generator,
    train,
)
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Trial
from s2s.evaluation.survival import CensoredLine, censored_line
from s2s.models.base import Encoder

_NOISE, _TEXTS, _TESTED = 32, 4, 200
# outside, a gradient over 200 steps cannot be distinguished from a constant one, or from zero
_SHORTEST_XI, _LONGEST_XI = 0.1, 1_000.0
# mean loss (nats per key) at which training stops
_ENOUGH = 0.05
_BUDGET = Budget(updates=800, rate=0.002, every=50)
_HELD_OUT = 4  # every fourth initialisation
_DRAWN = 1000  # bootstrap resamples


@dataclass(frozen=True)
class Point:
    """One initialisation."""

    kind: str  # model
    gain: float  # factor of the recurrent matrices; the spectral radius of a plain recurrence
    bias: float  # of the gate that keeps the state; 0 for a plain recurrence
    width: int

    @property
    def part(self) -> str:
        """Name among the trials."""
        return f"gain-{round(100 * self.gain)}-bias-{round(100 * self.bias)}-width-{self.width}"


def points() -> tuple[Point, ...]:
    """Return all initialisations: 8 radii of the tanh-RNN, 12 of an LSTM and 4 of a minGRU, for each width."""
    widths = (16, 32, 64)
    plain = [Point("rnn", gain, 0.0, w) for gain, w in product((0.5, 0.7, 0.9, 1.0, 1.1, 1.3, 1.5, 2.0), widths)]
    gated = [Point("lstm", g, b, w) for g, b, w in product((0.7, 1.0, 1.3), (0.0, 1.0, 2.0, 4.0), widths)]
    return (*plain, *gated, *(Point("mingru", 1.0, b, w) for b, w in product((0.0, 1.0, 2.0, 4.0), widths)))


def log_xi(factor: float) -> float:
    """Return log ξ, with ξ limited to 0.1 to 1,000 steps."""
    away = abs(math.log(factor)) if factor > 0 else math.inf
    return -math.log(min(max(away, 1 / _LONGEST_XI), 1 / _SHORTEST_XI))


def d50(distances: Sequence[int], right: Sequence[float], chance: float) -> tuple[float, int]:
    """Interpolate, in log distance, the distance at which half of the accuracy above chance remains.

    Returns:
        The distance, and 1 if it lies beyond the largest one, −1 if below the smallest one, else 0.
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
class Reach:
    """Gradient and learned distances of one initialisation."""

    factor: float  # factor of the gradient per step
    right: list[float]  # accuracy at each distance
    d50: float  # distance at which half of the accuracy above chance remains
    beyond: int  # 1 if D50 lies beyond the largest distance, −1 if below the smallest, else 0


@dataclass(frozen=True)
class Law(Reproduction[Reach]):
    """Gradient and longest learned distance of the same initialisations."""

    name = "law"
    finding = (
        "The reach of an untrained gradient predicts the distance over which a recurrent network learns to remember."
    )
    source = (
        "no published measurement is known; Chen, Pennington & Schoenholz 2018 derive the depth to which signals reach "
        "in random recurrent networks, and find that training succeeds up to it (not verified)"
    )
    method = (
        "72 initialisations (recurrent gain × gate bias × cell × width). For each, the gradient's factor per step over "
        "200 random symbols; then trainings on first-token recall (10 keys, 32 noise symbols), each at one distance: "
        "Adam at 0.002, up to 800 updates of 32 fresh sequences. Distances double from 1 to 128, until two in a row "
        "are not learned. D50 is the distance at which half of the accuracy above chance remains. Fit: log D50 = a + b "
        "log ξ with ξ = 1/|log factor| and normal noise, D50 beyond 128 or below 1 censored, over three quarters of "
        "the initialisations; every fourth one is predicted. The interval of b is a bootstrap over gains and biases, "
        "all widths of one together."
    )
    bands = (
        Band(key="slope", what="b", published="1 (derived, if D50 is a multiple of ξ)", low=0.5, high=1.5, derived=1.0),
        Band(
            key="within", what="held-out D50 within a factor of 2 of the prediction (%)", published="(none)", low=60.0
        ),
        Band(
            key="gain",
            what="held-out error of the prediction / error of the median of the other initialisations, in log D50",
            published="(none)",
            high=0.7,
        ),
    )
    seconds = (2_700, 9_000)
    published = False

    initialisations: tuple[Point, ...] = points()
    distances: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128)
    steps: int = 200
    keys: int = 10
    rows: int = 32
    budget: Budget = _BUDGET
    least: int = 10  # fewest uncensored distances for a fit

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        return [Trial(p.kind, p.part, seed) for seed in seeds for p in self.initialisations]

    def measure(self, trial: Trial) -> Reach:
        """Measure the factor of the gradient per step, accuracy at each distance, and D50."""
        seed = trial.seed or 0
        point = next(p for p in self.initialisations if (p.kind, p.part) == (trial.model, trial.part))
        tokens = torch.randint(self.keys + _NOISE, (_TEXTS, self.steps), generator=torch.Generator().manual_seed(seed))
        vectors = self._encoder(point, seed)[0].embedding(tokens).detach()
        factor = factor_per_step(self._encoder(point, seed)[0], vectors, seed)
        right: list[float] = []
        for distance in self.distances:
            # longer distances are skipped after two in a row that are not learned
            failed = len(right) > 1 and max(right[-2:]) < (1 + 1 / self.keys) / 2
            right.append(1 / self.keys if failed else self._learn(point, distance, seed))
        reach, beyond = d50(self.distances, right, 1 / self.keys)
        return Reach(factor, right, reach, beyond)

    def _learn(self, point: Point, distance: int, seed: int) -> float:
        """Train a network at one distance, and return its accuracy there."""
        model = TextClassifier(*self._encoder(point, seed), self.keys, over="last")
        draw = partial(draw_first_and_noise, self.keys, _NOISE, (self.rows, distance))
        train(model, draw, functional.cross_entropy, self.budget, seed, enough=_ENOUGH)
        generator = heldout_generator(seed)
        return accuracy(model, draw_first_and_noise(self.keys, _NOISE, (_TESTED, distance), generator)) / 100

    def _encoder(self, point: Point, seed: int) -> tuple[Encoder, int]:
        """Build the encoder of an initialisation, deterministically; return it with its width."""
        options = {"width": point.width, "scale_embeddings": False}
        encoder, width = encoder_of(point.kind, self.keys + _NOISE, seed, options)
        for layer in encoder.modules():
            if isinstance(layer, nn.RNNBase):
                for gate in layer.get_parameter("weight_hh_l0").detach().split(width):
                    gate.mul_(point.gain / radius(gate))
        parameter = sweep_parameter_of(encoder)
        if parameter is not None and parameter.kind == "bias":
            parameter.turn(point.bias)
        return encoder, width

    def fitted(
        self, measured: Mapping[Trial, Reach], seed: int
    ) -> tuple[CensoredLine | None, list[Reach], list[Reach]]:
        """Fit the law of one seed.

        Returns:
            The line (None with too few uncensored distances), the measurements that it is fitted to, and those held
            out.
        """
        own = {(trial.model, trial.part): run for trial, run in measured.items() if trial.seed == seed}
        known = [(i, run) for i, p in enumerate(self.initialisations) if (run := own.get((p.kind, p.part)))]
        learned = [run for i, run in known if i % _HELD_OUT != _HELD_OUT - 1]
        held_out = [run for i, run in known if i % _HELD_OUT == _HELD_OUT - 1]
        enough = sum(run.beyond == 0 for run in learned) >= self.least
        return _line(learned) if enough else None, learned, held_out

    def numbers(self, measured: Mapping[Trial, Reach]) -> Numbers:
        """Return the slope, and the accuracy of the predictions for held-out initialisations."""
        found: dict[str, dict[int, float]] = {band.key: {} for band in self.bands}
        for seed in sorted({trial.seed or 0 for trial in measured}):
            line, learned, held_out = self.fitted(measured, seed)
            if line is None or not held_out:
                continue
            middle = sorted(math.log(run.d50) for run in learned)[len(learned) // 2]
            errors = [_error(line.at(log_xi(run.factor)), run) for run in held_out]
            plain = [_error(middle, run) for run in held_out]
            found["slope"][seed] = line.b
            found["within"][seed] = 100 * sum(error <= math.log(2) for error in errors) / len(errors)
            found["gain"][seed] = sum(errors) / max(sum(plain), 1e-9)
        return found

    def intervals(self, measured: Mapping[Trial, Reach]) -> dict[str, tuple[float, float]]:
        """Return the bootstrap interval of the slope, which resamples fitted initialisations with all their widths.

        Widths of the same gain and bias have nearly the same factor, so they are not independent.
        """
        groups: dict[tuple[str, float, float], list[Point]] = {}
        for i, point in enumerate(self.initialisations):
            if i % _HELD_OUT != _HELD_OUT - 1:
                groups.setdefault((point.kind, point.gain, point.bias), []).append(point)
        runs = {(trial.seed or 0, trial.model, trial.part): run for trial, run in measured.items()}
        seeds = sorted({seed for seed, _, _ in runs})
        if not seeds or not all(self.fitted(measured, seed)[0] for seed in seeds):
            return {}
        clusters, chance, slopes = list(groups.values()), np.random.default_rng(1), list[float]()
        for _ in range(_DRAWN):
            drawn = [p for i in chance.integers(len(clusters), size=len(clusters)) for p in clusters[i]]
            keys = [[(seed, p.kind, p.part) for p in drawn] for seed in seeds]
            lines = [_line([runs[key] for key in own if key in runs]) for own in keys]
            slopes.append(statistics.median(line.b if line else math.nan for line in lines))
        low, high = np.nanquantile(slopes, [0.025, 0.975])
        return {"slope": (float(low), float(high))}

    def figures(self, measured: Mapping[Trial, Reach]) -> list[Figure]:
        if not measured:
            return []
        shown = []
        for kind in dict.fromkeys(trial.model for trial in measured):
            own = [run for trial, run in measured.items() if trial.model == kind]
            x = [math.exp(log_xi(run.factor)) for run in own]
            shown.append(series(kind, kind, x, [run.d50 for run in own]))
        line, _, _ = self.fitted(measured, min(trial.seed or 0 for trial in measured))
        if line is not None:
            ends = [min(log_xi(run.factor) for run in measured.values()), math.log(_LONGEST_XI)]
            fit = [math.exp(line.at(end)) for end in ends]
            shown.append(series("fitted to three quarters", "", [math.exp(end) for end in ends], fit, reference=True))
        axes = (axis("1 / |log factor|", "steps", log=True), axis("D50", "symbols", log=True))
        title = "Longest learned distance by reach of the untrained gradient"
        return [figure("law", title, axes, shown, kind="points")]


def _line(runs: Sequence[Reach]) -> CensoredLine | None:
    x, y = [log_xi(run.factor) for run in runs], [math.log(run.d50) for run in runs]
    return censored_line(x, y, [run.beyond for run in runs])


def _error(predicted: float, run: Reach) -> float:
    """Return the error of a predicted log D50; 0 if both lie beyond the same limit."""
    away = predicted - math.log(run.d50)
    return 0.0 if run.beyond * away > 0 else abs(away)
