"""Base class of classification tasks, for texts and for images.

`ClassificationTask` has the loss, validation, evaluation and inspection; a subclass adds the reading of its examples.
"""

import itertools
import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from s2s.data.dataset import LabelledBatch, LabelledExamples, iterate_batches
from s2s.data.sources import Corpus, Split
from s2s.decoding.generate import one_line
from s2s.errors import Refuse, UserError, counted
from s2s.evaluation import classification as measures
from s2s.evaluation.significance import ClassifierComparison, GroupComparison, compare_classifiers, compare_groups
from s2s.files import RESTORE
from s2s.models.base import Classifier
from s2s.recipe.labelled import LabelledRecipe, LabelledTraining, listed_classes
from s2s.tasks.base import (
    Evaluation,
    EvaluationOptions,
    LoadedModel,
    PreparedData,
    PrintFn,
    Task,
    TrainContext,
    check_comparable,
    log_figures,
)
from s2s.tasks.data_check import missing_classes
from s2s.tasks.figures import Curve, class_counts_picture, confusion_picture, curves_picture, reliability_picture
from s2s.training.distributed import SINGLE_PROCESS, Distributed
from s2s.training.logger import METRICS, RunLog, read_metrics
from s2s.training.progress import ProgressBar
from s2s.training.trainer import Loss
from s2s.training.validation import LOWER_IS_BETTER, Validation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from s2s.evaluation.signs import Diagnostics, Finding
    from s2s.inspection.classifier import Read
    from s2s.inspection.inspection import Inspection, InspectionRequest

LabelledT = TypeVar("LabelledT", bound=LabelledRecipe)
TrainingT = TypeVar("TrainingT", bound=LabelledTraining)


class LabelledSplit(Split, Protocol):
    """Split of examples with classes."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the classes."""
        ...

    @property
    def labels(self) -> Int[np.ndarray, " examples"]:
        """Class of each example, as an index of `names`."""
        ...

    def counts(self) -> dict[str, int]:
        """Return the number of examples of each class."""
        ...


class LabelledData(PreparedData, Protocol):
    """Prepared data of a classification task."""

    @property
    def corpus(self) -> Corpus[LabelledSplit]:
        """Splits of the corpus, as they were read."""
        ...


LabelledDataT = TypeVar("LabelledDataT", bound=LabelledData)

# Number of training examples that are classified at each validation.
_SAMPLED = 1000

Advance = Callable[[int], object]


def classification_loss(
    smoothing: float, weights: Sequence[float] | None = None, gamma: float = 0.0
) -> Loss[Classifier, LabelledBatch]:
    """Return the cross-entropy loss of a classifier, with label smoothing, class weights and focal loss.

    Args:
        smoothing: Label smoothing, in [0, 1).
        weights: Weight of each class; None: all 1.
        gamma: Exponent of the focal loss, 0 or more; 0: cross-entropy.

    Returns:
        A function of a model and a batch that returns two sums over the examples, in nats: the loss to minimize and the
        plain cross-entropy to report.
    """
    table = None if weights is None else torch.tensor(weights)

    def loss(model: Classifier, batch: LabelledBatch) -> tuple[Tensor, Tensor]:
        scores = model(batch.source, batch.source_valid)
        # At least fp32; fp64 scores stay fp64, which `s2s diagnose` needs.
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        plain = functional.cross_entropy(scores, batch.labels, reduction="sum")
        if not smoothing and table is None and not gamma:
            return plain, plain
        if table is None and not gamma:
            return functional.cross_entropy(scores, batch.labels, reduction="sum", label_smoothing=smoothing), plain
        own = functional.cross_entropy(scores, batch.labels, reduction="none", label_smoothing=smoothing)
        if table is not None:
            own = own * table.to(scores)[batch.labels]
        if gamma:
            right = scores.softmax(dim=1).gather(1, batch.labels.unsqueeze(1)).squeeze(1)
            missed = 1 - right
            if gamma < 1:
                # The derivative of the power is infinite at 0, where the probability rounds to 1.
                missed = missed.clamp(min=torch.finfo(missed.dtype).tiny)
            own = own * missed**gamma
        return own.sum(), plain

    return loss


def with_class_weights(training: TrainingT, counts: Mapping[str, int]) -> TrainingT:
    """Return the training section with numbers in place of balanced class weights.

    Args:
        training: Training section.
        counts: Number of training examples of each class; classes without examples get the weight 1.

    Raises:
        UserError: A weight is of no class.

    Example:
        >>> with_class_weights(LabelledTraining(class_weights="balanced"), {"ham": 30, "spam": 10}).class_weights
        {'ham': 0.666667, 'spam': 2.0}
    """
    weights = training.class_weights
    if weights is None:
        return training
    if weights == "balanced":
        total = sum(counts.values())
        weights = {name: round(total / (len(counts) * n), 6) if n else 1.0 for name, n in counts.items()}
    elif unknown := [name for name in weights if name not in counts]:
        raise UserError(
            f"{unknown[0]!r} is none of the classes {listed_classes(tuple(counts))}",
            where="training.class_weights",
            remedy="name classes of the data",
        )
    return training.model_copy(update={"class_weights": weights})


def class_probabilities(
    model: Classifier,
    examples: LabelledExamples,
    advance: Advance = lambda count: None,
    distributed: Distributed = SINGLE_PROCESS,
) -> Float[np.ndarray, "examples classes"]:
    """Compute the class probabilities of each example, in fp32 and without dropout.

    The model stays in evaluation mode. With several ranks, each rank classifies a part, and all
    ranks return the full result.

    Args:
        advance: Called after each batch with its number of examples.

    Returns:
        Probabilities (examples, classes).
    """
    model.eval()
    found = np.zeros((len(examples), model.head.out_features))
    with torch.inference_mode():
        for rows, batch in iterate_batches(
            examples, model.head.weight.device, distributed.rank, distributed.world_size
        ):
            scores = model(batch.source, batch.source_valid)
            # To the CPU first, because Apple GPUs have no float64.
            found[rows] = scores.cpu().double().softmax(dim=1).numpy()
            advance(len(rows))
    # Each row is set on one rank and 0 on the others.
    return np.sum(distributed.all_gather_object(found), axis=0)


def _measure(model: Classifier, examples: LabelledExamples, distributed: Distributed) -> dict[str, float]:
    """Return the loss in nats, and accuracy and macro-F1 in percent."""
    labels, probabilities = examples.labels, class_probabilities(model, examples, distributed=distributed)
    predicted, classes = probabilities.argmax(axis=1), probabilities.shape[1]
    each = measures.per_class(measures.confusion(labels, predicted, classes), [str(n) for n in range(classes)])
    return {
        "loss": measures.cross_entropy_of(labels, probabilities),
        "accuracy": measures.accuracy(labels, predicted).value,
        "macro_f1": measures.macro_f1(each),
    }


class ClassificationTask(Task[LabelledT, LabelledDataT, Classifier]):
    """Base class of tasks that assign a class to each example."""

    evaluation: ClassVar[type["ClassificationEvaluation"]]
    """Class of the task's evaluations."""

    @abstractmethod
    def training_examples_for_inference(
        self, train_context: TrainContext[LabelledT, LabelledDataT, Classifier]
    ) -> tuple[LabelledExamples, LabelledExamples]:
        """Encode training and validation examples for inference."""

    @abstractmethod
    def examples_for_inference(self, run: LoadedModel[LabelledT, Classifier], part: Any) -> LabelledExamples:
        """Encode a labelled split for inference."""

    @abstractmethod
    def parse_inputs(
        self, run: LoadedModel[LabelledT, Classifier], lines: Sequence[str], refuse: Refuse | None = None
    ) -> LabelledExamples:
        """Read the example that each input line names.

        Args:
            lines: A text or the path of an image for each example.
            refuse: Receives the error of each line that cannot be read; such a line gets a placeholder example.

        Returns:
            Examples with meaningless labels.

        Raises:
            UserError: A line cannot be read, and `refuse` is None.
        """

    @abstractmethod
    def explain_prediction(
        self, run: LoadedModel[LabelledT, Classifier], part: Any, batch: LabelledBatch, said: "Prediction"
    ) -> "Prediction":
        """Add the evidence for a prediction, such as the most relevant words."""

    @abstractmethod
    def inspect_example(self, run: LoadedModel[LabelledT, Classifier], batch: LabelledBatch, text: str) -> "Read":
        """Prepare an example for `s2s inspect`."""

    @abstractmethod
    def dataset_statistics(self, train_context: TrainContext[LabelledT, LabelledDataT, Classifier]) -> Iterator[str]:
        """Yield lines for the dataset summary, in addition to the class counts."""

    @abstractmethod
    def initial_figures(self, train_context: TrainContext[LabelledT, LabelledDataT, Classifier]) -> "dict[str, Figure]":
        """Return figures of the training examples, in addition to the class counts."""

    def probabilities(
        self, run: LoadedModel[LabelledT, Classifier], lines: Sequence[str], refuse: Refuse | None = None
    ) -> Float[np.ndarray, "lines classes"]:
        """Compute the class probabilities (lines, classes) of input lines; see `parse_inputs`."""
        return class_probabilities(run.model, self.parse_inputs(run, lines, refuse))

    def loss(self, recipe: LabelledT) -> Loss[Classifier, LabelledBatch]:
        training, weights = recipe.training, recipe.training.class_weights
        named = None
        if isinstance(weights, dict):
            named = [weights.get(name, 1.0) for name in recipe.data.classes or ()]
        return classification_loss(training.label_smoothing, named, training.focal_gamma)

    def log_probs(self, model: Classifier, batch: LabelledBatch) -> Float[Tensor, "examples classes"]:
        return model(batch.source, batch.source_valid).log_softmax(dim=1)

    def log_dataset_summary(
        self, train_context: TrainContext[LabelledT, LabelledDataT, Classifier], print_fn: PrintFn
    ) -> None:
        counts = {name: part.counts() for name, part in train_context.data.corpus.splits().items()}
        missing = [line for name, each in counts.items() for line in missing_classes(name, self.evaluation.noun, each)]
        for line in (*_class_lines(counts), *missing, *self.dataset_statistics(train_context)):
            print_fn(line)

    def on_train_start(
        self, train_context: TrainContext[LabelledT, LabelledDataT, Classifier], folder: Path, log: RunLog
    ) -> None:
        pictures = {"classes": class_counts_picture(train_context.data.corpus.train.counts())}
        log_figures(train_context, folder, log, "data", pictures | self.initial_figures(train_context))

    def validate(self, train_context: TrainContext[LabelledT, LabelledDataT, Classifier], log: RunLog) -> Validation:
        """Measure loss, accuracy and macro-F1 on the validation set and, to show overfitting, on training examples."""
        train, validation = self.training_examples_for_inference(train_context)
        drawn = np.random.default_rng(train_context.recipe.data.seed).permutation(len(train))
        some, distributed = train.subset(np.sort(drawn[:_SAMPLED])), train_context.trainer.device_context.distributed
        found, known = (_measure(train_context.model, e, distributed) for e in (validation, some))
        scores = {**found, "training_loss": known["loss"], "training_accuracy": known["accuracy"]}
        log.log_validation(train_context.trainer.update, scores)
        metric = train_context.recipe.validation.metric
        return Validation(
            train_context.trainer.update, found[metric], found["loss"], lower_is_better=metric in LOWER_IS_BETTER
        )

    def on_train_end(
        self, train_context: TrainContext[LabelledT, LabelledDataT, Classifier], folder: Path, log: RunLog
    ) -> None:
        log_figures(train_context, folder, log, "run", {"curves": curves_picture(_curves_of(folder))})

    def evaluate(
        self, run: LoadedModel[LabelledT, Classifier], part: Any, scoring: EvaluationOptions, progress_bar: ProgressBar
    ) -> "ClassificationEvaluation":
        examples = self.examples_for_inference(run, part)
        with progress_bar("classifying", len(examples)) as advance:
            probabilities = class_probabilities(run.model, examples, advance)
        predicted, shares, shown = probabilities.argmax(axis=1), probabilities.round(6).tolist(), []
        for row in itertools.chain(*measures.chosen_examples(part.labels, predicted)):
            batch = examples.collate(np.array([row]), 0).to(run.device_context.device)
            truth, taken_for = (part.names[int(numbers[row])] for numbers in (part.labels, predicted))
            said = Prediction(row, truth, taken_for, dict(zip(part.names, shares[row], strict=True)))
            shown.append(self.explain_prediction(run, part, batch, said))
        cut: dict[str, Any] = {} if examples.truncated is None else {"truncated": examples.truncated}
        return self.evaluation(
            run=str(run.path),
            checkpoint=run.checkpoint.name,
            split=scoring.split,
            classes=list(part.names),
            scores=measures.classification_scores(part.labels, probabilities, part.names),
            digest=self.source(run.recipe).digest(part),
            truth=part.labels.tolist(),
            predicted=predicted.tolist(),
            probabilities=shares,
            examples=shown,
            **cut,
        )

    def inspect(self, run: LoadedModel[LabelledT, Classifier], focus: "InspectionRequest") -> "Inspection":
        from s2s.inspection.classifier import inspection_of
        from s2s.inspection.inspection import Inspection

        part = None if focus.inputs else focus.example
        examples = self.parse_inputs(run, focus.inputs) if part is None else self.examples_for_inference(run, part)
        names = focus.inputs or (f"row {focus.row + 1} of the {focus.split} set",)
        read = [
            self.inspect_example(run, examples.collate(np.array([row]), 0).to(run.device_context.device), name)
            for row, name in enumerate(names)
        ]
        truth = None if part is None else part.names[int(part.labels[0])]
        found = inspection_of(run.model, read, list(run.recipe.data.classes or ()), focus, truth)
        return Inspection(str(run.path), run.checkpoint.name, run.recipe.task, *found)

    def describe_example(self, part: Any, row: int) -> str:
        """Return an example as one line of text; empty if it has no text."""
        return ""

    def diagnose(
        self,
        run: LoadedModel[LabelledT, Classifier],
        part: Any,
        rows: Int[np.ndarray, " examples"],
        progress_bar: ProgressBar,
    ) -> "Diagnostics":
        from s2s.evaluation.signs import entropy
        from s2s.tasks.symptoms import class_symptoms

        examples = self.examples_for_inference(run, part)
        with progress_bar("classifying", len(examples)) as advance:
            probabilities = class_probabilities(run.model, examples, advance)
        noun, places = self.evaluation.noun, [f"row {row + 1}" for row in rows]
        described = partial(self.describe_example, part)
        found = class_symptoms(examples.labels, probabilities, part.names, noun, places, described)
        signs = [*found.signs, *self.input_warnings(run, part)]
        return replace(found, signs=signs, chance_loss=entropy(examples.labels))

    def input_warnings(self, run: LoadedModel[LabelledT, Classifier], part: Any) -> "list[Finding]":
        """Return signs in the inputs; none by default."""
        return []


@dataclass(frozen=True)
class Prediction:
    """Prediction for the example in a row of its split, from 0, with names of classes."""

    row: int
    truth: str
    predicted: str
    probabilities: dict[str, float]

    def __str__(self) -> str:
        likely = sorted(self.probabilities.items(), key=lambda item: -item[1])[:4]
        found = " · ".join(f"{name} {share:.3f}" for name, share in likely)
        mark = "correct" if self.truth == self.predicted else f"WRONG: {self.truth}"
        return f"  row {self.row + 1}: {found} ({mark})"


@dataclass(frozen=True, repr=False)
class ClassificationEvaluation(Evaluation):
    """Scores and predictions of a classifier on a split.

    Attributes:
        noun: Plural noun for the examples.
        classes: Names of the classes, in the order of the model's outputs.
        scores: Accuracy, F1, calibration and the confusion matrix.
        truth: True class of each example, as an index of `classes`.
        predicted: Predicted class of each example.
        probabilities: Probability of each class for each example.
        examples: Some correct and some incorrect predictions, sampled with a fixed seed.
    """

    noun: ClassVar[str] = "examples"

    classes: list[str]
    scores: measures.ClassificationScores
    digest: str
    truth: list[int]
    predicted: list[int]
    probabilities: list[list[float]]
    examples: Sequence[Prediction]

    def __str__(self) -> str:
        head = f"{self.run}, checkpoint {self.checkpoint}, {self.split}: {len(self.truth):,} {self.noun}"
        return "\n".join([head + self.remarks(), str(self.scores), *self.notes(), *map(str, self.examples)])

    def remarks(self) -> str:
        """Return text for the end of the headline; empty by default."""
        return ""

    def headline_metrics(self) -> dict[str, float]:
        return self.scores.main()

    def to_json(self) -> str:
        """Return the evaluation as JSON, on one line because of its many predictions."""
        return json.dumps(asdict(self) | self.summary(), ensure_ascii=False)

    def pictures(self) -> "Iterator[tuple[str, Figure]]":
        yield "confusion", confusion_picture(np.array(self.scores.confusion), self.classes)
        yield "reliability", reliability_picture(self.scores.calibration)

    @classmethod
    def compare(cls, evaluations: Sequence[Self]) -> list[ClassifierComparison]:
        """Compare predictions with the first evaluation by McNemar's test."""
        cls._check_comparable(evaluations)
        first = evaluations[0]
        return compare_classifiers(np.array(first.truth), {e.run: np.array(e.predicted) for e in evaluations})

    @classmethod
    def compare_groups(cls, groups: Mapping[str, Sequence[Self]]) -> list[GroupComparison]:
        """Compare the accuracy of groups of seeds by a hierarchical bootstrap over seeds and examples."""
        cls._check_comparable([each for runs in groups.values() for each in runs])
        # Columns: examples that are right, and all.
        right = {name: [np.equal(each.predicted, each.truth) for each in runs] for name, runs in groups.items()}
        counts = {
            name: [np.stack((each, each | True), axis=1).astype(int) for each in runs] for name, runs in right.items()
        }
        return compare_groups(counts, "accuracy", lambda sums: 100 * sums[:, 0] / sums[:, 1])

    @classmethod
    def _check_comparable(cls, evaluations: Sequence[Self]) -> None:
        first = evaluations[0]
        for other in evaluations[1:]:
            # Names of the true classes do not depend on the order of the classes.
            truths = [[each.classes[number] for number in each.truth] for each in (first, other)]
            if (other.digest == first.digest or truths[0] == truths[1]) and other.classes != first.classes:
                mine, theirs = listed_classes(first.classes), listed_classes(other.classes)
                what = f"{first.run} has the classes {mine}, {other.run} has {theirs}"
                raise UserError(what, remedy="compare runs with the same data.classes, in the same order")
        check_comparable(evaluations, lambda each: (each.digest, each.truth))


def _curves_of(folder: Path) -> list[Curve]:
    points = [(entry.update, entry.validation) for entry in read_metrics(folder) if entry.validation is not None]
    updates, scores = [update for update, _ in points], [scores for _, scores in points]
    wanted = ("training_loss", "training_accuracy", "loss", "accuracy")
    if missing := [name for each in scores for name in wanted if name not in each]:
        raise UserError(f"a validation has no {missing[0]}", str(folder / METRICS), RESTORE)
    return [
        Curve("training", updates, [s["training_loss"] for s in scores], [s["training_accuracy"] for s in scores]),
        Curve("validation", updates, [s["loss"] for s in scores], [s["accuracy"] for s in scores]),
    ]


def _class_lines(counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    classes = list(next(iter(counts.values())))
    wide = max(map(len, (*classes, "all")))
    lines = [f"{'':{wide}}" + "".join(f"{name:>12}" for name in counts)]
    lines += [f"{name:{wide}}" + "".join(f"{part[name]:>12,}" for part in counts.values()) for name in classes]
    return [*lines, f"{'all':{wide}}" + "".join(f"{sum(part.values()):>12,}" for part in counts.values())]


def truncation_warning(cut: int, texts: int, max_length: int) -> str:
    """Return a warning about truncated texts.

    Args:
        cut: Number of truncated texts.
        max_length: Limit in tokens, `batches.max_length`, which includes special tokens.
    """
    return (
        f"{cut:,} of {counted(texts, 'text')} cut after {max_length:,} tokens (batches.max_length): "
        "shorten them, or train with a higher limit"
    )


def classify_lines(
    task: ClassificationTask[LabelledRecipe, LabelledData],
    run: LoadedModel[LabelledRecipe, Classifier],
    chunks: Iterable[list[str]],
    probabilities: bool,
    refuse: Refuse,
    at_once: bool,
    tell: PrintFn,
) -> Iterator[str]:
    """Classify lines, in order; empty lines stay empty.

    Args:
        chunks: Lines that are classified together.
        probabilities: Append the probability of each class, as `TAB name=0.1234`.
        refuse: Receives the number of each line that cannot be read, from 0, and the error; the output of such a line
            is empty.
        at_once: Report truncated texts after each chunk, for an interactive session; otherwise once, at the end.

    Yields:
        The class of each line.
    """
    limit = run.recipe.batches.model_dump().get("max_length", 0)
    classes, before, texts, cut = [one_line(name) for name in run.recipe.data.classes or ()], 0, 0, 0
    for chunk in chunks:
        places = [place for place, text in enumerate(chunk) if text.strip()]
        wrong: dict[int, UserError] = {}
        examples = task.parse_inputs(run, [chunk[place] for place in places], wrong.__setitem__)
        rows = class_probabilities(run.model, examples).tolist()
        found = {place: rows[number] for number, place in enumerate(places) if number not in wrong}
        for number, error in wrong.items():
            refuse(before + places[number], error)
        before, texts, cut = before + len(chunk), texts + len(found), cut + int(examples.is_truncated.sum())
        if cut and at_once:
            tell(truncation_warning(cut, texts, limit))
            texts, cut = 0, 0
        for place in range(len(chunk)):
            if place not in found:
                yield ""
                continue
            row = found[place]
            shares = [f"{name}={share:.4f}" for name, share in zip(classes, row, strict=True)] if probabilities else []
            yield "\t".join([classes[row.index(max(row))], *shares])
    if cut:
        tell(truncation_warning(cut, texts, limit))
