"""Every metric that a recipe accepts as `validation.metric` is one that its task computes."""

from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest

from s2s.evaluation.metrics import score
from s2s.recipe.labelled import ClassificationValidation
from s2s.tasks.captioning.evaluation import METRICS
from s2s.tasks.captioning.recipe import CaptionValidation
from s2s.tasks.classification.task import TASK as CLASSIFICATION
from s2s.tasks.language_model.recipe import LanguageValidation
from s2s.tasks.language_model.task import TASK as LANGUAGE_MODEL
from s2s.tasks.masked_lm.recipe import MaskedValidation
from s2s.tasks.masked_lm.task import TASK as MASKED_LM
from s2s.tasks.text_to_text.recipe import OF_CLASSES, Metric
from s2s.tasks.translation.recipe import ValidationSettings
from s2s.training.logger import NullLog

TEXTS = ["a small dog"]


def _choices(section) -> list[str]:
    return [*get_args(section.model_fields["metric"].annotation)]


def _context(metric: str) -> SimpleNamespace:
    """Stand-in for the context of `validate`, with a model that is not called."""
    device_context = SimpleNamespace(distributed=SimpleNamespace(is_main_process=False))
    return SimpleNamespace(
        model=None,
        trainer=SimpleNamespace(update=1, device_context=device_context),
        recipe=SimpleNamespace(validation=SimpleNamespace(metric=metric), data=SimpleNamespace(seed=1)),
        data=SimpleNamespace(
            validation=None, tokenizer=SimpleNamespace(size=9), corpus=SimpleNamespace(validation=None)
        ),
    )


def test_validation_metric_of_a_task_that_generates_text_is_one_of_its_scores():
    assert {*_choices(ValidationSettings)} <= {"loss", *score(TEXTS, TEXTS)}
    assert {*_choices(CaptionValidation)} <= {"loss", *score(TEXTS, TEXTS, names=METRICS)}
    for metric in {*get_args(Metric)} - {"loss", *OF_CLASSES}:
        assert metric in score(TEXTS, TEXTS, names=(metric,))


@pytest.mark.parametrize("metric", _choices(ClassificationValidation))
def test_validation_metric_of_a_classification_is_one_of_its_scores(metric, monkeypatch):
    class Examples:
        labels = np.array([0, 1])

        def __len__(self) -> int:
            return 2

        def subset(self, rows: np.ndarray) -> "Examples":
            return self

    monkeypatch.setattr(
        type(CLASSIFICATION), "training_examples_for_inference", lambda self, context: (Examples(), Examples())
    )
    monkeypatch.setattr("s2s.tasks.classification_base.class_probabilities", lambda *given, **named: np.eye(2))
    found = CLASSIFICATION.validate(_context(metric), NullLog())
    assert (found.value, found.lower_is_better) == ((found.loss, True) if metric == "loss" else (100, False))


@pytest.mark.parametrize("metric", _choices(MaskedValidation))
def test_validation_metric_of_a_masked_language_model_is_one_of_its_scores(metric, monkeypatch):
    monkeypatch.setattr("s2s.tasks.masked_lm.task._examples_of", lambda *given: None)
    monkeypatch.setattr("s2s.tasks.masked_lm.task.measure", lambda *given: (2.0, 50.0, None))
    found = MASKED_LM.validate(_context(metric), NullLog())
    assert (found.value, found.lower_is_better) == {"loss": (2, True), "accuracy": (50, False)}[metric]


@pytest.mark.parametrize("metric", _choices(LanguageValidation))
def test_validation_metric_of_a_language_model_is_one_of_its_scores(metric, monkeypatch):
    found = SimpleNamespace(loss=2.0, documents=np.array([3.0]))
    monkeypatch.setattr("s2s.tasks.language_model.task.windows_of", lambda *given: None)
    monkeypatch.setattr("s2s.tasks.language_model.task.measure", lambda *given: found)
    monkeypatch.setattr("s2s.tasks.language_model.task._size", lambda *given: SimpleNamespace(bytes=1))
    found = LANGUAGE_MODEL.validate(_context(metric), NullLog())
    nats = {"loss": 2.0, "bits_per_byte": 3.0}[metric]
    assert found.lower_is_better
    assert found.value == pytest.approx(nats if metric == "loss" else nats / np.log(2))
