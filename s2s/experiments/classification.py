"""How many texts get the right class, and what did it take to learn that?"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from s2s.experiments.classification_findings import conclude
from s2s.experiments.classifiers import curve_of, evaluation_of, texts_of, trained
from s2s.experiments.contest import Contest, Experiment, Measured, Task
from s2s.experiments.disciplines import discipline_of
from s2s.experiments.whole_runs import cost_of, seconds_for
from s2s.results import Result

# of the texts that a run names wrong: enough that models disagree on some of them
_WRONG = 100
_SHOWN = 240


class Classification(Experiment):
    """Whole trainings on the classification task, and their test."""

    name = "classification"
    question = "How many texts get the right class, and what did it take to learn that?"
    rows = ("accuracy", "calibration", "training speed", "training cost")

    def tasks(self, contest: Contest) -> list[Task]:
        """One for each model and seed; the models in turn."""
        return [
            Task(each.name, seed=seed, seconds=seconds_for(each.recipe))
            for seed in contest.seeds
            for each in contest.contestants
        ]

    def measure(self, contest: Contest, task: Task) -> Measured:
        """Trains a classifier, unless that is done, and takes its scores, its curve and its cost.

        Raises:
            UserError: the training failed.
        """
        folder = trained(contest, task.model, task.seed or 0)
        contestant = contest.contestant(task.model)
        found, curve, cost = evaluation_of(folder), curve_of(folder), cost_of(folder)
        scores = found["scores"]
        return {
            "split": found["split"],
            "digest": found["digest"],
            "classes": found["classes"],
            "truth": found["truth"],
            "predicted": found["predicted"],
            "accuracy": scores["accuracy"],
            "macro_f1": scores["macro_f1"],
            "loss": scores["loss"],
            "per_class": scores["classes"],
            "calibration": scores["calibration"],
            "adaptive": scores["adaptive"],
            "truncated": found["truncated"],
            "wrong": _wrong(folder, found),
            "updates": [point.update for point in curve],
            "texts": [point.texts for point in curve],
            "tokens": [point.tokens for point in curve],
            "seconds": [round(point.seconds, 3) for point in curve],
            "losses": [point.loss for point in curve],
            "accuracies": [point.accuracy for point in curve],
            "macro_f1s": [point.macro_f1 for point in curve],
            "parameters": discipline_of(contestant.recipe)
            .blueprint(contestant.recipe)
            .parameters(contestant.name, contestant.settings),
            "run_seconds": cost.seconds,
            "cpu_seconds": cost.cpu_seconds,
        }

    def conclude(self, contest: Contest, measured: Mapping[Task, Measured]) -> Result:
        """Scores over seeds, tests for each pair of models, curves and costs."""
        return conclude(self, contest, measured)


def _wrong(folder: Path, found: Mapping[str, Any]) -> dict[str, str]:
    """Some texts that were named wrong, by row: those that come first in an order that is the same for all runs."""
    truth, predicted = np.array(found["truth"]), np.array(found["predicted"])
    order = np.random.default_rng(len(truth)).permutation(len(truth))
    rows = order[truth[order] != predicted[order]][:_WRONG].tolist()
    texts = texts_of(folder, found["split"])
    return {str(row): _shown(texts[row]) for row in rows}


def _shown(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


EXPERIMENT = Classification()
