"""What recipes say where classes are learned, whatever they are the classes of."""

from typing import Literal

from s2s.recipe import schema


class HeadSettings(schema.Section):
    """What turns the encoder's states into scores of the classes."""

    pooling: schema.Pooling = "mean"
    """How one vector is made of the states: their mean, the first one (texts then begin with the piece `<s>`), the
    largest of each number, the last one, a learned weighted mean (`attention`), the encoder's own summary, or a linear
    layer and tanh over the first one, as BERT has it (`pooler`)."""
    dropout: schema.Probability = 0.1
    """Applied to that vector."""


class ClassificationValidation(schema.PauseSettings):
    """When training pauses to measure and to save."""

    metric: Literal["loss", "accuracy", "macro_f1"] = "accuracy"
    """What decides which checkpoint is best."""


class LabelledTraining(schema.OptimizationSettings):
    """The optimisation."""

    examples_per_update: schema.Examples | None = None
    """Examples that one update learns from, about, over all micro-batches and devices; one batch when absent."""
    label_smoothing: schema.Probability = 0.0
    """Share of each label's probability spread evenly over the classes."""
