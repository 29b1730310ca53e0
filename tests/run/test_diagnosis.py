"""`s2s diagnose` on real runs: a sound run passes, and each self-test fails on a model that is broken for it."""

import json
import random
import shutil
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import datasets
import numpy as np
import pytest
import torch
from click.testing import CliRunner

from s2s.cli.main import commands
from s2s.data.tokenizers import Tokenizer
from s2s.diagnosis.report import self_test
from s2s.diagnosis.self_tests import RESUME, run_self_tests
from s2s.errors import UserError
from s2s.models.transformer import Settings, build
from s2s.nn.precision import PrecisionError
from s2s.recipe.pairs import BatchSettings
from s2s.run.folder import open_run
from s2s.run.inference import load
from s2s.tasks.translation.task import TranslationTask
from s2s.training.trainer import Trainer

PAIRS = """
name: pairs
data: {corpus: files, train: train.tsv, validation: 40, test: test.tsv}
tokenizer: {kind: word, size: 100, shared: false}
batches: {tokens: 400}
model: {kind: transformer, width: 32, heads: 2, feedforward: 64, encoder_layers: 1, decoder_layers: 1, dropout: 0.0}
training: {updates: 540, warmup: 30, learning_rate: 0.01, schedule: cosine, label_smoothing: 0.0, ema: 0.9}
validation: {every: 54, metric: loss, sentences: 10}
decoding: {beam: 3}
device: {kind: cpu, precision: fp32, threads: 1}
"""
INCREMENTAL, SEARCH = "incremental decoding = teacher forcing", "beam search scores = teacher forcing"
BATCH, GRADIENT, CHECKPOINT = (
    "a batch = its examples alone",
    "gradient = finite differences",
    "the checkpoint is the whole model",
)
SELF_TESTS = ("--only", "self-tests")
SIGNS = ("--only", "signs")


def _s2s(*words: str):
    return CliRunner().invoke(commands, words, standalone_mode=False, catch_exceptions=False)


def _table(count: int, seed: int) -> str:
    """Words without a sense, each with one translation."""
    chance, rows = random.Random(seed), ["en\tde"]
    for _ in range(count):
        numbers = [chance.randrange(10) for _ in range(chance.randint(2, 5))]
        rows.append(" ".join(f"w{n}" for n in numbers) + "\t" + " ".join(f"v{n}" for n in numbers))
    return "\n".join(rows) + "\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("diagnosis")
    (folder / "train.tsv").write_text(_table(1000, 1))
    (folder / "test.tsv").write_text(_table(60, 2))
    (folder / "pairs.yaml").write_text(PAIRS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        _s2s("train", "pairs.yaml")
    return folder


@pytest.fixture
def run(trained, monkeypatch) -> Path:
    monkeypatch.chdir(trained)
    return Path("runs/pairs")


def _files(run: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


def test_diagnose_passes_a_sound_run_and_changes_no_file(run, tmp_path):
    before = _files(run)
    done = _s2s("diagnose", str(run), "--json", str(tmp_path / "found.json"))
    assert done.exit_code == 0, done.output
    assert _files(run) == before
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["passed"]
    results = found["self_tests"]["results"]
    assert {result["status"] for result in results} == {"pass"}
    assert len(results) == 7
    assert "self-tests: 7 pass (24 examples of the test set)\n" in done.output
    # a training without movement would pass whatever is saved
    assert "weights moved by up to 0 " not in results[-1]["detail"]
    assert found["found"] == []
    assert len(found["signs"]["signs"]) == 14
    assert len(found["signs"]["worst"]) == 10
    assert "signs: 0 of 14 found" in done.output


def _self_test(run: Path, names=None):
    found = open_run(run)
    return self_test(found, load(found), "test", names=names)


def _failed(run: Path) -> set[str]:
    """The self-tests that fail on the run, as models are built now."""
    return {result.name for result in _self_test(run).results if result.status == "fail"}


@pytest.fixture
def broken(monkeypatch):
    """Breaks every model that is built from now on."""

    def breaks(change) -> None:
        build = TranslationTask.build

        def built(task, recipe, tokenizers):
            model = build(task, recipe, tokenizers)
            change(model)
            return model

        monkeypatch.setattr(TranslationTask, "build", built)

    return breaks


def _on_memory(change):
    """A fault in what the encoder leaves behind."""
    return lambda model: model.encoder.register_forward_hook(lambda module, given, memory: change(memory))


def test_self_tests_find_a_decoder_that_looks_ahead(run, broken):
    def look_ahead(module, given, out):
        return out[0] + 0.1 * out[0].flip(1), out[1]

    broken(lambda model: model.decoder.register_forward_hook(look_ahead))
    assert _failed(run) >= {INCREMENTAL, SEARCH}


def test_self_tests_find_padding_that_leaks(run, broken):
    broken(_on_memory(lambda memory: replace(memory, states=memory.states + memory.states.mean(1, keepdim=True))))
    assert _failed(run) == {BATCH}


def test_self_tests_find_a_state_that_ignores_select(run, broken):
    def stuck(module, given, out):
        there = type(out[1])
        kind = type("Stuck", (there,), {"select": lambda state, rows: state})
        return out[0], kind(**{f.name: getattr(out[1], f.name) for f in fields(there)})

    broken(lambda model: model.decoder.register_forward_hook(stuck))
    assert _failed(run) == {INCREMENTAL, SEARCH}
    assert f"fail: {SEARCH}: RuntimeError: Sizes of tensors must match" in str(_self_test(run))


def test_self_tests_find_a_layer_that_mixes_examples(run, broken):
    broken(_on_memory(lambda memory: replace(memory, states=memory.states + memory.summary.mean(0))))
    assert BATCH in _failed(run)


class _WrongBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return 1.1 * gradient


def test_self_tests_find_a_wrong_backward(run, broken):
    broken(_on_memory(lambda memory: replace(memory, states=_WrongBackward.apply(memory.states))))
    assert _failed(run) == {GRADIENT}


class _Batch:
    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.vectors = torch.randn(160, 64, generator=generator, dtype=torch.float64)
        self.count = len(self.vectors)

    def to(self, device: str) -> "_Batch":
        return self


@pytest.mark.parametrize("seed", [5, 6])
def test_gradient_self_test_tolerates_the_kinks_of_many_relus(seed):
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(256, 10))

    def loss(model, batch):
        return model(batch.vectors).logsumexp(dim=1).sum(), None

    run = SimpleNamespace(device_context=SimpleNamespace(device=torch.device("cpu")), model=model, recipe=None)
    tested = SimpleNamespace(
        run=run, rows=range(3), batch_of=lambda rows: _Batch(seed), task=SimpleNamespace(loss=lambda recipe: loss)
    )
    (found,) = run_self_tests(cast(Any, tested), [GRADIENT])
    assert found.value < 1e-6


def test_self_tests_find_weights_that_no_checkpoint_keeps(run, broken):
    def forget(model):
        drawn = torch.randn(32, dtype=torch.float32)
        _on_memory(lambda memory: replace(memory, states=memory.states + drawn.to(memory.states)))(model)

    broken(forget)
    assert _failed(run) == {CHECKPOINT}


def test_self_tests_find_training_state_that_no_checkpoint_keeps(run, broken):
    def count(model):
        seen = []

        def grow(memory):
            seen.extend([1] * model.training)
            return replace(memory, states=memory.states * (1 + 0.01 * len(seen)))

        _on_memory(grow)(model)

    broken(count)
    assert _failed(run) == {RESUME}


def test_resume_self_test_finds_saving_that_loses_digits(run, monkeypatch):
    load_state = Trainer.load_state

    def rounded(trainer, tensors, place, where):
        if where.parent.parent != run:
            tensors = {name: tensor.bfloat16().to(tensor.dtype) for name, tensor in tensors.items()}
        load_state(trainer, tensors, place, where)

    monkeypatch.setattr(Trainer, "load_state", rounded)
    assert _failed(run) == {RESUME}


def test_resume_self_test_is_not_applicable_where_the_device_lacks_the_precision(run, monkeypatch):
    def updates(trainer, until):
        raise PrecisionError(RuntimeError("could not create a primitive"), torch.device("cpu"))

    monkeypatch.setattr(Trainer, "updates", updates)
    done = _s2s("diagnose", str(run), *SELF_TESTS)
    assert done.exit_code == 0
    assert f"not applicable: {RESUME}: cpu: this model cannot be computed in bf16 on this device" in done.output


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), 1e5])
def test_self_tests_find_a_weight_that_is_not_finite_or_too_large(weight):
    model = torch.nn.Linear(2, 2)
    tested = cast(Any, SimpleNamespace(run=SimpleNamespace(model=model)))
    assert run_self_tests(tested, ["weights are finite"])[0].status == "pass"
    with torch.no_grad():
        model.weight[0, 0] = weight
    (found,) = run_self_tests(tested, ["weights are finite"])
    assert found.status == "fail"
    assert "(weight)" in found.detail


def test_diagnose_exits_with_status_1_where_a_self_test_fails(run, broken):
    broken(_on_memory(lambda memory: replace(memory, states=_WrongBackward.apply(memory.states))))
    done = _s2s("diagnose", str(run), *SELF_TESTS)
    assert done.exit_code == 1
    assert f"fail: {GRADIENT}: " in done.output


def test_diagnose_reports_the_device_of_the_training_where_it_differs(run, tmp_path):
    shutil.copytree(run, tmp_path / "moved")
    for path in (tmp_path / "moved").rglob("recipe.yaml"):
        path.write_text(path.read_text().replace("kind: cpu", "kind: mps"))
    for file in (tmp_path / "moved/manifest.json", *(tmp_path / "moved").rglob("device.txt")):
        file.write_text(file.read_text().replace("cpu, 1 thread", "mps"))
    done = _s2s("diagnose", str(tmp_path / "moved"), *SELF_TESTS)
    assert done.output.startswith(f"{tmp_path / 'moved'}, checkpoint ")
    assert ", cpu, 1 thread, fp32, trained on mps\n" in done.output
    assert f"pass: {RESUME}" in done.output


def test_resume_self_test_is_not_applicable_without_training_data(run, tmp_path):
    shutil.copytree(run, tmp_path / "alone")
    words = ("data.train=nowhere.tsv", "data.validation=test.tsv")
    done = _s2s("diagnose", str(tmp_path / "alone"), *words, *SELF_TESTS)
    assert done.exit_code == 0, done.output
    assert f"not applicable: {RESUME}: the training data cannot be read" in done.output


CLASSES = """
name: classes
task: {task}
data: {{corpus: files, text: en, {label}train: labelled.tsv, validation: 40, test: 40}}
tokenizer: {{kind: word, size: 100}}
batches: {{tokens: 600}}
model: {{kind: gru, width: 16, encoder_layers: 1, dropout: 0.1}}
training: {{updates: 4, warmup: 2}}
validation: {{every: 2}}
device: {{kind: cpu, precision: fp32, threads: 1}}
"""


@pytest.mark.parametrize(("task", "label"), [("classification", "label: parity, "), ("masked-lm", "")])
def test_diagnose_tests_tasks_without_generated_text(task, label, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [line.split("\t")[0] for line in _table(300, 3).splitlines()[1:]]
    table = [f"{row}\t{'even' if int(row.split()[0][1:]) % 2 else 'odd'}" for row in rows]
    (tmp_path / "labelled.tsv").write_text("en\tparity\n" + "\n".join(table) + "\n")
    (tmp_path / "classes.yaml").write_text(CLASSES.format(task=task, label=label))
    _s2s("train", "classes.yaml")
    done = _s2s("diagnose", "runs/classes")
    assert done.exit_code == 0, done.output
    assert "self-tests: 5 pass, 2 not applicable" in done.output
    assert "found (test set" in done.output
    assert "the 10 worst answers" in done.output


def _signs(run: Path, tmp_path: Path, *overrides: str) -> dict[str, dict]:
    done = _s2s("diagnose", str(run), *overrides, *SIGNS, "--json", str(tmp_path / "found.json"))
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "found.json").read_text())
    return {sign["name"]: sign for sign in found["signs"]["signs"] if sign["found"]}


def test_diagnose_reports_an_ignored_source(run, tmp_path, broken):
    broken(_on_memory(lambda memory: replace(memory, states=0 * memory.states, summary=0 * memory.summary)))
    found = _signs(run, tmp_path)
    assert {"ignores the source", "says always the same"} <= found.keys()


def test_diagnose_reports_unknown_words(run, tmp_path):
    lines = (Path("test.tsv")).read_text().splitlines()
    (tmp_path / "new.tsv").write_text("\n".join([lines[0], *(f"x{i} {line}" for i, line in enumerate(lines[1:]))]))
    found = _signs(run, tmp_path, f"data.test={tmp_path / 'new.tsv'}")
    assert "unknown tokens" in found
    assert "tokenizer.kind" in found["unknown tokens"]["remedy"]


def test_diagnose_reports_search_errors(run, tmp_path, monkeypatch):
    # as if the search had found something worse than the reference for each wrong sentence
    from s2s.decoding import generate

    search = generate.search

    def worse(model, source, valid, limits, beam, pieces, before_step, prefixes):
        return [
            [replace(h, tokens=(*h.tokens, h.tokens[0]), score=h.score - 5) for h in found]
            for found in search(model, source, valid, limits, beam, pieces, before_step, prefixes)
        ]

    monkeypatch.setattr(generate, "search", worse)
    found = _signs(run, tmp_path, "--split", "validation", "--examples", "30")
    assert "search errors" in found
    assert "decoding.beam above 3" in found["search errors"]["remedy"]


def test_diagnose_tests_the_pairs_that_the_model_has_positions_for():
    tokenizer = Tokenizer(b"", "bytes", "identity", False)
    settings = Settings(width=16, heads=2, feedforward=32, decoder_positions="learned", max_positions=8)
    recipe = SimpleNamespace(batches=BatchSettings(tokens=64, max_length=8))
    model = build(settings, tokenizer.size, tokenizer.size)
    run = cast(Any, SimpleNamespace(path="run", model=model, recipe=recipe, tokenizers=(tokenizer,)))
    part = datasets.Dataset.from_dict({"source": ["a", "a dog", "a fox"], "target": ["ein Hund", "der Hund", "Fuchs"]})
    examples = TranslationTask().examples_for_inference(run, part)
    assert [row for batch in examples.make_batches(0, 0) for row in batch] == [0]
    assert examples.collate(np.array([0]), 0).target_in.shape == (1, 6)
    with pytest.raises(UserError, match="all of 2 pairs are longer than the positions of the model"):
        TranslationTask().examples_for_inference(run, part.select([0, 1]))
