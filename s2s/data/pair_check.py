"""Checks of a parallel corpus before training, as in `s2s data check`.

`inspect` computes the findings, `render` prints them.
"""

import itertools
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from s2s.data import data_check as look
from s2s.data.pairs import FilterReport, broken_rule, filter_training, later_copies, pairs, unreachable
from s2s.data.scripts import is_unspaced, split_words, unit_name
from s2s.data.sources import Corpus, count_overlap
from s2s.recipe.pairs import FilterSettings, LearnedPairs

if TYPE_CHECKING:
    import datasets

_BINS = (0, 1, 5, 10, 15, 20, 30, 50, 100, 1 << 60)
_OUTLIERS = 5
_BAR = 20
_NO_LIMITS = FilterSettings(max_words=None, max_ratio=None)


class SideFindings:
    """Statistics of one side of a split, collected text by text.

    Args:
        unspaced: Count characters instead of words, because spaces do not separate words.
    """

    def __init__(self, unspaced: bool) -> None:
        self.unspaced = unspaced
        # Numbers of words and characters of each text.
        self.word_counts, self.lengths = array("l"), array("l")
        self._types: set[str] = set()

    def add(self, text: str) -> None:
        """Count a text."""
        words = split_words(text, self.unspaced)
        self.word_counts.append(len(words))
        self.lengths.append(len(text))
        self._types.update(words)

    @property
    def words(self) -> int:
        """Number of words."""
        return sum(self.word_counts)

    @property
    def characters(self) -> int:
        """Number of characters."""
        return sum(self.lengths)

    @property
    def types(self) -> int:
        """Number of different words."""
        return len(self._types)

    @property
    def histogram(self) -> list[int]:
        """Number of texts in each bin of lengths in words."""
        return np.histogram(self.word_counts, bins=np.array(_BINS))[0].tolist()


@dataclass(frozen=True)
class SplitFindings:
    """Statistics and findings of one split.

    Rows count from 1, in the file or data set of the split: for line files they are line numbers; a table's header does
    not count.
    """

    pairs: int  # number of sentence pairs
    source: SideFindings  # statistics of the sources
    target: SideFindings  # statistics of the targets
    # correlation of source and target lengths (log characters), in [-1, 1]. It is high for translations (Gale & Church
    # 1993). None for fewer than 100 pairs, or if all lengths are equal.
    correlation: float | None
    empty: list[int]  # rows with an empty side
    duplicates: list[int]  # rows whose pair also occurs in an earlier row
    copies: list[int]  # rows whose target equals the source
    suspicious: dict[str, list[int]]  # rows by name of a `SUSPICIOUS` character
    windows_ends: int  # number of rows in which a side ends with a carriage return
    # rows with the most unequal lengths relative to the corpus, the worst first, with their texts
    outliers: list[tuple[int, str, str]]


@dataclass(frozen=True)
class Inspection:
    """Findings for a corpus."""

    splits: dict[str, SplitFindings]  # findings by split
    # for each split, the number of pairs and of sources that also occur in the training data
    overlap: dict[str, tuple[int, int]]
    filter_report: FilterReport  # number of pairs that the recipe's filters would drop
    spots: list[tuple[int, str, str]]  # random training rows for manual inspection: row number, source, target
    advice: list[str]  # recommended corrections


def inspect(
    corpus: Corpus["datasets.Dataset"],
    settings: LearnedPairs,
    normalization: str = "identity",
    translations: bool = True,
    copies: bool = False,
) -> Inspection:
    """Check a corpus as loaded, before filters.

    Args:
        normalization: Unicode normalization of the targets.
        translations: False if the targets are not texts as long as their sources, such as names of classes.
        copies: True if targets are meant to equal their sources.
    """
    parts = corpus.splits()
    numbers = {name: corpus.row_numbers(name, len(part)) for name, part in parts.items()}
    splits = {name: _findings(part, numbers[name]) for name, part in parts.items()}
    whole, sources = (
        count_overlap(corpus, pairs),
        count_overlap(corpus, lambda part: (source for source, _ in pairs(part))),
    )
    both = {name: (whole[name], sources[name]) for name in whole}
    _, filter_report = filter_training(corpus.train, settings.filters)
    advice = [words for name, split in splits.items() for words in _split_advice(name, split, translations, copies)]
    advice += _corpus_advice(both, filter_report)
    advice += filter(None, [corpus.note])
    advice += [words for name, part in parts.items() if (words := unreachable(part, name, normalization))]
    spots = _rows(corpus.train, look.sample_rows(len(corpus.train), settings.seed), numbers["train"])
    return Inspection(splits, both, filter_report, spots, advice)


def render(found: Inspection, more: Iterable[Sequence[str]] = ()) -> str:
    """Format all findings as plain text; blocks of `more` lines come before the advice."""
    return look.findings([*blocks(found), *more], found.advice)


def blocks(found: Inspection) -> list[list[str]]:
    """Format the findings as blocks of lines, without the advice."""
    bars = []
    for name, split in found.splits.items():
        source, target = (unit_name(side.unspaced) for side in (split.source, split.target))
        units = f"{source} of the source and {'' if source == target else f'{target} '}of the target"
        bars.append([f"{name}: pairs by {units}", *_bars(split)])
    unequal = [[f"{name}: most unequal lengths", *_texts(split.outliers)] for name, split in found.splits.items()]
    spots = [f"train: {len(found.spots)} pairs drawn at random", *_texts(found.spots)]
    filters = ["filters of the recipe", *(f"  {line}" for line in str(found.filter_report).split("\n"))]
    return [_summary(found), *bars, *unequal, spots, filters]


def _findings(dataset: "datasets.Dataset", numbers: Sequence[int]) -> SplitFindings:
    source, target = (SideFindings(is_unspaced(pair[side] for pair in pairs(dataset))) for side in (0, 1))
    empty, copies, windows_ends = [], [], 0
    suspicious: dict[str, list[int]] = {}
    for row, (one, other) in zip(numbers, pairs(dataset), strict=True):
        source.add(one)
        target.add(other)
        windows_ends += one.endswith("\r") or other.endswith("\r")
        look.note_suspicious(suspicious, row, one, other)
        if broken_rule(one, other, _NO_LIMITS):
            empty.append(row)
        elif one == other:
            copies.append(row)
    lengths = np.stack([source.lengths, target.lengths])
    return SplitFindings(
        pairs=len(dataset),
        source=source,
        target=target,
        correlation=_correlation(lengths),
        empty=empty,
        duplicates=[numbers[row] for row in later_copies(dataset)],
        copies=copies,
        suspicious=suspicious,
        windows_ends=windows_ends,
        outliers=_rows(dataset, _find_unequal_rows(lengths), numbers),
    )


def _correlation(lengths: Int[np.ndarray, "2 rows"]) -> float | None:
    logs = np.log1p(lengths[:, (lengths > 0).all(0)])
    if logs.shape[1] < 100 or not logs.std(1).all():
        return None
    return float(np.corrcoef(logs)[0, 1])


def _find_unequal_rows(lengths: Int[np.ndarray, "2 rows"]) -> list[int]:
    """Return the rows, from 0, whose length ratio is farthest from that of the corpus.

    The worst comes first; rows with an empty side are excluded.
    """
    usual = lengths[1].sum() / max(1, lengths[0].sum())
    # Add twenty characters, so that short pairs, whose ratios mean little, do not fill the list.
    distances = np.abs(np.log((lengths[1] + 20) / (lengths[0] * usual + 20)))
    distances[(lengths == 0).any(0)] = -1
    worst = np.argsort(-distances, kind="stable")[:_OUTLIERS]
    return [int(row) for row in worst if distances[row] >= 0]


def _rows(dataset: "datasets.Dataset", chosen: list[int], numbers: Sequence[int]) -> list[tuple[int, str, str]]:
    return [(numbers[row], dataset[row]["source"], dataset[row]["target"]) for row in chosen]


def _split_advice(name: str, split: SplitFindings, translations: bool, copies: bool) -> Iterator[str]:
    if translations and split.correlation is not None and split.correlation < 0.5:
        yield (
            f"source and target lengths of {name} are hardly correlated (correlation {split.correlation:.2f}; "
            "translations usually reach 0.8): is line n of one file the translation of line n of the other?"
        )
    if split.empty:
        some = f"{_count(split.empty, 'pair')} of {name} with an empty side ({look.some_rows(split.empty)})"
        yield f"{some}: are the lines aligned?"
    if not copies and len(split.copies) > look.MANY * split.pairs:
        yield f"{_count(split.copies, 'target')} of {name} equal the source: untranslated lines teach copying"
    if name == "train" and len(split.duplicates) > look.MANY * split.pairs:
        yield f"{_count(split.duplicates, 'repeated pair')} in train: data.filters.duplicates=drop keeps one of each"
    windows = split.windows_ends > split.pairs / 2
    if windows:
        yield f"most lines of {name} end with a carriage return, which references keep: convert them, e.g. dos2unix"
    for character, rows in split.suspicious.items():
        if not (windows and character == look.SUSPICIOUS["\r"]):
            some = f"{_count(rows, 'row')} of {name} with a {character} ({look.some_rows(rows)})"
            yield f"{some}: check whether a conversion went wrong"


def _corpus_advice(overlap: dict[str, tuple[int, int]], filter_report: FilterReport) -> Iterator[str]:
    for name, (whole, sources) in overlap.items():
        if sources:
            occurs = "source also occurs" if sources == 1 else "sources also occur"
            yield f"{sources:,} {name} {occurs} in train, {whole:,} with the same target: scores will be too optimistic"
    dropped = sum(filter_report.dropped.values())
    if dropped > look.MANY * (dropped + filter_report.kept):
        share = dropped / (dropped + filter_report.kept)
        yield f"the filters drop {share:.0%} of train: check which pairs they drop, or change data.filters"


def _count(rows: list[int], noun: str) -> str:
    return f"{len(rows):,} {noun}{'s' * (len(rows) != 1)}"


def _summary(found: Inspection) -> list[str]:
    splits = list(found.splits.values())
    rows: dict[str, list[float | None]] = {"pairs": [split.pairs for split in splits]}
    for side, of in (("source", [split.source for split in splits]), ("target", [split.target for split in splits])):
        # Use the finding for the training data, because a small split may be too short to decide.
        unspaced = of[0].unspaced
        if not unspaced:
            rows[f"{side} words"] = [split.words for split in of]
        rows[f"{side} {unit_name(unspaced)}, different"] = [split.types for split in of]
        rows[f"{side} characters"] = [split.characters for split in of]
    rows["correlation of lengths"] = [split.correlation for split in splits]
    rows["pairs with an empty side"] = [len(split.empty) for split in splits]
    rows["repeated pairs"] = [len(split.duplicates) for split in splits]
    rows["targets equal to the source"] = [len(split.copies) for split in splits]
    shared = [found.overlap.get(name, (None, None)) for name in found.splits]
    rows["sources also in train"] = [sources for _, sources in shared]
    rows["pairs also in train"] = [whole for whole, _ in shared]
    return look.table(found.splits, rows)


def _bars(split: SplitFindings) -> Iterator[str]:
    most = max(split.source.histogram + split.target.histogram)
    ends = [*itertools.pairwise(_BINS)]
    for (low, high), *counts in zip(ends, split.source.histogram, split.target.histogram, strict=True):
        if any(counts):
            label = f"{low}" if high == low + 1 else f"{low}–{high - 1}" if high < _BINS[-1] else f"{low} or more"
            cells = [f"{'█' * round(_BAR * count / most):{_BAR}} {count:>11,}" for count in counts]
            yield f"  {label:>11}  {'   '.join(cells)}"


def _texts(rows: list[tuple[int, str, str]]) -> Iterator[str]:
    for row, source, target in rows:
        yield f"  {row:>9,}  {look.escape_invisible(source)}"
        yield f"  {'':>9}  {look.escape_invisible(target)}"
