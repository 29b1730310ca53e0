"""Data of translation: corpora, filters, joining and tokenization."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s2s.data.pairs import FilterReport, PairSource, filter_training, pairs, prefixed, without_prefix
from s2s.data.scripts import is_unspaced, sentence_separator, split_words, unit_name
from s2s.data.sources import Corpus, digest_of_arrays, suspicious_text_lines
from s2s.data.tokenized import SampledDataset, TokenizedDataset, encode_corpus
from s2s.data.tokenizers import Tokenizer, train_pair
from s2s.data.tokenizers import train as train_tokenizer
from s2s.errors import UserError
from s2s.tasks.seq2seq import check_prefixes
from s2s.tasks.translation.recipe import DataSettings, Recipe

if TYPE_CHECKING:
    import datasets

OWN = "data"
"""Name of the main corpus among several."""


class TranslationSource(PairSource):
    """Source of parallel text that prepends the recipe's prefix to each source."""

    settings: DataSettings

    def load_split(self, name: str, train: "datasets.Dataset | None" = None) -> "datasets.Dataset | None":
        found = super().load_split(name, train)
        return found and prefixed(found, self.settings.prefix)


def filtered(data: DataSettings, train: "datasets.Dataset") -> tuple["datasets.Dataset", FilterReport]:
    """Filter training pairs, which have the recipe's prefix, by `data.filters`, which sees them without."""
    kept, report = filter_training(without_prefix(train, data.prefix), data.filters)
    return prefixed(kept, data.prefix), report


@dataclass(frozen=True)
class ExtraCorpus:
    """An additional training corpus after filtering.

    Attributes:
        read: Pairs as they were read.
        kept: Pairs to train on, with the corpus' prefix.
        filter_report: Number of pairs dropped by each filter.
        held_out: Number of pairs dropped because a side is in the validation or test set.
    """

    read: "datasets.Dataset"
    kept: "datasets.Dataset"
    filter_report: FilterReport
    held_out: int

    def __str__(self) -> str:
        held = f"\n{self.held_out:,} of them are in the validation or test set: left out" if self.held_out else ""
        return f"{self.filter_report}{held}"


def read_extra_corpora(data: DataSettings, corpus: Corpus["datasets.Dataset"]) -> dict[str, ExtraCorpus]:
    """Read and filter the additional corpora of a recipe."""
    found: dict[str, ExtraCorpus] = {}
    scored = [part for part in (corpus.validation, corpus.test) if part is not None and data.more]
    held = {text.removeprefix(data.prefix) for part in scored for pair in pairs(part) for text in pair}
    for name, settings in data.more.items():
        try:
            read = PairSource(settings).load_split("train")
            if read is None:
                raise UserError("data.train is needed", remedy="name a file or a split")
            passed, report = filter_training(read, settings.filters)
            rows = [row for row, pair in enumerate(pairs(passed)) if held.isdisjoint(pair)]
            if not rows:
                raise UserError("no training pair is left of it", remedy="loosen its filters, or repair its files")
        except UserError as error:
            raise UserError(f"{error.what} (data.more.{name})", error.where, error.remedy) from None
        kept = passed.select(rows) if len(rows) < len(passed) else passed
        found[name] = ExtraCorpus(read, prefixed(kept, settings.prefix), report, len(passed) - len(rows))
    return found


@dataclass(frozen=True)
class PreparedTranslation:
    """Filtered and joined corpus, as text and as tokens.

    Attributes:
        corpus: Splits as text.
        target_tokenizer: Tokenizer of the targets; the same object if the vocabulary is shared.
        train: Tokenized training pairs, corpus after corpus.
        sizes: Number of training pairs by corpus.
    """

    corpus: Corpus["datasets.Dataset"]
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    train: TokenizedDataset
    validation: TokenizedDataset
    sizes: dict[str, int]

    @property
    def tokenizers(self) -> tuple[Tokenizer, ...]:
        """One shared tokenizer, or one for each side."""
        both = self.source_tokenizer, self.target_tokenizer
        return both[:1] if both[0] is both[1] else both

    @property
    def chance_loss(self) -> float:
        return math.log(self.target_tokenizer.size)

    def hashes(self) -> dict[str, str]:
        return {
            "training_data": digest_of_arrays(self.train.arrays()),
            "source_tokenizer": self.source_tokenizer.digest,
            "target_tokenizer": self.target_tokenizer.digest,
        }


def prepare(
    recipe: Recipe, tokenizers: tuple[Tokenizer, Tokenizer | None] | None, print_fn: Callable[[str], None]
) -> PreparedTranslation:
    """Load, filter, join and tokenize the corpora of a recipe.

    Args:
        tokenizers: Tokenizers of a resumed run; or the source tokenizer of the run that provides the encoder, with None
            for the target; None trains new ones.

    Raises:
        UserError: A corpus cannot be read, no pair passes the filters, or a prefix has unknown tokens.
    """
    data = recipe.data
    corpus = TranslationSource(data).load()
    kept, report = filtered(data, corpus.train)
    print_fn(str(report))
    if corpus.note:
        print_fn(corpus.note)
    if not len(kept):
        counts = ", ".join(f"{rule}: {count:,}" for rule, count in report.dropped.items() if count)
        empty = not any(count for rule, count in report.dropped.items() if not rule.startswith("empty"))
        remedy = "name files whose lines have text on both sides" if empty else "loosen them"
        raise UserError(f"no training pair is left ({counts})", "data.train" if empty else "data.filters", remedy)
    others = read_extra_corpora(data, corpus)
    for name, each in others.items():
        print_fn(f"data.more.{name}: {each}")
    sizes = {OWN: len(kept), **{name: len(each.kept) for name, each in others.items()}}
    if others:
        from datasets import concatenate_datasets

        parts = [kept, *(each.kept for each in others.values())]
        kept = concatenate_datasets([part.select_columns(["source", "target"]) for part in parts])
    for line in suspicious_text_lines(pairs(kept), "training pairs"):
        print_fn(line)
    # A word of a prefix such as `<2de>` is a single token.
    words = " ".join(each.prefix for each in (data, *data.more.values())).split()
    prefix_tokens = [word for word in dict.fromkeys(words) if word.startswith("<") and word.endswith(">")]
    source, target = tokenizers or train_pair(kept["source"], kept["target"], recipe.tokenizer, prefix_tokens)
    check_prefixes({"data": data.prefix} | {f"data.more.{n}": each.prefix for n, each in data.more.items()}, source)
    target = target or train_tokenizer(kept["target"], recipe.tokenizer.of("target"), "target")
    examples = join_short_pairs(kept, data)
    if data.join > 1:
        print_fn(dataset_summary(examples, len(kept)))
    train, validation = (encode_corpus(part, source, target) for part in (examples, corpus.validation))
    if sampling := recipe.tokenizer.sampling:
        train = SampledDataset(train, examples, (source, target), sampling, recipe.batches.max_length)
    corpus = Corpus(examples, corpus.validation, corpus.test)
    return PreparedTranslation(corpus, source, target, train, validation, sizes)


def join_short_pairs(dataset: "datasets.Dataset", settings: DataSettings) -> "datasets.Dataset":
    """Join consecutive pairs into examples of 1 to `settings.join` pairs; with `join` 1 the dataset is unchanged.

    Sentences are joined by a space, in Chinese and Japanese by nothing. Each number of pairs is equally likely, but
    joining stops before a side exceeds `filters.max_words` words (characters where spaces do not separate words). Every
    pair is in exactly one example, in the order of the corpus; the last example has the remaining pairs.
    """
    from datasets import Dataset, Features, Value

    if settings.join == 1:
        return dataset
    texts: dict[str, list[str]] = {"source": [], "target": []}
    separators = [sentence_separator(dataset[side]) for side in texts]
    for group in _groups(pairs(dataset), settings):
        for column, separator, sentences in zip(texts.values(), separators, zip(*group, strict=True), strict=True):
            column.append(separator.join(sentences))
    return Dataset.from_dict(texts, features=Features(dict.fromkeys(texts, Value("string"))))


def _groups(rows: Iterable[tuple[str, str]], settings: DataSettings) -> Iterator[list[tuple[str, str]]]:
    """Yield groups of consecutive pairs, of random size."""
    generator = np.random.default_rng(settings.seed)
    group, words, wanted = list[tuple[str, str]](), np.zeros(2, dtype=int), 0
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
    """Return a line with the number of joined examples, made of `before` pairs, and their source lengths."""
    unspaced = is_unspaced(source for source, _ in pairs(examples))
    words = [len(split_words(source, unspaced)) for source, _ in pairs(examples)]
    return (
        f"{before:,} pairs joined to {len(examples):,} training examples; "
        f"sources have {np.mean(words):.1f} {unit_name(unspaced)} on average, at most {max(words):,}"
    )
