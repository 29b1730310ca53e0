"""Is a difference more than chance?

Between translators: paired approximate randomisation of sacreBLEU's scores. Between classifiers: McNemar's test on the
same examples (McNemar 1947).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import scipy
from jaxtyping import Int

from s2s.errors import UserError
from s2s.evaluation.classification import accuracy
from s2s.evaluation.inference import Share, coin, paired_p
from s2s.evaluation.metrics import NAMES, References, bootstrap_interval, by_place, metrics, scores_of
from s2s.evaluation.tokenization import Tokenization, choose_tokenization

Classes = Int[np.ndarray, " examples"]

# below so many disagreements, the chi-square distribution is a poor likeness of the binomial
_EXACT_BELOW = 25


@dataclass(frozen=True)
class Comparison:
    """One metric of one system, in percent, with half the width of the bootstrap's 95 % interval.

    Its p-value is that of `paired_p` against the first system; None for the first.
    """

    system: str
    metric: str
    value: float
    interval: float
    p_value: float | None

    def __str__(self) -> str:
        chance = "" if self.p_value is None else f"   p = {self.p_value:.4f} against the first"
        return f"  {self.system:28} {self.metric:5} {self.value:6.2f} ± {self.interval:.2f}{chance}"


def compare(
    systems: Mapping[str, Sequence[str]],
    references: References,
    lowercase: bool = False,
    names: Sequence[str] = NAMES,
    tokenization: Tokenization | None = None,
) -> list[Comparison]:
    """Tests every system against the first, on the same sentences.

    The tokenization is chosen by the references if it is None.

    Raises:
        UserError: there are fewer than two systems, or they translated different numbers of sentences.
    """
    counts = {name: len(lines) for name, lines in systems.items()}
    if len(systems) < 2 or set(counts.values()) != {len(references)}:
        raise UserError(
            f"a comparison needs two systems with {len(references)} sentences each; given: {counts}",
            remedy="translate the same test set with each",
        )
    first, *_ = systems
    found = []
    tokenization = tokenization or choose_tokenization(references)
    if tokenization.unspaced and "cer" in names:
        # the same number
        names = [name for name in names if name != "wer"]
    for name, metric in metrics(lowercase, names, tokenization).items():
        counts = {
            system: np.array(metric._extract_corpus_statistics(list(lines), by_place(references)))
            for system, lines in systems.items()
        }
        for system, its in counts.items():
            value, (low, high) = scores_of(metric, its.sum(axis=0)[None])[0], bootstrap_interval(metric, its)
            p_value = None if system == first else paired_p(counts[first], its, partial(scores_of, metric))
            found.append(Comparison(system, name, float(value), (high - low) / 2, p_value))
    return found


@dataclass(frozen=True)
class McNemar:
    """Two classifiers on the same examples; those that both got right or both got wrong say nothing.

    The binomial test's p-value is exact: each disagreement is a fair coin. McNemar's statistic has a continuity
    correction, and one degree of freedom; `method` says which of the two p-values counts.
    """

    only_first: int
    only_second: int
    exact: float
    chi_square_p: float
    method: Literal["exact", "chi-square"]

    @property
    def p_value(self) -> float:
        """How often chance alone would make classifiers that are equally good differ as much."""
        return self.exact if self.method == "exact" else self.chi_square_p


@dataclass(frozen=True)
class ClassifierComparison:
    """One classifier beside the first: its accuracy with Wilson's interval, and the test, None for the first."""

    run: str
    accuracy: Share
    test: McNemar | None

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
    """Tests whether two classifiers are right equally often.

    With b examples that only the first got right and c that only the second did, b is a number of heads in b + c tosses
    if they are equally good. Where b + c is below 25 that binomial test counts, for it is exact; above, the customary
    chi-square statistic (|b − c| − 1)² / (b + c), with Edwards's (1948) continuity correction, counts. Where b = c the
    correction would turn no difference into one, and the statistic is 0.
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
    """Tests every classifier against the first, on the same examples.

    Raises:
        UserError: there are fewer than two, or they classified different numbers of examples.
    """
    counts = {name: len(predicted) for name, predicted in systems.items()}
    if len(systems) < 2 or set(counts.values()) != {len(truth)}:
        raise UserError(
            f"a comparison needs two runs with {len(truth)} examples each; given: {counts}",
            remedy="evaluate each on the same test set",
        )
    baseline, *_ = systems.values()
    return [
        ClassifierComparison(name, accuracy(truth, predicted), mcnemar(truth, baseline, predicted) if i else None)
        for i, (name, predicted) in enumerate(systems.items())
    ]
