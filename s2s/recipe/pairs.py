"""Recipe sections for source-target pairs: corpus, filters, batches and training."""

from typing import TYPE_CHECKING, Annotated, Generic, Literal

from pydantic import Field

from s2s.recipe import schema

Mixing = Literal["size", "equal"] | Annotated[float, Field(ge=1, le=1e6)]
Weight = Annotated[float, Field(gt=0, le=1e6)]
Prefix = Annotated[str, Field(max_length=200)]


class FilterSettings(schema.Section):
    """Filters of training pairs; pairs with an empty side are always dropped."""

    max_words: schema.Length | None = 250
    """Maximum length of a side in white-space separated words; in characters for scripts without spaces between words,
    such as Chinese, Japanese and Thai."""
    max_ratio: Annotated[float, Field(gt=1, le=1e6)] | None = 9.0
    """Maximum ratio of the longer side to the shorter one, in characters; pairs under 20 characters pass."""
    duplicates: Literal["keep", "drop"] = "keep"
    """Keep or drop the second and later copies of a pair."""


class LearnedPairs(schema.SourceSettings):
    """Training pairs."""

    corpus: schema.Word = "built-in"
    """`built-in`, `files`, or the name of a Hugging Face data set such as `bentrevett/multi30k`. `homonyms` is also
    built in: English words with two meanings that have different German translations."""
    root: schema.Word | None = None
    """Local folder. With a hub data set: read files with the usual names from there instead (`train.en`, `val.de.gz`,
    `test.tsv` …). With `files`: the folder that relative paths start from; null: the recipe's folder."""
    source: schema.Word = "en"
    """Source language or column: a file's ending (`train.en`), a column of a table or data set, or, for a table
    without a header, the column's position from 0, in quotes. The built-in corpus has `en`, `de` and `cases` (for each
    German word its grammatical case, `-` for none); for other German sentences, `singular` and `plural`; for yet
    others, `sentence` and `judgement` (`acceptable` or `unacceptable`)."""
    target: schema.Word = "de"
    """Target language or column, as `source`."""
    quoting: schema.Quoting | None = None
    """Quoting of a tsv: `csv` removes it, `none` keeps all quotes; null is `none`, but refuses a fully quoted tsv."""
    train: schema.Split = "train"
    """Split name, a table (tsv, csv, jsonl, parquet; plain, .gz or .xz), a pair of line-aligned files, or, for the
    built-in corpus, the number of sentence pairs to generate."""
    seed: schema.Seed = 1
    """Seed of the built-in corpus, of the held-out pairs, and of how many pairs are joined."""
    words: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the vocabulary of the built-in corpus (nouns, verbs, adjectives and adverbs of each kind); number words
    occur only with 1. With a small share, most of what there is to learn is sentence structure."""
    filters: FilterSettings = FilterSettings()
    """Filters of training pairs."""


class PairSettings(LearnedPairs, schema.DataSection):
    """Parallel corpus."""

    validation: schema.Split = "validation"
    """As `train`; with files or a hub data set, a number holds out that many pairs from the training data."""
    test: schema.Split | None = "test"
    """As `validation`; null: no test."""


class BatchSettings(schema.Section):
    """Batches of examples with similar length."""

    tokens: schema.Tokens = 4096
    """Maximum size of a batch in tokens: rows times the longest side, including padding."""
    max_length: schema.Length = 256
    """Maximum length of a side in tokens; longer training pairs are skipped, and their number is reported."""


class TrainingSettings(schema.OptimizationSettings):
    """Optimization."""

    tokens_per_update: schema.Tokens | None = None
    """Target tokens per optimizer step, over all micro-batches (gradient accumulation) and devices; null:
    `batches.tokens`. Determines the number of micro-batches."""
    label_smoothing: schema.Probability = 0.1
    """Label smoothing: share of each target's probability that is spread evenly over the vocabulary."""


class PairRecipe(schema.FineTunedRecipe[schema.Model], schema.SearchRecipe[schema.Model], Generic[schema.Model]):
    """Recipe of a task that generates a text from a text."""

    if TYPE_CHECKING:
        # See `schema.TrainRecipe`.
        batches: BatchSettings
        training: TrainingSettings
        decoding: schema.DecodingSettings
