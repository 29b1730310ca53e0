"""Scores of a text-to-text model on each task, by the task's own metric."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from s2s.data.pairs import with_prefix
from s2s.decoding.generate import LengthLimited, length_limited
from s2s.errors import counted
from s2s.evaluation.classification import ClassificationScores, classification_scores
from s2s.evaluation.metrics import Score, score, score_lines, scores
from s2s.evaluation.significance import ClassifierComparison, Comparison, compare, compare_classifiers
from s2s.evaluation.tokenization import choose_tokenization, describe_tokenizer
from s2s.models.base import Seq2Seq
from s2s.recipe.schema import BleuTokenizer
from s2s.tasks.base import Evaluation, LoadedModel, check_comparable, check_tokenizers
from s2s.tasks.seq2seq import build_translator
from s2s.tasks.text_generation import describe_search
from s2s.tasks.text_to_text.answers import log_probabilities, shares
from s2s.tasks.text_to_text.recipe import LOSS, CorpusSettings, TextToTextRecipe
from s2s.training.progress import ProgressBar
from s2s.training.validation import LOWER_IS_BETTER

if TYPE_CHECKING:
    import datasets

Run = LoadedModel[TextToTextRecipe, Seq2Seq]


@dataclass(frozen=True)
class TaskScore:
    """Score and outputs of a model on one task.

    Attributes:
        value: Score by this metric in percent, or the loss in nats per target token.
        sources: Sources without prefix.
        written: Output of the model for each source.
        texts: All text metrics with confidence intervals, for tasks without answers, if computed by `with_intervals`.
        classes: All classification metrics, for tasks with answers.
        tokenizer: sacreBLEU tokenizer for BLEU and TER.
        length_limited: Number of outputs that the length limit ended; None if there are none.
    """

    task: str
    metric: str
    value: float
    sources: list[str]
    references: list[str]
    written: list[str]
    texts: dict[str, Score] | None = None
    classes: ClassificationScores | None = None
    tokenizer: BleuTokenizer = "13a"
    length_limited: LengthLimited | None = None

    def __str__(self) -> str:
        unit = " nats per token" if self.metric == LOSS else ""
        head = f"{self.task}: {self.metric} {self.value:.2f}{unit}, {counted(len(self.sources), 'example')}"
        more = [str(self.classes)] if self.classes else score_lines(self.texts or {})
        note = describe_tokenizer(self.tokenizer, self.references) if self.texts else ""
        limited = [f"  {self.length_limited}"] if self.length_limited else []
        return "\n".join([head, *([f"  {note}"] if note else []), *more, *limited])

    @property
    def percent(self) -> float | None:
        """Contribution to the mean in percent: 100 minus a rate; None for a loss."""
        return None if self.metric == LOSS else 100 - self.value if self.metric in LOWER_IS_BETTER else self.value


@dataclass(frozen=True)
class TaskComparison:
    """Comparison of two runs on one task."""

    task: str
    found: Comparison | ClassifierComparison

    def __str__(self) -> str:
        return f"{self.task}: {self.found}"


@dataclass(frozen=True, repr=False)
class TextToTextEvaluation(Evaluation):
    """Scores of a run on a split of all tasks.

    Attributes:
        lowercase: True if scored without regard to case, because the model writes only lower case.
        mean: Mean of the tasks' metrics in percent; None if all are losses.
        sampling_seed: Seed of the sampling; None for a beam search.
    """

    beam: int
    lowercase: bool
    mean: float | None
    tasks: list[TaskScore]
    sampling_seed: int | None = field(default=None, kw_only=True)

    def __str__(self) -> str:
        mean = "" if self.mean is None else f", mean of the tasks' metrics {self.mean:.2f}"
        case = ", lower-cased" if self.lowercase else ""
        what = f"{len(self.tasks)} tasks, {describe_search(self.beam, self.sampling_seed)}{case}{mean}"
        head = f"{self.run}, checkpoint {self.checkpoint}, {self.split}: {what}"
        return "\n".join([head, *map(str, self.tasks), *self.notes()])

    def headline_metrics(self) -> dict[str, float]:
        mean = {} if self.mean is None else {"mean": self.mean}
        return mean | {f"{each.task}/{each.metric}": each.value for each in self.tasks}

    def samples(self) -> list[tuple[str, str]]:
        """Return the first source of each task, with the output."""
        return [(f"{each.task}: {each.sources[0]}", each.written[0]) for each in self.tasks if each.written]

    @classmethod
    def compare(cls, evaluations: Sequence[Self]) -> list[TaskComparison]:
        """Compare runs task by task, for all tasks that have a significance test."""
        first = evaluations[0]
        check_comparable(
            evaluations,
            lambda each: [(task.task, task.sources, task.references) for task in each.tasks],
            "compare runs with the same data.corpora",
        )
        found = []
        for number, task in enumerate(first.tasks):
            written = {each.run: each.tasks[number].written for each in evaluations}
            tested: Sequence[Comparison | ClassifierComparison] = ()
            name, cases = task.task, {each.lowercase for each in evaluations}
            case = ", without regard to case" if len(cases) > 1 else ""
            if task.classes:
                fold = str.lower if True in cases else str
                names = {fold(each.name): number for number, each in enumerate(task.classes.classes)}
                # Other runs may have other answers, or none: an output that is none of the first run's is wrong.
                numbers = {
                    run: np.array([names.get(fold(each), -1) for each in answers]) for run, answers in written.items()
                }
                truth = np.array([names[fold(text.strip())] for text in task.references])
                tested, name = compare_classifiers(truth, numbers), name + case
            elif task.texts:
                check_tokenizers([each.tasks[number].tokenizer for each in evaluations])
                tokenization = choose_tokenization(task.references, task.tokenizer)
                tested = compare(written, task.references, True in cases, tokenization=tokenization)
                name += case
            found += [TaskComparison(name, each) for each in tested]
        return found


def mean_of(found: Sequence[TaskScore]) -> float | None:
    """Return the mean of the tasks' own metrics in percent; None if all metrics are losses."""
    values = [each.percent for each in found if each.percent is not None]
    return sum(values) / len(values) if values else None


def score_task(
    run: Run, name: str, settings: CorpusSettings, part: "datasets.Dataset", progress_bar: ProgressBar, loss: float
) -> TaskScore:
    """Generate or choose an output for each source of a task, and score the outputs without confidence intervals."""
    sources, references = list(part["source"]), list(part["target"])
    if settings.objective == "span-corruption":
        return TaskScore(name, LOSS, loss, sources, references, [])
    prefixed = [with_prefix(settings.prefix, source) for source in sources]
    with progress_bar(name, len(sources)) as advance:
        if settings.answers:
            cut = run.tokenizers[0], prefixed, settings.answers
            probabilities = shares(log_probabilities(run.model, *cut, run.recipe.decoding.batch, advance))
            truth = np.array([settings.answers.index(text.strip()) for text in references])
            classes = classification_scores(truth, probabilities, settings.answers)
            written = [settings.answers[number] for number in probabilities.argmax(axis=1)]
            value = {"accuracy": classes.accuracy.value, "macro_f1": classes.macro_f1, LOSS: loss}[settings.metric]
            return TaskScore(name, settings.metric, value, sources, references, written, classes=classes)
        translator, distributed = build_translator(run), run.device_context.distributed
        found = distributed.map_sharded(
            lambda some: [(each.text, each.at_length_limit) for each in translator.translate(some, advance)], prefixed
        )
    written = [text for text, _ in found]
    limited = length_limited([cut for _, cut in found], translator.length_settings)
    metric, value = settings.metric, loss
    tokenization = choose_tokenization(references, settings.bleu_tokenizer)
    if metric != LOSS:
        # Confidence intervals, and TER, take longer than the search; a learning curve does not need them.
        value = score(written, references, run.tokenizers[0].writes_lowercase, (metric,), tokenization)[metric]
    tokenizer = tokenization.tokenizer
    return TaskScore(name, metric, value, sources, references, written, tokenizer=tokenizer, length_limited=limited)


def with_intervals(found: TaskScore, lowercase: bool) -> TaskScore:
    """Add all text metrics with confidence intervals, unless the task has given answers or no outputs."""
    if not found.written or found.classes:
        return found
    tokenization = choose_tokenization(found.references, found.tokenizer)
    return replace(found, texts=scores(found.written, found.references, lowercase, tokenization=tokenization))
