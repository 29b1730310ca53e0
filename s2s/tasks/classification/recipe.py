"""What a recipe of `task: classification` says: labelled text, a head over an encoder, and how they are trained."""

from typing import Annotated, Generic, Literal

from pydantic import Field, model_validator

from s2s.recipe import labelled, schema
from s2s.recipe.installed import encoder_settings


class LocalColumns(schema.LocalText):
    """Where tables read from `data.root` differ from the hub's data set."""

    label: schema.Word | None = None
    """As `data.label`, which counts when this is null."""
    first_label: Annotated[int, Field(ge=0, le=1)] | None = None
    """As `data.first_label`, which counts when this is null."""


class LabelledSettings(schema.TextSettings):
    """The labelled texts."""

    label: schema.Word = "label"
    """Column of the label; as `text`."""
    classes: schema.Classes | None = None
    """Names of the classes, in order; when null, those that the hub data set declares, else the different labels of
    the training data, sorted. A label is one of the names or, where none of the names is a number, may be the number
    of its class."""
    first_label: Annotated[int, Field(ge=0, le=1)] = 0
    """Number of the first class, where labels are numbers: 0 or 1."""
    local: LocalColumns = LocalColumns()
    """What is different with `root`."""


class TextBatchSettings(schema.Section):
    """How texts become batches."""

    tokens: schema.Tokens = 8192
    """Hard limit of one batch: rows times the longest text, padding included."""
    rows: schema.Examples | None = None
    """Most texts of a batch; as many as `tokens` allows when null."""
    max_length: Annotated[int, Field(ge=2, le=1_000_000)] = 512
    """Pieces that are read of a text, its end counted; of a longer one the beginning is, and it is counted."""
    padding: Literal["buckets", "batch", "max_length"] = "buckets"
    """`buckets` puts texts of similar length together; `batch` takes any texts and pads them to the longest of them;
    `max_length` pads all to `max_length`."""


class ClassificationTraining(labelled.LabelledTraining):
    """The optimisation."""

    word_dropout: schema.Probability = 0.0
    """Share of the pieces of each training text that are left out of it, others in each epoch (Iyyer et al. 2015)."""


class ClassificationRecipe(schema.FineTunedRecipe[schema.Model], Generic[schema.Model]):
    """Classification of texts: what is learned from, what learns, how, and how it is measured."""

    task: Literal["classification"]
    """What is learned: to name the class of each text."""
    data: LabelledSettings = LabelledSettings()
    """The labelled texts."""
    tokenizer: schema.PieceSettings = schema.PieceSettings()
    """How text becomes pieces."""
    batches: TextBatchSettings = TextBatchSettings()
    """How texts become batches."""
    head: labelled.HeadSettings = labelled.HeadSettings()
    """What turns the encoder's states into scores of the classes."""
    training: ClassificationTraining = ClassificationTraining()
    """The optimisation."""
    validation: labelled.ClassificationValidation = labelled.ClassificationValidation()
    """When training pauses to measure and to save."""

    @model_validator(mode="after")
    def _a_text_fits(self) -> "ClassificationRecipe":
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
    use="classify:   echo 'A text.' | s2s classify {} --probabilities",
    changeable=("data", "device", "batches"),
)
