"""What a classifier got right: accuracy, macro-F1, each class, who is taken for whom; and whether it knows that."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from s2s.evaluation.inference import Share, wilson

Classes = Int[np.ndarray, " examples"]
Probabilities = Float[np.ndarray, "examples classes"]
Matrix = Int[np.ndarray, "truth predicted"]
Spacing = Literal["width", "count"]

_NAME_WIDTH = 24
# more classes make lines that no terminal holds; the picture has them all
_PRINTED_CLASSES = 12


@dataclass(frozen=True)
class Bin:
    """Examples whose predictions were about equally confident.

    Attributes:
        low: its lower end, as a probability: not in the bin when bins have equal width, the smallest confidence in it
            when they have equal counts.
        high: its upper end, in the bin.
        count: examples in it.
        confidence: their mean confidence, in percent.
        accuracy: share of them that are right, with Wilson's interval.
    """

    low: float
    high: float
    count: int
    confidence: float
    accuracy: Share


@dataclass(frozen=True)
class Calibration:
    """Confidence against accuracy.

    The expected calibration error in percent, and those of the wanted bins that have examples, from the least confident
    on; `spacing` is what they have in common.
    """

    error: float
    spacing: Spacing
    wanted: int
    bins: list[Bin]

    def __str__(self) -> str:
        return f"{self.wanted} bins of equal {self.spacing}"


@dataclass(frozen=True)
class ClassScore:
    """Precision and recall of one class, and their harmonic mean, in percent; 0 where there is nothing to divide by."""

    name: str
    precision: float
    recall: float
    f1: float
    support: int
    predicted: int


@dataclass(frozen=True)
class ClassificationScores:
    """All that is measured of a classifier on a split.

    The loss is the mean cross-entropy in nats; macro-F1, in percent, weighs all classes alike; the confusion has true
    classes as rows; `adaptive` is the calibration in bins of equally many.
    """

    examples: int
    accuracy: Share
    macro_f1: float
    loss: float
    classes: list[ClassScore]
    confusion: list[list[int]]
    calibration: Calibration
    adaptive: Calibration

    def main(self) -> dict[str, float]:
        """The numbers that stand for the whole, by name."""
        return {
            "accuracy": self.accuracy.value,
            "macro_f1": self.macro_f1,
            "loss": self.loss,
            "calibration_error": self.calibration.error,
        }

    def __str__(self) -> str:
        lines = [
            f"  accuracy {self.accuracy.value:6.2f} %   95 % interval {self.accuracy.low:.2f} to "
            f"{self.accuracy.high:.2f} (Wilson), {self.examples:,} examples",
            f"  macro-F1 {self.macro_f1:6.2f} %   cross-entropy {self.loss:.4f} nats",
            f"  expected calibration error {self.calibration.error:.2f} % ({self.calibration}), "
            f"{self.adaptive.error:.2f} % ({self.adaptive})",
        ]
        return "\n".join([*lines, *self._missing_lines(), *self._class_lines(), *self._confusion_lines()])

    def _missing_lines(self) -> list[str]:
        missing = [shortened(each.name) for each in self.classes if not each.support]
        if not missing:
            return []
        shown = ", ".join(missing[:_PRINTED_CLASSES]) + (", …" if missing[_PRINTED_CLASSES:] else "")
        averaged = sum(bool(each.support or each.predicted) for each in self.classes)
        return [
            f"  no example of class{'es' if missing[1:] else ''} {shown}: macro-F1 is the mean of {averaged} of "
            f"{len(self.classes)} classes, those that occur or are predicted"
        ]

    def _class_lines(self) -> list[str]:
        width = max(5, *(len(shortened(each.name)) for each in self.classes))
        head = f"  {'class':{width}}  precision  recall      F1   support  predicted"
        return [head] + [
            f"  {shortened(each.name):{width}}  {each.precision:9.2f} {each.recall:7.2f} {each.f1:7.2f} "
            f"{each.support:9,} {each.predicted:10,}"
            for each in self.classes
        ]

    def _confusion_lines(self) -> list[str]:
        if len(self.classes) > _PRINTED_CLASSES:
            return []
        names = [shortened(each.name) for each in self.classes]
        width = max(map(len, names))
        cells = [max(len(name), *(len(f"{row[i]:,}") for row in self.confusion)) for i, name in enumerate(names)]
        head = "  ".join(f"{name:>{cell}}" for name, cell in zip(names, cells, strict=True))
        lines = ["  confusion: rows are true, columns predicted", f"  {'':{width}}  {head}"]
        for name, row in zip(names, self.confusion, strict=True):
            counts = "  ".join(f"{count:>{cell},}" for count, cell in zip(row, cells, strict=True))
            lines.append(f"  {name:{width}}  {counts}")
        return lines


def classification_scores(truth: Classes, probabilities: Probabilities, names: Sequence[str]) -> ClassificationScores:
    """Everything that one pass over a split tells.

    Classes count from 0, rows of probabilities sum to one, and the first of equal ones is predicted.
    """
    predicted = probabilities.argmax(axis=1)
    matrix = confusion(truth, predicted, len(names))
    classes = per_class(matrix, names)
    return ClassificationScores(
        examples=len(truth),
        accuracy=accuracy(truth, predicted),
        macro_f1=macro_f1(classes),
        loss=cross_entropy_of(truth, probabilities),
        classes=classes,
        confusion=matrix.tolist(),
        calibration=calibration(truth, probabilities, spacing="width"),
        adaptive=calibration(truth, probabilities, spacing="count"),
    )


def calibration(
    truth: Classes, probabilities: Probabilities, bins: int = 15, spacing: Spacing = "width"
) -> Calibration:
    """The expected calibration error of the predicted classes (Naeini et al. 2015; Guo et al. 2017, equation 3).

    The confidence of an example is its largest probability. With bins B of n examples in all, the error is
    Σ |B|/n · |accuracy(B) − confidence(B)|.

    Args:
        truth: the class of each example, from 0.
        probabilities: of each class, for each example; rows sum to one.
        bins: how many; 15 is what Guo et al. use.
        spacing: `width`: bin m of M holds the confidences in ((m − 1)/M, m/M], the published form. `count`: each holds
            equally many examples (Nguyen & O'Connor 2015), so that a model that is always sure is not measured in one
            bin; equal confidences stay together, whatever the order of the examples.
    """
    # rounding may leave a softmax slightly above one
    confidence = np.minimum(probabilities.max(axis=1).astype(np.float64), 1.0)
    right = probabilities.argmax(axis=1) == truth
    ends = np.arange(1, bins + 1) / bins
    if spacing == "count" and len(truth):
        # the last of each bin's share of the sorted confidences; whole numbers, so that nothing is rounded
        ends = np.sort(confidence)[-(-np.arange(1, bins + 1) * len(truth) // bins) - 1]
    which = np.minimum(np.searchsorted(ends, confidence, side="left"), bins - 1)
    found = []
    for number in np.unique(which).tolist():
        inside = which == number
        count, mean = int(inside.sum()), float(confidence[inside].mean())
        low = float(confidence[inside].min()) if spacing == "count" else number / bins
        accuracy = wilson(int(right[inside].sum()), count)
        found.append(Bin(low, float(ends[number]), count, 100 * mean, accuracy))
    error = sum(each.count * abs(each.accuracy.value - each.confidence) for each in found) / max(1, len(truth))
    return Calibration(error, spacing, bins, found)


def accuracy(truth: Classes, predicted: Classes) -> Share:
    """Share of right answers, with Wilson's interval."""
    return wilson(int((truth == predicted).sum()), len(truth))


def cross_entropy_of(truth: Classes, probabilities: Probabilities) -> float:
    """Mean negative logarithm of the true class's probability, in nats; the smallest normal number stands for 0."""
    chosen = probabilities[np.arange(len(truth)), truth].astype(np.float64)
    return float(-np.log(np.maximum(chosen, np.finfo(np.float32).tiny)).mean()) if len(truth) else 0.0


def confusion(truth: Classes, predicted: Classes, classes: int) -> Matrix:
    """Number of examples by true class (rows) and predicted class (columns), of so many classes, which count from 0."""
    counts = np.bincount(truth.astype(np.int64) * classes + predicted, minlength=classes * classes)
    return counts.reshape(classes, classes)


def per_class(matrix: Matrix, names: Sequence[str]) -> list[ClassScore]:
    """Precision, recall and F1 of each class."""
    found = []
    for name, right, support, predicted in zip(
        names, matrix.diagonal().tolist(), matrix.sum(axis=1).tolist(), matrix.sum(axis=0).tolist(), strict=True
    ):
        precision, recall = (100 * right / count if count else 0.0 for count in (predicted, support))
        f1 = 200 * right / (support + predicted) if support + predicted else 0.0
        found.append(ClassScore(name, precision, recall, f1, support, predicted))
    return found


def macro_f1(scores: Sequence[ClassScore]) -> float:
    """The mean F1 of the classes, in percent; one that neither occurs nor is predicted does not count."""
    seen = [score.f1 for score in scores if score.support or score.predicted]
    return sum(seen) / len(seen) if seen else 0.0


def chosen_examples(truth: Classes, predicted: Classes, count: int = 3, seed: int = 1) -> tuple[list[int], list[int]]:
    """Some rightly and some wrongly classified examples, `count` of each or fewer, drawn by a seed: nobody picked them.

    Returns:
        Rows of right answers, rows of wrong ones, as drawn.
    """
    generator = np.random.default_rng(seed)
    kinds = np.flatnonzero(truth == predicted), np.flatnonzero(truth != predicted)
    right, wrong = (generator.permutation(rows)[:count].tolist() for rows in kinds)
    return right, wrong


def shortened(name: str) -> str:
    """A class's name as tables and pictures have room for it."""
    return name if len(name) <= _NAME_WIDTH else name[: _NAME_WIDTH - 1] + "…"
