"""Fit scaling laws to trainings at several sizes, and compare their exponents."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from s2s.comparison.claims import traits_of
from s2s.comparison.questions.scaling import claims
from s2s.comparison.reporting import Column, Interval, axis, figure, gates_table, series, table, verdict
from s2s.comparison.results import Figure, Table, Verdict
from s2s.comparison.spec import Analysis, Comparison, Trial
from s2s.evaluation.differences import LEVEL, Pairwise
from s2s.evaluation.gates import LEARNING, Assessment, Gate, beside, best_other, failed, rate_inside, uses_its_source
from s2s.evaluation.inference import Estimate, exponent, mean
from s2s.evaluation.laws import Saturating, gains_more, saturating
from s2s.tasks.source_use import SourceUse

MARGIN = 0.05
"""Equivalence margin of two exponents."""
_EXPLAINED = 0.95
# fewest sizes that must remain when one is left out: a law has three parameters
_LEAST = 4


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
    wanted: int  # number of parameters that all models are to have at this size
    rate: float
    rates: list[tuple[float, float | None]]  # learning rates of short trainings, with their losses
    whole: list[tuple[float, float | None]]  # likewise of full trainings
    inside: bool  # True if the best rate has worse ones on both sides


Runs = dict[tuple[float, int], ScalingRun]
"""Measurements of a model by factor and seed."""


@dataclass(frozen=True)
class Law:
    """Losses of a model by size, and the law fitted to them."""

    runs: Runs
    left: frozenset[float]  # factors that are left out, the same for all models
    fitted: Saturating | None  # against parameters without embeddings; None below three sizes
    power: Estimate  # b of L = a N^−b, without a floor
    compute: Estimate  # the same against floating-point operations

    @property
    def factors(self) -> list[float]:
        """The sizes, ascending."""
        return sorted({factor for factor, _ in self.runs})

    @property
    def through(self) -> Runs:
        """The measurements that the law is fitted to."""
        return {key: run for key, run in self.runs.items() if key[0] not in self.left}

    def at(self, factor: float) -> list[ScalingRun]:
        """Return the runs of all seeds of a size."""
        return [run for (of, _), run in self.runs.items() if of == factor]

    def first(self) -> list[ScalingRun]:
        """Return the run of the first seed of each size, whose rates were searched."""
        return [self.at(factor)[0] for factor in self.factors]


Laws = dict[str, Law]


def analyse(comparison: Comparison, measured: Mapping[Trial, ScalingRun]) -> Analysis:
    """Fit a law to each model, check whether it holds, and compare the exponents."""
    runs: dict[str, Runs] = {}
    for model in comparison.models:
        own = {(m.factor, trial.seed or 0): m for trial, m in measured.items() if trial.model == model}
        if len({factor for factor, _ in own}) > 1:
            runs[model] = dict(sorted(own.items()))
    seeds = sorted({trial.seed or 0 for trial in measured})
    if not runs:
        return Analysis(seeds=seeds)
    left = _left_out(runs)
    laws = {model: _law(own, left) for model, own in runs.items()}
    everywhere = {factor for law in laws.values() for factor in law.factors}
    checks = {model: gates(law, everywhere) for model, law in laws.items()}
    fitted = {model: law.fitted for model, law in laws.items() if law.fitted}
    pairs = Pairwise.of(fitted, lambda a, b: gains_more(fitted[a], fitted[b]))
    return Analysis(
        findings=[_verdict(model, laws, pairs, checks) for model in laws],
        figures=[_against_size(laws, checks), _against_compute(laws)],
        tables=[
            _laws_table(laws, checks),
            _differences(pairs, checks),
            gates_table("a law before it is compared", checks),
            _sizes(laws),
            _rates(laws),
        ],
        seeds=seeds,
        claims=[
            claims.gains_more(
                traits_of(comparison),
                {model: law.estimate() for model, law in fitted.items()},
                pairs,
                checks,
                MARGIN,
            )
        ],
    )


def _law(runs: Runs, left: frozenset[float]) -> Law:
    through = [run for (factor, _), run in runs.items() if factor not in left]
    losses = [run.loss for run in through]
    powers = []
    for x in ([run.inner for run in through], [run.flops for run in through]):
        slope = exponent(x, losses)
        # the exponent of the law is −b
        low, high = (None if end is None else -end for end in (slope.high, slope.low))
        powers.append(Estimate(-slope.value, low, high))
    return Law(runs, left, fit([(run.inner, run.loss) for run in through]), *powers)


def fit(points: list[tuple[float, float]]) -> Saturating | None:
    """Fit the law to sizes and losses."""
    sizes, losses = (np.array(side, dtype=float) for side in zip(*points, strict=True))
    return saturating(sizes, losses)


def _left_out(models: Mapping[str, Runs]) -> frozenset[float]:
    """The size at which models still learn, if there is only one and each model has enough others; else none.

    It is left out of all laws: laws through different sizes would differ even if the models did not.
    """
    learning = {size for runs in models.values() for size, fall in _falls(runs).items() if fall >= LEARNING}
    fewest = min(len({factor for factor, _ in runs} - learning) for runs in models.values())
    return frozenset(learning) if len(learning) == 1 and fewest >= _LEAST else frozenset()


def _falls(runs: Runs) -> dict[float, float]:
    """Mean fall of the loss in the second half of the updates, in nats, by size."""
    falls: dict[float, list[float]] = {}
    for (factor, _), run in runs.items():
        if run.half is not None:
            falls.setdefault(factor, []).append(run.half - run.loss)
    return {factor: statistics.mean(own) for factor, own in falls.items()}


def gates(law: Law, everywhere: set[float]) -> list[Gate]:
    """Return the validity checks of a model's trainings and of its law.

    Args:
        law: The law.
        everywhere: Sizes that any model has.
    """
    checks = [_converged(law)]
    kept = replace(law, runs=law.through)
    outside = next((run for run in kept.first() if not run.inside), kept.first()[-1])
    rate = rate_inside(outside.rate, [*{rate for rate, _ in [*outside.rates, *outside.whole]}], outside.inside)
    at = f"at {outside.factor:g} times the size " if not rate.passed else "e.g. at the largest size "
    checks.append(replace(rate, sentence=at + rate.sentence))
    if used := [run.source_use for run in kept.at(kept.factors[-1]) if run.source_use]:
        right, exchanged = (statistics.mean(getattr(each, key) for each in used) for key in ("right", "exchanged"))
        checks.append(uses_its_source(right, exchanged))
    checks.append(_holds(law.fitted))
    if lacking := ", ".join(f"{factor:g}" for factor in sorted(everywhere - {*law.factors})):
        # such as a size at which it diverged with some seed
        said = f"nothing to go by at {lacking} times the size, where others have been"
        checks.append(Gate("all sizes", False, said))
    return checks


def _converged(law: Law) -> Gate:
    """Check that the second half of the updates gained less than `LEARNING` at each size of the law."""
    falls = _falls(law.runs)
    if len(falls) < len(law.factors):
        return Gate("converged", False, "nothing says of every size whether it still learns")

    def _fell(size: float) -> str:
        return f"at {size:g} times the size, the second half of the updates lowered its loss by {falls[size]:.2f} nats"

    said = [_fell(size) + ", and is left out" for size in sorted(law.left & falls.keys())]
    worst = max((size for size in falls if size not in law.left), key=lambda size: falls[size])
    said.append(f"{_fell(worst)} (below {LEARNING:g} wanted at each size that is not left out)")
    return Gate("converged", falls[worst] < LEARNING, "; ".join(said))


def _holds(fitted: Saturating | None) -> Gate:
    name = "law holds"
    if fitted is None:
        return Gate(name, False, "fewer than three sizes make no law")
    said = f"R² is {fitted.explained:.3f} (≥ {_EXPLAINED:g} wanted)"
    if not fitted.determined:
        return Gate(name, False, f"{said}, and the sizes do not say how large b is")
    if fitted.misfit is not None:
        said += f"; seeds alone would leave the sizes as far from it with p = {fitted.misfit:.2g} (≥ {LEVEL:g} wanted)"
    likely = fitted.misfit is None or fitted.misfit >= LEVEL
    return Gate(name, fitted.explained >= _EXPLAINED and likely, said)


def _verdict(model: str, laws: Laws, pairs: Pairwise, checks: dict[str, list[Gate]]) -> Verdict:
    law, fitted = laws[model], laws[model].fitted
    quantity = "b of loss = E + a · N^−b, N parameters without embeddings"
    other = best_other(model, {name: _b(each.fitted) for name, each in laws.items() if each.fitted}, checks)
    closed = tuple(gate.sentence for gate in failed(checks[model]))
    value, found = None, Assessment("not measurable", reasons=closed or ("no other model has a law",))
    if other and fitted:
        found = beside(model, other, pairs, checks, "in b", MARGIN, 2, test="Wald test, Holm")
        found = replace(found, variations=_variations(law, laws[other]) if found.decided else {})
    if fitted and not closed:
        value = fitted.estimate()
        found = replace(found, facts={"floor E (nats per token)": round(fitted.floor, 2)})
    tokens = statistics.mean(run.tokens for run in law.runs.values())
    return verdict("scalability", model, value, "", quantity, found, "parameters", tokens)


def _b(fitted: Saturating | None) -> float:
    return fitted.exponent if fitted else -math.inf


def _variations(law: Law, other: Law) -> dict[str, bool]:
    """Return whether the difference keeps its sign under other choices."""
    sign = _b(law.fitted) > _b(other.fitted)
    kept = {"no floor": (law.power.value > other.power.value) == sign}
    again = []
    for each in (law, other):
        points = [(float(run.inner), run.half) for run in each.through.values() if run.half is not None]
        again.append(fit(points) if len(points) == len(each.through) else None)
    if all(again):
        kept["half the updates"] = (_b(again[0]) > _b(again[1])) == sign
    return kept


def _means(law: Law, key: str) -> tuple[list[float], list[Estimate]]:
    """Mean size and mean loss over the seeds of each size."""
    x = [statistics.mean(getattr(run, key) for run in law.at(factor)) for factor in law.factors]
    return x, [mean([run.loss for run in law.at(factor)]) for factor in law.factors]


def _against_size(laws: Laws, checks: dict[str, list[Gate]]) -> Figure:
    shown = []
    for model, law in laws.items():
        shown.append(series(model, model, *_means(law, "inner"), intervals=False))
        if law.fitted and not failed(checks[model]):
            ends = [run.inner for run in law.through.values()]
            places = np.geomspace(min(ends), max(ends), 30).tolist()
            name = f"{model}: {law.fitted.floor:.2f} + a N^−{law.fitted.exponent:.2f}"
            shown.append(series(name, model, places, [law.fitted.at(place) for place in places], reference=True))
    caption = "Means over seeds. Dashed: the law E + a N^−b, where its gates hold."
    axes = (axis("parameters without embeddings", log=True), axis("validation loss", "nats per token", log=True))
    return figure("parameters", "Validation loss against size", axes, shown, caption)


def _against_compute(laws: Laws) -> Figure:
    shown = [series(model, model, *_means(law, "flops"), intervals=False) for model, law in laws.items()]
    every = [run for law in laws.values() for run in law.runs.values()]
    span = [min(run.flops for run in every), max(run.flops for run in every)]
    baseline = statistics.mean(run.baseline for run in every)
    shown.append(series("frequencies alone", "", span, [baseline] * 2, reference=True))
    caption = "Means over seeds. Dashed: what is known from the frequencies of pieces alone."
    axes = (axis("training compute", "flop", log=True), axis("validation loss", "nats per token", log=True))
    return figure("compute", "Validation loss against compute", axes, shown, caption)


def _laws_table(laws: Laws, checks: dict[str, list[Gate]]) -> Table:
    """Table of the laws; exponents only where all checks pass."""
    rows = []
    for model, law in laws.items():
        closed, sizes = failed(checks[model]), len({factor for factor, _ in law.through})
        fitted = None if closed else law.fitted
        rows.append({"model": model, "sizes": sizes, "trainings": len(law.through), "fitted": fitted, "law": law})
        rows[-1]["does not hold"] = ", ".join(gate.name for gate in closed)
    columns = [
        *map(Column, ("model", "sizes", "trainings")),
        Interval("b of E + a N^−b", lambda row: row["fitted"] and row["fitted"].estimate(), 3),
        Column("E (nats per token)", lambda row: row["fitted"] and row["fitted"].floor, 3),
        Column("R²", lambda row: row["law"].fitted and row["law"].fitted.explained, 3),
        Interval("b of a N^−b", lambda row: row["fitted"] and row["law"].power, 4, "without a floor"),
        Interval("b of a C^−b", lambda row: row["fitted"] and row["law"].compute, 4, "compute"),
        Column("does not hold"),
    ]
    return table("laws", "Fitted laws: N parameters without embeddings, C floating-point operations", columns, rows)


def _differences(pairs: Pairwise, checks: dict[str, list[Gate]]) -> Table:
    rows = [
        (f"{b} − {a}", by, pairs.p[a, b], by.equivalence_p(MARGIN))
        for (a, b), by in pairs.items()
        if not failed(checks[a]) + failed(checks[b])
    ]
    columns = [
        "models",
        Interval("difference in b", lambda row: row[1], 3),
        Column("p (Holm)", lambda row: row[2], 4),
        Column(f"p (equal within {MARGIN:g})", lambda row: row[3], 4),
    ]
    return table("differences", "Differences of exponents", columns, rows)


def _sizes(laws: Laws) -> Table:
    columns = [
        "model",
        Column("size", lambda row: row[2].factor),
        Column("seed", lambda row: row[1]),
        Column("parameters wanted", lambda row: row[2].wanted),
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
    rows = [(model, seed, run) for model, law in laws.items() for (_, seed), run in law.runs.items()]
    return table("sizes", "Every training", columns, rows)


def _rates(laws: Laws) -> Table:
    rows = [
        (model, run.factor, rate, short.get(rate), whole.get(rate), "yes" if rate == run.rate else "no")
        for model, law in laws.items()
        for run in law.first()
        for short, whole in [(dict(run.rates), dict(run.whole))]
        for rate in sorted({*short, *whole})
    ]
    said = "validation loss with {} the updates (nats per token)"
    columns = ("model", "size", "rate", said.format("a share of"), said.format("all"), "chosen")
    return table("rates", "Rates tried at each size", columns, rows)
