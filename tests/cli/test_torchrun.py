"""Training started by torchrun: one log, a common end, and restarts."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from s2s.cli.main import commands
from s2s.errors import UserError
from s2s.launch import TorchrunProcess, detect_torchrun
from s2s.recipe.schema import DeviceSettings
from s2s.training import device
from s2s.training.device import select_device
from s2s.training.distributed import Distributed, init_distributed

RECIPE = """
name: tiny
data: {train: 160, validation: 4, test: 4}
tokenizer: {kind: char, size: 200}
batches: {tokens: 400}
model: {kind: transformer, width: 16, heads: 2, feedforward: 32, encoder_layers: 1, decoder_layers: 1, dropout: 0.2}
training: {updates: 60, warmup: 10, learning_rate: 0.003, tokens_per_update: 700, schedule: constant}
validation: {every: 20, metric: loss, sentences: 2}
decoding: {beam: 1, max_ratio: 0.3}
device: {kind: cpu, precision: fp32, threads: 1}
"""
LAUNCH = {"TORCHELASTIC_RUN_ID": "none", "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}


@pytest.fixture
def told(tmp_path, monkeypatch):
    """What torchrun tells the first of two processes."""
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "none_x" / "attempt_0" / "0" / "error.json"))
    (tmp_path / "none_x" / "attempt_0").mkdir(parents=True)
    for name, value in LAUNCH.items():
        monkeypatch.setenv(name, value)
    return tmp_path / "none_x" / "attempt_0"


def test_process_without_torchrun_is_single():
    assert detect_torchrun() is None
    with init_distributed(None) as distributed:
        assert (distributed.rank, distributed.world_size, distributed.is_main_process) == (0, 1, True)
        assert distributed.all_reduce_sum(1, 2.5) == [1, 2.5]
        assert distributed.broadcast_object("word") == "word"


def test_torchrun_error_report_is_claimed_by_one_rank_per_start(told):
    first, second = (TorchrunProcess(rank, 2, rank, 2, told) for rank in (0, 1))
    assert [second.claim_error_report(), first.claim_error_report(), second.claim_error_report()] == [True, False, True]
    (told.parent / "attempt_1").mkdir()
    assert TorchrunProcess(0, 2, 0, 2, told.parent / "attempt_1").claim_error_report()


def test_only_a_run_that_this_torchrun_has_begun_goes_on_by_itself(told):
    first, again = (TorchrunProcess(0, 2, 0, 2, told.parent / name) for name in ("attempt_0", "attempt_1"))
    assert detect_torchrun() == first
    assert not again.recorded_run(told / "run")
    first.record_run(told / "run")
    assert again.recorded_run(told / "run")
    assert not again.recorded_run(told / "other")


def test_torchrun_commands_for_one_process_say_so(told):
    for words in (["recipe", "models"], ["recipe", "list"], ["translate", "runs/x"]):
        with pytest.raises(UserError, match=f"`s2s {words[0]}` runs in one process"):
            CliRunner().invoke(commands, words, standalone_mode=False, catch_exceptions=False)
    with pytest.raises(UserError, match="--overfit is for one process"):
        CliRunner().invoke(commands, ["train", "x", "--overfit"], standalone_mode=False, catch_exceptions=False)


def test_torchrun_variable_that_is_missing_is_named(told, monkeypatch):
    monkeypatch.delenv("LOCAL_RANK")
    with pytest.raises(UserError, match="LOCAL_RANK"):
        detect_torchrun()


def test_torchrun_devices_that_several_processes_cannot_have_are_refused(told, monkeypatch):
    distributed = Distributed(1, 2, TorchrunProcess(1, 2, 1, 2, told))
    assert select_device(DeviceSettings(kind="cpu"), distributed).device.type == "cpu"
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr(device.dist, "is_nccl_available", lambda: False)
    with pytest.raises(UserError, match="without NCCL"):
        select_device(DeviceSettings(kind="cuda", precision="fp32"), distributed)
    monkeypatch.setattr(device.dist, "is_nccl_available", lambda: True)
    with pytest.raises(UserError, match="2 processes on a machine with 1 GPUs"):
        select_device(DeviceSettings(kind="cuda", precision="fp32"), distributed)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: True)
    with pytest.raises(UserError, match="mps"):
        select_device(DeviceSettings(kind="mps"), distributed)
    monkeypatch.setattr(device.dist, "is_gloo_available", lambda: False)
    with pytest.raises(UserError, match="without gloo"), init_distributed(distributed.launch):
        pass


def _torchrun(folder: Path, *words: str, options: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    (folder / "tiny.yaml").write_text(RECIPE)
    started = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *options]
    return subprocess.Popen(
        [*started, "-m", "s2s", *words],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _done(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    said, errors = process.communicate(timeout=200)
    return process.returncode, said, errors


def _losses(run: Path) -> dict[int, float]:
    entries = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {entry["update"]: entry["loss"] for entry in entries if "loss" in entry}


def _wait_for(run: Path, update: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 150
    while not (run / "metrics.jsonl").exists() or (run / "metrics.jsonl").read_bytes().count(b'"loss"') < update:
        assert process.poll() is None, _done(process)
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _workers(process: subprocess.Popen[str]) -> dict[int, int]:
    """Of torchrun's processes: rank and number."""
    found = {}
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        environment = Path(f"/proc/{child}/environ").read_bytes().decode()
        if match := re.search(r"\0RANK=(\d+)\0", "\0" + environment):
            found[int(match[1])] = int(child)
    return found


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A run that nothing happened to, and what was said."""
    folder = tmp_path_factory.mktemp("straight")
    code, said, errors = _done(_torchrun(folder, "train", "tiny.yaml"))
    assert code == 0, errors
    return folder / "runs" / "tiny", said


@pytest.mark.slow
def test_torchrun_one_process_speaks_and_writes(straight):
    run, said = straight
    assert "tiny on cpu, 1 thread, 2 processes, fp32" in said
    for line in ("tiny: loading", "update 60: validation", "translate:  s2s translate"):
        assert said.count(line) == 1
    assert len(_losses(run)) == 60
    assert len(list(run.glob("events.out.tfevents*"))) == 1
    assert {path.name for path in (run / "checkpoints").iterdir()} >= {"0000060"}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_torchrun_stopped_stops_all_and_saves_and_what_goes_on_is_the_same(number, straight, tmp_path):
    process = _torchrun(tmp_path, "train", "tiny.yaml")
    _wait_for(tmp_path / "runs/tiny", 25, process)
    process.send_signal(number)
    code, _, errors = _done(process)
    assert code != 0
    assert errors.count("; saved\n") == 1, errors
    assert "resume with: torchrun --nproc-per-node 2 -m s2s train runs/tiny --resume" in errors
    assert _done(_torchrun(tmp_path, "train", "runs/tiny", "--resume"))[0] == 0
    assert _losses(tmp_path / "runs/tiny") == _losses(straight[0])


@pytest.mark.slow
@pytest.mark.parametrize("killed", [0, 1])
def test_torchrun_killed_process_ends_all_with_one_message_and_a_checkpoint_that_goes_on(killed, straight, tmp_path):
    process = _torchrun(tmp_path, "train", "tiny.yaml")
    run = tmp_path / "runs" / "tiny"
    _wait_for(run, 25, process)
    os.kill(_workers(process)[killed], signal.SIGKILL)
    code, _, errors = _done(process)
    assert code != 0
    assert errors.count("another process of this training has ended") == 1, errors
    assert ("; saved\n" in errors) == (killed == 1)
    assert "Traceback" not in errors.partition("torch/distributed")[0]
    last = max(int(path.name) for path in (run / "checkpoints").iterdir() if path.name.isdigit())
    # the first one saves what was done; where that one is killed, the last validation's is there
    assert last == 20 if killed == 0 else last >= 24
    assert _done(_torchrun(tmp_path, "train", "runs/tiny", "--resume"))[0] == 0
    assert _losses(run) == _losses(straight[0])


@pytest.mark.slow
def test_started_again_by_torchrun_the_run_goes_on_without_being_asked(straight, tmp_path):
    process = _torchrun(tmp_path, "train", "tiny.yaml", "training.clip=1.0", options=("--max-restarts", "2"))
    run = tmp_path / "runs" / "tiny"
    for update in (25, 45):
        _wait_for(run, update, process)
        os.kill(_workers(process)[1], signal.SIGKILL)
        time.sleep(1)
    code, said, errors = _done(process)
    assert code == 0, errors
    assert said.count("resuming after update") == 2
    assert _losses(run) == _losses(straight[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "tiny.yaml", "model.widht=3"], "did you mean width?"),
        (["train", "gone.yaml"], "no such recipe"),
        (["recipe", "models"], "`s2s recipe` runs in one process"),
        (["train", "tiny.yaml", "batches.tokens=125", "training.tokens_per_update=60"], "which is fewer than"),
        (["train", "tiny.yaml", "training.learning_rate=1e30", "training.clip=null"], "not finite"),
    ],
)
def test_torchrun_mistake_is_one_message(words, message, tmp_path):
    code, _, errors = _done(_torchrun(tmp_path, *words, options=("--nproc-per-node", "4")))
    assert code != 0
    assert errors.count(message) == 1, errors


@pytest.mark.slow
def test_run_that_was_there_before_torchrun_is_left_alone(straight, tmp_path):
    run = straight[0]
    before = (run / "metrics.jsonl").read_bytes()
    process = _torchrun(tmp_path, "train", "tiny.yaml", f"run.dir={run}", options=("--max-restarts", "1"))
    code, _, errors = _done(process)
    assert code != 0
    # once each time they are started
    assert errors.count("already contains a run") == 2, errors
    assert (run / "metrics.jsonl").read_bytes() == before
