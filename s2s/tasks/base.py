"""Interface of a task: data, model, loss, validation and evaluation.

A task is a subclass of `Task`. `s2s.run` calls its methods in this order: `check`, `prepare`, `finalize_config`,
`build`, `examples`, `loss`, `log_dataset_summary`, `on_train_start`, `validate` (at each validation), `on_train_end`
and, for the best checkpoint on the test set, `evaluate`.
"""

import hashlib
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor, nn

from s2s.data.dataset import Examples
from s2s.data.sources import Corpus, Source, TrainOverlap
from s2s.data.tokenized import TEXT_TOKENIZER
from s2s.data.tokenizers import Tokenizer
from s2s.errors import UserError
from s2s.evaluation.signs import Diagnostics
from s2s.files import make_folder, write_atomically
from s2s.inspection.inspection import Inspection, InspectionRequest
from s2s.recipe.installed import module_of
from s2s.recipe.schema import AnyRecipe, BleuTokenizer
from s2s.training import figures
from s2s.training.device import DeviceContext
from s2s.training.logger import RunLog
from s2s.training.progress import ProgressBar
from s2s.training.trainer import Loss, Trainer
from s2s.training.validation import Validation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PrintFn = Callable[[str], None]
"""Function that prints a line."""
TEXTS = "texts"
"""Name of the split for sources and references that the caller gives."""
FIGURES, TOKENIZER = "figures", "tokenizer"
"""Names of folders in a run and in a checkpoint."""


class PreparedData(Protocol):
    """Data that training needs: corpus, tokenizers and hashes."""

    @property
    def corpus(self) -> Corpus[Any]:
        """Splits of the corpus, as they were read."""
        ...

    @property
    def tokenizers(self) -> tuple[Tokenizer, ...]:
        """Tokenizers of the data; empty for data without tokens."""
        ...

    def hashes(self) -> dict[str, str]:
        """Return hashes that identify the training data and all derived data.

        File names have no influence on the hashes.

        Returns:
            Digests by name.
        """
        ...


R = TypeVar("R", bound=AnyRecipe)
D = TypeVar("D", bound=PreparedData)
M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class TrainContext(Generic[R, D, M]):
    """Context of a training run: resolved recipe, data and trainer.

    Training passes the context to the hooks of a task, such as `on_train_start` and `validate`.
    """

    recipe: R
    data: D
    trainer: Trainer[M, Any]

    @property
    def model(self) -> M:
        """Model in training, with its current weights."""
        return self.trainer.model


@dataclass(frozen=True)
class LoadedModel(Generic[R, M]):
    """A trained model with everything needed for inference.

    Attributes:
        path: Path of the run, as the caller gave it.
        checkpoint: Folder of the checkpoint that the weights were loaded from.
        recipe: Recipe of the training, with the caller's overrides.
        model: Model in evaluation mode, on the device of `device_context`.
        tokenizers: No tokenizer, one, or one for the source and one for the target.
        device_context: Device and precision.
        fetched: True for the cached copy of a model from the hub: nothing is written into its folder.
    """

    path: Path
    checkpoint: Path
    recipe: R
    model: M
    tokenizers: tuple[Tokenizer, ...]
    device_context: DeviceContext
    fetched: bool = False


@dataclass(frozen=True)
class EvaluationOptions:
    """Options of an evaluation.

    Attributes:
        split: `test`, `validation`, or `texts` for sources and references that the caller gives.
        lowercase: Ignore case when scoring.
        files: A file of sources and one or more files of references, line by line, instead of a split.
        tokenizer: sacreBLEU tokenizer for BLEU and TER; None uses the recipe's.
    """

    split: str = "test"
    lowercase: bool = False
    files: tuple[Path, ...] | None = None
    tokenizer: BleuTokenizer | None = None

    @property
    def given(self) -> bool:
        """Return True if the caller gives sources and references instead of a split."""
        return self.files is not None or self.split == TEXTS

    @property
    def name(self) -> str:
        """Name of the split, or of the source file with a hash of all paths.

        The hash distinguishes files of the same name in different folders.
        """
        if not self.files:
            return self.split
        places = b"\0".join(os.fsencode(path.resolve()) for path in self.files)
        return f"file-{self.files[0].name}-{hashlib.sha256(places).hexdigest()[:8]}"


@dataclass(frozen=True)
class Evaluation(ABC):
    """Scores of one checkpoint of a run on a split or a file.

    Attributes:
        run: Path of the run.
        checkpoint: Name of the checkpoint.
        split: Name of the split or the file.
        weights: Digest of the scored weights, if known.
        train_overlap: Share of the split that is in the training data, if known.
    """

    run: str
    checkpoint: str
    split: str
    weights: str | None = field(default=None, kw_only=True)
    train_overlap: TrainOverlap | None = field(default=None, kw_only=True)

    def notes(self) -> list[str]:
        """Return lines for the end of `__str__`: reasons to doubt the scores."""
        return [f"  {self.train_overlap}"] if self.train_overlap else []

    @abstractmethod
    def __str__(self) -> str:
        """Return the complete evaluation as text for a terminal."""

    @abstractmethod
    def headline_metrics(self) -> dict[str, float]:
        """Return the headline metrics by name."""

    @classmethod
    def compare(cls, evaluations: Sequence[Any]) -> Sequence[Any]:
        """Test each evaluation against the first for statistical significance.

        Args:
            evaluations: Evaluations of this class; the first is the baseline.

        Returns:
            Comparisons with the first evaluation; empty if the task has no test.

        Raises:
            UserError: The evaluations are of different examples.
        """
        return ()

    def to_json(self) -> str:
        """Return all fields and the `summary` as JSON."""
        return json.dumps(asdict(self) | self.summary(), indent=1, ensure_ascii=False) + "\n"

    def summary(self) -> dict[str, Any]:
        """Return the text and the headline metrics for the model card of an export."""
        return {"summary": {"told": str(self), "scores": self.headline_metrics()}}

    @property
    def file(self) -> str:
        """File name of the evaluation in the run's folder."""
        return f"evaluation-{self.split}.json"

    def pictures(self) -> "Iterator[tuple[str, Figure]]":
        """Yield figures by name; none by default."""
        return iter(())

    def samples(self) -> list[tuple[str, str]]:
        """Return pairs of an input and the model's output, for the model card.

        Returns:
            A few pairs; none if the task generates no text.
        """
        return []

    def save(self) -> None:
        """Write the evaluation into the run's folder, and its figures into `figures/`."""
        folder = Path(self.run)
        write_atomically(folder / self.file, self.to_json())
        save_figures(folder, {f"{name}-{self.split}": picture for name, picture in self.pictures()})


def save_figures(run: Path, pictures: "Mapping[str, Figure]") -> dict[str, bytes]:
    """Render figures as PNG files into a run's `figures/` folder.

    Args:
        run: Folder of the run.
        pictures: Figures by file name, without `.png`.

    Returns:
        Bytes of each PNG file, by the same names.
    """
    drawn = {name: figures.render_png(picture) for name, picture in pictures.items()}
    for name, picture in drawn.items():
        make_folder(run / FIGURES)
        write_atomically(run / FIGURES / f"{name}.png", picture)
    return drawn


@dataclass(frozen=True)
class RescoredHypotheses:
    """Log-probabilities of beam-search hypotheses, from the search and recomputed.

    Attributes:
        reported: Log-probabilities that the search reported, in nats.
        again: Log-probabilities computed by teacher forcing, in nats.
        longest: Number of tokens of the longest hypothesis, `EOS` included.
    """

    reported: Float[Tensor, " hypotheses"]
    again: Float[Tensor, " hypotheses"]
    longest: int


class Task(ABC, Generic[R, D, M]):
    """Base class of a task.

    A task object has no state: one object serves all runs of the task.

    Type parameters: `R` is the recipe, `D` the prepared data, `M` the model.

    Attributes:
        perplexity: True if the loss is a cross-entropy per token, so that its exponential is the perplexity.
    """

    perplexity: ClassVar[bool] = False

    @abstractmethod
    def source(self, recipe: R) -> Source[Any, Any]:
        """Return the source of the task's examples, by the recipe's `data` section."""

    def tokenizer_names(self, recipe: R) -> tuple[str, ...]:
        """Return the names under which a run saves its tokenizers.

        Returns:
            Names in the order of the `tokenizers` arguments; one name by default.
        """
        return (TEXT_TOKENIZER,)

    @abstractmethod
    def prepare(self, recipe: R, tokenizers: tuple[Tokenizer, ...], print_fn: PrintFn) -> D:
        """Load the data and train missing tokenizers.

        Args:
            recipe: Resolved recipe.
            tokenizers: Tokenizers of a resumed run, or the tokenizer of the run that the encoder is taken from; empty
                to train new ones.
            print_fn: Prints a line.

        Returns:
            The data, with the tokenizers.
        """

    def finalize_config(self, recipe: R, data: D) -> R:
        """Return the recipe with the settings that depend on the data.

        A checkpoint saves these settings, so that the model can be built without the data.

        Args:
            recipe: Resolved recipe.
            data: Prepared data.

        Returns:
            The recipe with these settings; unchanged by default.
        """
        return recipe

    @abstractmethod
    def build(self, recipe: R, tokenizers: Sequence[Tokenizer]) -> M:
        """Build the recipe's model, initialized with the recipe's seed.

        Args:
            recipe: Resolved recipe.
            tokenizers: Tokenizers of the data, for the sizes of the vocabularies.

        Returns:
            The model, on the CPU.

        Raises:
            UserError: Sizes in the recipe contradict each other.
        """

    def build_on_meta(self, recipe: R) -> nn.Module:
        """Build the recipe's model with a tiny vocabulary, to estimate its minimum size.

        The caller builds the model on the meta device, without memory for the weights.

        Args:
            recipe: Recipe of a new run.

        Returns:
            The model, or only its encoder.
        """
        return module_of(recipe.model.kind).build_encoder(recipe.model, 5)[0]

    def check_inference_overrides(self, kept: R, recipe: R) -> None:
        """Refuse overrides that a trained model cannot follow.

        Args:
            kept: Recipe that the model was trained with.
            recipe: The same recipe with the caller's overrides.

        Raises:
            UserError: An override contradicts the trained model.
        """

    def check(self, recipe: R) -> None:
        """Validate the recipe of a new run before its data is read.

        Raises:
            UserError: The recipe has a mistake that the schema cannot express.
        """

    @abstractmethod
    def examples(self, recipe: R, data: D, model: M) -> Examples[Any]:
        """Return the training examples of a trainer.

        Args:
            recipe: Resolved recipe.
            data: Prepared data.
            model: Untrained model, to check its positions.

        Returns:
            Examples that make the batches of an epoch (batch sampler and collation).

        Raises:
            UserError: The data does not fit the model or the recipe.
        """

    @abstractmethod
    def loss(self, recipe: R) -> Loss[M, Any]:
        """Return the training loss.

        Returns:
            A function of a model and a batch that returns two sums over the batch: the loss to minimize and the loss to
            report.
        """

    def count_examples(self, train_context: TrainContext[R, D, M]) -> dict[str, int]:
        """Return the number of examples by split.

        Tasks add the numbers of skipped and truncated examples.
        """
        return {name: len(part) for name, part in train_context.data.corpus.parts().items()}

    def chance_loss(self, data: D) -> float:
        """Return the per-item loss of uniform guessing (nats for cross-entropy).

        The default is a uniform guess among the tokens of the last tokenizer: the logarithm of its vocabulary size.
        """
        return math.log(data.tokenizers[-1].size)

    @abstractmethod
    def log_dataset_summary(self, train_context: TrainContext[R, D, M], print_fn: PrintFn) -> None:
        """Print a summary of the dataset before training starts.

        Args:
            train_context: Context of the run.
            print_fn: Prints a line.
        """

    def on_train_start(self, train_context: TrainContext[R, D, M], folder: Path, log: RunLog) -> None:
        """Write files and figures that are available before the first optimizer step.

        Args:
            train_context: Context of the run.
            folder: Folder of the run.
            log: Log of the run, with TensorBoard.
        """

    @abstractmethod
    def validate(self, train_context: TrainContext[R, D, M], log: RunLog) -> Validation:
        """Measure the current model; log scores, texts and figures.

        Args:
            train_context: Context of the run.
            log: Log of the run, with TensorBoard.

        Returns:
            The score that selects the best checkpoint (higher is better), and the loss, which breaks ties.
        """

    def on_train_end(self, train_context: TrainContext[R, D, M], folder: Path, log: RunLog) -> None:
        """Draw figures after the last optimizer step, before the test.

        Args:
            train_context: Context of the run.
            folder: Folder of the run.
            log: Log of the run, with TensorBoard.
        """

    @abstractmethod
    def evaluate(
        self, run: LoadedModel[R, M], part: Any, scoring: EvaluationOptions, progress_bar: ProgressBar
    ) -> Evaluation:
        """Evaluate a trained model on a split.

        Args:
            run: Trained model.
            part: Split of the corpus, as the task's source returns it.
            scoring: Options of the evaluation.
            progress_bar: Makes a progress bar.

        Returns:
            Scores of the model on the split.
        """

    def inspect(self, run: LoadedModel[R, M], focus: InspectionRequest) -> Inspection:
        """Inspect a trained model on one or two inputs (`s2s inspect`).

        A view that the model does not support, such as attention, is omitted.

        Args:
            run: Trained model.
            focus: Inputs and views.

        Returns:
            Attention maps, saliency and further views.

        Raises:
            UserError: The input does not fit the model, or the task has nothing to inspect.
        """
        raise UserError(
            f"there is nothing to look into where the task is {dict(run.recipe)['task']}",
            where=str(run.path),
            remedy="name a run of another task",
        )

    def examples_for_inference(self, run: LoadedModel[R, M], part: Any) -> Examples[Any]:
        """Encode a split for inference: in full, without data augmentation.

        Args:
            run: Trained model.
            part: Split of the corpus, as the task's source returns it.

        Returns:
            Examples to make batches from.

        Raises:
            UserError: The task does not implement the method.
        """
        raise UserError(
            f"task {run.recipe.model_dump()['task']} does not say how it reads a part of its corpus",
            remedy="give its class a method `examples_for_inference`",
        )

    def log_probs(self, model: M, batch: Any) -> Float[Tensor, "items choices"] | None:
        """Return the log-probability of each choice for each item of a batch.

        Returns:
            Log-probabilities (items, choices); None if the task makes no choices, in which case `s2s diagnose` compares
            the loss.
        """
        return None

    def incremental_log_probs(self, model: M, batch: Any) -> Float[Tensor, "items choices"] | None:
        """Return the log-probabilities with one token fed per step and rows permuted.

        `s2s diagnose` compares them with `log_probs`, to test incremental decoding.

        Returns:
            Log-probabilities (items, choices), in the order of `log_probs`; None if the task generates no text.
        """
        return None

    def score_tokens(self, run: LoadedModel[R, M], batch: Any) -> "RescoredHypotheses | None":
        """Rescore the hypotheses that a beam search finds for a batch.

        Returns:
            Log-probabilities of the search and of teacher forcing; None for tasks without a search.
        """
        return None

    def diagnose(
        self, run: LoadedModel[R, M], part: Any, rows: Int[np.ndarray, " examples"], progress_bar: ProgressBar
    ) -> Diagnostics:
        """Examine a trained model's answers for signs of known problems.

        Args:
            run: Trained model.
            part: Examples of a split.
            rows: Row of each example in its split, from 0.
            progress_bar: Makes a progress bar.

        Returns:
            Findings, and the examples with the worst answers.
        """
        return Diagnostics(f"{len(part):,} examples; only the log of the training was looked at")


def check_positions(longest: int | None, wanted: int, remedy: str, key: str = "batches.max_length") -> None:
    """Refuse texts with more tokens than the model has positions.

    Args:
        longest: Number of positions of the model; None if unlimited.
        wanted: Number of tokens.
        remedy: Remedy for the error message.
        key: Recipe key that sets the number of tokens.

    Raises:
        UserError: The model has fewer positions.
    """
    if longest is not None and longest < wanted:
        raise UserError(
            f"the model knows {longest} positions, but {key} is {wanted}",
            where="model.max_positions",
            remedy=remedy,
        )


def log_figures(
    train_context: TrainContext[Any, Any, Any], folder: Path, log: RunLog, group: str, pictures: "Mapping[str, Figure]"
) -> None:
    """Save figures to the run's `figures/` folder and add them to TensorBoard.

    Args:
        train_context: Context of the run; its optimizer step dates the figures.
        folder: Folder of the run.
        log: Log of the run, with TensorBoard.
        group: Name of the group in TensorBoard.
        pictures: Figures by name.
    """
    for name, picture in save_figures(folder, pictures).items():
        log.add_figure(f"{group}/{name}", picture, train_context.trainer.update)
