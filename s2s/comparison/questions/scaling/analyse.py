"""Compare trainings at several sizes: the loss at each size, and its reduction per doubling of the size."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from s2s.comparison.claims import traits_of
from s2s.comparison.questions.scaling import claims
from s2s.comparison.reporting import Column, Interval, axis, figure, gates_table, series, table, verdict
from s2s.comparison.results import Axis, Figure, Table, Verdict
from s2s.comparison.spec import Analysis, Comparison, Trial
from s2s.evaluation.differences import Difference, Pairwise, welch
from s2s.evaluation.gates import (
    LEARNING,
    Assessment,
    Gate,
    assess_pair,
    best_other,
    failed,
    rate_inside,
    uses_its_source,
)
from s2s.evaluation.inference import Estimate, holm, mean
from s2s.tasks.source_use import SourceUse

MARGIN = 5.0
"""Equivalence margin of the reduction of the loss per doubling, in percent."""
LEAST = 3
"""Fewest sizes for a slope."""


@dataclass(frozen=True, kw_only=True)
class SizeTraining:
    """A training of one size; losses are validation losses in nats per token."""

    parameters: int
    inner: int  # parameters without embeddings
    width: int | None
    updates: int
    tokens: int  # target tokens
    flops: float
    half: float | None = None  # loss after half of the updates
    loss: float
    source_use: SourceUse | None  # None if no two sentences have the same length
    baseline: float  # loss of the unigram model
    seconds: float


@dataclass(frozen=True, kw_only=True)
class ScalingRun(SizeTraining):
    """Measurement of one size: the training at its best learning rate, and the search for this rate."""

    factor: int | float  # multiple of the comparison's number of parameters
    wanted: int  # target number of parameters of all models at this size
    rate: float
    rates: list[tuple[float, float | None]]  # learning rates of short trainings, with their losses
    whole: list[tuple[float, float | None]]  # likewise of full trainings
    inside: bool  # True if the best rate has worse ones on both sides


Runs = dict[tuple[float, int], ScalingRun]
"""Measurements of a model by factor and seed."""


Models = dict[str, Runs]
"""Measurements by model."""


def analyse(comparison: Comparison, measured: Mapping[Trial, ScalingRun]) -> Analysis:
    """Compare the slopes of the models' losses over sizes, and their losses at each size."""
    models: Models = {}
    for model in comparison.models:
        own = {(m.factor, trial.seed or 0): m for trial, m in measured.items() if trial.model == model}
        if len({factor for factor, _ in own}) > 1:
            models[model] = dict(sorted(own.items()))
    seeds = sorted({trial.seed or 0 for trial in measured})
    if not models:
        return Analysis(seeds=seeds)
    left = {size for runs in models.values() for size, fall in _falls(runs).items() if fall >= LEARNING}
    everywhere = {factor for runs in models.values() for factor, _ in runs}
    kept = {model: {key: run for key, run in runs.items() if key[0] not in left} for model, runs in models.items()}
    gains = {model: gain for model, runs in kept.items() if (gain := gain_per_doubling(runs))}
    checks = {model: gates(runs, left, everywhere) for model, runs in models.items()}
    pairs = Pairwise.of(gains, lambda a, b: difference(gains[a], gains[b]))
    return Analysis(
        findings=[_verdict(model, models, gains, pairs, checks) for model in models],
        figures=[
            _losses(models, "parameters", "inner", axis("parameters without embeddings", log=True)),
            _losses(models, "compute", "flops", axis("training compute", "flop", log=True)),
        ],
        tables=[
            _gains_table(gains, checks),
            _difference_table(models),
            gates_table("a model before it is compared", checks),
            _sizes(models),
            _rates(models),
        ],
        seeds=seeds,
        claims=[
            claims.gains_more(
                traits_of(comparison),
                {model: gain.estimate() for model, gain in gains.items()},
                pairs,
                checks,
                lambda a, b: _variations(models, a, b),
                MARGIN,
            )
        ],
    )


def gain_per_doubling(runs: Runs) -> Difference | None:
    """Estimate the reduction of the loss per doubling of the parameters, in percent, from the slope b of its logarithm.

    A line through log₂ of all trainings' losses against log₂ of the parameters without embeddings (Kaplan et al. 2020):
    a doubling leaves 2ᵇ of the loss. The standard error is that of b, by the delta method; a curve that is no line
    makes it larger.

    Returns:
        100 · (1 − 2ᵇ); None below three sizes.
    """
    if len({factor for factor, _ in runs}) < LEAST:
        return None
    x, y = (np.log2([float(getattr(run, key)) for run in runs.values()]) for key in ("inner", "loss"))
    slope, intercept = np.polyfit(x, y, 1)
    freedom = len(x) - 2
    error = float(np.sqrt(np.square(y - slope * x - intercept).sum() / freedom / np.square(x - x.mean()).sum()))
    left = 100 * 2 ** float(slope)
    return Difference(100 - left, left * np.log(2) * error, freedom)


def difference(first: Difference, second: Difference) -> Difference:
    """Return the difference of two independent estimates, with degrees of freedom after Welch (1947)."""
    squares = first.error**2, second.error**2
    freedom = sum(squares) ** 2 / (squares[0] ** 2 / first.freedom + squares[1] ** 2 / second.freedom)
    return Difference(second.value - first.value, sum(squares) ** 0.5, freedom)


def first(runs: Runs) -> list[ScalingRun]:
    """Return the run of the first seed of each size, whose rates were searched."""
    return list({factor: run for (factor, _), run in reversed(runs.items())}.values())[::-1]


def _runs_of_size(runs: Runs, factor: float) -> list[ScalingRun]:
    return [run for (of, _), run in runs.items() if of == factor]


def _falls(runs: Runs) -> dict[float, float]:
    """Mean fall of the loss in the second half of the updates, in nats, by size."""
    falls: dict[float, list[float]] = {}
    for (factor, _), run in runs.items():
        if run.half is not None:
            falls.setdefault(factor, []).append(run.half - run.loss)
    return {factor: statistics.mean(own) for factor, own in falls.items()}


def gates(runs: Runs, left: set[float], everywhere: set[float]) -> list[Gate]:
    """Return the validity checks of a model's trainings.

    Args:
        runs: All trainings.
        left: Sizes at which some model still learns; they are left out for all models.
        everywhere: Sizes that any model has.
    """
    checks = [_converged(runs, left)]
    kept = {key: run for key, run in runs.items() if key[0] not in left} or runs
    outside = next((run for run in first(kept) if not run.inside), first(kept)[-1])
    rate = rate_inside(outside.rate, [*{rate for rate, _ in [*outside.rates, *outside.whole]}], outside.inside)
    at = f"at {outside.factor:g} times the size " if not rate.passed else "e.g. at the largest size "
    checks.append(replace(rate, sentence=at + rate.sentence))
    largest = max(factor for factor, _ in kept)
    if used := [run.source_use for run in _runs_of_size(kept, largest) if run.source_use]:
        right, exchanged = (statistics.mean(getattr(each, key) for each in used) for key in ("right", "exchanged"))
        checks.append(uses_its_source(right, exchanged))
    if lacking := ", ".join(f"{factor:g}" for factor in sorted(everywhere - {factor for factor, _ in runs})):
        # such as a size at which it diverged with a seed
        checks.append(Gate("all sizes", False, f"it was not measured at {lacking} times the size, unlike others"))
    return checks


def _converged(runs: Runs, left: set[float]) -> Gate:
    """Check that training is over at enough sizes: its second half lowers the loss by less than `LEARNING`."""
    falls, sizes = _falls(runs), {factor for factor, _ in runs}
    if len(falls) < len(sizes):
        return Gate("converged", False, "for some sizes it is unknown whether the loss still falls")
    said = [
        f"at {size:g} times the size, the second half of the updates lowered its loss by {falls[size]:.2f} nats"
        + (", and the size is left out" if size in left else "")
        for size in sorted(sizes & left) or [max(falls, key=lambda size: falls[size])]
    ]
    enough = len(sizes - left) >= LEAST
    return Gate("converged", enough, "; ".join(said) + f" (below {LEARNING:g} required at {LEAST} sizes)")


def _verdict(
    model: str, models: Models, gains: Mapping[str, Difference], pairs: Pairwise, checks: dict[str, list[Gate]]
) -> Verdict:
    closed = tuple(gate.sentence for gate in failed(checks[model]))
    other = best_other(model, {name: gain.value for name, gain in gains.items()}, checks)
    value, found = None, Assessment("not measurable", reasons=closed or ("fewer than three sizes",))
    if model in gains:
        found = assess_pair(model, other, pairs, checks, "%", MARGIN, 1, test="t-test of slopes, Holm")
        found = replace(found, variations=_variations(models, model, other) if found.decided else {})
        if not closed:
            value = gains[model].estimate()
    tokens = statistics.mean(run.tokens for run in models[model].values())
    quantity = "reduction of the loss per doubling of the parameters without embeddings"
    return verdict("scalability", model, value, "%", quantity, found, "parameters", tokens)


def _variations(models: Models, model: str, other: str) -> dict[str, bool]:
    """Return whether the difference keeps its sign with the losses half-way, and without the smallest size."""

    def gain(name: str, runs: Runs) -> float | None:
        found = gain_per_doubling(runs)
        return found and found.value

    def half(runs: Runs) -> Runs:
        return {key: replace(run, loss=run.half) for key, run in runs.items() if run.half is not None}

    def larger(runs: Runs) -> Runs:
        return {key: run for key, run in runs.items() if key[0] > min(factor for factor, _ in runs)}

    sign = (gain(model, models[model]) or 0) > (gain(other, models[other]) or 0)
    kept = {}
    for name, change in {"half the updates": half, "without the smallest size": larger}.items():
        mine, its = (gain(each, change(models[each])) for each in (model, other))
        if mine is not None and its is not None:
            kept[name] = (mine > its) == sign
    return kept


def _losses(models: Models, name: str, key: str, horizontal: Axis) -> Figure:
    shown = []
    for model, runs in models.items():
        factors = sorted({factor for factor, _ in runs})
        x = [statistics.mean(getattr(run, key) for run in _runs_of_size(runs, factor)) for factor in factors]
        shown.append(
            series(model, model, x, [mean([run.loss for run in _runs_of_size(runs, f)]) for f in factors], False)
        )
    every = [run for runs in models.values() for run in runs.values()]
    span = [float(end([getattr(run, key) for run in every])) for end in (min, max)]
    baseline = statistics.mean(run.baseline for run in every)
    shown.append(series("unigram model", "", span, [baseline] * 2, reference=True))
    title = f"Validation loss against {'size' if name == 'parameters' else name}"
    axes = (horizontal, axis("validation loss", "nats per token", log=True))
    return figure(name, title, axes, shown, "Means over seeds. The dashed line is the unigram model.")


def _gains_table(gains: Mapping[str, Difference], checks: dict[str, list[Gate]]) -> Table:
    columns = [
        "model",
        Interval("reduction per doubling (%)", lambda row: row[1], 1),
        Column("failed checks", lambda row: ", ".join(gate.name for gate in failed(checks[row[0]]))),
    ]
    return table("gains", "Reduction of the loss per doubling of the parameters", columns, list(gains.items()))


def _difference_table(models: Models) -> Table:
    """Table of the ratios of losses of two models at each size."""
    names, rows = list(models), []
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            for factor in sorted({f for f, _ in models[one]} & {f for f, _ in models[other]}):
                logs = [
                    [float(np.log(run.loss)) for run in _runs_of_size(models[each], factor)] for each in (one, other)
                ]
                rows.append((f"{other} / {one}", factor, welch(*logs)))
    after = iter(holm([found.p() for *_, found in rows if found]))
    tested = [(*row, next(after) if row[2] else None) for row in rows]

    def ratio(found: Difference | None) -> Estimate | None:
        return found and Estimate(*(float(np.exp(end)) for end in (found.value, *found.interval())))

    columns = [
        *("models", "size"),
        Interval("ratio of losses", lambda row: ratio(row[2]), 3),
        Column("p (Welch's t-test, Holm)", lambda row: row[3], 4),
    ]
    return table("differences", "Ratios of losses at each size", columns, tested)


def _sizes(models: Models) -> Table:
    columns = [
        "model",
        Column("size", lambda row: row[2].factor),
        Column("seed", lambda row: row[1]),
        Column("target parameters", lambda row: row[2].wanted),
        Column("parameters", lambda row: row[2].parameters),
        Column("without embeddings", lambda row: row[2].inner),
        Column("width", lambda row: row[2].width),
        Column("rate", lambda row: row[2].rate),
        Column("updates", lambda row: row[2].updates),
        Column("target tokens", lambda row: row[2].tokens),
        Column("compute (flop)", lambda row: row[2].flops, lambda flops: float(f"{flops:.4g}")),
        Column("validation loss (nats per token)", lambda row: row[2].loss, 4),
        Column("training (s)", lambda row: row[2].seconds, 1),
    ]
    rows = [(model, seed, run) for model, runs in models.items() for (_, seed), run in runs.items()]
    return table("sizes", "All trainings", columns, rows)


def _rates(models: Models) -> Table:
    rows = [
        (model, run.factor, rate, short.get(rate), whole.get(rate), "yes" if rate == run.rate else "no")
        for model, runs in models.items()
        for run in first(runs)
        for short, whole in [(dict(run.rates), dict(run.whole))]
        for rate in sorted({*short, *whole})
    ]
    head = "validation loss, {} training (nats per token)"
    columns = ("model", "size", "rate", head.format("short"), head.format("full"), "chosen")
    return table("rates", "Learning rates tried at each size", columns, rows)
