"""Every task, whole: learned, validated, averaged, scored, asked.

On the device that S2S_TEST_DEVICE names; where it names none, on one that knows no float64.
"""

import io
import random
import struct
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from s2s.data.phrasebook import phrases
from s2s.inspection.inspection import InspectionRequest
from s2s.run.folder import open_run
from s2s.run.inference import evaluate, inspect_input, load
from s2s.run.tasks import read
from s2s.run.training import train
from s2s.tasks.language_model.generation import Sampling, Writing, generate_texts
from s2s.tasks.language_model.induction import probe
from s2s.tasks.masked_lm.filling import fill, weigh_words
from s2s.training.device import DeviceContext
from tests.devices.conftest import NAME, counted

MODEL = "kind: transformer, width: 8, heads: 2, feedforward: 8, encoder_layers: 1, dropout: 0.1"
SHORT = """
training: {updates: 2, warmup: 1, ema: 0.9, average_last: 2}
validation: {every: 1}
"""


def _run(folder: Path, recipe: str, chosen: DeviceContext) -> Path:
    (folder / "recipe.yaml").write_text("name: tiny\n" + recipe + SHORT, encoding="utf-8")
    run = train(read(folder / "recipe.yaml", [f"run.dir={folder / 'run'}"]), Console(file=io.StringIO()))
    assert load(run).device_context.device.type == chosen.device.type
    if chosen.device.type == NAME:
        assert counted["aten._fused_adam_.default"] == 2
    return run


@pytest.fixture
def texts(tmp_path) -> Path:
    chance, path = random.Random(1), tmp_path / "texts.tsv"
    lines = [f"{chance.randrange(2)}\t{phrase.source}" for phrase in phrases("train", 120, seed=4)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.slow
def test_task_translation(tmp_path, chosen):
    recipe = f"""
data: {{train: 100, validation: 4, test: 4}}
tokenizer: {{kind: char, size: 100}}
batches: {{tokens: 2000}}
model: {{{MODEL}, decoder_layers: 1}}
decoding: {{beam: 2, max_ratio: 0.2}}
"""
    run = _run(tmp_path, recipe, chosen)
    assert evaluate(run, "validation", keep=False).scores
    found = inspect_input(open_run(run), InspectionRequest(("a dog runs",), output="ein Hund rennt")).examples[0]
    assert [maps.weights.shape[0] for maps in found.attention] == [1, 1, 1]
    assert found.walk.difference < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["attention", "max"])
def test_task_classification_with_attention_and_without(tmp_path, texts, chosen, pooling):
    kind = MODEL if pooling == "attention" else "kind: mingru, width: 8, encoder_layers: 1"
    recipe = f"""
task: classification
data: {{corpus: files, train: {texts}, text: "1", label: "0", classes: [no, yes], validation: 20, test: {texts}}}
tokenizer: {{kind: word, size: 60}}
batches: {{tokens: 1000, max_length: 12}}
model: {{{kind}}}
head: {{pooling: {pooling}}}
"""
    run = _run(tmp_path, recipe, chosen)
    assert evaluate(run, "validation", keep=False).probabilities


def test_task_masked_lm(tmp_path, texts, chosen):
    recipe = f"""
task: masked-lm
data: {{train: {texts}, text: "1", validation: 10, test: 10}}
tokenizer: {{kind: word, size: 300}}
batches: {{tokens: 1000, max_length: 12}}
model: {{{MODEL}}}
"""
    run = _run(tmp_path, recipe, chosen)
    assert evaluate(run, keep=False).masked
    model, (tokenizer,) = load(run).model, load(run).tokenizers
    assert fill(model, tokenizer, "The old ___ sleeps in the garden .", False).fillers
    assert len(weigh_words(model, tokenizer, "The old ___ sleeps .", ["the", "in"], False).log_probabilities) == 2


@pytest.mark.parametrize("kind", ["transformer, heads: 2, feedforward: 8", "mingru"])
def test_task_language_model(tmp_path, texts, chosen, kind, monkeypatch):
    # the first tokens of a text are written as all others are
    monkeypatch.setattr("s2s.tasks.language_model.task._WRITTEN", 6)
    recipe = f"""
task: language-model
data: {{train: {texts}, text: "1", validation: 10, test: 10}}
tokenizer: {{kind: bytes}}
batches: {{tokens: 256, length: 64}}
model: {{kind: {kind}, width: 8, decoder_layers: 1, dropout: 0.1}}
"""
    run = _run(tmp_path, recipe, chosen)
    assert evaluate(run, keep=False).nats
    assert len(generate_texts(load(run), "The", Writing(Sampling(), 5, count=2))) == 2
    assert probe(load(run), 6, 2, 1).first


@pytest.mark.slow
def test_task_images(tmp_path, chosen):
    generator = np.random.default_rng(1)
    for stem, count in (("train", 60), ("t10k", 20)):
        for name, array in (("images", generator.integers(0, 256, (count, 8, 8))), ("labels", np.arange(count) % 2)):
            kind = "idx3" if name == "images" else "idx1"
            head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            (tmp_path / f"{stem}-{name}-{kind}-ubyte").write_bytes(head + array.astype(np.uint8).tobytes())
    recipe = f"""
task: images
data: {{corpus: mnist, root: {tmp_path}, validation: 10, size: 8, classes: [no, yes]}}
patches: {{size: 4}}
batches: {{images: 32}}
model: {{{MODEL}, encoder_positions: learned, max_positions: 5}}
"""
    run = _run(tmp_path, recipe, chosen)
    assert evaluate(run, keep=False).probabilities


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "stem"), [("transformer", "convolution"), ("mingru", "patches")])
def test_task_captioning(tmp_path, chosen, kind, stem):
    model = MODEL if kind == "transformer" else "kind: mingru, width: 8, encoder_layers: 1"
    recipe = f"""
task: captioning
data: {{train: 40, validation: 4, test: 4, size: 16}}
stem: {{kind: {stem}, size: 4}}
tokenizer: {{kind: word, size: 60}}
batches: {{captions: 64}}
model: {{{model}, decoder_layers: 1}}
decoding: {{beam: 2, max_length: 8}}
"""
    run = _run(tmp_path, recipe, chosen)
    assert len(evaluate(run, keep=False).looks) == (3 if kind == "transformer" else 0)


@pytest.mark.slow
def test_task_text_to_text(tmp_path, chosen):
    recipe = f"""
task: text-to-text
data:
  corpora:
    en-de: {{prefix: "German: ", metric: bleu, train: 60, validation: 4, test: 4}}
    acceptable:
      prefix: "acceptable: "
      metric: macro_f1
      answers: [acceptable, unacceptable]
      source: sentence
      target: judgement
      train: 60
      validation: 4
      test: 4
tokenizer: {{kind: char, size: 100}}
batches: {{tokens: 2000}}
model: {{{MODEL}, decoder_layers: 1}}
decoding: {{beam: 1, max_ratio: 0.2}}
"""
    run = _run(tmp_path, recipe, chosen)
    assert [score.task for score in evaluate(run, keep=False).tasks] == ["en-de", "acceptable"]
