"""What the trainings of `scaling` say: power laws, and which model gains more from its size."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from s2s.evaluation.inference import Estimate, mean
from s2s.experiments.contest import Contest, Experiment, Measured, Task
from s2s.experiments.statistics import exponent
from s2s.experiments.verdicts import Row, ends, excludes_zero, in_words, line, seeds_in_words, signed
from s2s.results import Axis, Figure, Finding, Result, Series, Table

_ROW = "scalability"

METHOD = """\
Each model is built at several sizes, multiples of the comparison's number of parameters: its width is solved for, all \
else stays, and at each size the models agree within 5 %. Where the widths that a model can have are too far apart, \
the nearest number is taken that all can have. All are trained on the same pairs in the same order, with batches as \
large and with as many updates, for a shorter time than the whole runs of "quality", with the learning rate that was \
chosen for the model at its own size.

The law L = a · N^−b is a straight line through the logarithms of validation loss L and number of parameters N \
(embeddings included); its interval (95 %) is that of the slope, from the residuals. The same is done with compute C: \
the floating-point operations of all matrix products of the training. Whether one model gains more than another is \
asked of the ratio of their losses, size by size: its slope is the difference of the two exponents. The dashed line \
"frequencies alone" is the loss of one who knows how often each piece occurs."""

LIMITS = """\
All sizes have equal updates, so larger models have had more compute, and none was trained until it learned no more: \
the exponent is that of this budget, not of an optimal one (Hoffmann et al. 2022). So few sizes do not tell a loss \
that cannot be undercut from a power law that goes on, so no such floor is fitted. Learning rates were not chosen anew \
for each size. With so few points, residuals say little, and a line through them is an assumption."""

Found = dict[tuple[float, int], Measured]
_LETTER = {"parameters": "N", "flops": "C"}


@dataclass(frozen=True)
class Law:
    """A model's power law.

    Attributes:
        found: measurements by factor and seed.
        by_parameters: b of L = a N^−b.
        by_compute: the same against floating-point operations.
    """

    found: Found
    by_parameters: Estimate
    by_compute: Estimate

    @property
    def seeds(self) -> int:
        """How many there were."""
        return len({seed for _, seed in self.found})

    @property
    def factors(self) -> list[float]:
        """The sizes, rising."""
        return sorted({factor for factor, _ in self.found})

    def at(self, factor: float) -> list[Measured]:
        """All seeds of a size."""
        return [found for (of, _), found in self.found.items() if of == factor]


def conclude(experiment: Experiment, contest: Contest, measured: Mapping[Task, Measured]) -> Result:
    """The result of what was measured; what is missing is left out.

    Args:
        experiment: whose result it is.
        contest: gives the models.
        measured: by `Scaling.measure`.
    """
    laws = {}
    for model in contest.models:
        own = {(m["factor"], task.seed or 0): m for task, m in measured.items() if task.model == model}
        found = dict(sorted(own.items()))
        if len({factor for factor, _ in found}) > 1:
            laws[model] = Law(found, *(_exponent(found, key) for key in ("parameters", "flops")))
    return Result(
        experiment=experiment.name,
        question=experiment.question,
        method=METHOD,
        limits=LIMITS,
        models=contest.models,
        seeds=sorted({task.seed or 0 for task in measured}),
        findings=[_finding(model, laws) for model in laws],
        figures=[_figure(laws, key) for key in ("parameters", "flops")] if laws else [],
        tables=[_sizes(laws), _laws(laws)] if laws else [],
    )


def _exponent(found: Found, key: str) -> Estimate:
    return _turned(exponent([m[key] for m in found.values()], [m["loss"] for m in found.values()]))


def _turned(slope: Estimate) -> Estimate:
    """A law is written with −b."""
    if slope.low is None or slope.high is None:
        return Estimate(-slope.value, None, None)
    return Estimate(-slope.value, -slope.high, -slope.low)


def gains_more(first: Law, second: Law) -> Estimate | None:
    """By how much the second's exponent is larger, from the ratio of losses at sizes that both have; None below two."""
    both = [key for key in first.found if key in second.found]
    if len({factor for factor, _ in both}) < 2:
        return None
    sizes = [math.sqrt(first.found[key]["parameters"] * second.found[key]["parameters"]) for key in both]
    return _turned(exponent(sizes, [second.found[key]["loss"] / first.found[key]["loss"] for key in both]))


def _finding(model: str, laws: Mapping[str, Law]) -> Finding:
    law = laws[model]
    b = law.by_parameters
    return Finding(
        row=_ROW,
        model=model,
        value=b.value,
        low=b.low,
        high=b.high,
        quantity="b of loss = a · parameters^−b, at equal updates",
        verdict=f"{_gain(law)}; {_against(model, laws)} ({len(law.factors)} sizes, {seeds_in_words(law.seeds)})",
        figure="parameters",
    )


def _gain(law: Law) -> str:
    b = law.by_parameters
    if b.low is None:
        return f"loss changes as N^({signed(-b.value, 2)}); too few sizes for an interval"
    if not excludes_zero(b):
        return f"no gain from size to be seen: b = {in_words(b, 2)}"
    by = 100 * (1 - 2**-b.value)
    if by < 0:
        return f"loss rises by {-by:.1f} % with each doubling of the parameters"
    return f"loss falls by {by:.1f} % with each doubling of the parameters"


def _against(model: str, laws: Mapping[str, Law]) -> str:
    """How its exponent stands to the largest of the others."""
    others = {name: found for name in laws if name != model and (found := gains_more(laws[name], laws[model]))}
    if not others:
        return "no other model was measured at its sizes"
    other = max(others, key=lambda name: laws[name].by_parameters.value)
    if not excludes_zero(others[other]):
        return f"no difference in b from {other} to be seen: {in_words(others[other], 2)}"
    return f"gains {'more' if others[other].value > 0 else 'less'} from size than {other}: {in_words(others[other], 2)}"


def _figure(laws: Mapping[str, Law], key: str) -> Figure:
    series = []
    for model, law in laws.items():
        x = [statistics.mean(m[key] for m in law.at(factor)) for factor in law.factors]
        losses = [mean([m["loss"] for m in law.at(factor)]) for factor in law.factors]
        b = (law.by_parameters if key == "parameters" else law.by_compute).value
        series.append(line(model, model, x, losses, intervals=law.seeds > 2))
        # a line through means of logarithms has the slope that was fitted
        points = [(m[key], m["loss"]) for m in law.found.values()]
        height = statistics.mean(math.log(y) + b * math.log(x) for x, y in points)
        fitted: list[float | None] = [math.exp(height - b * math.log(each)) for each in x]
        series.append(
            Series(label=f"{model}: ∝ {_LETTER[key]}^({signed(-b, 2)})", model=model, x=x, y=fitted, reference=True)
        )
    every = [m for law in laws.values() for m in law.found.values()]
    span = [min(m[key] for m in every), max(m[key] for m in every)]
    baseline = statistics.mean(m["baseline"] for m in every)
    series.append(Series(label="frequencies alone", model="", x=span, y=[baseline] * 2, reference=True))
    what = ("parameters", "") if key == "parameters" else ("training compute", "flop")
    return Figure(
        name="parameters" if key == "parameters" else "compute",
        title=f"Validation loss against {what[0]}",
        x=Axis(label=what[0], unit=what[1], log=True),
        y=Axis(label="validation loss", unit="nats per token", log=True),
        series=series,
        caption="Dashed: fitted power laws, and what is known from the frequencies of pieces alone. "
        "Intervals (95 %): Student's over seeds, from three seeds on.",
    )


def _sizes(laws: Mapping[str, Law]) -> Table:
    rows: list[Row] = [
        [
            model,
            m["factor"],
            seed,
            m["wanted"],
            m["parameters"],
            m["width"],
            m["updates"],
            m["tokens"],
            float(f"{m['flops']:.4g}"),
            round(m["loss"], 4),
            round(m["seconds"], 1),
        ]
        for model, law in laws.items()
        for (_, seed), m in law.found.items()
    ]
    return Table(
        name="sizes",
        title="Every training",
        columns=[
            "model",
            "size",
            "seed",
            "parameters wanted",
            "parameters",
            "width",
            "updates",
            "target tokens",
            "compute (flop)",
            "validation loss (nats per token)",
            "training (s)",
        ],
        rows=rows,
    )


def _laws(laws: Mapping[str, Law]) -> Table:
    rows: list[Row] = [[model, *ends(law.by_parameters, 4), *ends(law.by_compute, 4)] for model, law in laws.items()]
    names = list(laws)
    for i, a in enumerate(names):
        rows += [[f"{b} − {a}", *ends(gains_more(laws[a], laws[b]), 4), *ends(None, 4)] for b in names[i + 1 :]]
    return Table(
        name="laws",
        title="Fitted exponents, and their differences",
        columns=["model", "b (parameters)", "low", "high", "b (compute)", "low (compute)", "high (compute)"],
        rows=rows,
    )
