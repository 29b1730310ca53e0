"""What length costs classifiers."""

from collections.abc import Mapping

import numpy as np

from s2s.evaluation.inference import Draws, ratios
from s2s.experiments.contest import BySeed, Cells, Conclusion, Contest, by_model
from s2s.experiments.lengths import Fall, Score, buckets_table, cell, differences_table, fall, lines_of
from s2s.experiments.presenting import Interval, axis, figure

_BUCKETS = 5


def conclude(contest: Contest, measured: Cells) -> Conclusion:
    """What each model loses with length, and how much more than another."""
    runs = by_model(contest, measured)
    if not runs:
        return Conclusion()
    falls = {model: _fall(own) for model, own in runs.items()}
    score = _score(runs)
    shown = figure(
        "accuracy",
        "Accuracy against the length of the text",
        (axis("words of the text, mean of its bucket"), axis("accuracy", "%")),
        lines_of(falls),
        "Buckets have equally many texts. Intervals (95 %): texts drawn with replacement.",
    )
    columns = [Interval("accuracy (%)", "score", 2)]
    title = "Accuracy by the length of the text"
    return Conclusion(
        [cell("accuracy of long texts", model, falls, score, "accuracy") for model in falls],
        [shown],
        [buckets_table(title, "texts", columns, falls), differences_table(falls, score)],
    )


def _score(runs: Mapping[str, BySeed]) -> Score:
    # all models are tested on the same texts
    guess = max(run["commonest"] for own in runs.values() for run in own.values())
    longest = "accuracy on the longest texts minus that on the shortest"
    return Score("accuracy", "points", "accuracy", longest, guess, "what only guesses cannot get worse")


def _fall(runs: BySeed) -> Fall:
    own = list(runs.values())
    right = 100 * np.mean([run["right"] for run in own], axis=0)

    def accuracy(part: np.ndarray, drawn: Draws) -> np.ndarray:
        """Of each draw of a bucket's texts, in percent."""
        return ratios(right[part], np.ones(len(part)), drawn)

    return fall(own[0]["words"], len(own), _BUCKETS, accuracy, right)
