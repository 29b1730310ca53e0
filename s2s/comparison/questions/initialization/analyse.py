"""Analyse the updates that recurrent models need, by the factor per step of their untrained gradients."""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from s2s.comparison.claims import Pair, claim_numbers, decide, traits_of
from s2s.comparison.paired_tests import listed
from s2s.comparison.questions.gradients.decay import brief, geometric_mean
from s2s.comparison.questions.gradients.sweep import WORDS
from s2s.comparison.reporting import Column, Interval, axis, figure, filled, series, table, verdict
from s2s.comparison.results import Claim, Figure, Table, Verdict
from s2s.comparison.spec import Analysis, Comparison, Trial
from s2s.comparison.task_training import Rates
from s2s.evaluation.gates import Assessment
from s2s.evaluation.inference import Estimate
from s2s.evaluation.survival import Times, median_within

ROW = "initialisation"
_FORMATS = {"fp16": 2.0**-24, "bf16": 2.0**-133, "fp32": 2.0**-149}
"""Smallest positive number of each format, subnormal ones counted."""


@dataclass(frozen=True)
class Start:
    """Measurement of one training from one initialization."""

    kind: str  # `radius` or `bias`
    value: float
    own: float  # value of the model's own initialization
    slope: float | None  # log of the gradient's factor per step before training
    rate: float
    inside: bool  # True if the rate has worse rates on both sides
    budget: int  # limit of the updates
    updates: int
    solved: int | None  # updates until 99 % of the held-out answers were right
    loss: float | None  # at the last validation
    seconds: float  # CPU time of the training
    failure: str = ""

    @property
    def waited(self) -> int:
        """Updates until solved; the budget plus one if unsolved."""
        return self.solved if self.solved is not None else self.budget + 1


@dataclass(frozen=True)
class Starts:
    """Trainings of a candidate from one initialization, over seeds."""

    runs: Sequence[Start]

    @property
    def factor(self) -> Estimate | None:
        """Factor of the gradient per step; None if no seed has a gradient at three distances."""
        slopes = [run.slope for run in self.runs if run.slope is not None]
        return geometric_mean(slopes) if slopes else None

    @property
    def away(self) -> float:
        """Mean |log factor|: the distance from a gradient that neither vanishes nor explodes."""
        return statistics.mean(math.inf if run.slope is None else abs(run.slope) for run in self.runs)

    @property
    def num_solved(self) -> int:
        """Seeds that solved the task."""
        return sum(run.solved is not None for run in self.runs)

    @property
    def rate_settled(self) -> bool:
        """True if the learning rate has worse rates on both sides, or every seed solved the task with it."""
        return self.runs[0].inside or self.num_solved == len(self.runs)

    @property
    def updates(self) -> Estimate:
        """Median of the updates until solved (Kaplan & Meier 1958), at most the budget."""
        solved = [run.solved for run in self.runs if run.solved is not None]
        spent = [run.budget for run in self.runs if run.solved is None]
        return median_within(Times(solved, spent), float(self.runs[0].budget))


Candidate = Mapping[float, Starts]
"""Trainings of a candidate, by the value of its initialization."""


def analyse(comparison: Comparison, measured: Mapping[Trial, Start | Rates]) -> Analysis:
    """Correlate the factor per step with the number of updates, over initializations and seeds."""
    runs = {trial: each for trial, each in measured.items() if isinstance(each, Start)}
    found: dict[str, dict[float, Starts]] = {}
    for model in comparison.models:
        own = [each for trial, each in runs.items() if trial.model == model]
        values = sorted({each.value for each in own})
        if own:
            found[model] = {value: Starts([each for each in own if each.value == value]) for value in values}
    return Analysis(
        findings=[_verdict(model, own) for model, own in found.items()],
        figures=[_figure(found)],
        tables=filled(_table(found)),
        seeds=sorted({trial.seed for trial in runs if trial.seed is not None}),
        claims=[_claim(_without_attention(comparison, found))],
    )


def correlation(own: Candidate) -> tuple[float, float]:
    """Return Kendall's τ (1938) between the mean |log factor| of an initialization and updates, and its p-value.

    Trainings from one initialization are not independent, because they share its learning rate. The two-sided test
    therefore permutes initializations, in all orders. A run without a factor has a gradient that vanished before the
    third step.
    """
    # ranks, because differences of infinite values are not defined
    away = scipy.stats.rankdata([starts.away for starts in own.values()])
    waits = [[run.waited for run in starts.runs] for starts in own.values()]
    if len({wait for runs in waits for wait in runs}) < 2 or len(set(away)) < 2:
        return 0.0, 1.0
    tau = scipy.stats.kendalltau(np.repeat(away, [len(runs) for runs in waits]), np.concatenate(waits)).statistic
    # pairs of trainings from two initializations in which the second took longer, less those in which the first did
    longer = np.array([[np.sign(np.subtract.outer(second, first)).sum() for second in waits] for first in waits])
    orders = away[np.array(list(itertools.permutations(range(len(away)))))]
    agreements = (np.sign(orders[:, None, :] - orders[:, :, None]) * longer).sum(axis=(1, 2))
    return float(tau), float((np.abs(agreements) >= abs(agreements[0])).mean())


def nearest(own: Candidate) -> float:
    """Return the value of the initialization whose factor is nearest to 1."""
    return min(own, key=lambda value: own[value].away)


def _claim(found: Mapping[str, Candidate]) -> Claim | None:
    if not found:
        return None
    tests = {model: correlation(own) for model, own in found.items()}
    decision = decide([Pair(model, "", tau, p) for model, (tau, p) in tests.items()])
    learned = [
        f"{model} {_updates(own[nearest(own)])} at a factor of {_factor(own[nearest(own)])} per step, "
        f"{listed(_extremes(own))} (Kendall's τ = {tests[model][0]:.2f})"
        for model, own in found.items()
    ]
    sentence = f"Updates to the solution, at the best rate of each initialisation: {'; '.join(learned)}."
    closed = [model for model, own in found.items() if not all(starts.rate_settled for starts in own.values())]
    if closed:
        sentence += f" The learning rate of {listed(closed)} is at an end of its grid."
    budget = max(run.budget for own in found.values() for starts in own.values() for run in starts.runs)
    return Claim(
        name="late-by-gradients",
        measured="updates until an encoder with a linear head recalls the first symbol over up to 32 others, with the "
        f"factor per step nearest to 1 (with the smallest and the largest factor; at most {budget:,})",
        unit="updates",
        verdict="undecided" if closed else decision.verdict,
        sentence=sentence,
        numbers=claim_numbers(
            {name: own[nearest(own)].updates for name, own in found.items()},
            "low",
            {name: ", ".join(_extremes(own)) for name, own in found.items()},
        ),
        p=decision.p,
        test="Kendall's τ, initialisations permuted",
        figure="initialization",
    )


def _without_attention(comparison: Comparison, found: Mapping[str, Candidate]) -> Mapping[str, Candidate]:
    """Leave out models with attention, whose encoder alone is trained here, if others remain."""
    traits = traits_of(comparison)
    return {model: own for model, own in found.items() if not traits[model].cross_attention} or found


def _extremes(own: Candidate) -> list[str]:
    """Name the updates at the smallest and at the largest factor, unless it is the one nearest to 1."""
    ordered = sorted(own.values(), key=lambda starts: 0.0 if starts.factor is None else starts.factor.value)
    ends = [starts for starts in (ordered[0], ordered[-1]) if starts is not own[nearest(own)]]
    return [f"{_updates(starts)} at {_factor(starts)}" for starts in ends]


def _updates(starts: Starts) -> str:
    known = 2 * starts.num_solved > len(starts.runs)
    return f"{starts.updates.value:,.0f}" if known else f"over {starts.runs[0].budget:,}"


def _factor(starts: Starts) -> str:
    return "0" if starts.factor is None else f"{starts.factor.value:.2f}"


def _verdict(model: str, own: Candidate) -> Verdict:
    best, (tau, p) = nearest(own), correlation(own)
    first = own[best].runs[0]
    facts: dict[str, float | str] = {
        f"{WORDS[first.kind]} with the factor nearest to 1": best,  # pyright: ignore[reportArgumentType]
        "own value": round(first.own, 2),
        "Kendall's τ of |log factor| and updates": round(tau, 2),
        "p of τ": float(f"{p:.2g}"),
    }
    for value, starts in own.items():
        facts[f"updates at {value:g} (factor {_factor(starts)})"] = _updates(starts)
    quantity = "updates until the first symbol is recalled, with the initialisation whose factor is nearest to 1"
    return verdict(ROW, model, own[best].updates, "updates", quantity, Assessment("", facts=facts), "initialization")


def _figure(found: Mapping[str, Candidate]) -> Figure:
    shown = []
    for model, own in found.items():
        known = sorted((starts.factor.value, starts.updates) for starts in own.values() if starts.factor is not None)
        shown.append(series(model, model, [factor for factor, _ in known], [updates for _, updates in known]))
    if shown:
        budget = float(max(starts.runs[0].budget for own in found.values() for starts in own.values()))
        least = min(starts.updates.value for own in found.values() for starts in own.values())
        shown.append(series("neither vanishing nor exploding", "", [1.0, 1.0], [least, budget], reference=True))
    return figure(
        "initialization",
        "Updates until the first symbol is recalled, against the factor per step of the untrained gradient",
        (axis("factor per step"), axis("updates", log=True)),
        shown,
        "Each point is an initialisation (median over seeds). Intervals (95 %): Kaplan–Meier's, from six seeds on. An "
        "unsolved training counts with its budget.",
    )


def underflow(factor: float, smallest: float) -> int | None:
    """Return the number of steps after which a gradient of size 1 rounds to zero; None if it does not shrink.

    Args:
        factor: Factor per step.
        smallest: Smallest positive number of the format; half of it rounds to zero.
    """
    return math.ceil(math.log(smallest / 2) / math.log(factor) - 1e-9) if 0 < factor < 1 else None


def _table(found: Mapping[str, Candidate]) -> Table:
    rows = [(model, value, starts) for model, own in found.items() for value, starts in own.items()]
    columns = [
        *("model", "value"),
        Column("parameter", lambda row: WORDS[row[2].runs[0].kind]),
        Column("own value", lambda row: row[2].runs[0].own, brief),
        Interval("factor per step", lambda row: row[2].factor, brief),
        Interval("updates, median", lambda row: row[2].updates, 0, "updates"),
        Column("solved", lambda row: f"{row[2].num_solved} of {len(row[2].runs)}"),
        Column("learning rate", lambda row: f"{row[2].runs[0].rate:g}"),
        Column("rate inside its grid", lambda row: "yes" if row[2].runs[0].inside else "no"),
        *(
            Column(
                f"steps to underflow in {name}",
                lambda row, smallest=smallest: row[2].factor and underflow(row[2].factor.value, smallest),
            )
            for name, smallest in _FORMATS.items()
        ),
    ]
    return table("initializations", "Factor per step and updates to the solution, by initialisation", columns, rows)
