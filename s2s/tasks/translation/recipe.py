"""What a recipe of `task: translation` says: pairs, how they become batches, how a model learns and writes."""

from typing import Annotated, Generic, Literal, Self

from pydantic import Field, model_validator

from s2s.recipe.installed import translator_settings
from s2s.recipe.schema import (
    Beam,
    DecodingSettings,
    Examples,
    FineTunedRecipe,
    Length,
    Model,
    OptimizationSettings,
    PauseSettings,
    Probability,
    Section,
    Seed,
    SourceSettings,
    Split,
    TaskSchema,
    TokenizerSettings,
    Tokens,
    Word,
)


class FilterSettings(Section):
    """Which training pairs are dropped before anything is learned from them; empty sides always are."""

    max_words: Length | None = 250
    """Longest side, in white-space separated words."""
    max_ratio: Annotated[float, Field(gt=1, le=1e6)] | None = 9.0
    """Largest ratio of the longer side to the shorter one, in characters; pairs under 20 characters pass."""
    duplicates: Literal["keep", "drop"] = "keep"
    """What happens to the second and later copies of a pair."""


class DataSettings(SourceSettings):
    """The parallel corpus."""

    corpus: Word = "built-in"
    """`built-in`, `files`, or the name of a Hugging Face data set such as `bentrevett/multi30k`. `homonyms` is built
    in, too: English words of two meanings, which German tells apart."""
    root: Word | None = None
    """A local folder: with a hub data set, read files of the usual names there instead (`train.en`, `val.de.gz`,
    `test.tsv` …); with `files`, what relative paths start from (the recipe's folder when absent)."""
    source: Word = "en"
    """Language or column that is read: a file's ending (`train.en`), a table's or a data set's column, or, for a table
    without a header, the column's position from 0, in quotes. The built-in corpus has `en`, `de` and `cases`: for
    each German word the grammatical case it stands in, `-` for none."""
    target: Word = "de"
    """Language or column that is written; as `source`."""
    train: Split = "train"
    """A split name, a table (tsv, csv, jsonl, parquet; plain, .gz or .xz), a pair of line-aligned files, or, with the
    built-in corpora, how many sentence pairs to generate."""
    validation: Split = "validation"
    """As `train`; a number with files or a hub data set holds that many pairs out of the training data."""
    test: Split | None = "test"
    """As `validation`; nothing is tested when null."""
    seed: Seed = 1
    """Seed of the built-in corpus, of the pairs held out, and of how many pairs are joined."""
    words: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the nouns, verbs, adjectives and adverbs of each kind that the built-in corpus is made of; numbers in
    words occur only with all of them. With few, how sentences are built is most of what there is to learn."""
    filters: FilterSettings = FilterSettings()
    """Which training pairs are dropped."""
    join: Annotated[int, Field(gt=0, le=1_000)] = 1
    """Training examples are 1 to so many pairs that follow each other in the filtered corpus, joined by a space, as far
    as neither side gets more than `filters.max_words` words; `seed` decides how many. Each pair is in one example.
    Validation and test stay as they are."""


class BatchSettings(Section):
    """How examples become batches of similar length."""

    tokens: Tokens = 4096
    """Hard limit of one batch: rows times the longest side, padding included."""
    max_length: Length = 256
    """Longest side in pieces; longer training pairs are counted, reported and left out."""


class TrainingSettings(OptimizationSettings):
    """The optimisation."""

    tokens_per_update: Tokens | None = None
    """Target tokens that one update learns from, over all micro-batches and devices; `batches.tokens` when absent.
    The number of micro-batches follows from it."""
    label_smoothing: Probability = 0.1
    """Share of each target's probability spread evenly over the vocabulary."""


class ValidationSettings(PauseSettings):
    """When training pauses to measure and to save."""

    metric: Literal["loss", "bleu", "chrf", "exact", "cer", "wer"] = "bleu"
    """What decides which checkpoint is best: BLEU, chrF2++, the share of exact translations, or, where lower is better,
    the loss, the character or the word error rate. Of targets that are phones with white space between them, `wer` is
    the phone error rate."""
    sentences: Examples | None = None
    """How many validation pairs are translated; all when null."""
    beam: Beam = 1
    """Beam of the translations made while training."""


class Recipe(FineTunedRecipe[Model], Generic[Model]):
    """Translation: what is learned from, what learns, how, and how it is measured."""

    task: Literal["translation"] = "translation"
    """What is learned: to write a target for each source."""
    data: DataSettings = DataSettings()
    """The parallel corpus."""
    tokenizer: TokenizerSettings = TokenizerSettings()
    """How text becomes pieces."""
    batches: BatchSettings = BatchSettings()
    """How examples become batches."""
    training: TrainingSettings = TrainingSettings()
    """The optimisation."""
    validation: ValidationSettings = ValidationSettings()
    """When training pauses to measure and to save."""
    decoding: DecodingSettings = DecodingSettings()
    """How text is generated."""

    @model_validator(mode="after")
    def _two_vocabularies_have_two_tables(self) -> Self:
        tie = getattr(self.model, "tie", None)
        if self.tokenizer.shared or tie != "all" or "tie" in self.model.model_fields_set:
            return self
        # nobody asked for one table: it was the default, which suits one vocabulary
        return self.model_copy(update={"model": self.model.model_copy(update={"tie": "target"})})


SCHEMA = TaskSchema(
    Recipe,
    translator_settings,
    command="translate",
    use="translate:  echo 'A sentence.' | s2s translate {}",
    changeable=("data", "decoding", "device"),
    scored_by=("--beam", "--lowercase", "--source"),
)
