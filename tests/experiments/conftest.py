"""A small contest over matched models, on the built-in corpus."""

import pytest

from s2s.experiments.contest import Contest, Contestant
from s2s.experiments.matching import matched
from s2s.recipe.schema import (
    BatchSettings,
    DataSettings,
    DecodingSettings,
    DeviceSettings,
    Recipe,
    TokenizerSettings,
    TrainingSettings,
    ValidationSettings,
)
from s2s.training.devices import choose

OPTIONS = {"encoder_layers": 1, "decoder_layers": 1, "dropout": 0.1, "feedforward_ratio": 2}


def _recipe(kind: str, pieces: int, parameters: int) -> Recipe:
    return Recipe(
        name=kind,
        data=DataSettings(train=400, validation=40, test=40),
        tokenizer=TokenizerSettings(kind="unigram", size=pieces),
        batches=BatchSettings(tokens=512, max_length=128),
        model=matched(kind, pieces, parameters, OPTIONS),
        training=TrainingSettings(updates=12, learning_rate=0.004, warmup=4, schedule="cosine"),
        validation=ValidationSettings(every=6, sentences=8, metric="loss"),
        decoding=DecodingSettings(beam=1),
        device=DeviceSettings(kind="cpu", precision="fp32"),
    )


@pytest.fixture
def contest(tmp_path):
    """A function that makes a contest of these models."""

    def make(models, seeds=(1,), profile="quick"):
        contestants = tuple(Contestant(kind, _recipe(kind, 400, 33_000)) for kind in models)
        computer = choose(DeviceSettings(kind="cpu", precision="fp32"))
        return Contest(tmp_path, profile, contestants, tuple(seeds), computer)

    return make


@pytest.fixture(scope="module")
def _kept():
    """What was measured once for all tests of a file."""
    return {}


@pytest.fixture
def measured_once(contest, _kept):
    """A function that makes a contest of these models, and all of an experiment's measurements in it: once a file."""

    def measure(experiment, models):
        shared = contest(models)
        if not _kept:
            _kept.update((task, experiment.measure(shared, task)) for task in experiment.tasks(shared))
        return shared, dict(_kept)

    return measure
