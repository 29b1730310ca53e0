"""Train classifiers in full, and measure their test scores, learning curves and costs."""

from dataclasses import asdict
from pathlib import Path
from typing import cast

import numpy as np
from pydantic import TypeAdapter

from s2s.comparison.questions.classification.analyse import ClassificationRun, analyse
from s2s.comparison.runs import learning_curve, validation_points
from s2s.comparison.spec import Comparison, Experiment, Trial, each_run
from s2s.comparison.tasks import evaluation_of, model_spec
from s2s.evaluation.classification import ClassificationScores
from s2s.run.folder import open_run
from s2s.run.inference import evaluation_split
from s2s.tasks.classification.data import Labelled

_SCORES = TypeAdapter(ClassificationScores)
# stored misclassified texts of a run: enough that some of them are shared by the candidates
_WRONG = 100
_MAX_CHARACTERS = 240


def measure(comparison: Comparison, trial: Trial) -> ClassificationRun:
    """Train a classifier, unless its run is finished, and evaluate it."""
    folder, tested = evaluation_of(comparison, trial.model, trial.seed)
    candidate = comparison.candidate(trial.model)
    scores = _SCORES.validate_python(tested["scores"])
    points = list(validation_points(folder))
    return ClassificationRun(
        **asdict(learning_curve(folder, comparison.device_context)),
        accuracies=[point.scores["accuracy"] for point in points],
        texts=[point.count for point in points],
        **{key: tested[key] for key in ("split", "digest", "classes", "truth", "predicted", "truncated")},
        accuracy=scores.accuracy,
        macro_f1=scores.macro_f1,
        loss=scores.loss,
        per_class=scores.classes,
        calibration=scores.calibration,
        adaptive=scores.adaptive,
        wrong=_wrong(texts_of(folder, tested["split"]), np.array(tested["truth"]), np.array(tested["predicted"])),
        rate=candidate.choice(),
        parameters=model_spec(candidate.recipe).parameters(candidate.name, candidate.settings),
    )


def texts_of(folder: Path, split: str) -> list[str]:
    """Return the texts of a run's `test` or `validation` split, in the order of the evaluation."""
    run = open_run(folder)
    return list(cast(Labelled, evaluation_split(run, run.recipe, split)).texts["text"])


def _wrong(texts: list[str], truth: np.ndarray, predicted: np.ndarray) -> dict[int, str]:
    """Misclassified texts by row: the first ones of a permutation that is the same for all runs."""
    order = np.random.default_rng(len(truth)).permutation(len(truth))
    rows = order[truth[order] != predicted[order]][:_WRONG].tolist()
    shown = {row: " ".join(texts[row].split()) for row in rows}
    return {row: t if len(t) <= _MAX_CHARACTERS else t[: _MAX_CHARACTERS - 1] + "…" for row, t in shown.items()}


EXPERIMENT = Experiment(
    "classification",
    "How accurate are the classifiers, and what does training them cost?",
    each_run,
    measure,
    analyse,
    TypeAdapter(ClassificationRun),
)
