"""What a recipe of `task: translation` says: pairs, how they become batches, how a model learns and writes."""

from typing import Annotated, Generic, Literal, Self

from pydantic import Field, model_validator

from s2s.recipe.installed import translator_settings
from s2s.recipe.pairs import BatchSettings, PairSettings, TrainingSettings
from s2s.recipe.schema import (
    Beam,
    DecodingSettings,
    Examples,
    FineTunedRecipe,
    Model,
    PauseSettings,
    TaskSchema,
    TokenizerSettings,
)


class DataSettings(PairSettings):
    """The parallel corpus."""

    join: Annotated[int, Field(gt=0, le=1_000)] = 1
    """Training examples are 1 to so many pairs that follow each other in the filtered corpus, joined by a space, as far
    as neither side gets more than `filters.max_words` words; `seed` decides how many. Each pair is in one example.
    Validation and test stay as they are."""


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
