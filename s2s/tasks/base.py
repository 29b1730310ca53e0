"""The interface of a task: what training, loading and scoring ask of it.

`s2s.run` calls a `Task` in this order: `check`, `prepare`, `resolved`, `build`, `examples`, `loss`, `introduce`,
`begin`, `validate`, `end` and, for the best checkpoint on the test set, `evaluate`.
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

from s2s.data.data_check import TrainOverlap
from s2s.data.dataset import Examples
from s2s.data.sources import Corpus, Source
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
"""Prints a line."""
TEXTS = "texts"
"""The name of what callers give in the place of a split."""
FIGURES, TOKENIZER = "figures", "tokenizer"
"""Folders of a run, and of a checkpoint."""


class PreparedData(Protocol):
    """Everything about the data that training needs."""

    @property
    def corpus(self) -> Corpus[Any]:
        """Its parts, as they were read."""
        ...

    @property
    def tokenizers(self) -> tuple[Tokenizer, ...]:
        """What cuts it; none where nothing is cut."""
        ...

    def hashes(self) -> dict[str, str]:
        """What identifies the training data and all that was made of it, whatever files are called."""
        ...


R = TypeVar("R", bound=AnyRecipe)
D = TypeVar("D", bound=PreparedData)
M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class TrainContext(Generic[R, D, M]):
    """A run that learns, by its resolved recipe: what a task is asked with while it does."""

    recipe: R
    data: D
    trainer: Trainer[M, Any]

    @property
    def model(self) -> M:
        """What learns, as it is now."""
        return self.trainer.model


@dataclass(frozen=True)
class LoadedModel(Generic[R, M]):
    """A trained model with all that is needed to use it.

    Attributes:
        path: of its run, as it was asked for.
        checkpoint: the folder that its weights came from.
        recipe: what it was trained by, with the caller's overrides.
        model: in evaluation mode, on the computer's device.
        tokenizers: what cuts its texts: none, one, or one of the source and one of the target.
        computer: device and precision.
        fetched: whether this is the copy of what lies on the hub, into which nothing is written.
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
        lowercase: Score without regard to case.
        files: In the place of a split, a file of sources and one or more files of references, line by line.
        tokenizer: sacreBLEU's tokenizer of BLEU and TER; the recipe's when None.
    """

    split: str = "test"
    lowercase: bool = False
    files: tuple[Path, ...] | None = None
    tokenizer: BleuTokenizer | None = None

    @property
    def given(self) -> bool:
        """Whether the caller gives sources and references, as files or texts, in the place of a split."""
        return self.files is not None or self.split == TEXTS

    @property
    def name(self) -> str:
        """Of the split, or of the file of the sources, with what tells it from files of that name in other folders."""
        if not self.files:
            return self.split
        places = b"\0".join(os.fsencode(path.resolve()) for path in self.files)
        return f"file-{self.files[0].name}-{hashlib.sha256(places).hexdigest()[:8]}"


@dataclass(frozen=True)
class Evaluation(ABC):
    """Scores of one checkpoint of a run on a split or a file.

    `weights` is the digest of the scored weights, `train_overlap` how much of the split is training data, if known.
    """

    run: str
    checkpoint: str
    split: str
    weights: str | None = field(default=None, kw_only=True)
    train_overlap: TrainOverlap | None = field(default=None, kw_only=True)

    def notes(self) -> list[str]:
        """Lines for the end of `__str__`: reasons to doubt the scores."""
        return [f"  {self.train_overlap}"] if self.train_overlap else []

    @abstractmethod
    def __str__(self) -> str:
        """All of it, for a terminal."""

    @abstractmethod
    def headline_metrics(self) -> dict[str, float]:
        """The numbers that stand for the whole, by name."""

    @classmethod
    def compare(cls, evaluations: Sequence[Any]) -> Sequence[Any]:
        """Tests each evaluation, all of this class, against the first; nothing where the task has no test.

        Raises:
            UserError: they are not of the same examples.
        """
        return ()

    def to_json(self) -> str:
        """Everything, and the `summary`."""
        return json.dumps(asdict(self) | self.summary(), indent=1, ensure_ascii=False) + "\n"

    def summary(self) -> dict[str, Any]:
        """What an export's card says of it: as it is told, and the numbers that stand for the whole."""
        return {"summary": {"told": str(self), "scores": self.headline_metrics()}}

    @property
    def file(self) -> str:
        """The name of the file that it is kept in."""
        return f"evaluation-{self.split}.json"

    def pictures(self) -> "Iterator[tuple[str, Figure]]":
        """What is to be seen of it, by name; nothing, unless a task has something."""
        return iter(())

    def samples(self) -> list[tuple[str, str]]:
        """Some of what was read, each with what was written; none, unless a task writes."""
        return []

    def save(self) -> None:
        """Writes it into the run's folder, and its pictures into `figures/`."""
        folder = Path(self.run)
        write_atomically(folder / self.file, self.to_json())
        save_figures(folder, {f"{name}-{self.split}": picture for name, picture in self.pictures()})


def save_figures(run: Path, pictures: "Mapping[str, Figure]") -> dict[str, bytes]:
    """Draws pictures into a run's `figures/`, by their names; gives what is in the files."""
    drawn = {name: figures.render_png(picture) for name, picture in pictures.items()}
    for name, picture in drawn.items():
        make_folder(run / FIGURES)
        write_atomically(run / FIGURES / f"{name}.png", picture)
    return drawn


@dataclass(frozen=True)
class RescoredHypotheses:
    """Log probabilities of what a search found, in nats: as it reports them, and by feeding the whole again.

    Attributes:
        reported: by the search.
        again: by teacher forcing.
        longest: most items that one of them is the sum of.
    """

    reported: Float[Tensor, " hypotheses"]
    again: Float[Tensor, " hypotheses"]
    longest: int


class Task(ABC, Generic[R, D, M]):
    """What a task has of its own; it keeps nothing: one object serves all its runs.

    Attributes:
        perplexity: whether the loss is that of pieces, so that its exponential means something.
    """

    perplexity: ClassVar[bool] = False

    @abstractmethod
    def source(self, recipe: R) -> Source[Any, Any]:
        """Where its examples come from."""

    def tokenizer_names(self, recipe: R) -> tuple[str, ...]:
        """The names under which a run keeps its tokenizers, in the order in which they are handed around: here one."""
        return (TEXT_TOKENIZER,)

    @abstractmethod
    def prepare(self, recipe: R, tokenizers: tuple[Tokenizer, ...], print_fn: PrintFn) -> D:
        """Loads the data.

        Args:
            recipe: the resolved recipe.
            tokenizers: those of a run that continues, or the one of the run that the encoder comes from; none: new ones
                are trained.
            print_fn: prints a line.
        """

    def finalize_config(self, recipe: R, data: D) -> R:
        """The recipe with what only the data tells: a checkpoint shall know it without them."""
        return recipe

    @abstractmethod
    def build(self, recipe: R, tokenizers: Sequence[Tokenizer]) -> M:
        """A model as the resolved recipe describes it, with the initial weights that its seed gives.

        Raises:
            UserError: the recipe's sizes do not fit each other.
        """

    def build_on_meta(self, recipe: R) -> nn.Module:
        """What the recipe's model takes at least, whatever its vocabulary."""
        return module_of(recipe.model.kind).build_encoder(recipe.model, 5)[0]

    def check_inference_overrides(self, kept: R, recipe: R) -> None:
        """Refuses a recipe with overrides that a model trained by the `kept` one cannot follow."""

    def check(self, recipe: R) -> None:
        """Refuses a recipe of a new run before its data are read."""

    @abstractmethod
    def examples(self, recipe: R, data: D, model: M) -> Examples[Any]:
        """What a trainer learns from.

        Raises:
            UserError: the data do not fit the model or the recipe.
        """

    @abstractmethod
    def loss(self, recipe: R) -> Loss[M, Any]:
        """What shall become small."""

    def count_examples(self, train_context: TrainContext[R, D, M]) -> dict[str, int]:
        """How many examples there are, by split; a task adds how many were left out or cut."""
        return {name: len(part) for name, part in train_context.data.corpus.parts().items()}

    def chance_loss(self, data: D) -> float:
        """The loss of a model that has learned nothing and guesses, for each item; in nats where it is an entropy.

        Here that of who guesses among the pieces of the last tokenizer.
        """
        return math.log(data.tokenizers[-1].size)

    @abstractmethod
    def log_dataset_summary(self, train_context: TrainContext[R, D, M], print_fn: PrintFn) -> None:
        """Tells in plain lines what will be learned from, before training begins."""

    def on_train_start(self, train_context: TrainContext[R, D, M], folder: Path, log: RunLog) -> None:
        """Keeps in the run's folder, and draws, what is to be seen before the first update."""

    @abstractmethod
    def validate(self, train_context: TrainContext[R, D, M], log: RunLog) -> Validation:
        """Measure the model as it is now, and write scores, texts and figures into the log.

        Returns:
            The score that decides which checkpoint is best, higher is better, and the loss, which decides between
            equal scores.
        """

    def on_train_end(self, train_context: TrainContext[R, D, M], folder: Path, log: RunLog) -> None:
        """Draws what is to be seen after the last update, before the test."""

    @abstractmethod
    def evaluate(
        self, run: LoadedModel[R, M], part: Any, scoring: EvaluationOptions, progress_bar: ProgressBar
    ) -> Evaluation:
        """Scores a trained model on a part, as the source gives it."""

    def inspect(self, run: LoadedModel[R, M], focus: InspectionRequest) -> Inspection:
        """Looks into a trained model while it reads one input or two; what it has not, such as attention, is left out.

        Raises:
            UserError: the input does not fit, or the task has nothing to show.
        """
        raise UserError(
            f"there is nothing to look into where the task is {dict(run.recipe)['task']}",
            where=str(run.path),
            remedy="name a run of another task",
        )

    def examples_for_inference(self, run: LoadedModel[R, M], part: Any) -> Examples[Any]:
        """A part of a corpus, as a trained model reads it: whole, and nothing varied.

        Raises:
            UserError: the task cannot say.
        """
        raise UserError(
            f"task {run.recipe.model_dump()['task']} does not say how it reads a part of its corpus",
            remedy="give its class a method `examples_for_inference`",
        )

    def log_probs(self, model: M, batch: Any) -> Float[Tensor, "items choices"] | None:
        """The log probability of each choice at each item of a batch, row after row.

        None where a task chooses nothing: then `s2s diagnose` compares the loss.
        """
        return None

    def incremental_log_probs(self, model: M, batch: Any) -> Float[Tensor, "items choices"] | None:
        """Log-probabilities with one token fed per step and permuted rows; None if the task generates no text."""
        return None

    def score_tokens(self, run: LoadedModel[R, M], batch: Any) -> "RescoredHypotheses | None":
        """What a search found for a batch, scored again; None where nothing is searched."""
        return None

    def diagnose(
        self, run: LoadedModel[R, M], part: Any, rows: Int[np.ndarray, " examples"], progress_bar: ProgressBar
    ) -> Diagnostics:
        """What is to be seen in a model's answers to a part; `rows` say where its examples stand in their split."""
        return Diagnostics(f"{len(part):,} examples; only the log of the training was looked at")


def check_positions(longest: int | None, wanted: int, remedy: str, key: str = "batches.max_length") -> None:
    """Refuses texts of so many pieces as a key says where a model learns fewer positions; None: it knows any number."""
    if longest is not None and longest < wanted:
        raise UserError(
            f"the model knows {longest} positions, but {key} is {wanted}",
            where="model.max_positions",
            remedy=remedy,
        )


def log_figures(
    train_context: TrainContext[Any, Any, Any], folder: Path, log: RunLog, group: str, pictures: "Mapping[str, Figure]"
) -> None:
    """Puts pictures into the run's `figures/`, and into TensorBoard under a group's name."""
    for name, picture in save_figures(folder, pictures).items():
        log.add_figure(f"{group}/{name}", picture, train_context.trainer.update)
