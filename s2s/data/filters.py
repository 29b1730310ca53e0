"""Filters for training pairs, with a count of the pairs that each rule drops."""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from s2s.data.data_check import hashes, repeated
from s2s.data.pairs import pairs
from s2s.data.scripts import split_words
from s2s.recipe.pairs import FilterSettings

if TYPE_CHECKING:
    import datasets

# The length ratio of very short texts means little: "Yes." may be "Ja, das stimmt."
_SHORT = 20


@dataclass(frozen=True)
class FilterReport:
    """Number of training pairs that each rule dropped.

    Attributes:
        dropped: Pairs dropped, by rule in the order of the rules, without disabled rules. A pair that breaks several
            rules counts for the first one.
        kept: Pairs that remain.
    """

    dropped: dict[str, int]
    kept: int

    def __str__(self) -> str:
        if not any(self.dropped.values()):
            return f"{self.kept:,} training pairs, none dropped by the filters"
        rows = {"training pairs": self.kept + sum(self.dropped.values())}
        rows |= {f"  dropped: {rule}": count for rule, count in self.dropped.items()}
        rows["kept"] = self.kept
        wide = max(map(len, rows))
        return "\n".join(f"{words:{wide}} {count:>11,}" for words, count in rows.items())


def filter_training(dataset: "datasets.Dataset", settings: FilterSettings) -> tuple["datasets.Dataset", FilterReport]:
    """Drop the training pairs that break a rule.

    Args:
        dataset: Training pairs.
        settings: Rules of the recipe.

    Returns:
        The remaining pairs, and the number of pairs that each rule dropped.
    """
    broken = [broken_rule(source, target, settings) for source, target in pairs(dataset)]
    if settings.duplicates == "drop":
        for row in later_copies(dataset):
            broken[row] = broken[row] or "duplicate"
    kept = [row for row, rule in enumerate(broken) if rule is None]
    counts = Counter(broken)
    ledger = FilterReport({rule: counts[rule] for rule in _rules(settings)}, len(kept))
    return (dataset if len(kept) == len(dataset) else dataset.select(kept)), ledger


def broken_rule(source: str, target: str, settings: FilterSettings) -> str | None:
    """Return the first rule that a pair breaks, without the check for duplicates.

    Args:
        source: Source text.
        target: Target text.
        settings: Rules of the recipe.

    Returns:
        Name of the rule; None if the pair breaks none.

    Example:
        >>> broken_rule("A short text.", "  ", FilterSettings())
        'empty target'
    """
    if not source.strip():
        return "empty source"
    if not target.strip():
        return "empty target"
    if settings.max_words and max(len(split_words(side)) for side in (source, target)) > settings.max_words:
        return "over max_words"
    shorter, longer = sorted((len(source.strip()), len(target.strip())))
    if settings.max_ratio and longer >= _SHORT and longer > settings.max_ratio * shorter:
        return "over max_ratio"
    return None


def later_copies(dataset: "datasets.Dataset") -> Int[np.ndarray, " copies"]:
    """Return the rows, from 0, whose pair also occurs in an earlier row.

    Args:
        dataset: Pairs.

    Returns:
        Rows in ascending order, shape `(copies,)`.
    """
    return repeated(hashes(pairs(dataset)))


def _rules(settings: FilterSettings) -> list[str]:
    optional = {
        "over max_words": settings.max_words is not None,
        "over max_ratio": settings.max_ratio is not None,
        "duplicate": settings.duplicates == "drop",
    }
    return ["empty source", "empty target", *(rule for rule, on in optional.items() if on)]
