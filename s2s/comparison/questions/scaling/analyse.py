"""Fit scaling laws to trainings at several sizes, and compare their exponents."""

import math
import statistics
from dataclasses import dataclass, replace

import numpy as np

from s2s.comparison.reporting import Column, Interval, axis, figure, gates_table, series, table, verdict
from s2s.comparison.results import Figure, Table, Verdict
from s2s.comparison.spec import Analysis, Comparison, Measured, Trials
from s2s.evaluation.differences import LEVEL, Pairwise
from s2s.evaluation.gates import LEARNING, Assessment, Gate, beside, best_other, failed, rate_inside, uses_its_source
from s2s.evaluation.inference import Estimate, exponent, mean
from s2s.evaluation.laws import Saturating, gains_more, saturating

MARGIN = 0.05
"""Difference of two exponents that nobody cares about."""
_EXPLAINED = 0.95
# sizes that must be left where one is left out: a law has three free numbers
_LEAST = 4
# by factor and seed
Runs = dict[tuple[float, int], Measured]


@dataclass(frozen=True)
class Law:
    """A model's losses at its sizes, and the law through them."""

    runs: Runs  # measurements by factor and seed
    left: frozenset[float]  # sizes that are left out, the same for all models, see `left_out`
    fitted: Saturating | None  # of the number of parameters without embeddings; None below three sizes
    power: Estimate  # b of L = a N^−b: the same without a floor
    compute: Estimate  # the same against floating-point operations

    @property
    def factors(self) -> list[float]:
        """The sizes, rising."""
        return sorted({factor for factor, _ in self.runs})

    @property
    def through(self) -> Runs:
        """The measurements that the law is fitted to."""
        return {key: run for key, run in self.runs.items() if key[0] not in self.left}

    def at(self, factor: float) -> list[Measured]:
        """All seeds of a size."""
        return [run for (of, _), run in self.runs.items() if of == factor]

    def first(self) -> list[Measured]:
        """The first seed of each size: the one whose rates were tried."""
        return [self.at(factor)[0] for factor in self.factors]


Laws = dict[str, Law]


def analyse(comparison: Comparison, measured: Trials) -> Analysis:
    """The laws, whether they hold, and whether one model gains more than another."""
    by_model: dict[str, Runs] = {}
    for model in comparison.models:
        own = {(m["factor"], trial.seed or 0): m for trial, m in measured.items() if trial.model == model}
        if len({factor for factor, _ in own}) > 1:
            by_model[model] = dict(sorted(own.items()))
    left = excluded_sizes(by_model)
    laws = {model: _law(runs, left) for model, runs in by_model.items()}
    if not laws:
        return Analysis(seeds=sorted({trial.seed or 0 for trial in measured}))
    everywhere = {factor for law in laws.values() for factor in law.factors}
    closed = {model: [*gates(law), *_lacking(law, everywhere)] for model, law in laws.items()}
    fitted = {model: law.fitted for model, law in laws.items() if law.fitted}
    pairs = Pairwise.of(fitted, lambda a, b: gains_more(fitted[a], fitted[b]))
    return Analysis(
        findings=[_verdict(model, laws, pairs, closed) for model in laws],
        figures=[_against_size(laws, closed), _against_compute(laws)],
        tables=[
            _laws(laws, closed),
            _differences(pairs, closed),
            gates_table("a law before it is compared", closed),
            _sizes(laws),
            _rates(laws),
        ],
        seeds=sorted({trial.seed or 0 for trial in measured}),
    )


def _law(runs: Runs, left: frozenset[float]) -> Law:
    through = [run for (factor, _), run in runs.items() if factor not in left]
    losses = [run["loss"] for run in through]
    inner, flops = ([run[key] for run in through] for key in ("inner", "flops"))
    return Law(runs, left, fit([*zip(inner, losses, strict=True)]), *(_falling(x, losses) for x in (inner, flops)))


def excluded_sizes(by_model: dict[str, Runs]) -> frozenset[float]:
    """The size at which models still learn, where it is one alone and enough others are left of each model; else none.

    All laws go through the same sizes: through different ones, models that are alike would differ.
    """
    learning = {size for runs in by_model.values() for size, fall in falls_of(runs).items() if fall >= LEARNING}
    fewest = min((len({factor for factor, _ in runs} - learning) for runs in by_model.values()), default=0)
    return frozenset(learning) if len(learning) == 1 and fewest >= _LEAST else frozenset()


def falls_of(runs: Runs) -> dict[float, float]:
    """Mean fall of the loss in the second half of the updates, in nats, by size."""
    falls: dict[float, list[float]] = {}
    for (factor, _), run in runs.items():
        if (half := _half(run)) is not None:
            falls.setdefault(factor, []).append(half - run["loss"])
    return {factor: statistics.mean(own) for factor, own in falls.items()}


def fit(points: list[tuple[float, float]]) -> Saturating | None:
    """The law through sizes and losses."""
    sizes, losses = (np.array(side, dtype=float) for side in zip(*points, strict=True))
    return saturating(sizes, losses)


def _falling(x: list[float], losses: list[float]) -> Estimate:
    """A law is written with −b."""
    slope = exponent(x, losses)
    if slope.low is None or slope.high is None:
        return Estimate(-slope.value, None, None)
    return Estimate(-slope.value, -slope.high, -slope.low)


def gates(law: Law) -> list[Gate]:
    """Validity checks of a candidate's trainings and of its law."""
    closed = [_converged(law)]
    law = replace(law, runs=law.through)
    outside = next((run for run in law.first() if not run["inside"]), law.first()[-1])
    tried = {rate for rate, _ in [*outside["rates"], *outside["whole"]]}
    rate = rate_inside(outside["rate"], [*tried], outside["inside"])
    at = f"at {outside['factor']:g} times the size " if not rate.passed else "e.g. at the largest size "
    closed.append(Gate(rate.name, rate.passed, at + rate.sentence))
    worth = [run["source_use"] for run in law.at(law.factors[-1]) if run["source_use"]]
    if worth:
        means = (statistics.mean(each[key] for each in worth) for key in ("right", "exchanged"))
        closed.append(uses_its_source(*means))
    return [*closed, _holds(law.fitted)]


def _converged(law: Law) -> Gate:
    """Validity check: the second half of the updates gained less than `LEARNING` at every size of the law."""
    falls = falls_of(law.runs)
    if len(falls) < len(law.factors):
        return Gate("converged", False, "nothing says of every size whether it still learns")
    said = [_fell(size, falls[size]) + ", and is left out" for size in sorted(law.left & falls.keys())]
    worst = max((size for size in falls if size not in law.left), key=lambda size: falls[size])
    said.append(f"{_fell(worst, falls[worst])} (below {LEARNING:g} wanted at each size that is not left out)")
    return Gate("converged", falls[worst] < LEARNING, "; ".join(said))


def _lacking(law: Law, everywhere: set[float]) -> list[Gate]:
    """A closed gate where others have sizes that it has not, such as one at which it diverged with some seed."""
    lacking = sorted(everywhere - {*law.factors})
    said = (
        f"nothing to go by at {', '.join(f'{factor:g}' for factor in lacking)} times the size, where others have been"
    )
    return [Gate("all sizes", False, said)] if lacking else []


def _fell(size: float, by: float) -> str:
    return f"at {size:g} times the size, the second half of the updates lowered its loss by {by:.2f} nats"


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


def _half(run: Measured) -> float | None:
    """The loss half way; None in measurements of before it was looked at."""
    return run.get("half")


def _verdict(model: str, laws: Laws, pairs: Pairwise, checks: dict[str, list[Gate]]) -> Verdict:
    law, fitted = laws[model], laws[model].fitted
    quantity = "b of loss = E + a · N^−b, N parameters without embeddings"
    # a law that does not hold is no measure for the others
    other = best_other(model, {name: _b(each.fitted) for name, each in laws.items() if each.fitted}, checks)
    closed = tuple(gate.sentence for gate in failed(checks[model]))
    value, found = None, Assessment("not measurable", reasons=closed or ("no other model has a law",))
    if other and fitted:
        found = beside(model, other, pairs, checks, "in b", MARGIN, 2, test="Wald test, Holm")
        found = replace(found, variations=_variations(law, laws[other]) if found.decided else {})
    if fitted and not closed:
        value = fitted.estimate()
        found = replace(found, facts={"floor E (nats per token)": round(fitted.floor, 2)})
    tokens = statistics.mean(run["tokens"] for run in law.runs.values())
    return verdict("scalability", model, value, "", quantity, found, "parameters", tokens)


def _b(fitted: Saturating | None) -> float:
    return fitted.exponent if fitted else -math.inf


def _variations(law: Law, other: Law) -> dict[str, bool]:
    """Recompute the difference under other choices, to see whether its sign stays."""
    sign = _b(law.fitted) > _b(other.fitted)
    kept = {"no floor": (law.power.value > other.power.value) == sign}
    again = []
    for each in (law, other):
        points = [(run["inner"], half) for run in each.through.values() if (half := _half(run)) is not None]
        again.append(fit(points) if len(points) == len(each.through) else None)
    if all(again):
        kept["half the updates"] = (_b(again[0]) > _b(again[1])) == sign
    return kept


def _means(law: Law, key: str) -> tuple[list[float], list[Estimate]]:
    x = [statistics.mean(run[key] for run in law.at(factor)) for factor in law.factors]
    return x, [mean([run["loss"] for run in law.at(factor)]) for factor in law.factors]


def _against_size(laws: Laws, closed: dict[str, list[Gate]]) -> Figure:
    shown = []
    for model, law in laws.items():
        x, losses = _means(law, "inner")
        shown.append(series(model, model, x, losses, intervals=False))
        if law.fitted and not failed(closed[model]):
            # so many places make the curve round
            ends = [run["inner"] for run in law.through.values()]
            places = np.geomspace(min(ends), max(ends), 30).tolist()
            name = f"{model}: {law.fitted.floor:.2f} + a N^−{law.fitted.exponent:.2f}"
            shown.append(series(name, model, places, [law.fitted.at(place) for place in places], reference=True))
    caption = "Means over seeds. Dashed: the law E + a N^−b, where its gates hold."
    axes = (axis("parameters without embeddings", log=True), axis("validation loss", "nats per token", log=True))
    return figure("parameters", "Validation loss against size", axes, shown, caption)


def _against_compute(laws: Laws) -> Figure:
    shown = [series(model, model, *_means(law, "flops"), intervals=False) for model, law in laws.items()]
    every = [run for law in laws.values() for run in law.runs.values()]
    span = [min(run["flops"] for run in every), max(run["flops"] for run in every)]
    baseline = statistics.mean(run["baseline"] for run in every)
    shown.append(series("frequencies alone", "", span, [baseline] * 2, reference=True))
    caption = "Means over seeds. Dashed: what is known from the frequencies of pieces alone."
    axes = (axis("training compute", "flop", log=True), axis("validation loss", "nats per token", log=True))
    return figure("compute", "Validation loss against compute", axes, shown, caption)


def _laws(laws: Laws, closed: dict[str, list[Gate]]) -> Table:
    """Exponents stand there only where all gates hold."""
    rows = [
        {"model": model, "law": law, "fitted": law.fitted if not failed(closed[model]) else None, "any": law.fitted}
        for model, law in laws.items()
    ]
    columns = [
        Column("model"),
        Column("sizes", lambda row: len({factor for factor, _ in row["law"].through})),
        Column("trainings", lambda row: len(row["law"].through)),
        Interval("b of E + a N^−b", lambda row: row["fitted"] and row["fitted"].estimate(), 3),
        Column("E (nats per token)", lambda row: row["fitted"] and row["fitted"].floor, 3),
        Column("R²", lambda row: row["any"] and row["any"].explained, 3),
        Interval("b of a N^−b", lambda row: row["fitted"] and row["law"].power, 4, "without a floor"),
        Interval("b of a C^−b", lambda row: row["fitted"] and row["law"].compute, 4, "compute"),
        Column("does not hold", lambda row: ", ".join(gate.name for gate in failed(closed[row["model"]]))),
    ]
    return table("laws", "Fitted laws: N parameters without embeddings, C floating-point operations", columns, rows)


def _differences(pairs: Pairwise, closed: dict[str, list[Gate]]) -> Table:
    """Table of differences between valid laws."""
    rows = [
        {"models": f"{b} − {a}", "by": by, "p": pairs.p[a, b], "tie": by.equivalence_p(MARGIN)}
        for (a, b), by in pairs.items()
        if not failed(closed[a]) + failed(closed[b])
    ]
    columns = [
        Column("models"),
        Interval("difference in b", "by", 3),
        Column("p (Holm)", "p", 4),
        Column(f"p (equal within {MARGIN:g})", "tie", 4),
    ]
    return table("differences", "Differences of exponents", columns, rows)


def _sizes(laws: Laws) -> Table:
    columns = [
        Column("model"),
        Column("size", "factor"),
        Column("seed"),
        Column("parameters wanted", "wanted"),
        Column("parameters"),
        Column("without embeddings", "inner"),
        *map(Column, ("width", "rate", "updates")),
        Column("target tokens", "tokens"),
        Column("compute (flop)", "flops", lambda flops: float(f"{flops:.4g}")),
        Column("validation loss (nats per token)", "loss", 4),
        Column("training (s)", "seconds", 1),
    ]
    rows = [{"model": model, "seed": seed, **run} for model, law in laws.items() for (_, seed), run in law.runs.items()]
    return table("sizes", "Every training", columns, rows)


def _rates(laws: Laws) -> Table:
    rows = [
        (model, run["factor"], rate, short.get(rate), whole.get(rate), "yes" if rate == run["rate"] else "no")
        for model, law in laws.items()
        for run in law.first()
        for short, whole in [(dict(map(tuple, run["rates"])), dict(map(tuple, run["whole"])))]
        for rate in sorted({*short, *whole})
    ]
    said = "validation loss with {} the updates (nats per token)"
    columns = ("model", "size", "rate", said.format("a share of"), said.format("all"), "chosen")
    return table("rates", "Rates tried at each size", columns, rows)
