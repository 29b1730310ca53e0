"""Recipe of `task: translation`: data, batches, training, validation, decoding."""

from typing import Annotated, Generic, Literal, Self

from pydantic import Field, model_validator

from s2s.recipe import schema
from s2s.recipe.installed import translator_settings
from s2s.recipe.pairs import (
    BatchSettings,
    LearnedPairs,
    Mixing,
    PairRecipe,
    PairSettings,
    Prefix,
    TrainingSettings,
    Weight,
)


class FurtherPairs(LearnedPairs):
    """An additional training corpus; it has no validation or test set."""

    corpus: schema.Word = "files"
    """Source of the pairs; see `data.corpus`."""
    weight: Weight = 1.0
    """Factor of the sampling rate; see `data.weight`."""
    prefix: Prefix = ""
    """Prefix of each source; see `data.prefix`.

    A different prefix names the target language, or marks back-translated sources.
    """


class DataSettings(PairSettings):
    """The parallel corpus."""

    prefix: Prefix = ""
    """Prefix of each source, such as `"<2de> "`.

    `s2s translate` prepends it to each line. A word of the prefix that begins with `<` and ends with `>` is a single
    token, unless the tokenizer is that of `init_from`.
    """
    weight: Weight = 1.0
    """Factor of this corpus' sampling rate, used with several corpora; see `mixing`."""
    more: dict[schema.Name, FurtherPairs] = Field(default={})
    """Additional training corpora by name.

    `source` and `target` default to those above. Pairs whose source or target is in the validation or test set are left
    out.
    """
    mixing: Mixing = "size"
    """Sampling rates p of corpora with n pairs each.

    `size`: p ~ n; `equal`: all the same; or a temperature T of 1 or more: p ~ n^(1/T). Each rate is multiplied by the
    corpus' `weight`. With `size` and all weights 1, an epoch has every pair once, as if all corpora were one. Otherwise
    an epoch has as many pairs as all corpora together, and a corpus that is used up is repeated in a new order.
    """
    join: Annotated[int, Field(gt=0, le=1_000)] = 1
    """Maximum number of consecutive pairs joined into one training example.

    `seed` draws the number of pairs, from 1. The filtered pairs are joined by a space, or by nothing in Chinese and
    Japanese. Joining stops before a side exceeds `filters.max_words` words (characters in scripts without spaces
    between words). Each pair is in one example. Validation and test sets are not joined.
    """

    @model_validator(mode="after")
    def _set_sides_of_corpora(self) -> Self:
        for each in self.more.values():
            for side in {"source", "target"} - each.model_fields_set:
                object.__setattr__(each, side, getattr(self, side))
        return self

    @model_validator(mode="after")
    def _check_corpora(self) -> Self:
        if self.join > 1 and (self.more or self.prefix):
            raise ValueError("join needs a single corpus without a prefix; set join: 1, or leave out more and prefix")
        if not self.more and (self.weight != 1 or self.mixing != "size"):
            what = "weight and mixing have no effect on a single corpus"
            raise ValueError(f"{what}; name others in more, or leave both out")
        if "data" in self.more:
            raise ValueError("the name data is that of the first corpus; give this corpus in more another name")
        return self

    @property
    def weights(self) -> list[float]:
        """Sampling weights of all corpora, this one first."""
        return [each.weight for each in (self, *self.more.values())]

    @property
    def evenly(self) -> bool:
        """Return True if an epoch has every pair of all corpora exactly once."""
        return self.mixing == "size" and set(self.weights) == {1}


class ValidationSettings(schema.PauseSettings):
    """Schedule and metrics of validations and checkpoints."""

    metric: Literal["loss", "bleu", "chrf", "exact", "cer", "wer"] = "bleu"
    """Metric that selects the best checkpoint.

    BLEU, chrF2++, the share of exact translations, or, where lower is better, the loss, the character error rate or the
    word error rate. For targets of phones separated by white space, `wer` is the phone error rate. In scripts without
    spaces between words, `wer` is the character error rate.
    """
    bleu_tokenizer: schema.BleuTokenizer = "auto"
    """sacreBLEU tokenizer, which splits text into words for BLEU and TER.

    `auto` chooses by the script of the references: `zh` for Chinese; `ja-mecab` for Japanese if installed (`pip install
    'sacrebleu[ja]'`), else `char`; `char` for Thai, Lao, Khmer, Burmese and Tibetan; `13a` for all others. `ko-mecab`
    needs `pip install 'sacrebleu[ko]'`; `flores200` downloads a model once.
    """
    sentences: schema.Examples | None = None
    """Number of validation pairs to translate; null translates all."""
    beam: schema.Beam = 1
    """Beam size of the translations at validations."""


class Recipe(PairRecipe[schema.Model], Generic[schema.Model]):
    """Recipe of a translation model."""

    task: Literal["translation"] = "translation"
    """The task: generate a target text for each source text."""
    data: DataSettings = DataSettings()
    """The parallel corpus."""
    tokenizer: schema.TokenizerSettings = schema.TokenizerSettings()
    """Tokenizer of source and target."""
    batches: BatchSettings = BatchSettings()
    """Batch size and maximum length."""
    training: TrainingSettings = TrainingSettings()
    """Optimizer, learning-rate schedule and regularization."""
    validation: ValidationSettings = ValidationSettings()
    """Schedule and metrics of validations and checkpoints."""
    decoding: schema.DecodingSettings = schema.DecodingSettings()
    """Beam search and length limits."""

    @property
    def tokenizer_names(self) -> tuple[str, ...]:
        """One shared tokenizer, or one for each side."""
        return ("shared",) if self.tokenizer.shared else ("source", "target")

    @model_validator(mode="after")
    def _untie_vocabularies(self) -> Self:
        tie = getattr(self.model, "tie", None)
        if self.tokenizer.shared or tie != "all" or "tie" in self.model.model_fields_set:
            return self
        # The recipe did not set `tie`: the model's default, one shared embedding table, needs one shared vocabulary.
        return self.model_copy(update={"model": self.model.model_copy(update={"tie": "target"})})


SCHEMA = schema.TaskSchema(
    Recipe,
    translator_settings,
    command="translate",
    use="translate:  s2s translate {} {}",
    example="'A sentence.'",
    changeable=("data", "decoding", "device"),
    scored_by=("--beam", "--lowercase", "--metric", "--reference", "--source", "--tokenize"),
)
