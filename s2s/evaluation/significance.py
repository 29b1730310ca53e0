"""Significance tests: paired approximate randomization and McNemar's test.

`compare` tests text metrics with sacreBLEU's statistics; `compare_classifiers` tests classifiers on the same examples
(McNemar 1947).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import scipy
from jaxtyping import Int

from s2s.errors import UserError
from s2s.evaluation.inference import Share, coin, holm, paired_p, wilson
from s2s.evaluation.metrics import NAMES, References, bootstrap_interval, by_place, metrics, scores_of
from s2s.evaluation.tokenization import Tokenization, choose_tokenization

Classes = Int[np.ndarray, " examples"]

# With fewer disagreements, the chi-square distribution approximates the binomial poorly.
_EXACT_BELOW = 25


@dataclass(frozen=True)
class Comparison:
    """A metric of one system, with its test against the first system."""

    system: str  # name of the system
    metric: str  # name of the metric
    value: float  # value in percent
    interval: float  # half the width of the 95 % bootstrap confidence interval
    p_value: float | None  # p-value of the test against the first system (`paired_p`); None for the first system
    corrected: float | None = None  # p-value with Holm's correction for several systems; None for one or the first

    def __str__(self) -> str:
        chance = "" if self.p_value is None else f"   p = {self.p_value:.4f} against the first"
        chance += "" if self.corrected is None else f", {self.corrected:.4f} after Holm"
        return f"  {self.system:28} {self.metric:5} {self.value:6.2f} ± {self.interval:.2f}{chance}"


def compare(
    systems: Mapping[str, Sequence[str]],
    references: References,
    lowercase: bool = False,
    names: Sequence[str] = NAMES,
    tokenization: Tokenization | None = None,
    sources: Sequence[str] | None = None,
) -> list[Comparison]:
    """Test every system against the first on the same sentences.

    With three systems or more, the p-values of each metric are also corrected for their number (Holm 1979).
    """
    counts = {name: len(lines) for name, lines in systems.items()}
    if len(systems) < 2 or set(counts.values()) != {len(references)}:
        what = f"a comparison needs two systems with {len(references)} sentences each; given: {counts}"
        raise UserError(what, remedy="translate the same test set with each")
    first, *_ = systems
    found = []
    tokenization = tokenization or choose_tokenization(references)
    if tokenization.unspaced and "cer" in names:
        # WER equals CER here.
        names = [name for name in names if name != "wer"]
    for name, metric in metrics(lowercase, names, tokenization, sources).items():
        counts = {
            system: np.array(metric._extract_corpus_statistics(list(lines), by_place(references)))
            for system, lines in systems.items()
        }
        p_values = {
            system: paired_p(counts[first], its, partial(scores_of, metric))
            for system, its in counts.items()
            if system != first
        }
        corrected = dict(zip(p_values, holm([*p_values.values()]), strict=True)) if len(p_values) > 1 else {}
        for system, its in counts.items():
            value, (low, high) = scores_of(metric, its.sum(axis=0)[None])[0], bootstrap_interval(metric, its)
            tested = p_values.get(system), corrected.get(system)
            found.append(Comparison(system, name, float(value), (high - low) / 2, *tested))
    return found


@dataclass(frozen=True)
class McNemar:
    """McNemar's test of two classifiers on the same examples.

    Examples that both classifiers get right or wrong carry no information. The exact test is binomial: each
    disagreement is a fair coin. The chi-square statistic has a continuity correction and one degree of freedom.
    """

    only_first: int  # number of examples that only the first classifier gets right
    only_second: int  # number of examples that only the second gets right
    exact: float  # p-value of the binomial test
    chi_square_p: float  # p-value of the chi-square test
    method: Literal["exact", "chi-square"]  # test that `p_value` uses

    @property
    def p_value(self) -> float:
        """Probability of a difference at least as large between equally good classifiers."""
        return self.exact if self.method == "exact" else self.chi_square_p


@dataclass(frozen=True)
class ClassifierComparison:
    """Accuracy of a classifier, with its test against the first."""

    run: str  # name of the run
    accuracy: Share  # accuracy with Wilson score interval
    test: McNemar | None  # test against the first classifier; None for the first

    def __str__(self) -> str:
        line = f"  {self.run:28} accuracy {self.accuracy.value:6.2f} % ({self.accuracy.low:.2f} to "
        line += f"{self.accuracy.high:.2f})"
        if self.test is None:
            return line
        return (
            f"{line}   p = {self.test.p_value:.4f} against the first (McNemar, {self.test.method}: "
            f"{self.test.only_second:,} only this one has right, {self.test.only_first:,} only the first)"
        )


def mcnemar(truth: Classes, first: Classes, second: Classes) -> McNemar:
    """Test whether two classifiers have the same accuracy.

    Let b examples be right only for the first classifier, and c only for the second. For equally good classifiers, b
    is binomial with b + c trials and probability 1/2. If b + c is below 25, this exact test is used; otherwise the
    chi-square statistic (|b − c| − 1)² / (b + c) with Edwards's (1948) continuity correction. For b = c the statistic
    is 0, because the correction would create a difference.

    Example:
        >>> test = mcnemar(np.array([0, 1, 1, 0]), np.array([0, 1, 1, 0]), np.array([1, 0, 1, 0]))
        >>> test.only_first, test.only_second, test.p_value
        (2, 0, 0.5)
    """
    first_right, second_right = first == truth, second == truth
    b, c = int((first_right & ~second_right).sum()), int((second_right & ~first_right).sum())
    statistic = max(0, abs(b - c) - 1) ** 2 / (b + c) if b + c else 0.0
    return McNemar(
        only_first=b,
        only_second=c,
        exact=coin(b, b + c),
        chi_square_p=float(scipy.special.chdtrc(1, statistic)),
        method="exact" if b + c < _EXACT_BELOW else "chi-square",
    )


def compare_classifiers(truth: Classes, systems: Mapping[str, Classes]) -> list[ClassifierComparison]:
    """Test every classifier against the first on the same examples."""
    counts = {name: len(predicted) for name, predicted in systems.items()}
    if len(systems) < 2 or set(counts.values()) != {len(truth)}:
        what = f"a comparison needs two runs with {len(truth)} examples each; given: {counts}"
        raise UserError(what, remedy="evaluate each on the same test set")
    baseline, *_ = systems.values()
    return [
        ClassifierComparison(
            name,
            wilson(int((truth == predicted).sum()), len(truth)),
            mcnemar(truth, baseline, predicted) if i else None,
        )
        for i, (name, predicted) in enumerate(systems.items())
    ]
