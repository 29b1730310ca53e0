"""Significance tests: paired approximate randomization, McNemar's test, and tests over seeds and sentences.

`compare` tests text metrics with sacreBLEU's statistics; `compare_classifiers` tests classifiers on the same examples
(McNemar 1947). `compare_groups` tests groups of seeds.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
import scipy
from jaxtyping import Int

from s2s.errors import UserError
from s2s.evaluation.differences import over_seeds_and_sentences
from s2s.evaluation.inference import Counts, Estimate, Share, coin, draws, holm, mean, paired_p, wilson
from s2s.evaluation.metrics import NAMES, References, by_place, interval, metrics, scores_of
from s2s.evaluation.tokenization import Tokenization, choose_tokenization

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

Classes = Int[np.ndarray, " examples"]

# With fewer disagreements, the chi-square distribution approximates the binomial poorly.
_EXACT_BELOW = 25


@dataclass(frozen=True)
class Comparison:
    """A metric of one system, with its test against the first system."""

    system: str  # name of the system
    metric: str  # name of the metric
    value: float  # value in percent
    low: float | None  # lower end of the 95 % confidence interval, as in `Score`; None for a single sentence
    high: float | None  # upper end of the interval
    p_value: float | None  # p-value of the test against the first system (`paired_p`); None for the first system
    corrected: float | None = None  # p-value with Holm's correction for several systems; None for one or the first

    def __str__(self) -> str:
        chance = "" if self.p_value is None else f"   p = {self.p_value:.4f} against the first"
        chance += after_holm(self.corrected)
        ends = "" if self.low is None else f" ({self.low:.2f} to {self.high:.2f})"
        return f"  {self.system:28} {self.metric:5} {self.value:6.2f}{ends}{chance}"


def after_holm(corrected: float | None) -> str:
    """Return the words for a corrected p-value; empty for None."""
    return "" if corrected is None else f", {corrected:.4f} after Holm"


def corrected_p_values(p_values: Sequence[float | None]) -> list[float | None]:
    """Correct the p-values of several systems that are tested against the first (Holm 1979).

    Args:
        p_values: P-value of each system; None for the first, and for one without a test.

    Returns:
        Corrected p-values; None without one, and if only one system is tested.

    Example:
        >>> corrected_p_values([None, 0.25, 0.125])
        [None, 0.25, 0.25]
    """
    tested = [place for place, p in enumerate(p_values) if p is not None]
    if len(tested) < 2:
        return [None] * len(p_values)
    corrected = dict(zip(tested, holm([p for p in p_values if p is not None]), strict=True))
    return [corrected.get(place) for place in range(len(p_values))]


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
    found = []
    for name, metric, counted in _counted(list(systems.values()), references, lowercase, names, tokenization, sources):
        first, *others = counted
        p_values = [None, *(paired_p(first, its, partial(scores_of, metric)) for its in others)]
        tests = zip(p_values, corrected_p_values(p_values), strict=True)
        for system, its, tested in zip(systems, counted, tests, strict=True):
            value = float(scores_of(metric, its.sum(axis=0)[None])[0])
            found.append(Comparison(system, name, value, *interval(name, metric, its), *tested))
    return found


def _counted(
    systems: Sequence[Sequence[str]],
    references: References,
    lowercase: bool,
    names: Sequence[str],
    tokenization: Tokenization | None,
    sources: Sequence[str] | None = None,
) -> "Iterator[tuple[str, Metric, list[Counts]]]":
    """Yield the counts of each sentence of each system, by metric."""
    tokenization = tokenization or choose_tokenization(references)
    if tokenization.unspaced and "cer" in names:
        # WER equals CER here.
        names = [name for name in names if name != "wer"]
    for name, metric in metrics(lowercase, names, tokenization, sources).items():
        columns = by_place(references)
        yield name, metric, [np.array(metric._extract_corpus_statistics(list(lines), columns)) for lines in systems]


@dataclass(frozen=True)
class GroupComparison:
    """A metric of a group of runs that differ only in their seeds, with its test against the first group."""

    group: str  # name of the group
    metric: str  # name of the metric
    seeds: int  # number of runs
    mean: Estimate  # mean over seeds with Student's 95 % interval
    difference: Estimate | None  # this group minus the first, with its 95 % interval over seeds and sentences
    p_value: float | None  # p-value over seeds and sentences; None for the first group, or without a test
    corrected: float | None = None  # p-value with Holm's correction for several groups; None for one or the first

    def __str__(self) -> str:
        line = f"  {self.group:28} {self.metric:5} {self.mean.value:6.2f} ({self.mean.low:.2f} to {self.mean.high:.2f})"
        line += f", {self.seeds} seeds"
        if self.difference is None or self.p_value is None:
            return line
        low, high = self.difference.low, self.difference.high
        change = f"{self.difference.value:+.2f} ({low:+.2f} to {high:+.2f})"
        return f"{line}   {change} against the first, p {_four_digits(self.p_value)}{after_holm(self.corrected)}"


def _four_digits(p: float) -> str:
    return "< 0.0001" if p < 0.00005 else f"= {p:.4f}"


def compare_groups(
    groups: Mapping[str, Sequence[Counts]], metric: str, score: Callable[[np.ndarray], np.ndarray]
) -> list[GroupComparison]:
    """Test every group of seeds against the first, over seeds and sentences (`over_seeds_and_sentences`).

    Args:
        groups: For each group, the counts of each sentence, for each seed.
        metric: Name of the metric.
        score: Function from summed counts, one row each, to scores.
    """
    first, *_ = groups.values()
    drawn, found = draws(len(first[0])), []
    for name, runs in groups.items():
        over = None if runs is first else over_seeds_and_sentences(first, runs, score, drawn)
        values = mean([float(score(counts.sum(axis=0)[None])[0]) for counts in runs])
        tested = (over.estimate(), over.p()) if over else (None, None)
        found.append(GroupComparison(name, metric, len(runs), values, *tested))
    corrected = corrected_p_values([each.p_value for each in found])
    return [replace(each, corrected=p) for each, p in zip(found, corrected, strict=True)]


def compare_text_groups(
    groups: Mapping[str, Sequence[Sequence[str]]],
    references: References,
    lowercase: bool = False,
    names: Sequence[str] = NAMES,
    tokenization: Tokenization | None = None,
    sources: Sequence[str] | None = None,
) -> list[GroupComparison]:
    """Test the texts of every group of seeds against the first group; see `compare_groups`."""
    systems, found = [lines for runs in groups.values() for lines in runs], []
    for name, metric, counted in _counted(systems, references, lowercase, names, tokenization, sources):
        in_turn = iter(counted)
        counts = {group: list(itertools.islice(in_turn, len(runs))) for group, runs in groups.items()}
        found += compare_groups(counts, name, partial(scores_of, metric))
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
    corrected: float | None = None  # p-value with Holm's correction for several classifiers; None for one or the first

    def __str__(self) -> str:
        line = f"  {self.run:28} accuracy {self.accuracy.value:6.2f} % ({self.accuracy.low:.2f} to "
        line += f"{self.accuracy.high:.2f})"
        if self.test is None:
            return line
        chance = f"p {_four_digits(self.test.p_value)}{after_holm(self.corrected)} against the first"
        return (
            f"{line}   {chance} (McNemar, {self.test.method}: "
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
    baseline, *others = systems.values()
    tests = [None, *(mcnemar(truth, baseline, predicted) for predicted in others)]
    corrected = corrected_p_values([test and test.p_value for test in tests])
    return [
        ClassifierComparison(name, wilson(int((truth == predicted).sum()), len(truth)), test, p)
        for (name, predicted), test, p in zip(systems.items(), tests, corrected, strict=True)
    ]
