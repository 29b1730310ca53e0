"""What a recipe of `task: masked-lm` says: texts, which of their pieces are masked, and how an encoder learns them."""

from typing import Annotated, Generic, Literal

from pydantic import Field, model_validator

from s2s.recipe import schema
from s2s.recipe.installed import encoder_settings


class MaskingSettings(schema.Section):
    """Which pieces a masked-language model must name (Devlin et al. 2019, section 3.1)."""

    share: schema.Share = 0.15
    """Share of each text's pieces that are chosen, rounded to whole pieces, at least one."""
    masked: schema.Part = 0.8
    """Share of the chosen ones that are read as the mask piece."""
    random: schema.Part = 0.1
    """Share of the chosen ones that are read as a random piece; the others are read as they are."""
    begin: bool = False
    """Whether each text begins with the piece `<s>`, as it does for a classifier with `pooling: first` or `pooler`."""
    tie: bool = True
    """Whether the projection onto the pieces is the encoder's own table of them."""
    output_bias: bool = False
    """Add a learned number to the score of each piece, as BERT does."""

    @model_validator(mode="after")
    def _parts_fit(self) -> "MaskingSettings":
        if self.masked + self.random > 1 + 1e-9:
            raise ValueError(
                f"masked ({self.masked}) and random ({self.random}) are more than the whole; lower one of them"
            )
        return self


class WindowSettings(schema.Section):
    """How texts become batches."""

    tokens: schema.Tokens = 8192
    """Hard limit of one batch: rows times the longest window, padding included."""
    max_length: Annotated[int, Field(ge=3, le=1_000_000)] = 256
    """Longest window in pieces, its ends counted. A longer text is cut into windows of about equal length, so that all
    of it is learned from."""


class MaskedTraining(schema.OptimizationSettings):
    """The optimisation."""

    tokens_per_update: schema.Tokens | None = None
    """Pieces that one update reads, about, over all micro-batches and devices; one batch when absent."""


class MaskedValidation(schema.PauseSettings):
    """When training pauses to measure and to save."""

    metric: Literal["loss", "accuracy"] = "loss"
    """What decides which checkpoint is best: the loss of masked pieces, or the share of them that are named right."""


class MaskedRecipe(schema.FineTunedRecipe[schema.Model], Generic[schema.Model]):
    """Masked-language modelling: what is read, what learns, how, and how it is measured."""

    task: Literal["masked-lm"]
    """What is learned: to name the pieces of a text that are not shown."""
    data: schema.PlainTextSettings = schema.PlainTextSettings()
    """The texts."""
    tokenizer: schema.PieceSettings = schema.PieceSettings()
    """How text becomes pieces."""
    masking: MaskingSettings = MaskingSettings()
    """Which pieces must be named."""
    batches: WindowSettings = WindowSettings()
    """How texts become batches."""
    training: MaskedTraining = MaskedTraining()
    """The optimisation."""
    validation: MaskedValidation = MaskedValidation()
    """When training pauses to measure and to save."""

    @model_validator(mode="after")
    def _a_window_fits(self) -> "MaskedRecipe":
        if self.batches.max_length > self.batches.tokens:
            raise ValueError(
                f"batches.tokens ({self.batches.tokens}) must hold a window of batches.max_length "
                f"({self.batches.max_length}); try batches.tokens={self.batches.max_length}"
            )
        return self


SCHEMA = schema.TaskSchema(
    MaskedRecipe, encoder_settings, command="fill", use="fill:       s2s fill {} 'The ___ was good.'"
)
