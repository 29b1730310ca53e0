"""Small contests over matched models: translators on the built-in corpus, classifiers on separable texts."""

import functools
import random
import zlib

import pytest
import torch
from pydantic import TypeAdapter

from s2s.comparison import engine, tuning, tuning_search
from s2s.comparison.candidates import candidate_recipe
from s2s.comparison.matching import match_translator
from s2s.comparison.spec import Candidate, Comparison
from s2s.comparison.tasks import finalize_recipe
from s2s.recipe.reading import shipped
from s2s.recipe.schema import DecodingSettings, DeviceSettings, TokenizerSettings
from s2s.run.tasks import read
from s2s.tasks.translation.recipe import BatchSettings, DataSettings, Recipe, TrainingSettings, ValidationSettings
from s2s.training.device import select_device
from tests.compare.counting import Asked, Counting

OPTIONS = {"encoder_layers": 1, "decoder_layers": 1, "dropout": 0.1, "feedforward_ratio": 2}


@functools.cache
def _recipe(kind: str, pieces: int, parameters: int) -> Recipe:
    return Recipe(
        name=kind,
        data=DataSettings(train=400, validation=40, test=40),
        tokenizer=TokenizerSettings(kind="unigram", size=pieces),
        batches=BatchSettings(tokens=512, max_length=128),
        model=match_translator(kind, pieces, parameters, OPTIONS),
        training=TrainingSettings(updates=12, learning_rate=0.004, warmup=4, schedule="cosine"),
        validation=ValidationSettings(every=6, sentences=8, metric="loss"),
        # what has hardly learned anything writes as long as it may
        decoding=DecodingSettings(beam=1, max_ratio=0.5, max_extra=4),
        device=DeviceSettings(kind="cpu", precision="fp32"),
    )


@pytest.fixture
def contest(tmp_path):
    """A function that makes a contest of these models."""

    def make(models, seeds=(1,), profile="quick"):
        candidates = tuple(Candidate(kind, _recipe(kind, 400, 33_000)) for kind in models)
        device_context = select_device(DeviceSettings(kind="cpu", precision="fp32"))
        return Comparison(tmp_path, profile, candidates, tuple(seeds), device_context)

    return make


@pytest.fixture
def few_trials(monkeypatch):
    """Two rates are enough where the search for them is not what is tested."""
    rates = (0.002, 0.004)
    for name, value in (("RATES", rates), ("LOWEST", rates[0]), ("HIGHEST", rates[1])):
        monkeypatch.setattr(tuning_search, name, value)


def _planted_loss(recipe, seed, device_context):
    """A loss that is lowest at a rate of 0.002 and of one layer, and another one for each model."""
    model = zlib.crc32(repr(recipe.model).encode()) / 2**32
    return 5 + 100 * abs(recipe.training.learning_rate - 0.002) + recipe.model.encoder_layers + model, 0.01


@pytest.fixture
def counting(request, monkeypatch, few_trials):
    """A comparison whose one question counts its measurements, made in this process; trials are planted, too.

    A test that is marked `real_trials` trains its models.
    """
    if not request.node.get_closest_marker("real_trials"):
        monkeypatch.setattr(tuning, "short_training", _planted_loss)
    # sums of another number of threads have other last bits
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    counting = Counting()
    # in this process, where it remembers
    conclusion = lambda *given: counting.conclusion(*given)  # noqa: E731
    planned = counting.trials, counting.measure, conclusion, TypeAdapter(dict)
    experiment = Asked("memory", "How often?", *planned, exclusive=True)
    monkeypatch.setattr(engine, "EXPERIMENTS", {"memory": experiment})
    monkeypatch.setattr(engine, "number_for", lambda device_context: 1)
    yield counting
    torch.set_num_threads(threads)


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
            _kept.update((cell, experiment.measure(shared, cell)) for cell in experiment.trials(shared))
        return shared, dict(_kept)

    return measure


TOPICS = {"World": "peace vote treaty war", "Sports": "goal match team coach", "Business": "bank stock oil profit"}
NOISE = ["the", "a", "of", "on", "in", "said", "today", "after", "new", "two", "big", "with"]
TINY = """
name: tiny
task: classification
data: {corpus: files, text: text, label: label, train: train.tsv, validation: 40, test: test.tsv}
tokenizer: {kind: word, size: 500}
batches: {tokens: 400, max_length: 24}
model: {kind: transformer, width: 48, heads: 2, feedforward: 96, encoder_layers: 1, dropout: 0.1}
head: {pooling: attention}
training: {updates: 48, warmup: 8, learning_rate: 0.004, schedule: cosine, ema: 0.8}
validation: {every: 24}
device: {kind: cpu, precision: fp32}
"""


def _labelled(count: int, seed: int) -> str:
    """A table of texts that name their class by one word."""
    chance = random.Random(seed)
    lines = ["label\ttext"]
    for _ in range(count):
        topic = chance.choice(list(TOPICS))
        words = chance.choices(NOISE, k=chance.randint(2, 20))
        words[chance.randrange(len(words))] = chance.choice(TOPICS[topic].split())
        lines.append(f"{topic}\t{' '.join(words)}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def labelled(tmp_path, monkeypatch):
    """The current folder, with a classification recipe of its own and separable texts."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.tsv").write_text(_labelled(340, 1))
    (tmp_path / "test.tsv").write_text(_labelled(90, 2))
    (tmp_path / "tiny.yaml").write_text(TINY)
    return tmp_path


@pytest.fixture
def classifiers(labelled):
    """A function that makes a contest of these classifiers."""

    def make(models, seeds=(1,)):
        base = read(labelled / "tiny.yaml")
        base = finalize_recipe(base)
        candidates = tuple(Candidate(kind, candidate_recipe(kind, base, {})) for kind in models)
        device_context = select_device(DeviceSettings(kind="cpu", precision="fp32"))
        return Comparison(labelled / "contest", "quick", candidates, tuple(seeds), device_context)

    return make


@pytest.fixture
def planted(tmp_path):
    """A function that makes a contest of models that are never built, for what is concluded from planted runs."""
    recipe = read(shipped()["ag_news"])
    device_context = select_device(DeviceSettings(kind="cpu", precision="fp32"))

    def make(models, seeds=(1,)):
        return Comparison(
            tmp_path, "quick", tuple(Candidate(kind, recipe) for kind in models), tuple(seeds), device_context
        )

    return make
