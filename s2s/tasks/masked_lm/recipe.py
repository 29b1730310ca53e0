"""Recipe of `task: masked-lm`: texts, masking, training and validation."""

from typing import Annotated, Generic, Literal

from pydantic import Field, model_validator

from s2s.recipe import schema
from s2s.recipe.installed import encoder_settings


class MaskingSettings(schema.Section):
    """Masking of tokens (Devlin et al. 2019, section 3.1)."""

    share: schema.Share = 0.15
    """Share of each text's tokens that are chosen, rounded, but at least one token."""
    masked: schema.Part = 0.8
    """Share of the chosen tokens that are replaced by the mask token."""
    random: schema.Part = 0.1
    """Share of the chosen tokens that are replaced by a random token.

    The other chosen tokens stay unchanged.
    """
    begin: bool = False
    """Prepend the token `<s>` to each text.

    A classifier with `pooling: first` or `pooler` does the same.
    """
    tie: bool = True
    """Tie the output projection to the encoder's embedding table."""
    output_bias: bool = False
    """Add a learned bias to the score of each token, as BERT does."""

    @model_validator(mode="after")
    def _check_shares(self) -> "MaskingSettings":
        if self.masked + self.random > 1 + 1e-9:
            raise ValueError(
                f"masked ({self.masked}) and random ({self.random}) are more than the whole; lower one of them"
            )
        return self


class WindowSettings(schema.Section):
    """Batch size and window length."""

    tokens: schema.Tokens = 8192
    """Hard limit of a batch in tokens: rows times the longest window, with padding."""
    max_length: Annotated[int, Field(ge=3, le=1_000_000)] = 256
    """Maximum length of a window in tokens, its ends included.

    A longer text is cut into windows of about equal length, so that no part is lost.
    """


class MaskedTraining(schema.OptimizationSettings):
    """Optimizer, learning-rate schedule and regularization."""

    tokens_per_update: schema.Tokens | None = None
    """Approximate number of tokens for an optimizer step (gradient accumulation).

    The number includes all micro-batches and devices; null uses one batch.
    """


class MaskedValidation(schema.PauseSettings):
    """Schedule and metrics of validations and checkpoints."""

    metric: Literal["loss", "accuracy"] = "loss"
    """Metric that selects the best checkpoint.

    The loss of masked tokens, or the share of masked tokens that are predicted correctly.
    """


class MaskedRecipe(schema.FineTunedRecipe[schema.Model], Generic[schema.Model]):
    """Recipe of a masked language model."""

    task: Literal["masked-lm"]
    """The task: predict masked tokens of a text."""
    data: schema.PlainTextSettings = schema.PlainTextSettings()
    """The texts."""
    tokenizer: schema.PieceSettings = schema.PieceSettings()
    """Tokenizer of the texts."""
    masking: MaskingSettings = MaskingSettings()
    """Masking of tokens."""
    batches: WindowSettings = WindowSettings()
    """Batch size and window length."""
    training: MaskedTraining = MaskedTraining()
    """Optimizer, learning-rate schedule and regularization."""
    validation: MaskedValidation = MaskedValidation()
    """Schedule and metrics of validations and checkpoints."""

    @model_validator(mode="after")
    def _check_window_length(self) -> "MaskedRecipe":
        if self.batches.max_length > self.batches.tokens:
            raise ValueError(
                f"batches.tokens ({self.batches.tokens}) must hold a window of batches.max_length "
                f"({self.batches.max_length}); try batches.tokens={self.batches.max_length}"
            )
        return self


SCHEMA = schema.TaskSchema(
    MaskedRecipe, encoder_settings, command="fill", use="fill:       s2s fill {} {}", example="'The ___ was good.'"
)
