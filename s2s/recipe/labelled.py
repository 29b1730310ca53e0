"""Recipe sections for classification tasks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Generic, Literal, Self

from pydantic import Field, model_validator

from s2s.errors import UserError
from s2s.recipe import schema

_SHOWN_CLASSES = 8
ClassWeight = Annotated[float, Field(gt=0, le=1_000_000)]


class LabelledData(schema.DataSection):
    """Base of the `data` sections of classification tasks."""

    if TYPE_CHECKING:
        # See `schema.TrainRecipe`.
        seed: schema.Seed
        classes: schema.Classes | None


class HeadSettings(schema.Section):
    """Classification head."""

    pooling: schema.Pooling = "mean"
    """Pooling of the encoder states into one vector: their `mean`, the `first` state (texts then begin with the token
    `<s>`), the maximum of each dimension (`max`), the `last` state, a learned weighted mean (`attention`), the
    encoder's own `summary`, or a linear layer and tanh over the first state, as in BERT (`pooler`)."""
    dropout: schema.Probability = 0.1
    """Dropout on the pooled vector."""


class ClassificationValidation(schema.PauseSettings):
    """Validation and checkpoints."""

    metric: Literal["loss", "accuracy", "macro_f1"] = "accuracy"
    """Metric that selects the best checkpoint."""


class LabelledTraining(schema.OptimizationSettings):
    """Optimization."""

    examples_per_update: schema.Examples | None = None
    """Approximate number of examples per optimizer step, over all micro-batches (gradient accumulation) and devices;
    null: one batch."""
    label_smoothing: schema.Probability = 0.0
    """Label smoothing: share of each label's probability that is spread evenly over the classes."""
    class_weights: Literal["balanced"] | dict[schema.Word, ClassWeight] | None = None
    """Weight of each class in the loss, for classes of unequal frequency.

    `balanced` is the number of examples, divided by the number of classes and by that of the class's examples; or
    weights by name, 1 for classes that are not named. Null: all 1. A run's recipe has the numbers.
    """
    balanced_sampling: bool = False
    """Class-balanced sampling: each epoch has equally many examples of each class. Rare classes are repeated
    (oversampling); of frequent ones, another part is drawn in each epoch."""
    focal_gamma: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Exponent γ of the focal loss (Lin et al. 2017), which multiplies the loss of an example by (1 − p)^γ, where p is
    the probability of its class; 0: cross-entropy."""

    @model_validator(mode="after")
    def _check_balancing(self) -> Self:
        if self.balanced_sampling and self.class_weights == "balanced":
            raise ValueError("balanced_sampling and class_weights: balanced do the same; leave one of them out")
        return self


class LabelledRecipe(schema.TrainRecipe[schema.Model], Generic[schema.Model]):
    """Recipe of a classification task."""

    if TYPE_CHECKING:
        data: LabelledData
        head: HeadSettings
        training: LabelledTraining
        validation: ClassificationValidation

    def check_overrides(self, trained: schema.TrainRecipe) -> None:
        """Refuse other classes than the model was trained with.

        The outputs have no names, only an order, so a different list would rename them.
        """
        learned, wanted = getattr(trained.data, "classes", None), self.data.classes
        if learned != wanted:
            raise UserError(
                f"data.classes is {listed_classes(wanted)}, but the model was trained with {listed_classes(learned)}",
                remedy="leave data.classes out; data.first_label says what number the first class has in a table",
            )


def listed_classes(classes: Sequence[str] | None) -> str:
    """Return the names of classes for a message; of many, only the first."""
    names = list(classes or ())
    return ", ".join(names[:_SHOWN_CLASSES]) + (", …" if len(names) > _SHOWN_CLASSES else "")
