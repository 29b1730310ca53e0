"""Measure which texts the classifiers of `classification` label correctly, and their lengths."""

import numpy as np
from pydantic import TypeAdapter

from s2s.comparison.questions.classification.measure import texts_of
from s2s.comparison.questions.text_length.analyse import TextLengthRun, analyse
from s2s.comparison.spec import Comparison, Experiment, Trial, each_run
from s2s.comparison.tasks import evaluation_of
from s2s.data.scripts import is_unspaced, split_words


def measure(comparison: Comparison, trial: Trial) -> TextLengthRun:
    """Measure correctness and length of each text."""
    folder, tested = evaluation_of(comparison, trial.model, trial.seed)
    texts = texts_of(folder, tested["split"])
    unspaced = is_unspaced(texts)
    return TextLengthRun(
        words=[len(split_words(text, unspaced)) for text in texts],
        right=[int(a == b) for a, b in zip(tested["truth"], tested["predicted"], strict=True)],
        commonest=round(100 * float(np.bincount(tested["truth"]).max()) / len(tested["truth"]), 2),
    )


EXPERIMENT = Experiment(
    "text-length",
    "Does accuracy fall with text length?",
    each_run,
    measure,
    analyse,
    TypeAdapter(TextLengthRun),
    depends_on="classification",
)
