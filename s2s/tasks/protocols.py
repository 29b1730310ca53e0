"""Optional methods of a task: figures of a training, `s2s inspect` and `s2s diagnose`.

A task has an optional method if its class defines it; it need not name the protocol. Callers ask
`isinstance(task, Inspectable)`. A training loads none of the packages that these methods need: they are imported inside
the methods.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor, nn

from s2s.data.dataset import BaseBatch, Examples
from s2s.data.sources import Split
from s2s.tasks.base import AnyContext, AnyRun
from s2s.training.logger import RunLog
from s2s.training.progress import ProgressBar

if TYPE_CHECKING:
    from s2s.evaluation.signs import Diagnostics
    from s2s.inspection.inspection import Inspection, InspectionRequest


@runtime_checkable
class WritesAtStart(Protocol):
    """Task that writes files or draws figures before training."""

    def on_train_start(self, train_context: AnyContext, folder: Path, log: RunLog) -> None:
        """Write files and figures that are available before the first optimizer step."""


@runtime_checkable
class WritesAtEnd(Protocol):
    """Task that draws figures after training."""

    def on_train_end(self, train_context: AnyContext, folder: Path, log: RunLog) -> None:
        """Draw figures after the last optimizer step, before the test."""


@runtime_checkable
class ShowsExample(Protocol):
    """Task whose trainings end with a command on an example of the test set."""

    def example(self, recipe: Any, part: Split) -> tuple[str, ...]:
        """Return arguments of the task's command (`TaskSchema.use`) for an example of a split; empty if it has none."""
        ...


@runtime_checkable
class Inspectable(Protocol):
    """Task whose models `s2s inspect` shows."""

    def inspect(self, run: AnyRun, focus: "InspectionRequest") -> "Inspection":
        """Inspect a trained model on one or two inputs.

        Returns:
            Attention maps, saliency and further views, without those that the model does not support.

        Raises:
            UserError: The input does not fit the model.
        """
        ...


@runtime_checkable
class Diagnosable(Protocol):
    """Task whose models `s2s diagnose` tests and whose outputs it examines."""

    def examples_for_inference(self, run: AnyRun, part: Split) -> Examples[BaseBatch]:
        """Encode a split of the corpus for inference: in full, without data augmentation."""
        ...

    def log_probs(self, model: nn.Module, batch: BaseBatch) -> Float[Tensor, "items choices"]:
        """Return the log-probability of each choice for each item of a batch, for the self-tests."""
        ...

    def diagnose(
        self, run: AnyRun, part: Split, rows: Int[np.ndarray, " examples"], progress_bar: ProgressBar
    ) -> "Diagnostics":
        """Examine a trained model's outputs for signs of known problems.

        Args:
            part: Examples of a split.
            rows: Row of each example in its split, from 0.

        Returns:
            Findings, and the examples with the worst outputs.
        """
        ...


@runtime_checkable
class DecodesIncrementally(Protocol):
    """Task with a decoder: a self-test compares incremental decoding with teacher forcing."""

    def incremental_log_probs(self, model: nn.Module, batch: BaseBatch) -> Float[Tensor, "items choices"]:
        """Return the log-probabilities of `log_probs`, with one token fed per step and rows permuted."""
        ...


@runtime_checkable
class HasBeamSearch(Protocol):
    """Task with a beam search: a self-test recomputes the scores of its hypotheses."""

    def score_tokens(self, run: AnyRun, batch: BaseBatch) -> "RescoredHypotheses":
        """Rescore the hypotheses that a beam search finds for a batch, in fp32."""
        ...


@dataclass(frozen=True)
class RescoredHypotheses:
    """Log-probabilities of beam-search hypotheses, from the search and by teacher forcing, in nats.

    Attributes:
        reported: Log-probabilities that the search reported.
        again: Log-probabilities by teacher forcing.
        longest: Number of tokens of the longest hypothesis, `EOS` included.
    """

    reported: Float[Tensor, " hypotheses"]
    again: Float[Tensor, " hypotheses"]
    longest: int
