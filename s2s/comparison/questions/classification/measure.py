"""Whole trainings on the classification task, and what their test says."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from s2s.comparison.questions.classification.analyse import analyse
from s2s.comparison.runs import history, validation_points
from s2s.comparison.spec import Comparison, Experiment, Measured, Trial, each_run
from s2s.comparison.tasks import evaluation_of, model_spec
from s2s.run.folder import open_run
from s2s.run.inference import evaluation_split
from s2s.tasks.classification.data import Labelled

# of the texts that a run names wrong: enough that models disagree on some of them
_WRONG = 100
_SHOWN = 240


def measure(comparison: Comparison, trial: Trial) -> Measured:
    """Trains a classifier, unless that is done, and takes its scores, its curve and its cost."""
    folder, tested = evaluation_of(comparison, trial.model, trial.seed)
    candidate = comparison.candidate(trial.model)
    scores = tested["scores"]
    return {
        **{key: tested[key] for key in ("split", "digest", "classes", "truth", "predicted", "truncated")},
        **{key: scores[key] for key in ("accuracy", "macro_f1", "loss", "calibration", "adaptive")},
        "per_class": scores["classes"],
        "wrong": _wrong(folder, tested),
        **history(
            folder, {"losses": "loss", "accuracies": "accuracy", "macro_f1s": "macro_f1"}, comparison.device_context
        ),
        "texts": [pause.count for pause in validation_points(folder)],
        "rate": candidate.choice(),
        "parameters": model_spec(candidate.recipe).parameters(candidate.name, candidate.settings),
    }


def texts_of(folder: Path, split: str) -> list[str]:
    """The untouched texts of a run's `test` or `validation` set, in the order of the evaluation."""
    run = open_run(folder)
    return list(cast(Labelled, evaluation_split(run, run.recipe, split)).texts["text"])


def _wrong(folder: Path, tested: Mapping[str, Any]) -> dict[str, str]:
    """Misclassified texts by row: the first ones of a permutation that is the same for all runs."""
    truth, predicted = np.array(tested["truth"]), np.array(tested["predicted"])
    order = np.random.default_rng(len(truth)).permutation(len(truth))
    rows = order[truth[order] != predicted[order]][:_WRONG].tolist()
    texts = texts_of(folder, tested["split"])
    shown = {row: " ".join(texts[row].split()) for row in rows}
    return {str(row): t if len(t) <= _SHOWN else t[: _SHOWN - 1] + "…" for row, t in shown.items()}


EXPERIMENT = Experiment(
    "classification",
    "How many texts get the right class, and what did it take to learn that?",
    each_run,
    measure,
    analyse,
)
