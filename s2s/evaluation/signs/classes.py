"""Signs in a classifier's answers: missing classes, confusion and calibration."""

from collections.abc import Sequence

import numpy as np

from s2s.evaluation.classification import Classes, Probabilities, accuracy, calibration, confusion
from s2s.evaluation.inference import wilson
from s2s.evaluation.signs import Finding, plain_sign, share_sign

_CONFUSED = 25.0
_UNSURE = 5.0
_SHOWN = 3


def class_signs(truth: Classes, probabilities: Probabilities, names: Sequence[str]) -> list[Finding]:
    """Check all signs of a classifier.

    Args:
        truth: True class of each example, from 0.
        probabilities: Class probabilities, `(examples, classes)`.
        names: Names of the classes.

    Returns:
        One finding per sign, found or not.
    """
    predicted = probabilities.argmax(axis=1)
    matrix = confusion(truth, predicted, len(names))
    return [
        never_predicted(matrix, names),
        one_class_only(truth, predicted, names),
        confused(matrix, names),
        *calibrated(truth, probabilities),
    ]


def never_predicted(matrix: np.ndarray, names: Sequence[str]) -> Finding:
    """Find classes that are never predicted although they have enough examples.

    Args:
        matrix: Confusion matrix with true classes as rows.
        names: Names of the classes.
    """
    support, said = matrix.sum(axis=1), matrix.sum(axis=0)
    missing = [n for n in range(len(names)) if support[n] and not said[n] and wilson(0, int(support[n])).high < 50]
    listed = ", ".join(f"{names[n]} ({support[n]:,} examples)" for n in missing[:_SHOWN])
    measured = f"{len(missing)} of {int((support > 0).sum())} classes{f': {listed}' if missing else ''}"
    threshold = "where a class has so many examples that even half of them named right would have shown"
    remedy = "give these classes more training examples, train for longer (training.updates)"
    return plain_sign("classes never predicted", bool(missing), measured, len(missing), threshold, remedy)


def one_class_only(truth: Classes, predicted: Classes, names: Sequence[str]) -> Finding:
    """Check whether the accuracy exceeds that of always predicting the majority class.

    Args:
        truth: True class of each example.
        predicted: Predicted class of each example.
        names: Names of the classes.
    """
    counts = np.bincount(truth, minlength=len(names))
    majority, right = int(counts.argmax()), accuracy(truth, predicted)
    share = 100 * counts[majority] / max(1, len(truth))
    said = np.bincount(predicted, minlength=len(names))
    measured = (
        f"{right.value:.1f} % right ({right.low:.1f} to {right.high:.1f}), {share:.1f} % by always saying "
        f"{names[majority]}; {wilson(int(said.max()), len(truth)).value:.1f} % of all answers are "
        f"{names[int(said.argmax())]}"
    )
    threshold = "where the interval is not above the most frequent class's share: then nothing need have been read"
    remedy = "lower training.learning_rate, train for longer (training.updates), and check the labels in data.train"
    found = bool(right.low <= share)
    return Finding("majority class only", found, measured, right.value, right.low, right.high, threshold, remedy)


def confused(matrix: np.ndarray, names: Sequence[str]) -> Finding:
    """Find the pair of classes with the highest rate of confusion.

    Args:
        matrix: Confusion matrix with true classes as rows.
        names: Names of the classes.
    """
    wrong = matrix - np.diag(matrix.diagonal())
    support = np.maximum(1, matrix.sum(axis=1))
    low = np.array([[wilson(int(c), int(n)).low for c in row] for row, n in zip(wrong, support, strict=True)])
    true, said = divmod(int(low.argmax()), len(names))
    return share_sign(
        "classes confused",
        int(wrong[true, said]),
        int(matrix[true].sum()),
        f"examples of {names[true]} are taken for {names[said]}",
        _CONFUSED,
        "a quarter of a class lost to one other is more than slips",
        f"look at examples of {names[true]} and {names[said]}: are the labels right, and does what is read tell "
        "them apart (texts: batches.max_length; images: data.size)? More training examples of both help",
    )


def calibrated(truth: Classes, probabilities: Probabilities) -> list[Finding]:
    """Check for over-confidence and under-confidence.

    Args:
        truth: True class of each example.
        probabilities: Class probabilities, `(examples, classes)`.

    Returns:
        Two findings: `too sure` and `not sure enough`.
    """
    right = accuracy(truth, probabilities.argmax(axis=1))
    sure = 100 * float(probabilities.max(axis=1).mean()) if len(truth) else 0.0
    error = calibration(truth, probabilities).error
    gap, low, high = sure - right.value, sure - right.high, sure - right.low
    said = (
        f"{sure:.1f} % sure on average, and {right.value:.1f} % right: {gap:+.1f} points ({low:+.1f} to {high:+.1f}); "
        f"calibration error {error:.1f} %"
    )
    why = f"where the interval is beyond {_UNSURE:g} points: its probabilities then mislead who decides by them"
    over, under = low > _UNSURE, high < -_UNSURE
    calmer = (
        "set training.label_smoothing=0.1, raise head.dropout, or stop earlier (validation.metric=loss, "
        "validation.patience)"
    )
    bolder = "lower training.label_smoothing and head.dropout, train for longer (training.updates)"
    return [
        Finding("too sure", over, said, gap, low, high, why, calmer),
        Finding("not sure enough", under, said, gap, low, high, why, bolder),
    ]
