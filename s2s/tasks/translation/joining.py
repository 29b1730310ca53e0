"""Longer examples than a corpus has: sentence pairs that follow each other, joined."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from s2s.data.pairs import pairs
from s2s.tasks.translation.recipe import DataSettings

if TYPE_CHECKING:
    import datasets

_Pair = tuple[str, str]


def joined(dataset: "datasets.Dataset", settings: DataSettings) -> "datasets.Dataset":
    """Examples of 1 to `settings.join` pairs that follow each other; a space stands between sentences.

    Each number is as likely, but joining ends before a side has more than `filters.max_words` words. Every pair is in
    exactly one example, in the order of the corpus; the last example takes what is left. With `join` 1 it is the data
    set itself; otherwise all texts are held in memory, and columns beside the texts are left out.
    """
    from datasets import Dataset, Features, Value

    if settings.join == 1:
        return dataset
    generator = np.random.default_rng(settings.seed)
    texts: dict[str, list[str]] = {"source": [], "target": []}
    for group in _groups(pairs(dataset), settings, generator):
        for column, sentences in zip(texts.values(), zip(*group, strict=True), strict=True):
            column.append(" ".join(sentences))
    return Dataset.from_dict(texts, features=Features(dict.fromkeys(texts, Value("string"))))


def _groups(rows: Iterable[_Pair], settings: DataSettings, generator: np.random.Generator) -> Iterator[list[_Pair]]:
    group, words, wanted = list[_Pair](), np.zeros(2, dtype=int), 0
    for pair in rows:
        more = words + [len(side.split()) for side in pair]
        if group and (len(group) == wanted or more.max() > (settings.filters.max_words or more.max())):
            yield group
            group, more = [], more - words
        if not group:
            wanted = int(generator.integers(1, settings.join, endpoint=True))
        group.append(pair)
        words = more
    if group:
        yield group


def told(examples: "datasets.Dataset", before: int) -> str:
    """How many examples were made of so many pairs, and how long their sources are."""
    words = [len(source.split()) for source, _ in pairs(examples)]
    return (
        f"{before:,} pairs joined to {len(examples):,} training examples; "
        f"their sources have {np.mean(words):.1f} words, the longest {max(words):,}"
    )
