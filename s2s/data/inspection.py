"""What commonly spoils a parallel corpus, found before training."""

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import datasets
import numpy as np

from s2s.data.corpora import Corpus
from s2s.data.filters import broken_rule, filter_training
from s2s.recipe.schema import FilterSettings

_SEPARATORS = {
    "\r": "carriage return",
    "\u2028": "U+2028",
    "\u0085": "U+0085",
    "\0": "NUL",
    "\ufeff": "byte order mark",
}
_BINS = (0, 5, 10, 15, 20, 30, 50, 100, 1 << 60)
_OUTLIERS = 5
_SPOTS = 10


@dataclass
class SplitFindings:
    """What one split holds.

    Attributes:
        pairs: sentence pairs.
        words: white-space separated words of the sources and of the targets.
        types: different words of each side.
        histogram: pairs by words of the source, in the bins of `_BINS`, then the same for targets.
        empty: row numbers, from 1 on, with an empty side.
        copies: pairs whose target is the source.
        duplicates: second and later copies of a pair.
        separators: rows with a character that other programs may take for a line's end, by name.
        outliers: the rows of the most unequal lengths: ratio in characters, row number, source, target.
    """

    pairs: int
    words: tuple[int, int] = (0, 0)
    types: tuple[int, int] = (0, 0)
    histogram: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    empty: list[int] = field(default_factory=list)
    copies: int = 0
    duplicates: int = 0
    separators: Counter[str] = field(default_factory=Counter)
    outliers: list[tuple[float, int, str, str]] = field(default_factory=list)


@dataclass
class Inspection:
    """What a corpus holds, and what is suspicious.

    Attributes:
        splits: by name.
        overlap: rows of validation and test that also occur in train: whole pairs, and sources alone.
        ledger: what the recipe's filters would drop from train.
        spots: pairs to read with one's own eyes.
    """

    splits: dict[str, SplitFindings]
    overlap: dict[str, tuple[int, int]]
    ledger: str
    spots: list[tuple[int, str, str]]

    def advice(self) -> list[str]:
        """What should be mended, in plain words."""
        return list(self._advice())

    def _advice(self) -> Iterator[str]:
        for name, found in self.splits.items():
            if found.empty:
                some = ", ".join(map(str, found.empty[:5]))
                yield f"{len(found.empty):,} pairs of {name} have an empty side (rows {some} …): is the corpus aligned?"
            if found.copies > 0.05 * found.pairs:
                yield f"{found.copies:,} pairs of {name} are copies of the source: untranslated lines teach copying"
            if name == "train" and found.duplicates > 0.05 * found.pairs:
                yield f"{found.duplicates:,} pairs of train are duplicates: see data.filters.duplicates"
            for separator, count in found.separators.items():
                yield f"{count:,} rows of {name} hold a {separator}: data to s2s, but a line's end to some programs"
        for name, (pairs, sources) in self.overlap.items():
            if sources:
                yield (
                    f"{sources:,} sources of {name} also occur in train ({pairs:,} with the same target): "
                    "its scores will flatter"
                )

    def __str__(self) -> str:
        lines = []
        for name, found in self.splits.items():
            lines += _described(name, found)
        lines += ["", f"filters: {self.ledger}", "", "ten pairs of train, drawn at random:"]
        lines += [f"  {row:>7}  {source}\n           {target}" for row, source, target in self.spots]
        advice = self.advice()
        lines += ["", "advice:" if advice else "nothing suspicious found", *(f"  - {words}" for words in advice)]
        return "\n".join(lines)


def inspect(corpus: Corpus, filters: FilterSettings, seed: int = 1) -> Inspection:
    """Looks through a corpus.

    Args:
        corpus: as loaded, nothing filtered.
        filters: the recipe's `data.filters`.
        seed: of the pairs to read.
    """
    parts = {"train": corpus.train, "validation": corpus.validation, "test": corpus.test}
    there = {name: part for name, part in parts.items() if part is not None}
    rows = sorted(random.Random(seed).sample(range(len(corpus.train)), min(_SPOTS, len(corpus.train))))
    return Inspection(
        splits={name: _findings(part) for name, part in there.items()},
        overlap={name: _overlap(corpus.train, part) for name, part in there.items() if name != "train"},
        ledger=str(filter_training(corpus.train, filters)[1]),
        spots=[(i + 1, corpus.train[i]["source"], corpus.train[i]["target"]) for i in rows],
    )


def pairs_of(dataset: datasets.Dataset) -> Iterator[tuple[str, str]]:
    """Source and target of each row, read some thousand rows at a time."""
    for first in range(0, len(dataset), 10_000):
        rows = dataset[first : first + 10_000]
        yield from zip(rows["source"], rows["target"], strict=True)


def _findings(dataset: datasets.Dataset) -> SplitFindings:
    found, seen = SplitFindings(len(dataset)), set()
    lengths: tuple[list[int], list[int]] = ([], [])
    vocabulary: tuple[set[str], set[str]] = (set(), set())
    for row, pair in enumerate(pairs_of(dataset), start=1):
        for side, text in enumerate(pair):
            words = text.split()
            lengths[side].append(len(words))
            vocabulary[side].update(words)
        found.separators.update({name for c, name in _SEPARATORS.items() if c in pair[0] or c in pair[1]})
        if broken_rule(*pair, FilterSettings(max_words=None, max_ratio=None)):
            found.empty.append(row)
            continue
        found.copies += pair[0] == pair[1]
        found.duplicates += hash(pair) in seen
        seen.add(hash(pair))
        found.outliers.append((_ratio(*pair), row, *pair))
        if len(found.outliers) > 1000:
            found.outliers = sorted(found.outliers, reverse=True)[:_OUTLIERS]
    found.outliers = sorted(found.outliers, reverse=True)[:_OUTLIERS]
    found.words = (sum(lengths[0]), sum(lengths[1]))
    found.types = (len(vocabulary[0]), len(vocabulary[1]))
    found.histogram = tuple(np.histogram(side, bins=_BINS)[0].tolist() for side in lengths)  # type: ignore[assignment]
    return found


def _ratio(source: str, target: str) -> float:
    # twenty characters are added so that short pairs, whose ratios mean little, do not fill the list
    shorter, longer = sorted((len(source.strip()) + 20, len(target.strip()) + 20))
    return longer / shorter


def _overlap(train: datasets.Dataset, part: datasets.Dataset) -> tuple[int, int]:
    pairs = {hash(pair) for pair in pairs_of(train)}
    sources = {hash(source) for source, _ in pairs_of(train)}
    there = list(pairs_of(part))
    return sum(hash(pair) in pairs for pair in there), sum(hash(source) in sources for source, _ in there)


def _described(name: str, found: SplitFindings) -> list[str]:
    lines = [
        f"{name}: {found.pairs:,} pairs · words {found.words[0]:,} → {found.words[1]:,} · different words "
        f"{found.types[0]:,} → {found.types[1]:,} · {len(found.empty):,} empty · {found.duplicates:,} duplicates"
    ]
    most = max(1, *found.histogram[0], *found.histogram[1])
    for i, (low, high) in enumerate(itertools.pairwise(_BINS)):
        counts = [side[i] for side in found.histogram]
        if any(counts):
            label = f"{low}–{high - 1} words" if high < 1 << 60 else f"{low}+ words"
            bars = [f"{'█' * round(20 * count / most):20} {count:>9,}" for count in counts]
            lines.append(f"  {label:>14}  source {bars[0]}   target {bars[1]}")
    lines.append("  most unequal lengths:")
    lines += [f"    row {row:,}: {source[:70]!r} | {target[:70]!r}" for _, row, source, target in found.outliers[:3]]
    return lines
