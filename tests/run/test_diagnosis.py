"""`s2s doctor` and `s2s explain` on real runs: sound ones pass, and each check fails on what is broken for it."""

import json
import random
import shutil
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner

from s2s.cli.main import commands
from s2s.run import doctor
from s2s.run.doctor import gradients, keeping
from s2s.run.doctor.findings import held
from s2s.run.folder import opened
from s2s.tasks.translation.task import Translation

PAIRS = """
name: pairs
data: {corpus: files, train: train.tsv, validation: 40, test: test.tsv}
tokenizer: {kind: word, size: 100, shared: false}
batches: {tokens: 400}
model: {kind: transformer, width: 32, heads: 2, feedforward: 64, encoder_layers: 1, decoder_layers: 1, dropout: 0.0}
training: {updates: 400, warmup: 30, learning_rate: 0.005, schedule: constant, label_smoothing: 0.0, ema: 0.9}
validation: {every: 60, metric: loss, sentences: 10}
decoding: {beam: 3}
device: {kind: cpu, precision: fp32, threads: 1}
"""
WRITING = {"stepping = teacher forcing", "a selected state goes on", "search score = rescoring"}


def _s2s(*words: str):
    return CliRunner().invoke(commands, words, standalone_mode=False, catch_exceptions=False)


def _table(count: int, seed: int) -> str:
    """Words without a sense, each with one translation."""
    chance, rows = random.Random(seed), ["en\tde"]
    for _ in range(count):
        numbers = [chance.randrange(20) for _ in range(chance.randint(2, 6))]
        rows.append(" ".join(f"w{n}" for n in numbers) + "\t" + " ".join(f"v{n}" for n in numbers))
    return "\n".join(rows) + "\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("diagnosis")
    (folder / "train.tsv").write_text(_table(1500, 1))
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


def test_a_sound_run_passes_and_is_left_as_it_is(run, tmp_path):
    before = _files(run)
    done = _s2s("doctor", str(run), "--json", str(tmp_path / "found.json"))
    assert done.exit_code == 0, done.output
    assert _files(run) == before
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["sound"]
    assert {finding["status"] for finding in found["findings"]} == {"pass"}
    assert len(found["findings"]) == 10
    assert done.output.endswith("10 pass\n")
    # a training that moves nothing would end in the same bits, whatever is saved
    moved = next(finding for finding in found["findings"] if finding["name"] == "resume = never stopped")["computed"]
    assert "weights moved by up to 0 " not in moved


def _failed(run: Path) -> set[str]:
    """What the doctor finds broken in the run, as it now is built."""
    return _failed_of(doctor.examined(opened(run), None))


def _failed_of(found) -> set[str]:
    return {each.name for each in found.findings if each.status == "FAIL"}


@pytest.fixture
def broken(monkeypatch):
    """Breaks every model that is built from now on."""

    def breaks(change) -> None:
        build = Translation.build

        def built(task, recipe, tokenizers):
            model = build(task, recipe, tokenizers)
            change(model)
            return model

        monkeypatch.setattr(Translation, "build", built)

    return breaks


def _on_memory(change):
    """A fault in what the encoder leaves behind."""
    return lambda model: model.encoder.register_forward_hook(lambda module, given, memory: change(memory))


def test_a_decoder_that_looks_ahead_is_found(run, broken):
    def look_ahead(module, given, out):
        return out[0] + 0.1 * out[0].flip(1), out[1]

    broken(lambda model: model.decoder.register_forward_hook(look_ahead))
    assert _failed(run) >= WRITING


def test_padding_that_leaks_is_found(run, broken):
    broken(_on_memory(lambda memory: replace(memory, states=memory.states + memory.states.mean(1, keepdim=True))))
    # pairs of one length have no padding beside each other
    assert _failed(run) == {"padding changes nothing", "a batch = its rows"}


def test_a_state_that_is_not_selected_is_found(run, broken):
    def stuck(module, given, out):
        there = type(out[1])
        kind = type("Stuck", (there,), {"select": lambda state, rows: state})
        return out[0], kind(**{f.name: getattr(out[1], f.name) for f in fields(there)})

    broken(lambda model: model.decoder.register_forward_hook(stuck))
    found = doctor.examined(opened(run), None)
    assert _failed_of(found) == {"a selected state goes on", "search score = rescoring"}
    assert "FAIL  search score = rescoring          RuntimeError: Sizes of tensors must match" in str(found)


def test_a_layer_that_mixes_the_examples_of_a_batch_is_found(run, broken):
    broken(_on_memory(lambda memory: replace(memory, states=memory.states + memory.summary.mean(0))))
    assert "a batch = its rows" in _failed(run)


class _WrongBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return 1.1 * gradient


def test_a_wrong_backward_is_found(run, broken):
    broken(_on_memory(lambda memory: replace(memory, states=_WrongBackward.apply(memory.states))))
    assert _failed(run) == {"gradients = finite differences"}


class _Batch:
    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.vectors = torch.randn(160, 64, generator=generator, dtype=torch.float64)
        self.count = len(self.vectors)

    def to(self, device: str) -> "_Batch":
        return self


@pytest.mark.parametrize("seed", [5, 6])
def test_the_kinks_of_many_relus_are_not_taken_for_a_wrong_gradient(seed):
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(256, 10))

    def loss(model, batch):
        return model(batch.vectors).logsumexp(dim=1).sum(), None

    run = SimpleNamespace(computer=SimpleNamespace(device=torch.device("cpu")), model=model, recipe=None)
    patient = SimpleNamespace(
        run=run, rows=range(3), batch=lambda rows: _Batch(seed), task=SimpleNamespace(loss=lambda recipe: loss)
    )
    assert gradients.slopes("gradients", patient).number < 1e-6


def test_weights_that_no_checkpoint_keeps_are_found(run, broken):
    def forget(model):
        drawn = torch.randn(32, dtype=torch.float32)
        _on_memory(lambda memory: replace(memory, states=memory.states + drawn.to(memory.states)))(model)

    broken(forget)
    assert _failed(run) == {"a checkpoint is the whole model"}


def test_a_training_that_remembers_what_no_checkpoint_keeps_is_found(run, broken):
    def count(model):
        seen = []

        def grow(memory):
            seen.extend([1] * model.training)
            return replace(memory, states=memory.states * (1 + 0.01 * len(seen)))

        _on_memory(grow)(model)

    broken(count)
    assert _failed(run) == {"resume = never stopped"}


def test_saving_that_loses_digits_is_found(run, monkeypatch):
    save = keeping.save_weights

    def rounded(model, path):
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(p.bfloat16())
        save(model, path)

    monkeypatch.setattr(keeping, "save_weights", rounded)
    assert "saving = loading" in _failed(run)


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), 1e5])
def test_a_weight_that_went_astray_is_found(weight):
    model = torch.nn.Linear(2, 2)
    patient = SimpleNamespace(run=SimpleNamespace(model=model))
    assert keeping.finite("weights", patient).status == "pass"
    with torch.no_grad():
        model.weight[0, 0] = weight
    found = keeping.finite("weights", patient)
    assert found.status == "FAIL"
    assert "(weight)" in found.computed


def test_what_is_no_number_fails():
    assert held("name", "computed", float("nan"), 1.0, "reason").status == "FAIL"


def test_the_command_ends_with_1_where_something_fails(run, broken):
    broken(_on_memory(lambda memory: replace(memory, states=_WrongBackward.apply(memory.states))))
    done = _s2s("doctor", str(run))
    assert done.exit_code == 1
    assert "FAIL  gradients" in done.output


def test_a_run_of_another_device_is_examined_on_what_is_here_and_that_is_said(run, tmp_path, monkeypatch):
    shutil.copytree(run, tmp_path / "moved")
    for path in (tmp_path / "moved").rglob("recipe.yaml"):
        path.write_text(path.read_text().replace("kind: cpu", "kind: mps"))
    for file in (tmp_path / "moved/manifest.json", *(tmp_path / "moved").rglob("device.txt")):
        file.write_text(file.read_text().replace("cpu, 1 threads", "mps"))
    resuming = {"resume = never stopped": keeping.resuming}
    monkeypatch.setattr(doctor, "CHECKS", resuming)
    found = doctor.examined(opened(tmp_path / "moved"), None)
    assert [finding.status for finding in found.findings] == ["pass"]
    assert found.computer == "cpu, 1 threads, fp32, trained on mps"


def test_without_training_data_a_resumption_is_told_not_to_apply(run, tmp_path):
    shutil.copytree(run, tmp_path / "alone")
    done = _s2s("doctor", str(tmp_path / "alone"), "data.train=nowhere.tsv", "data.validation=test.tsv")
    assert done.exit_code == 0, done.output
    assert "resume = never stopped            does not apply: the training data cannot be read" in done.output


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
def test_tasks_that_write_nothing_are_examined_too(task, label, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [line.split("\t")[0] for line in _table(300, 3).splitlines()[1:]]
    table = [f"{row}\t{'even' if int(row.split()[0][1:]) % 2 else 'odd'}" for row in rows]
    (tmp_path / "labelled.tsv").write_text("en\tparity\n" + "\n".join(table) + "\n")
    (tmp_path / "classes.yaml").write_text(CLASSES.format(task=task, label=label))
    _s2s("train", "classes.yaml")
    done = _s2s("doctor", "runs/classes")
    assert done.exit_code == 0, done.output
    assert done.output.endswith("7 pass · 3 do not apply\n")
    done = _s2s("explain", "runs/classes")
    assert done.exit_code == 0
    assert "found\n  " in done.output
    assert "the 10 worst" in done.output


def test_a_run_that_has_learned_shows_no_sign(run, tmp_path):
    before = _files(run)
    done = _s2s("explain", str(run), "--json", str(tmp_path / "found.json"))
    assert "no sign found" in done.output, done.output
    assert _files(run) == before
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["found"] == []
    assert len(found["signs"]) == 14
    assert len(found["worst"]) == 10


def _signs(run: Path, tmp_path: Path, *overrides: str) -> dict[str, dict]:
    done = _s2s("explain", str(run), *overrides, "--json", str(tmp_path / "found.json"))
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "found.json").read_text())
    return {sign["name"]: sign for sign in found["signs"] if sign["found"]}


def test_a_model_that_cannot_see_its_source_is_told_to_ignore_it(run, tmp_path, broken):
    broken(_on_memory(lambda memory: replace(memory, states=0 * memory.states, summary=0 * memory.summary)))
    found = _signs(run, tmp_path)
    assert {"ignores the source", "says always the same"} <= found.keys()


def test_words_that_training_never_had_are_told(run, tmp_path):
    lines = (Path("test.tsv")).read_text().splitlines()
    (tmp_path / "new.tsv").write_text("\n".join([lines[0], *(f"x{i} {line}" for i, line in enumerate(lines[1:]))]))
    found = _signs(run, tmp_path, f"data.test={tmp_path / 'new.tsv'}")
    assert "unknown pieces" in found
    assert "tokenizer.kind" in found["unknown pieces"]["remedy"]


def test_a_search_that_keeps_too_little_is_told(run, tmp_path, monkeypatch):
    # as if the search had found something worse than the reference for each wrong sentence
    from s2s.decoding import translator

    search = translator.search

    def worse(model, source, valid, limits, beam, pieces, before_step):
        return [
            [replace(h, tokens=(*h.tokens, h.tokens[0]), score=h.score - 5) for h in found]
            for found in search(model, source, valid, limits, beam, pieces, before_step)
        ]

    monkeypatch.setattr(translator, "search", worse)
    found = _signs(run, tmp_path, "--split", "validation", "--examples", "30")
    assert "search errors" in found
    assert "decoding.beam above 3" in found["search errors"]["remedy"]
