"""What a recipe of `task: translation` says: pairs, how they become batches, how a model learns and writes."""

from typing import Annotated, Generic, Literal, Self

from pydantic import Field, model_validator

from s2s.recipe import schema
from s2s.recipe.installed import translator_settings
from s2s.recipe.pairs import BatchSettings, LearnedPairs, Mixing, PairSettings, Prefix, TrainingSettings, Weight


class FurtherPairs(LearnedPairs):
    """A further corpus to learn from; nothing is held out of it, and it is not scored."""

    corpus: schema.Word = "files"
    """As `data.corpus`."""
    weight: Weight = 1.0
    """As `data.weight`."""
    prefix: Prefix = ""
    """As `data.prefix`: another one says into which language is translated, or that sources are
    back-translations."""


class DataSettings(PairSettings):
    """The parallel corpus."""

    prefix: Prefix = ""
    """What stands before each source, such as `"<2de> "`; `s2s translate` puts it before each line. A word of it that
    begins with `<` and ends with `>` is one piece, unless the pieces are those of `init_from`."""
    weight: Weight = 1.0
    """What the rate of this corpus is multiplied by, where there are more; see `mixing`."""
    more: dict[schema.Name, FurtherPairs] = Field(default={})
    """Further corpora to learn from, each by a name; `source` and `target` are those above, unless they say otherwise.
    A pair whose source or target stands in the validation or the test set is left out of them."""
    mixing: Mixing = "size"
    """Rates p of the corpora, which have n pairs each: `size`, p ~ n; `equal`, all the same; or a temperature T, 1 or
    more, p ~ n^(1/T); each times the corpus' `weight`. With `size` and all weights 1, every pair comes once an epoch,
    as if all were one corpus. Else an epoch has as many pairs as all corpora together, and a corpus that is drawn more
    often begins again, in another order, when all of it was seen."""
    join: Annotated[int, Field(gt=0, le=1_000)] = 1
    """Training examples are 1 to so many pairs that follow each other in the filtered corpus, joined by a space, or by
    nothing in Chinese and Japanese, as far as neither side gets more than `filters.max_words` words, or characters
    where the script has no spaces between words; `seed` decides how many. Each pair is in one example.
    Validation and test stay as they are."""

    @model_validator(mode="after")
    def _all_corpora_have_the_same_sides(self) -> Self:
        for each in self.more.values():
            for side in {"source", "target"} - each.model_fields_set:
                object.__setattr__(each, side, getattr(self, side))
        return self

    @model_validator(mode="after")
    def _several_corpora_fit(self) -> Self:
        if self.join > 1 and (self.more or self.prefix):
            raise ValueError("join is of one corpus without a prefix; set join: 1, or leave out more and prefix")
        if not self.more and (self.weight != 1 or self.mixing != "size"):
            raise ValueError("weight and mixing say nothing of one corpus; name others in more, or leave both out")
        if "data" in self.more:
            raise ValueError("a corpus in more is called data, as this one is in what is told; give it another name")
        return self

    @property
    def weights(self) -> list[float]:
        """Of all corpora, this one first."""
        return [each.weight for each in (self, *self.more.values())]

    @property
    def evenly(self) -> bool:
        """Whether every pair of all corpora is learned from once an epoch."""
        return self.mixing == "size" and set(self.weights) == {1}


class ValidationSettings(schema.PauseSettings):
    """When training pauses to measure and to save."""

    metric: Literal["loss", "bleu", "chrf", "exact", "cer", "wer"] = "bleu"
    """What decides which checkpoint is best: BLEU, chrF2++, the share of exact translations, or, where lower is better,
    the loss, the character or the word error rate. Of targets that are phones with white space between them, `wer` is
    the phone error rate. Where the target's script has no spaces between words, `wer` is the character error rate."""
    bleu_tokenizer: schema.BleuTokenizer = "auto"
    """sacreBLEU's tokenizer, which splits text into words for BLEU and TER. `auto` chooses by the script of the
    references: `zh` for Chinese; `ja-mecab` for Japanese where it is installed (`pip install 'sacrebleu[ja]'`), else
    `char`; `char` for Thai, Lao, Khmer, Burmese and Tibetan; `13a` for all others. `ko-mecab` needs
    `pip install 'sacrebleu[ko]'`, `flores200` downloads a model once."""
    sentences: schema.Examples | None = None
    """How many validation pairs are translated; all when null."""
    beam: schema.Beam = 1
    """Beam of the translations made while training."""


class Recipe(schema.FineTunedRecipe[schema.Model], Generic[schema.Model]):
    """Translation: what is learned from, what learns, how, and how it is measured."""

    task: Literal["translation"] = "translation"
    """What is learned: to write a target for each source."""
    data: DataSettings = DataSettings()
    """The parallel corpus."""
    tokenizer: schema.TokenizerSettings = schema.TokenizerSettings()
    """How text becomes pieces."""
    batches: BatchSettings = BatchSettings()
    """How examples become batches."""
    training: TrainingSettings = TrainingSettings()
    """The optimisation."""
    validation: ValidationSettings = ValidationSettings()
    """When training pauses to measure and to save."""
    decoding: schema.DecodingSettings = schema.DecodingSettings()
    """How text is generated."""

    @model_validator(mode="after")
    def _two_vocabularies_have_two_tables(self) -> Self:
        tie = getattr(self.model, "tie", None)
        if self.tokenizer.shared or tie != "all" or "tie" in self.model.model_fields_set:
            return self
        # nobody asked for one table: it was the default, which suits one vocabulary
        return self.model_copy(update={"model": self.model.model_copy(update={"tie": "target"})})


SCHEMA = schema.TaskSchema(
    Recipe,
    translator_settings,
    command="translate",
    use="translate:  echo 'A sentence.' | s2s translate {}",
    changeable=("data", "decoding", "device"),
    scored_by=("--beam", "--lowercase", "--source", "--tokenize"),
)
