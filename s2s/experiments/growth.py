"""How a figure grows with length: which law fits it, where two curves cross, and how that is said in words."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from s2s.evaluation.inference import Estimate, exponent

Law = Literal["constant", "logarithmic", "linear", "power"]

# Counts are whole numbers: a law that misses by less than rounding does is not improved upon.
_ROUNDING = 1 / 12


@dataclass(frozen=True)
class Growth:
    """The law that describes a count best."""

    law: Law  # `constant`: a; `logarithmic`: a + b log₂ n; `linear`: a + b n; `power`: a nᵇ
    start: float  # a
    rate: float  # b: by how much the count grows with each doubling, with each token; or the exponent

    def __str__(self) -> str:
        return {
            "constant": "does not grow with n",
            "logarithmic": f"grows with log n: by {self.rate:.3g} with each doubling",
            "linear": f"grows as n: by {self.rate:.3g} with each token",
            "power": f"grows as n^{self.rate:.2f}",
        }[self.law]


def growth(lengths: Sequence[int], counts: Sequence[float]) -> Growth:
    """The law with the lowest information criterion (Akaike 1974): the best fit, at a price for each free number.

    What is no larger at the greatest length than at the smallest does not grow, whatever lies between. At least three
    rising lengths, and counts above 0.
    """
    n, y = np.asarray(lengths, dtype=float), np.asarray(counts, dtype=float)
    constant = Growth("constant", float(y.mean()), 0.0)
    if y[-1] <= y[0]:
        return constant
    scale, rate = np.exp(np.polyfit(np.log(n), np.log(y), 1)[1]), np.polyfit(np.log(n), np.log(y), 1)[0]
    linear, logarithmic = np.polyfit(n, y, 1), np.polyfit(np.log2(n), y, 1)
    laws: list[tuple[Growth, np.ndarray, int]] = [
        (constant, np.full_like(y, y.mean()), 1),
        (_grows("logarithmic", logarithmic), np.polyval(logarithmic, np.log2(n)), 2),
        (_grows("linear", linear), np.polyval(linear, n), 2),
        (Growth("power", float(scale), float(rate)), scale * n**rate, 2),
    ]

    def _criterion(fitted: np.ndarray, free: int) -> float:
        return len(y) * math.log(max(float(((y - fitted) ** 2).mean()), _ROUNDING)) + 2 * free

    return min(laws, key=lambda law: _criterion(law[1], law[2]))[0]


def _grows(law: Law, line: np.ndarray) -> Growth:
    return Growth(law, float(line[1]), float(line[0]))


@dataclass(frozen=True)
class Slope:
    """An exponent and the lengths that it was fitted over."""

    first: float
    last: float
    exponent: Estimate


def long_slope(lengths: Sequence[float], values: Sequence[float], start: float | None = None) -> Slope | None:
    """The exponent over the longer lengths, where what does not depend on length weighs least; None below three.

    They begin at `start`, or with the longer half; values are above 0.
    """
    first = len(lengths) // 2 if start is None else sum(n < start for n in lengths)
    first = min(first, len(lengths) - 3)
    if first < 0:
        return None
    found = exponent(lengths[first:], values[first:])
    if found.low is not None and math.isnan(found.low):
        # a level line fits without a residual, and its correlation is nothing over nothing
        found = Estimate(found.value, found.value, found.value)
    return Slope(lengths[first], lengths[-1], found)


def crossings(x: Sequence[float], first: Sequence[float], second: Sequence[float]) -> list[float]:
    """Where two curves above 0 cross, drawn straight between their points on logarithmic axes."""
    gaps = [math.log(a / b) for a, b in zip(first, second, strict=True)]
    found = []
    for i, (before, after) in enumerate(itertools.pairwise(gaps)):
        if before * after < 0:
            share = before / (before - after)
            found.append(math.exp(math.log(x[i]) + share * math.log(x[i + 1] / x[i])))
    return found


def crossing_in_words(
    names: tuple[str, str], x: Sequence[float], first: Sequence[Estimate], second: Sequence[Estimate]
) -> str:
    """Who is faster below and above which length; lengths at which the two intervals overlap decide nothing."""
    sure = [i for i in range(len(x)) if _apart(first[i], second[i])]
    if not sure:
        return f"no difference to be seen between {x[0]:,.0f} and {x[-1]:,.0f}"
    faster = names[0] if first[sure[0]].value < second[sure[0]].value else names[1]
    curves = [[curve[i].value for i in sure] for curve in (first, second)]
    found = crossings([x[i] for i in sure], curves[0], curves[1])
    if not found:
        return f"none between {x[0]:,.0f} and {x[-1]:,.0f}: {faster} is faster wherever they differ"
    places = ", ".join(f"{place:,.0f}" for place in found)
    return f"{places}; {faster} is faster below {found[0]:,.0f}"


def _apart(first: Estimate, second: Estimate) -> bool:
    ends = [(e.value if e.low is None else e.low, e.value if e.high is None else e.high) for e in (first, second)]
    return ends[0][1] < ends[1][0] or ends[1][1] < ends[0][0]


def compared(ratios: Mapping[str, Estimate], better: str, worse: str) -> str:
    """How a model stands to the best of the others, by its figure over each of theirs: more than 1 is better."""
    if not ratios:
        return "no other model was measured"
    other = min(ratios, key=lambda name: ratios[name].value)
    found = ratios[other]
    interval = "" if found.low is None or found.high is None else f" ({found.low:.2f} to {found.high:.2f})"
    if found.low is not None and found.high is not None and found.low <= 1 <= found.high:
        return f"no difference from {other} to be seen: {found.value:.2f} times{interval}"
    if found.value > 1:
        return f"{found.value:.2f} times{interval} {better} {other}, the best of the others"
    return f"{found.value:.2f} times{interval} {worse} {other}, the best"


def round_figures(values: Sequence[float], figures: int = 5) -> list[float]:
    """The values with few figures, so that files stay small."""
    return [float(f"{value:.{figures}g}") for value in values]
