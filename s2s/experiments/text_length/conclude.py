"""What length costs classifiers."""

import numpy as np

from s2s.evaluation.inference import ratios
from s2s.experiments.contest import BySeed, Cells, Conclusion, Contest, by_model
from s2s.experiments.lengths import Fall, Score, conclusion, fall
from s2s.experiments.presenting import Interval

_BUCKETS = 5


def conclude(contest: Contest, measured: Cells) -> Conclusion:
    """What each model loses with length, and how much more than another."""
    runs = by_model(contest, measured)
    if not runs:
        return Conclusion()
    score = Score(
        row="accuracy of long texts",
        key="accuracy",
        read="text",
        texts="texts",
        name="accuracy",
        unit="points",
        slope="accuracy",
        difference="accuracy on the longest texts minus that on the shortest",
        # all models are tested on the same texts
        weak=max(run["commonest"] for own in runs.values() for run in own.values()),
        helpless="what only guesses cannot get worse",
    )
    falls = {model: _fall(own) for model, own in runs.items()}
    return conclusion(falls, score, "Accuracy by the length of the text", [Interval("accuracy (%)", "score", 2)])


def _fall(runs: BySeed) -> Fall:
    right = 100 * np.mean([run["right"] for run in runs.values()], axis=0)
    return fall(runs, _BUCKETS, lambda part, drawn: ratios(right[part], np.ones(len(part)), drawn), right)
