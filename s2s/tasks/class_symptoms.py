"""Signs of problems in the predictions of a classifier."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Int

from s2s.evaluation import classification as measures
from s2s.evaluation.signs import WORST, Diagnostics, WorstExample
from s2s.evaluation.signs.classes import class_signs


def class_symptoms(
    truth: Int[np.ndarray, " examples"],
    probabilities: Float[np.ndarray, "examples classes"],
    names: Sequence[str],
    noun: str,
    places: Sequence[str],
    described: Callable[[int], str],
) -> Diagnostics:
    """Return signs in the predictions, and the worst examples.

    The worst examples are those whose true class has the lowest probability.

    Args:
        truth: True class of each example.
        probabilities: Probability of each class for each example.
        noun: Plural noun for the examples.
        places: Description of each example's place.
        described: Returns an example, by its row in `truth`, as one line of text.

    Returns:
        Accuracy, signs and worst examples.
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
