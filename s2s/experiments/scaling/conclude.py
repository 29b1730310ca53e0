"""What trainings at several sizes say: power laws, and which model gains more from its size."""

import math
import statistics
from dataclasses import dataclass
from itertools import combinations

from s2s.evaluation.inference import Estimate, exponent, mean
from s2s.experiments.contest import Cells, Conclusion, Contest, Measured
from s2s.experiments.presenting import Column, Interval, axis, figure, finding, series, table
from s2s.experiments.verdicts import excludes_zero, in_words, seeds_in_words, signed
from s2s.results import Figure, Finding, Table

_LETTER = {"parameters": "N", "flops": "C"}
# by factor and seed
Runs = dict[tuple[float, int], Measured]


@dataclass(frozen=True)
class Law:
    """A model's power law."""

    runs: Runs  # measurements by factor and seed
    by_parameters: Estimate  # b of L = a N^−b
    by_compute: Estimate  # the same against floating-point operations

    @property
    def seeds(self) -> int:
        """How many there were."""
        return len({seed for _, seed in self.runs})

    @property
    def factors(self) -> list[float]:
        """The sizes, rising."""
        return sorted({factor for factor, _ in self.runs})

    def at(self, factor: float) -> list[Measured]:
        """All seeds of a size."""
        return [run for (of, _), run in self.runs.items() if of == factor]


Laws = dict[str, Law]


def conclude(contest: Contest, measured: Cells) -> Conclusion:
    """Power laws, and whether one model gains more than another."""
    laws: Laws = {}
    for model in contest.models:
        own = {(m["factor"], cell.seed or 0): m for cell, m in measured.items() if cell.model == model}
        runs = dict(sorted(own.items()))
        if len({factor for factor, _ in runs}) > 1:
            losses = [run["loss"] for run in runs.values()]
            laws[model] = Law(runs, *(_turned(exponent([m[k] for m in runs.values()], losses)) for k in _LETTER))
    return Conclusion(
        findings=[_finding(model, laws) for model in laws],
        figures=[_figure(laws, key) for key in _LETTER] if laws else [],
        tables=[_sizes(laws), _laws(laws)] if laws else [],
        seeds=sorted({cell.seed or 0 for cell in measured}),
    )


def _turned(slope: Estimate) -> Estimate:
    """A law is written with −b."""
    if slope.low is None or slope.high is None:
        return Estimate(-slope.value, None, None)
    return Estimate(-slope.value, -slope.high, -slope.low)


def gains_more(first: Law, second: Law) -> Estimate | None:
    """By how much the second's exponent is larger, from the ratio of losses at sizes that both have; None below two."""
    both = [key for key in first.runs if key in second.runs]
    if len({factor for factor, _ in both}) < 2:
        return None
    sizes = [math.sqrt(first.runs[key]["parameters"] * second.runs[key]["parameters"]) for key in both]
    return _turned(exponent(sizes, [second.runs[key]["loss"] / first.runs[key]["loss"] for key in both]))


def _finding(model: str, laws: Laws) -> Finding:
    law = laws[model]
    measured = f"({len(law.factors)} sizes, {seeds_in_words(law.seeds)})"
    verdict = f"{_gain(law.by_parameters)}; {_against(model, laws)} {measured}"
    quantity = "b of loss = a · parameters^−b, at equal updates"
    return finding("scalability", model, law.by_parameters, "", quantity, verdict, "parameters")


def _gain(b: Estimate) -> str:
    if b.low is None:
        return f"loss changes as N^({signed(-b.value, 2)}); too few sizes for an interval"
    if not excludes_zero(b):
        return f"no gain from size to be seen: b = {in_words(b, 2)}"
    by = 100 * (1 - 2**-b.value)
    return f"loss {'rises' if by < 0 else 'falls'} by {abs(by):.1f} % with each doubling of the parameters"


def _against(model: str, laws: Laws) -> str:
    """How its exponent stands to the largest of the others."""
    others = {name: more for name in laws if name != model and (more := gains_more(laws[name], laws[model]))}
    if not others:
        return "no other model was measured at its sizes"
    other = max(others, key=lambda name: laws[name].by_parameters.value)
    if not excludes_zero(others[other]):
        return f"no difference in b from {other} to be seen: {in_words(others[other], 2)}"
    return f"gains {'more' if others[other].value > 0 else 'less'} from size than {other}: {in_words(others[other], 2)}"


def _figure(laws: Laws, key: str) -> Figure:
    shown = []
    for model, law in laws.items():
        x = [statistics.mean(m[key] for m in law.at(factor)) for factor in law.factors]
        losses = [mean([m["loss"] for m in law.at(factor)]) for factor in law.factors]
        b = (law.by_parameters if key == "parameters" else law.by_compute).value
        # a line through means of logarithms has the slope that was fitted
        height = statistics.mean(math.log(m["loss"]) + b * math.log(m[key]) for m in law.runs.values())
        fitted = [math.exp(height - b * math.log(each)) for each in x]
        shown.append(series(model, model, x, losses, intervals=law.seeds > 2))
        shown.append(series(f"{model}: ∝ {_LETTER[key]}^({signed(-b, 2)})", model, x, fitted, reference=True))
    every = [m for law in laws.values() for m in law.runs.values()]
    span = [min(m[key] for m in every), max(m[key] for m in every)]
    baseline = statistics.mean(m["baseline"] for m in every)
    shown.append(series("frequencies alone", "", span, [baseline] * 2, reference=True))
    what = ("parameters", "") if key == "parameters" else ("training compute", "flop")
    return figure(
        "parameters" if key == "parameters" else "compute",
        f"Validation loss against {what[0]}",
        (axis(*what, log=True), axis("validation loss", "nats per token", log=True)),
        shown,
        "Dashed: fitted power laws, and what is known from the frequencies of pieces alone. "
        "Intervals (95 %): Student's over seeds, from three seeds on.",
    )


def _sizes(laws: Laws) -> Table:
    columns = [
        Column("model"),
        Column("size", "factor"),
        Column("seed"),
        Column("parameters wanted", "wanted"),
        *map(Column, ("parameters", "width", "updates")),
        Column("target tokens", "tokens"),
        Column("compute (flop)", "flops", lambda flops: float(f"{flops:.4g}")),
        Column("validation loss (nats per token)", "loss", 4),
        Column("training (s)", "seconds", 1),
    ]
    rows = [{"model": model, "seed": seed, **run} for model, law in laws.items() for (_, seed), run in law.runs.items()]
    return table("sizes", "Every training", columns, rows)


def _laws(laws: Laws) -> Table:
    rows = [{"model": model, **vars(law)} for model, law in laws.items()]
    for (a, first), (b, second) in combinations(laws.items(), 2):
        rows.append({"model": f"{b} − {a}", "by_parameters": gains_more(first, second), "by_compute": None})
    columns = [
        Column("model"),
        Interval("b (parameters)", "by_parameters", 4),
        Interval("b (compute)", "by_compute", 4, "compute"),
    ]
    return table("laws", "Fitted exponents, and their differences", columns, rows)
