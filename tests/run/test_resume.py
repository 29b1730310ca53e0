"""A real process, really killed: what it does after --resume is what it would have done."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from safetensors.torch import load_file

from s2s.cli.main import commands
from s2s.errors import UserError

RECIPE = """
name: tiny
data: {train: 400, validation: 8, test: 4}
tokenizer: {kind: char, size: 200}
batches: {tokens: 400}
model: {kind: transformer, width: 16, heads: 2, feedforward: 32, encoder_layers: 1, decoder_layers: 1, dropout: 0.2}
training: {updates: 45, warmup: 10, learning_rate: 0.003, tokens_per_update: 700, ema: 0.9}
validation: {every: 20, metric: loss, sentences: 3}
decoding: {beam: 2, max_ratio: 1.2}
"""


def _start(folder: Path, *words: str) -> subprocess.Popen:
    environment = os.environ | {"PYTHONHASHSEED": "random", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "s2s.cli.main", "train", *words]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _here(*words: str) -> Result:
    """The same command without a process of its own."""
    return CliRunner().invoke(commands, ["train", *words], standalone_mode=False)


def _finish(process: subprocess.Popen) -> None:
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors.decode()


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


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_killed_and_resumed_run_ends_in_the_same_bits(tmp_path, monkeypatch, precision):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    overrides = [f"device.precision={precision}", "device.threads=1"]
    killed = _start(tmp_path, "tiny.yaml", "run.dir=killed", *overrides)
    _kill_when(tmp_path / "killed", killed, 27)
    assert _losses(tmp_path / "killed")[-1][0] < 45
    assert _here("tiny.yaml", "run.dir=straight", *overrides).exception is None
    # killed again, now before it reaches a new checkpoint
    _kill_when(tmp_path / "killed", _start(tmp_path, "killed", "--resume"), 29)
    _finish(_start(tmp_path, "killed", "--resume"))
    assert len(_losses(tmp_path / "straight")) == 45
    assert _losses(tmp_path / "killed") == _losses(tmp_path / "straight")
    last = "checkpoints/0000045"
    for file in ("model.safetensors", "training.safetensors"):
        one, two = (load_file(tmp_path / run / last / file) for run in ("straight", "killed"))
        assert one.keys() == two.keys()
        assert all(one[name].equal(two[name]) for name in one)


def test_a_run_is_neither_overwritten_nor_resumed_by_accident(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    assert _here("tiny.yaml", "training.updates=12", "validation.every=6").exception is None
    before = (tmp_path / "runs/tiny/metrics.jsonl").read_bytes()
    for words, reason in (
        (["tiny.yaml"], "holds a run already"),
        (["tiny.yaml", "data.corpus=files", "data.train=nowhere.tsv", "--overwrite"], "nowhere.tsv"),
        (["runs/tiny", "training.updates=50", "--resume"], "training.updates=50"),
        (["runs/none", "--resume"], "not a run"),
    ):
        refused = _here(*words).exception
        assert isinstance(refused, UserError)
        assert reason in str(refused)
        assert (tmp_path / "runs/tiny/metrics.jsonl").read_bytes() == before
    assert _here("tiny.yaml", "training.updates=8", "validation.every=6", "--overwrite").exception is None
    assert len(_losses(tmp_path / "runs/tiny")) == 8
