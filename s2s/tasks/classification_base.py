"""What all tasks that name classes have in common, whether they read texts or images."""

import itertools
import json
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from s2s.data.dataset import LabelledBatch, LabelledExamples, iterate_batches
from s2s.errors import Refuse, UserError
from s2s.evaluation import classification as measures
from s2s.evaluation.significance import ClassifierComparison, compare_classifiers
from s2s.evaluation.signs import WORST, Diagnostics, Finding, WorstExample
from s2s.evaluation.signs.classes import class_signs
from s2s.evaluation.signs.pieces import entropy
from s2s.files import RESTORE
from s2s.inspection.classifier import Read, inspection_of
from s2s.inspection.inspection import Inspection, InspectionRequest
from s2s.models.base import Classifier
from s2s.tasks.base import D, Evaluation, EvaluationOptions, LoadedModel, PrintFn, R, Task, TrainContext, log_figures
from s2s.tasks.comparable import check_comparable
from s2s.tasks.data_check import missing_classes
from s2s.tasks.figures import Curve, class_counts_picture, confusion_picture, curves_picture, reliability_picture
from s2s.training.distributed import SINGLE_PROCESS, Distributed
from s2s.training.logger import METRICS, RunLog, read_metrics
from s2s.training.progress import ProgressBar
from s2s.training.trainer import Loss
from s2s.training.validation import Validation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Training examples that are classified at each validation, to see what is known by heart.
_LOOKED_AT = 1000
_SHOWN_CLASSES = 8

Advance = Callable[[int], object]


def classification_loss(smoothing: float) -> Loss[Classifier, LabelledBatch]:
    """The cross-entropy of a batch's classes, summed; smoothing is in [0, 1), and the plain loss has none."""

    def loss(model: Classifier, batch: LabelledBatch) -> tuple[Tensor, Tensor]:
        """The smoothed sum and the plain one, in nats."""
        scores = model(batch.source, batch.source_valid)
        # in fp64, for `s2s diagnose`, too
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        plain = functional.cross_entropy(scores, batch.labels, reduction="sum")
        if not smoothing:
            return plain, plain
        return functional.cross_entropy(scores, batch.labels, reduction="sum", label_smoothing=smoothing), plain

    return loss


def class_probabilities(
    model: Classifier,
    examples: LabelledExamples,
    advance: Advance = lambda count: None,
    distributed: Distributed = SINGLE_PROCESS,
) -> Float[np.ndarray, "examples classes"]:
    """The probability of each class, for each example; in fp32, dropout off.

    `advance` is told how many examples were classified, batch by batch; the model stays in evaluation mode. Of
    several processes each reads a part, and all are told the whole.
    """
    model.eval()
    found = np.zeros((len(examples), model.head.out_features))
    with torch.inference_mode():
        for rows, batch in iterate_batches(
            examples, model.head.weight.device, distributed.rank, distributed.world_size
        ):
            scores = model(batch.source, batch.source_valid)
            # to the processor first: Apple's GPUs know no float64
            found[rows] = scores.cpu().double().softmax(dim=1).numpy()
            advance(len(rows))
    # each row is in one part, and 0 in the others
    return np.sum(distributed.all_gather_object(found), axis=0)


def _measure(model: Classifier, examples: LabelledExamples, distributed: Distributed) -> dict[str, float]:
    """Loss in nats, accuracy and macro-F1 in percent."""
    labels, probabilities = examples.labels, class_probabilities(model, examples, distributed=distributed)
    predicted, classes = probabilities.argmax(axis=1), probabilities.shape[1]
    each = measures.per_class(measures.confusion(labels, predicted, classes), [str(n) for n in range(classes)])
    return {
        "loss": measures.cross_entropy_of(labels, probabilities),
        "accuracy": measures.accuracy(labels, predicted).value,
        "macro_f1": measures.macro_f1(each),
    }


class ClassificationTask(Task[R, D, Classifier]):
    """A task that names classes."""

    evaluation: ClassVar[type["ClassificationEvaluation"]]
    """What it scored."""

    @abstractmethod
    def training_examples_for_inference(
        self, train_context: TrainContext[R, D, Classifier]
    ) -> tuple[LabelledExamples, LabelledExamples]:
        """The training and the validation examples as a model reads them when it is asked: whole and unvaried."""

    @abstractmethod
    def examples_for_inference(self, run: LoadedModel[R, Classifier], part: Any) -> LabelledExamples:
        """See `Task.read`; with their classes."""

    @abstractmethod
    def parse_inputs(
        self, run: LoadedModel[R, Classifier], lines: Sequence[str], refuse: Refuse | None = None
    ) -> LabelledExamples:
        """What each line names, as a trained model reads it; its labels say nothing.

        `refuse` takes each line that names nothing that can be read; its example says nothing.

        Raises:
            UserError: there is such a line, and `refuse` is None.
        """

    @abstractmethod
    def explain_prediction(
        self, run: LoadedModel[R, Classifier], part: Any, batch: LabelledBatch, said: "Prediction"
    ) -> "Prediction":
        """An answer, and what decided it; the batch has the example alone, on the classifier's device."""

    @abstractmethod
    def inspect_example(self, run: LoadedModel[R, Classifier], batch: LabelledBatch, text: str) -> Read:
        """An example as `s2s inspect` takes it apart; the batch has it alone, on the classifier's device.

        The text is what names the example: its line of the input, or its row of the test set.
        """

    @abstractmethod
    def dataset_statistics(self, train_context: TrainContext[R, D, Classifier]) -> Iterator[str]:
        """What is to be said of the examples before training, beside how many each class has."""

    @abstractmethod
    def initial_figures(self, train_context: TrainContext[R, D, Classifier]) -> "dict[str, Figure]":
        """What is to be seen of the training examples, beside how many each class has."""

    def probabilities(
        self, run: LoadedModel[R, Classifier], lines: Sequence[str], refuse: Refuse | None = None
    ) -> Float[np.ndarray, "lines classes"]:
        """The probability of each class, for what each line names; see `named`."""
        return class_probabilities(run.model, self.parse_inputs(run, lines, refuse))

    def chance_loss(self, data: D) -> float:
        return math.log(len(data.corpus.train.names))

    def loss(self, recipe: R) -> Loss[Classifier, LabelledBatch]:
        return classification_loss(dict(recipe)["training"].label_smoothing)

    def log_probs(self, model: Classifier, batch: LabelledBatch) -> Float[Tensor, "examples classes"]:
        return model(batch.source, batch.source_valid).log_softmax(dim=1)

    def log_dataset_summary(self, train_context: TrainContext[R, D, Classifier], print_fn: PrintFn) -> None:
        counts = {name: part.counts() for name, part in train_context.data.corpus.parts().items()}
        missing = [line for name, each in counts.items() for line in missing_classes(name, self.evaluation.noun, each)]
        for line in (*_class_lines(counts), *missing, *self.dataset_statistics(train_context)):
            print_fn(line)

    def on_train_start(self, train_context: TrainContext[R, D, Classifier], folder: Path, log: RunLog) -> None:
        pictures = {"classes": class_counts_picture(train_context.data.corpus.train.counts())}
        log_figures(train_context, folder, log, "data", pictures | self.initial_figures(train_context))

    def validate(self, train_context: TrainContext[R, D, Classifier], log: RunLog) -> Validation:
        """Measures loss, accuracy and macro-F1, and loss and accuracy on some training examples."""
        train, validation = self.training_examples_for_inference(train_context)
        drawn = np.random.default_rng(dict(train_context.recipe)["data"].seed).permutation(len(train))
        looked_at, distributed = (
            train.subset(np.sort(drawn[:_LOOKED_AT])),
            train_context.trainer.device_context.distributed,
        )
        found, known = (_measure(train_context.model, e, distributed) for e in (validation, looked_at))
        scores = {**found, "training_loss": known["loss"], "training_accuracy": known["accuracy"]}
        log.log_validation(train_context.trainer.update, scores)
        metric = dict(train_context.recipe)["validation"].metric
        score = -found["loss"] if metric == "loss" else found[metric]
        return Validation(train_context.trainer.update, score, found["loss"])

    def on_train_end(self, train_context: TrainContext[R, D, Classifier], folder: Path, log: RunLog) -> None:
        log_figures(train_context, folder, log, "run", {"curves": curves_picture(_curves_of(folder))})

    def check_inference_overrides(self, kept: R, recipe: R) -> None:
        """Its outputs have no names but by their order: other classes than those that it has learned are refused."""
        learned, wanted = (dict(each)["data"].classes for each in (kept, recipe))
        if learned != wanted:
            raise UserError(
                f"data.classes is {_listed(wanted)}, but the model was trained with {_listed(learned)}",
                remedy="leave data.classes out; data.first_label says what number the first class has in a table",
            )

    def evaluate(
        self, run: LoadedModel[R, Classifier], part: Any, scoring: EvaluationOptions, progress_bar: ProgressBar
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

    def inspect(self, run: LoadedModel[R, Classifier], focus: InspectionRequest) -> Inspection:
        part = None if focus.inputs else focus.example
        examples = self.parse_inputs(run, focus.inputs) if part is None else self.examples_for_inference(run, part)
        names = focus.inputs or (f"row {focus.row + 1} of the {focus.split} set",)
        read = [
            self.inspect_example(run, examples.collate(np.array([row]), 0).to(run.device_context.device), name)
            for row, name in enumerate(names)
        ]
        truth = None if part is None else part.names[int(part.labels[0])]
        recipe = dict(run.recipe)
        found = inspection_of(run.model, read, list(recipe["data"].classes), focus, truth)
        return Inspection(str(run.path), run.checkpoint.name, recipe["task"], *found)

    def describe_example(self, part: Any, row: int) -> str:
        """An example of a part, as a line can show it; empty where none can."""
        return ""

    def diagnose(
        self, run: LoadedModel[R, Classifier], part: Any, rows: Int[np.ndarray, " examples"], progress_bar: ProgressBar
    ) -> Diagnostics:
        examples = self.examples_for_inference(run, part)
        with progress_bar("classifying", len(examples)) as advance:
            probabilities = class_probabilities(run.model, examples, advance)
        places = [f"row {row + 1}" for row in rows]
        found = class_symptoms(
            examples.labels,
            probabilities,
            part.names,
            self.evaluation.noun,
            places,
            partial(self.describe_example, part),
        )
        return replace(
            found, signs=[*found.signs, *self.input_warnings(run, part)], chance_loss=entropy(examples.labels)
        )

    def input_warnings(self, run: LoadedModel[R, Classifier], part: Any) -> list[Finding]:
        """Signs in what is read; none, unless a task has some."""
        return []


def class_symptoms(
    truth: Int[np.ndarray, " examples"],
    probabilities: Float[np.ndarray, "examples classes"],
    names: Sequence[str],
    noun: str,
    places: Sequence[str],
    described: Callable[[int], str],
) -> Diagnostics:
    """Signs in the classes that examples were taken for, and the examples whose own class had the least probability.

    Args:
        truth: the class of each.
        probabilities: of all classes.
        names: of the classes.
        noun: what the examples are called, in the plural.
        places: of each, in words.
        described: an example, by its row here, as a line can show it.
    """
    right, worst = measures.accuracy(truth, probabilities.argmax(axis=1)), []
    for row in np.argsort(probabilities[np.arange(len(truth)), truth], kind="stable")[:WORST].tolist():
        said, wanted = int(probabilities[row].argmax()), int(truth[row])
        given = f"{places[row]}, {names[wanted]} has a probability of {probabilities[row, wanted]:.3g}"
        worst.append(
            WorstExample(described(row), f"{names[said]} ({probabilities[row, said]:.3f})", names[wanted], given)
        )
    summary = f"{len(truth):,} {noun}: accuracy {right.value:.2f} % ({right.low:.2f} to {right.high:.2f})"
    return Diagnostics(summary, class_signs(truth, probabilities, names), worst)


@dataclass(frozen=True)
class Prediction:
    """A classified example: its row in the split, from 0, its class, and the one that it was taken for, by name."""

    row: int
    truth: str
    predicted: str
    probabilities: dict[str, float]

    def __str__(self) -> str:
        likely = sorted(self.probabilities.items(), key=lambda item: -item[1])[:4]
        found = " · ".join(f"{name} {share:.3f}" for name, share in likely)
        mark = "right" if self.truth == self.predicted else f"WRONG, it is {self.truth}"
        return f"  row {self.row + 1}: {found} ({mark})"


@dataclass(frozen=True)
class ClassificationEvaluation(Evaluation):
    """What a classifier scored on a split.

    Of each example, in their order, the number of its class, that of the one it was taken for, and the probability of
    each; a hash of the examples; and some of them, right and wrong, chosen by seed.
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
        """What else is to be said of the examples; nothing, unless a task has something."""
        return ""

    def headline_metrics(self) -> dict[str, float]:
        return self.scores.main()

    def to_json(self) -> str:
        """Everything but the examples themselves, save those that were chosen."""
        return json.dumps(asdict(self) | self.summary(), ensure_ascii=False)

    def named(self) -> list[str]:
        """The right class of each example, whatever the order of the classes."""
        return [self.classes[number] for number in self.truth]

    def pictures(self) -> "Iterator[tuple[str, Figure]]":
        yield "confusion", confusion_picture(np.array(self.scores.confusion), self.classes)
        yield "reliability", reliability_picture(self.scores.calibration)

    @classmethod
    def compare(cls, evaluations: Sequence[Self]) -> list[ClassifierComparison]:
        """With McNemar's test."""
        first = evaluations[0]
        for other in evaluations[1:]:
            alike = other.digest == first.digest or other.named() == first.named()
            if alike and other.classes != first.classes:
                raise UserError(
                    f"{first.run} has the classes {_listed(first.classes)}, {other.run} has {_listed(other.classes)}",
                    remedy="compare runs whose data.classes are the same, in the same order",
                )
        check_comparable(evaluations, lambda each: (each.digest, each.truth))
        return compare_classifiers(np.array(first.truth), {e.run: np.array(e.predicted) for e in evaluations})


def _listed(classes: Sequence[str] | None) -> str:
    """The first names of classes, for messages."""
    names = list(classes or ())
    return ", ".join(names[:_SHOWN_CLASSES]) + (", …" if len(names) > _SHOWN_CLASSES else "")


def _curves_of(folder: Path) -> list[Curve]:
    """What a run's `metrics.jsonl` says of all validations."""
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
    """How many examples each class has in each split, as lines."""
    classes = list(next(iter(counts.values())))
    wide = max(map(len, (*classes, "all")))
    lines = [f"{'':{wide}}" + "".join(f"{name:>12}" for name in counts)]
    lines += [f"{name:{wide}}" + "".join(f"{part[name]:>12,}" for part in counts.values()) for name in classes]
    return [*lines, f"{'all':{wide}}" + "".join(f"{sum(part.values()):>12,}" for part in counts.values())]
