"""Recipe of `task: text-to-text`: corpora with prefixes, mixing and metrics."""

from typing import Annotated, Generic, Literal, Self

from pydantic import Field, model_validator

from s2s.recipe import schema
from s2s.recipe.installed import translator_settings
from s2s.recipe.pairs import (
    BatchSettings,
    FilterSettings,
    Mixing,
    PairRecipe,
    PairSettings,
    Prefix,
    TrainingSettings,
    Weight,
)

Metric = Literal["loss", "bleu", "chrf", "exact", "cer", "wer", "accuracy", "macro_f1"]
OF_CLASSES = ("accuracy", "macro_f1")
MEAN, LOSS = "mean", "loss"


class LooseFilters(FilterSettings):
    """Filters of training pairs; pairs with an empty side are always dropped."""

    max_ratio: Annotated[float, Field(gt=1, le=1e6)] | None = None
    """Maximum ratio of the longer side to the shorter side, in characters.

    Pairs of less than 20 characters pass. Null disables the filter.
    """


class CorpusSettings(PairSettings):
    """A task of the mixture: its pairs, prefix and metric."""

    prefix: Prefix = ""
    """Prefix of each source, such as `"plural: "`, which selects the task."""
    metric: Metric = "exact"
    """Metric of the task.

    The metrics of `validation.metric` of task `translation`; with `answers`, `accuracy` or `macro_f1`.
    """
    bleu_tokenizer: schema.BleuTokenizer = "auto"
    """sacreBLEU tokenizer; see `validation.bleu_tokenizer` of task `translation`."""
    answers: schema.Classes | None = None
    """Possible outputs; null allows any text.

    The model chooses the answer with the highest log-probability, so that it never gives any other output.
    """
    objective: Literal["pairs", "span-corruption"] = "pairs"
    """Training objective.

    `pairs`: generate the target. `span-corruption`: generate the spans that were removed from `source` (Raffel et al.
    2020, section 3.1.4); `target` is not read, and `metric` is `loss`.
    """
    share: schema.Share = 0.15
    """Share of the tokens that span corruption removes."""
    span: Annotated[float, Field(ge=1, le=100)] = 3.0
    """Mean length of the removed spans in tokens."""
    weight: Weight = 1.0
    """Factor of the corpus' sampling rate; see `mixing`."""
    filters: LooseFilters = LooseFilters()  # pyright: ignore[reportIncompatibleVariableOverride]
    """Filters of training pairs."""

    @model_validator(mode="after")
    def _check_metric(self) -> Self:
        if self.objective == "span-corruption" and (self.metric != LOSS or self.answers):
            raise ValueError("span-corruption has no answers and is measured by its loss; set metric: loss")
        if (self.metric in OF_CLASSES) != (self.answers is not None) and self.metric != LOSS:
            raise ValueError(
                f"metric is {self.metric}, and answers are {'given' if self.answers else 'not given'}; accuracy and "
                "macro_f1 are of tasks with answers, all others but loss of tasks without; set metric: loss, or "
                f"{'leave out' if self.answers else 'name the'} answers"
            )
        return self


class MixtureSettings(schema.DataSection):
    """The corpora and their sampling rates."""

    corpora: Annotated[dict[schema.Name, CorpusSettings], Field(min_length=1)]
    """The tasks by name."""
    mixing: Mixing = "size"
    """Sampling rates p of the corpora, which have n examples each.

    `size`: p ~ n; `equal`: all the same; or a temperature T of 1 or more: p ~ n^(1/T), which is `size` for 1 and
    approaches `equal` for large T. Each rate is multiplied by the corpus' `weight`. An epoch has as many examples as
    all corpora together, and a corpus that is used up is repeated in a new order.
    """

    @property
    def weights(self) -> list[float]:
        """Sampling weights of the corpora, in their order."""
        return [corpus.weight for corpus in self.corpora.values()]

    @property
    def train(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Name of the split; each corpus has its own files."""
        return "train"

    @property
    def validation(self) -> int | str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Number of held-out training pairs; the name of the split if there are none."""
        return self._held_out("validation") or "validation"

    @property
    def test(self) -> int | str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Number of held-out pairs or name of the split; None without a test set."""
        there = any(corpus.test is not None for corpus in self.corpora.values())
        return self._held_out("test") or ("test" if there else None)

    def _held_out(self, split: str) -> int:
        sizes = [getattr(each, split) for each in self.corpora.values() if each.corpus not in schema.MADE]
        return sum(size for size in sizes if isinstance(size, int))


class MixtureValidation(schema.PauseSettings):
    """Schedule and metrics of validations and checkpoints."""

    metric: schema.Word = MEAN
    """Metric that selects the best checkpoint.

    `mean`: mean of the tasks' own metrics in percent (100 minus the rate if lower is better; a task with metric `loss`
    is left out); `loss`: loss over all target tokens; or the name of a task.
    """
    sentences: schema.Examples | None = None
    """Number of validation examples to generate for each task; null uses all."""
    beam: schema.Beam = 1
    """Beam size of the outputs at validations."""


class TextToTextRecipe(PairRecipe[schema.Model], Generic[schema.Model]):
    """Recipe of a text-to-text model."""

    task: Literal["text-to-text"]
    """The task: generate a target for each source, selected by its prefix."""
    data: MixtureSettings
    """The corpora and their sampling rates."""
    tokenizer: schema.PieceSettings = schema.PieceSettings()
    """Tokenizer: one vocabulary for all sources, prefixes and targets."""
    batches: BatchSettings = BatchSettings()
    """Batch size and maximum length."""
    training: TrainingSettings = TrainingSettings()
    """Optimizer, learning-rate schedule and regularization."""
    validation: MixtureValidation = MixtureValidation()
    """Schedule and metrics of validations and checkpoints."""
    decoding: schema.DecodingSettings = schema.DecodingSettings()
    """Beam search and length limits."""

    @model_validator(mode="after")
    def _check_validation_metric(self) -> Self:
        wanted, tasks = self.validation.metric, self.data.corpora
        if wanted not in (MEAN, LOSS, *tasks):
            raise ValueError(f"validation.metric is {wanted!r}; expected one of mean, loss, {', '.join(tasks)}")
        if wanted == MEAN and all(task.metric == LOSS for task in tasks.values()):
            raise ValueError("validation.metric is mean, but all tasks are measured by their loss; set it to loss")
        if taken := [name for name in tasks if name in (MEAN, LOSS)]:
            raise ValueError(f"data.corpora has a task {taken[0]}, which validation.metric means otherwise; rename it")
        return self


SCHEMA = schema.TaskSchema(
    TextToTextRecipe,
    translator_settings,
    command="translate",
    use="write:      s2s translate {} {}",
    example="'A sentence.' --task NAME",
    changeable=("data", "decoding", "device"),
    scored_by=("--beam", "--tokenize"),
)
