"""From a recipe's data section to pieces and batches: load, filter, cut, encode."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import datasets
import numpy as np
from jaxtyping import Int

from s2s.data.batches import Batch, accumulate, collate, plan
from s2s.data.encoding import Encoded, encode_corpus
from s2s.data.examples import Examples, Plan
from s2s.data.inspection import hashes, repeated
from s2s.data.sources import Corpus, digest_of_arrays
from s2s.data.tokenizers import Tokenizer, train_pair
from s2s.data.tokenizers import train as train_tokenizer
from s2s.errors import UserError
from s2s.tasks.translation.data import load, pairs
from s2s.tasks.translation.joining import joined, told
from s2s.tasks.translation.recipe import BatchSettings, FilterSettings, Recipe

# ratios of very short texts say little: "Yes." is "Ja, das stimmt."
_SHORT = 20


@dataclass(frozen=True)
class Ledger:
    """How many training pairs each rule dropped; a pair counts for the first rule it breaks.

    By rule, in the rules' order, and without those that are switched off.
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


def filter_training(dataset: datasets.Dataset, settings: FilterSettings) -> tuple[datasets.Dataset, Ledger]:
    """The training pairs that keep all rules, and the ledger of the others."""
    broken = [broken_rule(source, target, settings) for source, target in pairs(dataset)]
    if settings.duplicates == "drop":
        for row in later_copies(dataset):
            broken[row] = broken[row] or "duplicate"
    kept = [row for row, rule in enumerate(broken) if rule is None]
    counts = Counter(broken)
    ledger = Ledger({rule: counts[rule] for rule in _rules(settings)}, len(kept))
    return (dataset if len(kept) == len(dataset) else dataset.select(kept)), ledger


def broken_rule(source: str, target: str, settings: FilterSettings) -> str | None:
    """The first rule that a pair breaks by itself; None when it is fine."""
    if not source.strip():
        return "empty source"
    if not target.strip():
        return "empty target"
    if settings.max_words and max(len(source.split()), len(target.split())) > settings.max_words:
        return "over max_words"
    shorter, longer = sorted((len(source.strip()), len(target.strip())))
    if settings.max_ratio and longer >= _SHORT and longer > settings.max_ratio * shorter:
        return "over max_ratio"
    return None


def later_copies(dataset: datasets.Dataset) -> Int[np.ndarray, " copies"]:
    """The rows, from 0 on, whose pair stands in an earlier row, too."""
    return repeated(hashes(pairs(dataset)))


def _rules(settings: FilterSettings) -> list[str]:
    optional = {
        "over max_words": settings.max_words is not None,
        "over max_ratio": settings.max_ratio is not None,
        "duplicate": settings.duplicates == "drop",
    }
    return ["empty source", "empty target", *(rule for rule, on in optional.items() if on)]


@dataclass(frozen=True)
class Prepared:
    """Everything about the data that training needs: the filtered and joined corpus as text, and as pieces.

    Source and target have the same tokenizer where they share one vocabulary.
    """

    corpus: Corpus[datasets.Dataset]
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    train: Encoded
    validation: Encoded

    @property
    def tokenizers(self) -> tuple[Tokenizer, ...]:
        """One of both sides, or one of each."""
        both = self.source_tokenizer, self.target_tokenizer
        return both[:1] if both[0] is both[1] else both

    def hashes(self) -> dict[str, str]:
        """What identifies the data and the tokenizers, whatever their files are called."""
        return {
            "training_data": digest_of_arrays(self.train.arrays()),
            "source_tokenizer": self.source_tokenizer.digest,
            "target_tokenizer": self.target_tokenizer.digest,
        }


def prepare(
    recipe: Recipe, tokenizers: tuple[Tokenizer, Tokenizer | None] | None, say: Callable[[str], None]
) -> Prepared:
    """Loads, filters, joins and encodes the corpus.

    The tokenizers are those of a run that continues, or the source's of the run that the encoder comes from and none
    for the target; None to train new ones.
    """
    corpus = load(recipe.data)
    kept, ledger = filter_training(corpus.train, recipe.data.filters)
    say(str(ledger))
    if not len(kept):
        raise _none_left(ledger)
    source, target = tokenizers or train_pair(kept["source"], kept["target"], recipe.tokenizer)
    target = target or train_tokenizer(kept["target"], recipe.tokenizer.of("target"), "target")
    examples = joined(kept, recipe.data)
    if recipe.data.join > 1:
        say(told(examples, len(kept)))
    train, validation = (encode_corpus(part, source, target) for part in (examples, corpus.validation))
    return Prepared(Corpus(examples, corpus.validation, corpus.test), source, target, train, validation)


def _none_left(ledger: Ledger) -> UserError:
    counts = ", ".join(f"{rule}: {count:,}" for rule, count in ledger.dropped.items() if count)
    blank = not any(count for rule, count in ledger.dropped.items() if not rule.startswith("empty"))
    where, remedy = (
        ("data.train", "name files whose lines hold text on both sides") if blank else ("data.filters", "loosen them")
    )
    return UserError(f"no training pair is left ({counts})", where=where, remedy=remedy)


class Pairs(Examples[Batch]):
    """The pairs of a corpus under a recipe's limits.

    An update learns from `tokens_per_update` target tokens, or `batches.tokens` when None.

    Raises:
        UserError: all pairs are longer than `batches.max_length`.
    """

    noun: ClassVar[str] = "training pairs"

    def __init__(self, data: Encoded, batches: BatchSettings, tokens_per_update: int | None = None) -> None:
        self.data = data
        self.tokens = batches.tokens
        self.wanted = tokens_per_update or batches.tokens
        self.kept, self.left_out = data.within(batches.max_length)
        if not len(self.kept):
            raise UserError(
                f"all {len(data):,} training pairs are longer than {batches.max_length} pieces",
                where="batches.max_length",
                remedy="raise it",
            )

    def __len__(self) -> int:
        return len(self.data)

    def plan(self, seed: int, epoch: int) -> Plan:
        sources, targets = self.data.source_lengths[self.kept], self.data.target_lengths[self.kept]
        return [self.kept[rows] for rows in plan(sources, targets, self.tokens, seed, epoch)]

    def updates(self, batches: Plan) -> tuple[list[Plan], int]:
        return accumulate(batches, self.data.target_lengths, self.wanted)

    def collate(self, rows: Int[np.ndarray, " batch"], seed: int) -> Batch:
        """The pairs, padded; nothing is drawn at random."""
        return collate(*self.data.rows(rows), rows)


def every_pair(data: Encoded, batches: BatchSettings) -> Pairs:
    """All pairs, however long, to measure a loss: a batch may then hold more tokens than the recipe says."""
    longest = int(max(data.source_lengths.max(), data.target_lengths.max()))
    limits = {"tokens": max(batches.tokens, longest), "max_length": longest}
    return Pairs(data, batches.model_copy(update=limits))
