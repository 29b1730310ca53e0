"""What recipes say of pairs, a source and a target: where they come from, how they become batches, how is learned."""

from typing import Annotated, Literal

from pydantic import Field

from s2s.recipe import schema

Mixing = Literal["size", "equal"] | Annotated[float, Field(ge=1, le=1e6)]
Weight = Annotated[float, Field(gt=0, le=1e6)]
Prefix = Annotated[str, Field(max_length=200)]


class FilterSettings(schema.Section):
    """Which training pairs are dropped before anything is learned from them; pairs with an empty side always are."""

    max_words: schema.Length | None = 250
    """Longest side, in white-space separated words; in characters where the script has no spaces between words, as in
    Chinese, Japanese and Thai."""
    max_ratio: Annotated[float, Field(gt=1, le=1e6)] | None = 9.0
    """Largest ratio of the longer side to the shorter one, in characters; pairs under 20 characters pass."""
    duplicates: Literal["keep", "drop"] = "keep"
    """What happens to the second and later copies of a pair."""


class LearnedPairs(schema.SourceSettings):
    """Pairs that are learned from."""

    corpus: schema.Word = "built-in"
    """`built-in`, `files`, or the name of a Hugging Face data set such as `bentrevett/multi30k`. `homonyms` is built
    in, too: English words of two meanings, which German tells apart."""
    root: schema.Word | None = None
    """A local folder: with a hub data set, read files of the usual names there instead (`train.en`, `val.de.gz`,
    `test.tsv` …); with `files`, what relative paths start from (the recipe's folder when absent)."""
    source: schema.Word = "en"
    """Language or column that is read: a file's ending (`train.en`), a table's or a data set's column, or, for a table
    without a header, the column's position from 0, in quotes. The built-in corpus has `en`, `de` and `cases`: for
    each German word the grammatical case it stands in, `-` for none; of other German sentences, `singular` and
    `plural`; of others again, `sentence` and `judgement`: whether it is `acceptable` or `unacceptable`."""
    target: schema.Word = "de"
    """Language or column that is written; as `source`."""
    quoting: schema.Quoting | None = None
    """Quoting of a tsv: `csv` removes it, `none` keeps all quotes; null is `none`, but refuses a wholly quoted tsv."""
    train: schema.Split = "train"
    """A split name, a table (tsv, csv, jsonl, parquet; plain, .gz or .xz), a pair of line-aligned files, or, with the
    built-in corpus, how many sentence pairs to generate."""
    seed: schema.Seed = 1
    """Seed of the built-in corpus, of the pairs held out, and of how many pairs are joined."""
    words: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the nouns, verbs, adjectives and adverbs of each kind that the built-in corpus is made of; numbers in
    words occur only with all of them. With few, how sentences are built is most of what there is to learn."""
    filters: FilterSettings = FilterSettings()
    """Which training pairs are dropped."""


class PairSettings(LearnedPairs):
    """The parallel corpus."""

    validation: schema.Split = "validation"
    """As `train`; a number with files or a hub data set holds that many pairs out of the training data."""
    test: schema.Split | None = "test"
    """As `validation`; nothing is tested when null."""


class BatchSettings(schema.Section):
    """How examples become batches of similar length."""

    tokens: schema.Tokens = 4096
    """Hard limit of one batch: rows times the longest side, padding included."""
    max_length: schema.Length = 256
    """Longest side in pieces; longer training pairs are counted, reported and left out."""


class TrainingSettings(schema.OptimizationSettings):
    """The optimisation."""

    tokens_per_update: schema.Tokens | None = None
    """Target tokens that one update learns from, over all micro-batches and devices; `batches.tokens` when absent.
    The number of micro-batches follows from it."""
    label_smoothing: schema.Probability = 0.1
    """Share of each target's probability spread evenly over the vocabulary."""
