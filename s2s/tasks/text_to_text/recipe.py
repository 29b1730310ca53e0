"""What a recipe of `task: text-to-text` says: corpora with prefixes, how they are mixed, how each is scored."""

from typing import Annotated, Generic, Literal, Self

from pydantic import Field, model_validator

from s2s.recipe import schema
from s2s.recipe.installed import translator_settings
from s2s.recipe.pairs import BatchSettings, FilterSettings, Mixing, PairSettings, Prefix, TrainingSettings, Weight

Metric = Literal["loss", "bleu", "chrf", "exact", "cer", "wer", "accuracy", "macro_f1"]
OF_CLASSES = ("accuracy", "macro_f1")
MEAN, LOSS = "mean", "loss"


class LooseFilters(FilterSettings):
    """Which training pairs are dropped before anything is learned from them; pairs with an empty side always are."""

    max_ratio: Annotated[float, Field(gt=1, le=1e6)] | None = None
    """Largest ratio of the longer side to the shorter one, in characters; pairs under 20 characters pass."""


class CorpusSettings(PairSettings):
    """One task of the mixture: its pairs, its prefix, and how it is scored."""

    prefix: Prefix = ""
    """What stands before each source, such as `"plural: "`: by it the model knows what to write."""
    metric: Metric = "exact"
    """How the task is scored: as `validation.metric` of task `translation`, or, where there are `answers`, `accuracy`
    or `macro_f1`."""
    bleu_tokenizer: schema.BleuTokenizer = "auto"
    """sacreBLEU's tokenizer of BLEU and TER, as `validation.bleu_tokenizer` of task `translation`."""
    answers: schema.Classes | None = None
    """All that may be written. The log probability of each answer is computed, and the largest is taken, so that
    nothing else is ever answered; null: any text."""
    objective: Literal["pairs", "span-corruption"] = "pairs"
    """`pairs`: to write the target. `span-corruption`: of `source` alone, to write what was taken out of it (Raffel et
    al. 2020, section 3.1.4); then `target` is not read, and `metric` is `loss`."""
    share: schema.Share = 0.15
    """Share of the pieces that span corruption takes out."""
    span: Annotated[float, Field(ge=1, le=100)] = 3.0
    """Mean length of the spans that it takes out, in pieces."""
    weight: Weight = 1.0
    """What its rate is multiplied by; see `mixing`."""
    filters: LooseFilters = LooseFilters()  # pyright: ignore[reportIncompatibleVariableOverride]
    """Which training pairs are dropped."""

    @model_validator(mode="after")
    def _metric_fits(self) -> Self:
        if self.objective == "span-corruption" and (self.metric != LOSS or self.answers):
            raise ValueError("span-corruption has no answers and is measured by its loss; set metric: loss")
        if (self.metric in OF_CLASSES) != (self.answers is not None) and self.metric != LOSS:
            raise ValueError(
                f"metric is {self.metric}, and answers are {'given' if self.answers else 'not given'}; accuracy and "
                "macro_f1 are of tasks with answers, all others but loss of tasks without; set metric: loss, or "
                f"{'leave out' if self.answers else 'name the'} answers"
            )
        return self


class MixtureSettings(schema.Section):
    """The corpora, and how often an example of each is drawn."""

    corpora: Annotated[dict[schema.Name, CorpusSettings], Field(min_length=1)]
    """The tasks, each by a name."""
    mixing: Mixing = "size"
    """Rates p of the corpora, which have n examples each: `size`, p ~ n; `equal`, all the same; or a temperature T, 1
    or more, p ~ n^(1/T), of which 1 is `size` and the limit is `equal`; each times the corpus' `weight`. An epoch has
    as many examples as all corpora together; a corpus that is drawn more often begins again, in another order, when all
    of it was seen."""

    @property
    def weights(self) -> list[float]:
        """Of the corpora, in their order."""
        return [corpus.weight for corpus in self.corpora.values()]

    @property
    def train(self) -> str:
        """The split's name: each corpus says where it is."""
        return "train"

    @property
    def validation(self) -> int | str:
        """How many pairs are held out of training data; the split's name where none are."""
        return self._held_out("validation") or "validation"

    @property
    def test(self) -> int | str | None:
        """As `validation`; None where no corpus has a test set."""
        there = any(corpus.test is not None for corpus in self.corpora.values())
        return self._held_out("test") or ("test" if there else None)

    def _held_out(self, split: str) -> int:
        sizes = [getattr(each, split) for each in self.corpora.values() if each.corpus not in schema.MADE]
        return sum(size for size in sizes if isinstance(size, int))


class MixtureValidation(schema.PauseSettings):
    """When training pauses to measure and to save."""

    metric: schema.Word = MEAN
    """What decides which checkpoint is best: `mean`, of the tasks' own metrics in percent (100 less the rate where
    lower is better; a task measured by its loss is left out), `loss`, of all target pieces, or the name of a task."""
    sentences: schema.Examples | None = None
    """How many validation examples of each task are written; all when null."""
    beam: schema.Beam = 1
    """Beam of what is written while training."""


class TextToTextRecipe(schema.FineTunedRecipe[schema.Model], Generic[schema.Model]):
    """Text to text: several tasks, one model, and a prefix that says which task it is."""

    task: Literal["text-to-text"]
    """What is learned: to write a target for each source, by its prefix."""
    data: MixtureSettings
    """The corpora, and how they are mixed."""
    tokenizer: schema.PieceSettings = schema.PieceSettings()
    """How text becomes pieces: one vocabulary of all sources, prefixes and targets."""
    batches: BatchSettings = BatchSettings()
    """How examples become batches."""
    training: TrainingSettings = TrainingSettings()
    """The optimisation."""
    validation: MixtureValidation = MixtureValidation()
    """When training pauses to measure and to save."""
    decoding: schema.DecodingSettings = schema.DecodingSettings()
    """How text is generated."""

    @model_validator(mode="after")
    def _metric_is_there(self) -> Self:
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
    use="write:  echo 'A sentence.' | s2s translate {} --task NAME",
    changeable=("data", "decoding", "device"),
    scored_by=("--beam", "--tokenize"),
)
