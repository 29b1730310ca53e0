"""What a translator learns from: the corpus that it is measured by and, beside it, further ones."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2s.data.filters import FilterReport, filter_training
from s2s.data.pairs import PairSource, pairs, prefixed, without_prefix
from s2s.data.sources import Corpus
from s2s.errors import UserError
from s2s.tasks.translation.recipe import DataSettings, FurtherPairs

if TYPE_CHECKING:
    import datasets

OWN = "data"
"""What the corpus that a translator is measured by is called among several."""


class TranslationSource(PairSource):
    """Pairs, each source after the recipe's prefix."""

    settings: DataSettings

    def part(self, name: str, train: "datasets.Dataset | None" = None) -> "datasets.Dataset | None":
        found = super().part(name, train)
        return found and prefixed(found, self.settings.prefix)


def filtered(data: DataSettings, train: "datasets.Dataset") -> tuple["datasets.Dataset", FilterReport]:
    """The pairs that are learned from, and what filters dropped: they look at pairs without the recipe's prefix."""
    kept, ledger = filter_training(without_prefix(train, data.prefix), data.filters)
    return prefixed(kept, data.prefix), ledger


@dataclass(frozen=True)
class ExtraCorpus:
    """A further corpus, and what was left out of it.

    Attributes:
        read: its pairs, as they were read.
        kept: those that are learned from, each source after the corpus' prefix.
        ledger: what filters dropped.
        held_out: pairs of which a side stands in the validation or the test set.
    """

    read: "datasets.Dataset"
    kept: "datasets.Dataset"
    ledger: FilterReport
    held_out: int

    def __str__(self) -> str:
        left = f"\n{self.held_out:,} of them stand in validation or test: left out" if self.held_out else ""
        return f"{self.ledger}{left}"


def read_extra_corpora(data: DataSettings, corpus: Corpus["datasets.Dataset"]) -> dict[str, ExtraCorpus]:
    """The further corpora that a recipe names; the corpus has the validation and the test set.

    Raises:
        UserError: one cannot be read, or nothing is left of it.
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
    """Within it, a mistake is told with the corpus that it is in."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{error.what} (data.more.{corpus})", error.where, error.remedy) from None


def combine_corpora(own: "datasets.Dataset", others: Mapping[str, ExtraCorpus]) -> "datasets.Dataset":
    """All pairs that are learned from, corpus after corpus; columns beside the texts are left out."""
    from datasets import concatenate_datasets

    parts = [own, *(each.kept for each in others.values())]
    return concatenate_datasets([part.select_columns(["source", "target"]) for part in parts])


def prefix_tokens(data: DataSettings) -> list[str]:
    """The words of prefixes that are a piece each, such as `<2de>`."""
    words = " ".join(each.prefix for each in (data, *data.more.values())).split()
    return [word for word in dict.fromkeys(words) if word.startswith("<") and word.endswith(">")]
