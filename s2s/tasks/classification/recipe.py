"""Recipe of `task: classification`: labelled texts, head, training and validation."""

from typing import Annotated, Generic, Literal

from pydantic import Field, model_validator

from s2s.recipe import labelled, schema
from s2s.recipe.installed import encoder_settings


class LocalColumns(schema.LocalText):
    """Columns of tables read from `data.root`, if they differ from the hub's."""

    label: schema.Word | None = None
    """Column of the label; null uses `data.label`."""
    first_label: Annotated[int, Field(ge=0, le=1)] | None = None
    """Number of the first class; null uses `data.first_label`."""


class LabelledSettings(schema.TextSettings, labelled.LabelledData):
    """The labelled texts."""

    label: schema.Word = "label"
    """Column of the label; see `text`."""
    classes: schema.Classes | None = None
    """Names of the classes, in order.

    Null uses the classes that the hub data set declares, else the different labels of the training data, sorted. A
    label is one of the names or, if no name is a number, the number of its class.
    """
    first_label: Annotated[int, Field(ge=0, le=1)] = 0
    """Number of the first class, for labels that are numbers: 0 or 1."""
    local: LocalColumns = LocalColumns()
    """Differences of the tables in `root`."""


class TextBatchSettings(schema.Section):
    """Batch size, maximum length and padding."""

    tokens: schema.Tokens = 8192
    """Hard limit of a batch in tokens: rows times the longest text, padding included."""
    rows: schema.Examples | None = None
    """Maximum number of texts in a batch; null sets no limit besides `tokens`."""
    max_length: Annotated[int, Field(ge=2, le=1_000_000)] = 512
    """Maximum number of tokens of a text, its end included.

    Longer texts are truncated at the end, and the run reports their number.
    """
    padding: Literal["buckets", "batch", "max_length"] = "buckets"
    """Padding of batches.

    `buckets` groups texts of similar length; `batch` takes random texts and pads them to the longest; `max_length` pads
    all texts to `max_length`.
    """


class ClassificationTraining(labelled.LabelledTraining):
    """Optimizer, learning-rate schedule and regularization."""

    word_dropout: schema.Probability = 0.0
    """Probability of dropping each token of a training text.

    Each epoch drops other tokens (Iyyer et al. 2015).
    """


class ClassificationRecipe(
    schema.FineTunedRecipe[schema.Model], labelled.LabelledRecipe[schema.Model], Generic[schema.Model]
):
    """Recipe of a text classifier."""

    task: Literal["classification"]
    """The task: assign a class to each text."""
    data: LabelledSettings = LabelledSettings()
    """The labelled texts."""
    tokenizer: schema.PieceSettings = schema.PieceSettings()
    """Tokenizer of the texts."""
    batches: TextBatchSettings = TextBatchSettings()
    """Batch size, maximum length and padding."""
    head: labelled.HeadSettings = labelled.HeadSettings()
    """Classification head: pooling of the encoder's states, and a linear layer."""
    training: ClassificationTraining = ClassificationTraining()
    """Optimizer, learning-rate schedule and regularization."""
    validation: labelled.ClassificationValidation = labelled.ClassificationValidation()
    """Schedule and metrics of validations and checkpoints."""

    @model_validator(mode="after")
    def _check_text_length(self) -> "ClassificationRecipe":
        if self.batches.max_length > self.batches.tokens:
            raise ValueError(
                f"batches.tokens ({self.batches.tokens}) must hold a text of batches.max_length "
                f"({self.batches.max_length}); try batches.tokens={self.batches.max_length}"
            )
        return self


SCHEMA = schema.TaskSchema(
    ClassificationRecipe,
    encoder_settings,
    command="classify",
    use="classify:   s2s classify {} {} --probabilities",
    example="'A text.'",
    changeable=("data", "device", "batches"),
)
