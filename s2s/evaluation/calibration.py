"""Does a classifier know how often it is right? Expected calibration error and the data of a reliability plot."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from s2s.evaluation.inference import Share, wilson

Spacing = Literal["width", "count"]


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

    Attributes:
        error: expected calibration error, in percent: the mean distance of confidence and accuracy over all examples.
        spacing: what the bins have in common, `width` or `count`.
        wanted: bins asked for.
        bins: those with examples, from the least confident.
    """

    error: float
    spacing: Spacing
    wanted: int
    bins: list[Bin]

    def __str__(self) -> str:
        return f"{self.wanted} bins of equal {self.spacing}"


def calibration(
    truth: Int[np.ndarray, " examples"],
    probabilities: Float[np.ndarray, "examples classes"],
    bins: int = 15,
    spacing: Spacing = "width",
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
