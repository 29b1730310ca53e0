"""A real process, really killed: what it does after --resume is what it would have done."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from safetensors.torch import load_file

from s2s.cli.main import commands
from s2s.errors import Stopped, UserError
from s2s.training.checkpoint import Checkpoints
from s2s.training.precision import PrecisionBenchmark

RECIPE = """
name: tiny
data: {train: 160, validation: 8, test: 1}
tokenizer: {kind: char, size: 200}
batches: {tokens: 400}
model: {kind: transformer, width: 16, heads: 2, feedforward: 32, encoder_layers: 1, decoder_layers: 1, dropout: 0.2}
training: {updates: 24, warmup: 10, learning_rate: 0.003, tokens_per_update: 700, ema: 0.9}
validation: {every: 10, metric: loss, sentences: 1}
decoding: {beam: 1, max_ratio: 0.1, max_extra: 1}
"""


def _start(folder: Path, *words: str, flags: tuple[str, ...] = ()) -> subprocess.Popen:
    environment = os.environ | {"PYTHONHASHSEED": "random", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, *flags, "-m", "s2s.cli.main", "train", *words]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _here(*words: str) -> Result:
    """The same command without a process of its own."""
    return CliRunner().invoke(commands, ["train", *words], standalone_mode=False)


def _finish(process: subprocess.Popen) -> None:
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors.decode()
    # torch's compiler, which takes as long as torch, is imported where a recipe asks for it alone
    assert "| torch.optim.adam" in " ".join(errors.decode().split())
    assert b"torch._dynamo" not in errors


def _updates(run: Path) -> list[dict]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [entry for line in lines if "loss" in (entry := json.loads(line))]


def _losses(run: Path) -> list[tuple[int, float]]:
    return [(entry["update"], entry["loss"]) for entry in _updates(run)]


def _kill_when(run: Path, process: subprocess.Popen, update: int) -> None:
    metrics = run / "metrics.jsonl"
    deadline = time.monotonic() + 90
    while not metrics.exists() or metrics.read_bytes().count(b'"loss"') < update:
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()


@pytest.mark.slow
def test_resume_of_a_killed_bf16_run_is_bit_identical(tmp_path, monkeypatch):
    # in fp32, and again and again, tests/faults kills it
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    overrides = ["device.precision=bf16", "device.threads=1"]
    _kill_when(tmp_path / "killed", _start(tmp_path, "tiny.yaml", "run.dir=killed", *overrides), 14)
    assert _losses(tmp_path / "killed")[-1][0] < 24
    assert _here("tiny.yaml", "run.dir=straight", *overrides).exception is None
    _finish(_start(tmp_path, "killed", "--resume", flags=("-X", "importtime")))
    assert len(_losses(tmp_path / "straight")) == 24
    assert _losses(tmp_path / "killed") == _losses(tmp_path / "straight")
    last = "checkpoints/0000024"
    for file in ("model.safetensors", "training.safetensors"):
        one, two = (load_file(tmp_path / run / last / file) for run in ("straight", "killed"))
        assert one.keys() == two.keys()
        assert all(one[name].equal(two[name]) for name in one)


def test_kill_before_pruning_leaves_no_old_checkpoint(tmp_path, monkeypatch):
    def killed(checkpoints: Checkpoints) -> None:
        if (checkpoints.folder / "0000003").exists():
            raise RuntimeError("killed")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    words = ("tiny.yaml", "training.updates=3", "validation.every=2", "run.save_minutes=0.000001")
    assert _here(*words, "run.dir=straight").exception is None
    with monkeypatch.context() as once:
        once.setattr(Checkpoints, "prune", killed)
        assert isinstance(_here(*words, "run.dir=killed").exception, RuntimeError)
    straight, gone_on = ([p.name for p in Checkpoints(tmp_path / run).all()] for run in ("straight", "killed"))
    assert gone_on == ["0000001", "0000002", "0000003"]
    assert _here("killed", "--resume").exception is None
    assert [p.name for p in Checkpoints(tmp_path / "killed").all()] == straight == ["0000002", "0000003"]


def test_resume_removes_an_average_and_scores_that_are_older_than_its_updates(tmp_path, monkeypatch):
    def stopped(checkpoints: Checkpoints) -> None:
        if (checkpoints.folder / "0000002").exists():
            raise RuntimeError("stopped")

    def scored(run: str) -> dict:
        return json.loads((tmp_path / run / "evaluation-test.json").read_text()) | {"run": "", "summary": ""}

    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    words = ("tiny.yaml", "training.updates=4", "validation.every=1", "validation.keep_best=2", "device.threads=1")
    assert _here(*words, "run.dir=straight").exception is None
    with monkeypatch.context() as once:
        once.setattr(Checkpoints, "prune", stopped)
        assert isinstance(_here(*words, "run.dir=run").exception, RuntimeError)
    average = ("average", "run", "--last", "2")
    CliRunner().invoke(commands, average, standalone_mode=False, catch_exceptions=False)
    CliRunner().invoke(commands, ["evaluate", "run"], standalone_mode=False, catch_exceptions=False)
    assert scored("run")["checkpoint"] == "average"
    assert _here("run", "--resume").exception is None
    assert scored("run") == scored("straight")
    # without further updates, the average is the result
    CliRunner().invoke(commands, average, standalone_mode=False, catch_exceptions=False)
    assert _here("run", "--resume").exception is None
    assert scored("run")["checkpoint"] == "average"
    # an extension has no scores until it is tested
    with monkeypatch.context() as once:
        once.setattr("s2s.run.training._test", lambda *arguments: None)
        assert _here("run", "--resume", "training.updates=5").exception is None
    assert not (tmp_path / "run/evaluation-test.json").exists()
    assert not (tmp_path / "run/checkpoints/average").exists()


def test_resume_detects_changed_text_of_equal_size_and_date(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = RECIPE.replace(
        "{train: 160, validation: 8, test: 1}", "{corpus: files, train: [a.en, a.de], validation: 4, test: null}"
    )
    (tmp_path / "tiny.yaml").write_text(recipe.replace("training: {updates: 45", "training: {updates: 4"))
    (tmp_path / "a.de").write_text("".join(f"der Hund {i}\n" for i in range(40)))

    def written(word: str) -> None:
        (tmp_path / "a.en").write_text("".join(f"the {word} {i}\n" for i in range(40)))
        os.utime(tmp_path / "a.en", (1_700_000_000, 1_700_000_000))

    written("dog")
    assert _here("tiny.yaml", "run.dir=dog").exit_code == 0
    written("pig")
    refused = _here("dog", "--resume")
    assert isinstance(refused.exception, UserError)
    assert "changed since the run was started" in str(refused.exception)
    assert _here("tiny.yaml", "run.dir=pig").exit_code == 0
    dog, pig = (json.loads((tmp_path / run / "manifest.json").read_text())[0]["hashes"] for run in ("dog", "pig"))
    assert dog["training_data"] != pig["training_data"]
    assert _losses(tmp_path / "dog") != _losses(tmp_path / "pig")


def test_train_refuses_to_overwrite_or_resume_by_accident(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    assert _here("tiny.yaml", "training.updates=12", "validation.every=6").exception is None
    before = (tmp_path / "runs/tiny/metrics.jsonl").read_bytes()
    for words, reason in (
        (["tiny.yaml"], "already contains a run"),
        (["tiny.yaml", "data.corpus=files", "data.train=nowhere.tsv", "--overwrite"], "nowhere.tsv"),
        (["runs/tiny", "training.updates=11", "--resume"], "the run already has 12 updates"),
        (["runs/tiny", "training.clip=2", "--resume"], "training.clip=2"),
        (["runs/none", "--resume"], "not a run"),
    ):
        refused = _here(*words).exception
        assert isinstance(refused, UserError)
        assert reason in str(refused)
        assert (tmp_path / "runs/tiny/metrics.jsonl").read_bytes() == before
    assert _here("tiny.yaml", "training.updates=8", "validation.every=6", "--overwrite").exception is None
    assert len(_losses(tmp_path / "runs/tiny")) == 8


def test_warmup_longer_than_the_run_is_a_warning_at_its_start(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    for schedule in ("constant", "inverse-sqrt"):
        words = ("tiny.yaml", f"training.schedule={schedule}", "training.updates=4", f"run.dir={schedule}")
        short = _here(*words)
        assert short.exception is None
        assert (
            "training.warmup: 10 updates of warm-up are more than training.updates (4); the learning rate ends at "
            "1.20e-03 instead of 3.00e-03. For a shorter warm-up: training.warmup=0.1" in short.output
        )
    # no advice that --resume refuses
    assert "training.warmup" not in _here("constant", "--resume").output
    reached = _here("tiny.yaml", "training.updates=10", "run.dir=reached")
    assert reached.exception is None
    assert "training.warmup" not in reached.output


@pytest.mark.slow
def test_resume_keeps_the_precision(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    faster = {"fp32": 1.0, "bf16": 0.5}
    monkeypatch.setattr(
        "s2s.training.precision.benchmark_precision", lambda trainer: PrecisionBenchmark(**faster, threads=1)
    )
    words = ("device.threads=1", "training.updates=20")
    assert _here("tiny.yaml", "run.dir=auto", *words).exception is None
    assert _here("tiny.yaml", "run.dir=bf16", "device.precision=bf16", *words).exception is None
    assert _losses(tmp_path / "auto") == _losses(tmp_path / "bf16")
    (start,) = json.loads((tmp_path / "auto/manifest.json").read_text())
    assert start["device"].endswith(", bf16")
    assert start["gradients"]["bf16"] == 0.5
    # on another machine fp32 would be the faster one
    faster["fp32"] = 0.1
    found = _here("auto", "--resume")
    assert found.exception is None
    assert "bf16" not in found.output
    assert json.loads((tmp_path / "auto/manifest.json").read_text())[1]["device"].endswith(", bf16")
    told = _here("auto", "--resume", "device.precision=fp32").output
    assert "precision changed from bf16 to fp32" in " ".join(told.split())


@pytest.mark.slow
@pytest.mark.parametrize("saved", [True, False])
def test_resume_that_saved_nothing_keeps_the_precision(tmp_path, monkeypatch, saved):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    monkeypatch.setattr(
        "s2s.training.precision.benchmark_precision", lambda trainer: PrecisionBenchmark(fp32=0.1, bf16=0.5, threads=1)
    )
    words = ("tiny.yaml", "device.threads=1", "validation.every=4")
    assert _here(*words, "run.dir=straight", "training.updates=8").exception is None
    assert _here(*words, "run.dir=stopped", "training.updates=4").exception is None
    if not saved:
        # as after a training that was killed before its first validation
        shutil.rmtree(tmp_path / "stopped/checkpoints")
        (tmp_path / "stopped/evaluation-test.json").unlink()
        (tmp_path / "stopped/metrics.jsonl").unlink()

    def interrupted(*_words: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as once:
        once.setattr("s2s.run.training._restore", interrupted)
        with pytest.raises(Stopped):
            _here("stopped", "--resume", "device.precision=bf16")
    devices = [start["device"] for start in json.loads((tmp_path / "stopped/manifest.json").read_text())]
    assert [device.rpartition(", ")[2] for device in devices] == ["fp32", "bf16"]
    went_on = _here("stopped", "--resume", "training.updates=8")
    assert went_on.exception is None
    assert "bf16" not in went_on.output
    assert _losses(tmp_path / "stopped") == _losses(tmp_path / "straight")
    # and one that saved something does
    assert _here("stopped", "--resume", "training.updates=12", "device.precision=bf16").exception is None
    assert "precision changed from bf16 to fp32" in _here("stopped", "--resume", "device.precision=fp32").output
    for note in (tmp_path / "stopped").rglob("device.txt"):
        note.unlink()
    missing = _here("stopped", "--resume", "device.precision=bf16").exception
    assert re.search(r"device\.txt: is missing\n  → restore the file", str(missing))
