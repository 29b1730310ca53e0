"""From a recipe's data section to pieces: load, filter, join, cut, encode."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2s.data.filters import FilterReport
from s2s.data.missing_values import missing_text_lines
from s2s.data.pairs import pairs
from s2s.data.scripts import is_unspaced, sentence_separator, split_words, unit_name
from s2s.data.sources import Corpus, digest_of_arrays
from s2s.data.tokenized import TokenizedDataset, encode_corpus
from s2s.data.tokenizers import Tokenizer, train_pair
from s2s.data.tokenizers import train as train_tokenizer
from s2s.errors import UserError
from s2s.tasks.seq2seq import check_prefixes
from s2s.tasks.translation.data import (
    OWN,
    TranslationSource,
    combine_corpora,
    filtered,
    prefix_tokens,
    read_extra_corpora,
)
from s2s.tasks.translation.recipe import DataSettings, Recipe

if TYPE_CHECKING:
    import datasets

_Pair = tuple[str, str]


@dataclass(frozen=True)
class PreparedTranslation:
    """Everything about the data that training needs: the filtered and joined corpus as text, and as pieces.

    Source and target have the same tokenizer where they share one vocabulary. Of several corpora, all training pairs
    stand one corpus after the other, and `sizes` says how many each has.
    """

    corpus: Corpus["datasets.Dataset"]
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    train: TokenizedDataset
    validation: TokenizedDataset
    sizes: dict[str, int]

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
    recipe: Recipe, tokenizers: tuple[Tokenizer, Tokenizer | None] | None, print_fn: Callable[[str], None]
) -> PreparedTranslation:
    """Loads, filters, joins and encodes the corpus.

    The tokenizers are those of a run that continues, or the source's of the run that the encoder comes from and none
    for the target; None to train new ones.
    """
    data = recipe.data
    corpus = TranslationSource(data).load()
    kept, ledger = filtered(data, corpus.train)
    print_fn(str(ledger))
    if not len(kept):
        raise _none_left(ledger)
    others = read_extra_corpora(data, corpus)
    for name, each in others.items():
        print_fn(f"data.more.{name}: {each}")
    sizes = {OWN: len(kept), **{name: len(each.kept) for name, each in others.items()}}
    kept = combine_corpora(kept, others) if others else kept
    for line in missing_text_lines(pairs(kept), "training pairs"):
        print_fn(line)
    source, target = tokenizers or train_pair(kept["source"], kept["target"], recipe.tokenizer, prefix_tokens(data))
    check_prefixes({"data": data.prefix} | {f"data.more.{n}": each.prefix for n, each in data.more.items()}, source)
    target = target or train_tokenizer(kept["target"], recipe.tokenizer.of("target"), "target")
    examples = join_short_pairs(kept, data)
    if data.join > 1:
        print_fn(dataset_summary(examples, len(kept)))
    train, validation = (encode_corpus(part, source, target) for part in (examples, corpus.validation))
    return PreparedTranslation(
        Corpus(examples, corpus.validation, corpus.test), source, target, train, validation, sizes
    )


def _none_left(ledger: FilterReport) -> UserError:
    counts = ", ".join(f"{rule}: {count:,}" for rule, count in ledger.dropped.items() if count)
    blank = not any(count for rule, count in ledger.dropped.items() if not rule.startswith("empty"))
    where, remedy = (
        ("data.train", "name files whose lines hold text on both sides") if blank else ("data.filters", "loosen them")
    )
    return UserError(f"no training pair is left ({counts})", where=where, remedy=remedy)


def join_short_pairs(dataset: "datasets.Dataset", settings: DataSettings) -> "datasets.Dataset":
    """Examples of 1 to `settings.join` pairs that follow each other; a space stands between sentences.

    No space stands between sentences of Chinese or Japanese. Each number is as likely, but joining ends before a side
    has more than `filters.max_words` words, or characters where spaces do not separate words. Every pair is in
    exactly one example, in the order of the corpus; the last example takes what is left. With `join` 1 it is the data
    set itself; otherwise all texts are held in memory, and columns beside the texts are left out.
    """
    from datasets import Dataset, Features, Value

    if settings.join == 1:
        return dataset
    generator = np.random.default_rng(settings.seed)
    texts: dict[str, list[str]] = {"source": [], "target": []}
    separators = [sentence_separator(dataset[side]) for side in texts]
    for group in _groups(pairs(dataset), settings, generator):
        for column, separator, sentences in zip(texts.values(), separators, zip(*group, strict=True), strict=True):
            column.append(separator.join(sentences))
    return Dataset.from_dict(texts, features=Features(dict.fromkeys(texts, Value("string"))))


def _groups(rows: Iterable[_Pair], settings: DataSettings, generator: np.random.Generator) -> Iterator[list[_Pair]]:
    group, words, wanted = list[_Pair](), np.zeros(2, dtype=int), 0
    for pair in rows:
        more = words + [len(split_words(side)) for side in pair]
        if group and (len(group) == wanted or more.max() > (settings.filters.max_words or more.max())):
            yield group
            group, more = [], more - words
        if not group:
            wanted = int(generator.integers(1, settings.join, endpoint=True))
        group.append(pair)
        words = more
    if group:
        yield group


def dataset_summary(examples: "datasets.Dataset", before: int) -> str:
    """How many examples were made of so many pairs, and how long their sources are."""
    unspaced = is_unspaced(source for source, _ in pairs(examples))
    words = [len(split_words(source, unspaced)) for source, _ in pairs(examples)]
    return (
        f"{before:,} pairs joined to {len(examples):,} training examples; "
        f"their sources have {np.mean(words):.1f} {unit_name(unspaced)}, the longest {max(words):,}"
    )
