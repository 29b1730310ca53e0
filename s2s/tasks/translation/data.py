"""Parallel corpora of a translation task: the main corpus and additional ones.

The main corpus has the validation and test sets; the additional ones, `data.more`, are only for training.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2s.data.pairs import FilterReport, PairSource, filter_training, pairs, prefixed, without_prefix
from s2s.data.sources import Corpus
from s2s.errors import UserError
from s2s.tasks.translation.recipe import DataSettings, FurtherPairs

if TYPE_CHECKING:
    import datasets

OWN = "data"
"""Name of the main corpus among several."""


class TranslationSource(PairSource):
    """Source of parallel text that prepends the recipe's prefix to each source."""

    settings: DataSettings

    def part(self, name: str, train: "datasets.Dataset | None" = None) -> "datasets.Dataset | None":
        found = super().part(name, train)
        return found and prefixed(found, self.settings.prefix)


def filtered(data: DataSettings, train: "datasets.Dataset") -> tuple["datasets.Dataset", FilterReport]:
    """Filter training pairs by the recipe's `data.filters`.

    Filters see the pairs without the recipe's prefix.

    Args:
        data: The recipe's `data` section.
        train: Training pairs, with the prefix.

    Returns:
        Pairs that pass, with the prefix, and the number of pairs dropped by each filter.
    """
    kept, ledger = filter_training(without_prefix(train, data.prefix), data.filters)
    return prefixed(kept, data.prefix), ledger


@dataclass(frozen=True)
class ExtraCorpus:
    """An additional training corpus after filtering.

    Attributes:
        read: Pairs as they were read.
        kept: Pairs to train on, with the corpus' prefix.
        ledger: Number of pairs dropped by each filter.
        held_out: Number of pairs dropped because a side is in the validation or test set.
    """

    read: "datasets.Dataset"
    kept: "datasets.Dataset"
    ledger: FilterReport
    held_out: int

    def __str__(self) -> str:
        left = f"\n{self.held_out:,} of them stand in validation or test: left out" if self.held_out else ""
        return f"{self.ledger}{left}"


def read_extra_corpora(data: DataSettings, corpus: Corpus["datasets.Dataset"]) -> dict[str, ExtraCorpus]:
    """Read and filter the additional corpora of a recipe.

    Args:
        data: The recipe's `data` section.
        corpus: Main corpus, with the validation and test sets.

    Returns:
        Corpora by name.

    Raises:
        UserError: A corpus cannot be read, or no pair passes the filters.
    """
    if not data.more:
        return {}
    scored = [part for part in (corpus.validation, corpus.test) if part is not None]
    held = {text.removeprefix(data.prefix) for part in scored for pair in pairs(part) for text in pair}
    found = {}
    for name, settings in data.more.items():
        with _of(name):
            found[name] = _further(settings, held)
    return found


def _further(settings: FurtherPairs, held: set[str]) -> ExtraCorpus:
    read = PairSource(settings).part("train")
    if read is None:
        raise UserError("data.train is needed", remedy="name a file or a split")
    kept, ledger = filter_training(read, settings.filters)
    rows = [row for row, pair in enumerate(pairs(kept)) if held.isdisjoint(pair)]
    if not rows:
        raise UserError("no training pair is left of it", remedy="loosen its filters, or mend its files")
    held_out = len(kept) - len(rows)
    kept = kept.select(rows) if held_out else kept
    return ExtraCorpus(read, prefixed(kept, settings.prefix), ledger, held_out)


@contextmanager
def _of(corpus: str) -> Iterator[None]:
    """Add the name of the corpus to a `UserError` of the block."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{error.what} (data.more.{corpus})", error.where, error.remedy) from None


def combine_corpora(own: "datasets.Dataset", others: Mapping[str, ExtraCorpus]) -> "datasets.Dataset":
    """Concatenate the training pairs of all corpora.

    Args:
        own: Pairs of the main corpus.
        others: Additional corpora.

    Returns:
        All pairs, corpus after corpus, with the columns `source` and `target` only.
    """
    from datasets import concatenate_datasets

    parts = [own, *(each.kept for each in others.values())]
    return concatenate_datasets([part.select_columns(["source", "target"]) for part in parts])


def prefix_tokens(data: DataSettings) -> list[str]:
    """Return the words of prefixes that are a single token, such as `<2de>`.

    Example:
        >>> prefix_tokens(DataSettings(prefix="<2de> "))
        ['<2de>']
    """
    words = " ".join(each.prefix for each in (data, *data.more.values())).split()
    return [word for word in dict.fromkeys(words) if word.startswith("<") and word.endswith(">")]
