"""What is dropped from the training data, by which rule, and how many."""

from dataclasses import dataclass

import datasets

from s2s.recipe.schema import FilterSettings

_SHORT = 20


@dataclass(frozen=True)
class Ledger:
    """How many training pairs each rule dropped; a pair counts for the first rule it breaks.

    Attributes:
        dropped: pairs by rule.
        kept: pairs that remain.
    """

    dropped: dict[str, int]
    kept: int

    def __str__(self) -> str:
        parts = [f"{count:,} {rule}" for rule, count in self.dropped.items() if count]
        return f"{self.kept:,} training pairs" + (f"; dropped: {', '.join(parts)}" if parts else "; none dropped")


def filter_training(dataset: datasets.Dataset, settings: FilterSettings) -> tuple[datasets.Dataset, Ledger]:
    """The training pairs that keep all rules, and the ledger of the others.

    Args:
        dataset: rows with the texts `source` and `target`.
        settings: the recipe's `data.filters`.
    """
    dropped = {"empty": 0, "longer than max_words": 0, "over max_ratio": 0, "duplicates": 0}
    seen: set[int] = set()
    kept = []
    for first in range(0, len(dataset), 10_000):
        rows = dataset[first : first + 10_000]
        for i, (source, target) in enumerate(zip(rows["source"], rows["target"], strict=True), start=first):
            rule = broken_rule(source, target, settings)
            if rule is None and settings.duplicates == "drop":
                key = hash((source, target))
                rule = "duplicates" if key in seen else None
                seen.add(key)
            if rule:
                dropped[rule] += 1
            else:
                kept.append(i)
    return (dataset if len(kept) == len(dataset) else dataset.select(kept)), Ledger(dropped, len(kept))


def broken_rule(source: str, target: str, settings: FilterSettings) -> str | None:
    """The first rule that a pair breaks by itself; None when it is fine."""
    if not source.strip() or not target.strip():
        return "empty"
    if settings.max_words and max(len(source.split()), len(target.split())) > settings.max_words:
        return "longer than max_words"
    shorter, longer = sorted((len(source.strip()), len(target.strip())))
    if settings.max_ratio and longer >= _SHORT and longer > settings.max_ratio * shorter:
        return "over max_ratio"
    return None
