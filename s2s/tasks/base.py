"""Interface of a task: data, model, loss, validation and evaluation.

A task is a subclass of `Task`. `s2s.run` calls its methods in this order: `check`, `prepare`, `finalize_config`,
`build`, `examples`, `loss`, `log_dataset_summary`, `validate` (at each validation) and, for the best checkpoint on the
test set, `evaluate`.
"""

import hashlib
import html
import json
import os
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, cast

import torch
from torch import nn

from s2s.data.dataset import BaseBatch, Examples
from s2s.data.sources import Corpus, Source, Split, TrainOverlap
from s2s.data.tokenizers import Tokenizer
from s2s.errors import UserError, counted_items
from s2s.files import explain_os_error, make_folder, write_atomically
from s2s.models.base import Encoder
from s2s.recipe.installed import module_of
from s2s.recipe.schema import BleuTokenizer, TrainRecipe
from s2s.training.device import DeviceContext, derive_seed
from s2s.training.logger import RunLog
from s2s.training.progress import ProgressBar
from s2s.training.trainer import Loss, Trainer
from s2s.training.validation import Validation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from s2s.evaluation.significance import GroupComparison

_SHORT = 60
SHOWN_EXAMPLES = 1_000
"""Number of examples among which training looks for one to show at its end."""
PrintFn = Callable[[str], None]
"""Function that prints a line."""
TEXTS = "texts"
"""Name of the split for sources and references that the caller gives."""
FIGURES, TOKENIZER = "figures", "tokenizer"
"""Names of folders in a run and in a checkpoint."""


class PreparedData(Protocol):
    """Data that training needs: corpus, tokenizers and hashes."""

    @property
    def corpus(self) -> Corpus[Split]:
        """Splits of the corpus, as they were read."""
        ...

    @property
    def tokenizers(self) -> tuple[Tokenizer, ...]:
        """Tokenizers of the data; empty for data without tokens."""
        ...

    @property
    def chance_loss(self) -> float:
        """Loss per item of uniform guessing; a run that is worse has diverged."""
        ...

    def hashes(self) -> dict[str, str]:
        """Return hashes of the training data and all derived data, independent of file names."""
        ...


RecipeT = TypeVar("RecipeT", bound=TrainRecipe)
DataT = TypeVar("DataT", bound=PreparedData)
ModelT = TypeVar("ModelT", bound=nn.Module)
# Records that are only read: a `LoadedModel` of any recipe and model is a `LoadedModel[TrainRecipe, nn.Module]`.
RecipeT_co = TypeVar("RecipeT_co", bound=TrainRecipe, covariant=True)
DataT_co = TypeVar("DataT_co", bound=PreparedData, covariant=True)
ModelT_co = TypeVar("ModelT_co", bound=nn.Module, covariant=True)


@dataclass(frozen=True)
class TrainContext(Generic[RecipeT_co, DataT_co, ModelT_co]):
    """Resolved recipe, data and trainer of a training run."""

    recipe: RecipeT_co
    data: DataT_co
    trainer: Trainer[ModelT_co, BaseBatch]

    @property
    def model(self) -> ModelT_co:
        """Model in training, with its current weights."""
        return self.trainer.model


@dataclass(frozen=True)
class LoadedModel(Generic[RecipeT_co, ModelT_co]):
    """A trained model with everything needed for inference.

    Attributes:
        path: Path of the run, as the caller gave it.
        checkpoint: Folder of the checkpoint that the weights were loaded from.
        recipe: Recipe of the training, with the caller's overrides.
        model: Model in evaluation mode, on the device of `device_context`.
        tokenizers: No tokenizer, one, or one for the source and one for the target.
        fetched: True for the cached copy of a model from the hub: nothing is written into its folder.
    """

    path: Path
    checkpoint: Path
    recipe: RecipeT_co
    model: ModelT_co
    tokenizers: tuple[Tokenizer, ...]
    device_context: DeviceContext
    fetched: bool = False

    def narrow(self, recipe: type[RecipeT], model: type[ModelT]) -> "LoadedModel[RecipeT, ModelT]":
        """Return this model with the types of its task, which the caller has checked."""
        if not (isinstance(self.recipe, recipe) and isinstance(self.model, model)):
            raise TypeError(f"{self.path} is a run of task {self.recipe.task}")
        return cast("LoadedModel[RecipeT, ModelT]", self)


@dataclass(frozen=True)
class EvaluationOptions:
    """Options of an evaluation.

    Attributes:
        split: `test`, `validation`, or `texts` for sources and references that the caller gives.
        lowercase: Ignore case when scoring.
        files: A file of sources and one or more files of references, line by line, instead of a split.
        tokenizer: sacreBLEU tokenizer for BLEU and TER; None uses the recipe's.
        metrics: Metrics of translations; empty for the usual ones.
    """

    split: str = "test"
    lowercase: bool = False
    files: tuple[Path, ...] | None = None
    tokenizer: BleuTokenizer | None = None
    metrics: Sequence[str] = ()

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


@dataclass(frozen=True, repr=False)
class Evaluation(ABC):
    """Scores of one checkpoint of a run on a split or a file.

    Attributes:
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

    def __str__(self) -> str:
        """Return the evaluation as text for a terminal; by default, the headline metrics."""
        scores = ", ".join(f"{name} {value:.3f}" for name, value in self.headline_metrics().items())
        return "\n".join([f"{self.run}, checkpoint {self.checkpoint}, {self.split}: {scores}", *self.notes()])

    def __repr__(self) -> str:
        # Without the fields, which contain all sentences.
        scores = ", ".join(f"{name} {value:.4g}" for name, value in self.headline_metrics().items())
        return f"<evaluation of {self.run}, {self.split}: {scores}>"

    def _repr_html_(self) -> str:
        # Jupyter shows this instead of the fields.
        return f"<pre>{html.escape(str(self))}</pre>"

    @abstractmethod
    def headline_metrics(self) -> dict[str, float]:
        """Return the headline metrics by name."""

    @classmethod
    def compare(cls, evaluations: Sequence[Any]) -> Sequence[object]:
        """Test each evaluation against the first for statistical significance.

        Args:
            evaluations: Evaluations of this class; the first is the baseline.

        Returns:
            One comparison for each evaluation; empty if the task has no test.

        Raises:
            UserError: The evaluations are of different examples, or otherwise not comparable.
        """
        return ()

    @classmethod
    def compare_groups(cls, groups: Mapping[str, Sequence[Any]]) -> "Sequence[GroupComparison]":
        """Test each group of seeds against the first, over seeds and examples.

        Args:
            groups: Evaluations of this class, for each group those of its runs.

        Returns:
            One comparison for each metric and group; without a test, if the task has none.

        Raises:
            UserError: The evaluations are of different examples, or otherwise not comparable.
        """
        from s2s.evaluation.inference import mean
        from s2s.evaluation.significance import GroupComparison

        cls.compare([each for runs in groups.values() for each in runs])
        scores = {name: [each.headline_metrics() for each in runs] for name, runs in groups.items()}
        return [
            GroupComparison(name, metric, len(runs), mean([each[metric] for each in runs]), None, None)
            for metric in next(iter(scores.values()))[0]
            for name, runs in scores.items()
        ]

    def to_json(self) -> str:
        """Return all fields and the `summary` as JSON."""
        return json.dumps(asdict(self) | self.summary(), indent=1, ensure_ascii=False) + "\n"

    def summary(self) -> dict[str, object]:
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
        """Return some pairs of an input and the model's output, for the model card; none by default."""
        return []

    def save(self) -> None:
        """Write the evaluation into the run's folder, and its figures into `figures/`."""
        folder = Path(self.run)
        write_atomically(folder / self.file, self.to_json())
        _save_figures(folder, {f"{name}-{self.split}": picture for name, picture in self.pictures()})


def _save_figures(run: Path, pictures: "Mapping[str, Figure]") -> dict[str, bytes]:
    """Write figures into the run's `figures/` folder; return them as PNG."""
    if not pictures:
        return {}
    from s2s.training.figures import render_png

    rendered = {name: render_png(picture) for name, picture in pictures.items()}
    make_folder(run / FIGURES)
    for name, png in rendered.items():
        write_atomically(run / FIGURES / f"{name}.png", png)
    return rendered


def short_text(texts: Sequence[str]) -> str:
    """Return the first text that makes a short word of a shell, or the beginning of the first one.

    Example:
        >>> short_text(["word " * 20, "A dog runs."])
        'A dog runs.'
    """
    plain = (text for text in texts if text.strip() and len(text) <= _SHORT and text[0] != "-" and "'" not in text)
    return next(plain, textwrap.shorten(texts[0], _SHORT, placeholder=""))


class Task(ABC, Generic[RecipeT, DataT, ModelT]):
    """Base class of a task.

    A task object has no state: one object serves all runs of the task. Optional methods, for figures, `s2s inspect` and
    `s2s diagnose`, are in `s2s.tasks.protocols`.

    Attributes:
        perplexity: True if the loss is a cross-entropy per token, so that its exponential is the perplexity.
    """

    perplexity: ClassVar[bool] = False

    @abstractmethod
    def source(self, recipe: RecipeT) -> Source[Any, Any]:
        """Return the source of the task's examples, by the recipe's `data` section."""

    @abstractmethod
    def prepare(self, recipe: RecipeT, tokenizers: tuple[Tokenizer, ...], print_fn: PrintFn) -> DataT:
        """Load the data and train missing tokenizers.

        Args:
            tokenizers: Tokenizers of a resumed run, or the tokenizer of the run that the encoder is taken from; empty
                to train new ones.

        Returns:
            The data, with the tokenizers.
        """

    def finalize_config(self, recipe: RecipeT, data: DataT) -> RecipeT:
        """Return the recipe with the settings that depend on the data; unchanged by default.

        A checkpoint saves these settings, so that the model can be built without the data.
        """
        return recipe

    @abstractmethod
    def build(self, recipe: RecipeT, tokenizers: Sequence[Tokenizer]) -> ModelT:
        """Build the recipe's model, initialized with the recipe's seed.

        Args:
            tokenizers: Tokenizers of the data, for the sizes of the vocabularies.

        Returns:
            The model, on the CPU.

        Raises:
            UserError: Sizes in the recipe contradict each other.
        """

    def check(self, recipe: RecipeT) -> None:
        """Validate the recipe of a new run before its data is read.

        Raises:
            UserError: The recipe has a mistake that the schema cannot express.
        """

    @abstractmethod
    def examples(self, recipe: RecipeT, data: DataT, model: ModelT) -> Examples[Any]:
        """Return the training examples of a trainer.

        Args:
            model: Untrained model, to check its positions.

        Returns:
            Examples that make the batches of an epoch (batch sampler and collation).

        Raises:
            UserError: The data does not fit the model or the recipe.
        """

    @abstractmethod
    def loss(self, recipe: RecipeT) -> Loss[ModelT, Any]:
        """Return the training loss.

        Returns:
            A function of a model and a batch that returns two sums over the batch: the loss to minimize and the loss to
            report.
        """

    def log_dataset_summary(self, train_context: TrainContext[RecipeT, DataT, ModelT], print_fn: PrintFn) -> None:
        """Print a summary of the dataset before training starts; by default, the size of each split."""
        noun = self.source(train_context.recipe).item_name
        for name, part in train_context.data.corpus.splits().items():
            print_fn(f"{name}: {counted_items(len(part), noun)}")

    @abstractmethod
    def validate(self, train_context: TrainContext[RecipeT, DataT, ModelT], log: RunLog) -> Validation:
        """Measure the current model; log scores, texts and figures.

        Args:
            log: Log of the run, with TensorBoard.

        Returns:
            The value of `validation.metric`, which selects the best checkpoint, and the loss, which breaks ties.
        """

    @abstractmethod
    def evaluate(
        self, run: LoadedModel[RecipeT, ModelT], part: Any, scoring: EvaluationOptions, progress_bar: ProgressBar
    ) -> Evaluation:
        """Evaluate a trained model on a split.

        Args:
            part: Split of the corpus, as the task's source returns it.
            progress_bar: Makes a progress bar.

        Returns:
            Scores of the model on the split.
        """


AnyTask = Task[TrainRecipe, PreparedData, nn.Module]
"""Task of any kind, as `s2s.run.tasks.task_of` returns it."""
AnyContext = TrainContext[TrainRecipe, PreparedData, nn.Module]
"""Training run of any task."""
AnyRun = LoadedModel[TrainRecipe, nn.Module]
"""Trained model of any task."""


def build_encoder(recipe: TrainRecipe, vocabulary: int) -> tuple[Encoder, int]:
    """Build the encoder of the recipe's model, initialized with the recipe's seed.

    Returns:
        The encoder, on the CPU, and the width of its summary.
    """
    torch.default_generator.manual_seed(derive_seed(recipe.seeds.initialization))
    return module_of(recipe.model.kind).build_encoder(recipe.model, vocabulary)


def check_positions(longest: int | None, wanted: int, remedy: str, key: str = "batches.max_length") -> None:
    """Refuse a recipe whose texts may have more tokens than the model has positions.

    Args:
        longest: Number of positions of the model; None if unlimited.
        wanted: Number of tokens that `key` allows.
    """
    if longest is not None and longest < wanted:
        raise UserError(f"the model has {longest} positions, but {key} is {wanted}", "model.max_positions", remedy)


def log_figures(
    train_context: AnyContext, folder: Path, log: RunLog, group: str, pictures: "Mapping[str, Figure]"
) -> None:
    """Write figures into the run's `figures/` folder, and add them to a group in TensorBoard."""
    for name, png in _save_figures(folder, pictures).items():
        log.add_figure(f"{group}/{name}", png, train_context.trainer.update)


E = TypeVar("E", bound=Evaluation)


def check_comparable(
    evaluations: Sequence[E],
    examples: Callable[[E], object],
    remedy: str = "compare runs on the same data, e.g. by data.corpus, data.root and data.test overrides",
) -> None:
    """Refuse evaluations of different examples.

    Args:
        examples: Returns the examples of an evaluation, as a comparable object.
    """
    first = evaluations[0]
    for other in evaluations[1:]:
        if examples(other) != examples(first):
            raise UserError(f"{first.run} and {other.run} have different {first.split} sets", remedy=remedy)


def check_tokenizers(tokenizers: Sequence[str]) -> None:
    """Refuse to compare BLEU scores of different sacreBLEU tokenizers."""
    if len(set(tokenizers)) > 1:
        what = f"the runs are scored with different tokenizers: {', '.join(dict.fromkeys(tokenizers))}"
        raise UserError(what, remedy="score all runs with one tokenizer: --tokenize NAME")


def save_probe(run: AnyRun, files: Mapping[str, str | bytes]) -> str:
    """Write the result of a probe into the run's folder, unless it is read-only or a cached model of the hub.

    Args:
        files: Content by file name.

    Returns:
        The reason why nothing was saved; empty if it was saved.
    """
    if run.fetched:
        return f"{run.path} is in the cache, which all users of this model share"
    try:
        for name, content in files.items():
            write_atomically(run.path / name, content)
    except OSError as error:
        return str(explain_os_error(error))
    return ""
