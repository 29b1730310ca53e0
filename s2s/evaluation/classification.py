"""Classification metrics: accuracy, macro-F1, confusion matrix and calibration."""

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
# Wider tables do not fit a terminal; the figure shows all classes.
_PRINTED_CLASSES = 12


@dataclass(frozen=True)
class Bin:
    """A calibration bin: examples with similar confidence."""

    # lower end, as a probability. Exclusive for bins of equal width; the smallest confidence in the bin for bins of
    # equal count.
    low: float
    high: float  # upper end, inclusive
    count: int  # number of examples
    confidence: float  # mean confidence in percent
    accuracy: Share  # accuracy with Wilson score interval


@dataclass(frozen=True)
class Calibration:
    """Calibration of confidence against accuracy."""

    error: float  # expected calibration error in percent
    spacing: Spacing  # `width` for bins of equal width, `count` for bins of equal count
    wanted: int  # requested number of bins
    bins: list[Bin]  # bins that have examples, by increasing confidence

    def __str__(self) -> str:
        return f"{self.wanted} bins of equal {self.spacing}"


@dataclass(frozen=True)
class ClassScore:
    """Precision, recall and F1 of one class, in percent; 0 where the denominator is 0."""

    name: str
    precision: float
    recall: float
    f1: float
    support: int
    predicted: int


@dataclass(frozen=True)
class ClassificationScores:
    """All metrics of a classifier on a split."""

    examples: int
    accuracy: Share  # accuracy with Wilson score interval
    macro_f1: float  # unweighted mean F1 of the classes, in percent
    loss: float  # mean cross-entropy in nats
    classes: list[ClassScore]  # scores of each class
    confusion: list[list[int]]  # confusion matrix with true classes as rows
    calibration: Calibration  # calibration with bins of equal width
    adaptive: Calibration  # calibration with bins of equal count

    def main(self) -> dict[str, float]:
        """Return the headline metrics by name."""
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
    """Compute all metrics of a classifier.

    The predicted class is the most probable one; ties go to the first.

    Example:
        >>> found = classification_scores(np.array([0, 1]), np.array([[0.9, 0.1], [0.6, 0.4]]), ["no", "yes"])
        >>> found.accuracy.value, found.confusion
        (50.0, [[1, 0], [1, 0]])
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
    """Compute the expected calibration error (ECE) of predicted classes.

    Naeini et al. 2015; Guo et al. 2017, equation 3. The confidence of an example is its largest probability. For bins
    B and n examples, the error is Σ |B|/n · |accuracy(B) − confidence(B)|.

    Args:
        truth: True class of each example, from 0, `(examples,)`.
        probabilities: Class probabilities, `(examples, classes)`; rows sum to 1.
        bins: Number of bins; Guo et al. use 15.
        spacing: `width`: bin m of M holds confidences in ((m − 1)/M, m/M], the published form. `count`: bins of equal
            count (Nguyen & O'Connor 2015), so that a very confident model is not measured in a single bin. Equal
            confidences share a bin, so the result does not depend on the order of the examples.

    Example:
        >>> truth, probabilities = np.array([0, 0]), np.array([[0.8, 0.2], [0.2, 0.8]])
        >>> round(calibration(truth, probabilities).error, 1)
        30.0
    """
    # Rounding can make a softmax slightly larger than 1.
    confidence = np.minimum(probabilities.max(axis=1).astype(np.float64), 1.0)
    right = probabilities.argmax(axis=1) == truth
    ends = np.arange(1, bins + 1) / bins
    if spacing == "count" and len(truth):
        # The last confidence of each bin, in sorted order; integer arithmetic avoids rounding.
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
    """Compute the accuracy with its Wilson score interval.

    Example:
        >>> found = accuracy(np.array([0, 1, 1]), np.array([0, 1, 0]))
        >>> round(found.value, 1), round(found.low, 1), round(found.high, 1)
        (66.7, 20.8, 93.9)
    """
    return wilson(int((truth == predicted).sum()), len(truth))


def cross_entropy_of(truth: Classes, probabilities: Probabilities) -> float:
    """Compute the mean negative log probability of the true class in nats (at least fp32's smallest).

    Example:
        >>> round(cross_entropy_of(np.array([0]), np.array([[0.5, 0.5]])), 3)
        0.693
    """
    chosen = probabilities[np.arange(len(truth)), truth].astype(np.float64)
    return float(-np.log(np.maximum(chosen, np.finfo(np.float32).tiny)).mean()) if len(truth) else 0.0


def confusion(truth: Classes, predicted: Classes, classes: int) -> Matrix:
    """Compute the confusion matrix.

    Example:
        >>> confusion(np.array([0, 1, 1]), np.array([0, 1, 0]), 2).tolist()
        [[1, 0], [1, 1]]
    """
    counts = np.bincount(truth.astype(np.int64) * classes + predicted, minlength=classes * classes)
    return counts.reshape(classes, classes)


def per_class(matrix: Matrix, names: Sequence[str]) -> list[ClassScore]:
    """Compute precision, recall and F1 of each class.

    Example:
        >>> [round(each.f1, 1) for each in per_class(np.array([[3, 1], [0, 2]]), ["no", "yes"])]
        [85.7, 80.0]
    """
    found = []
    for name, right, support, predicted in zip(
        names, matrix.diagonal().tolist(), matrix.sum(axis=1).tolist(), matrix.sum(axis=0).tolist(), strict=True
    ):
        precision, recall = (100 * right / count if count else 0.0 for count in (predicted, support))
        f1 = 200 * right / (support + predicted) if support + predicted else 0.0
        found.append(ClassScore(name, precision, recall, f1, support, predicted))
    return found


def macro_f1(scores: Sequence[ClassScore]) -> float:
    """Compute the macro-F1, in percent, over the classes that occur or are predicted.

    Example:
        >>> round(macro_f1(per_class(np.array([[3, 1], [0, 2]]), ["no", "yes"])), 1)
        82.9
    """
    seen = [score.f1 for score in scores if score.support or score.predicted]
    return sum(seen) / len(seen) if seen else 0.0


def chosen_examples(truth: Classes, predicted: Classes, count: int = 3, seed: int = 1) -> tuple[list[int], list[int]]:
    """Draw up to `count` rows that were classified correctly, and up to `count` that were not."""
    generator = np.random.default_rng(seed)
    kinds = np.flatnonzero(truth == predicted), np.flatnonzero(truth != predicted)
    right, wrong = (generator.permutation(rows)[:count].tolist() for rows in kinds)
    return right, wrong


def shortened(name: str) -> str:
    """Shorten a class name for tables and figures."""
    return name if len(name) <= _NAME_WIDTH else name[: _NAME_WIDTH - 1] + "…"
