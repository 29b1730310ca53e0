"""Nothing is lost: who is stopped, who finds the disk full, and who wants to go on longer."""

import hashlib
import json
import multiprocessing
import os
import resource
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from s2s.cli.main import commands
from s2s.errors import Stopped, UserError
from s2s.files import write_atomically
from s2s.run import manifest
from s2s.run.folder import create_run_dir
from s2s.run.tasks import read
from s2s.tasks import base
from s2s.training.checkpoint import read_progress
from s2s.training.distributed import PeerLostError
from s2s.training.logger import RunLog
from s2s.training.shutdown import GracefulShutdown

RECIPE = """
name: tiny
data: {train: 60, validation: 1, test: 1}
tokenizer: {kind: bytes}
batches: {tokens: 700}
model: {kind: transformer, width: 8, heads: 2, feedforward: 8, encoder_layers: 1, decoder_layers: 1, dropout: 0.2}
training: {updates: 5, warmup: 1, schedule: constant, average_last: 2, ema: 0.8, learning_rate: 0.01}
validation: {every: 2, sentences: 1, metric: loss}
decoding: {beam: 1, max_ratio: 0.1, max_extra: 1}
device: {kind: cpu, threads: 1}
"""


def _s2s(*words: str) -> None:
    commands(words, standalone_mode=False)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    (folder / "tiny.yaml").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        _s2s("train", "tiny.yaml", "run.dir=run")
    return folder


def test_average_of_checkpoints_is_that_of_the_training(folder):
    written = load_file("run/checkpoints/average/model.safetensors")
    shutil.rmtree("run/checkpoints/average")
    _s2s("average", "run", "--last", "2")
    again = load_file("run/checkpoints/average/model.safetensors")
    assert again.keys() == written.keys()
    assert all(again[name].equal(written[name]) for name in written)
    _s2s("average", "run", "--last", "1")
    one = load_file("run/checkpoints/average/model.safetensors")
    last = load_file("run/checkpoints/0000005/model.safetensors")
    assert all(one[name].equal(last[name]) for name in last)
    with pytest.raises(UserError, match=r"9 checkpoints requested, but the run keeps \d validated checkpoint"):
        _s2s("average", "run", "--last", "9")


@pytest.fixture
def folder(trained, tmp_path, monkeypatch) -> Path:
    shutil.copytree(trained, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def _everything(run: Path) -> dict[str, bytes]:
    return {str(p.relative_to(run)): p.read_bytes() for p in run.rglob("*") if p.is_file()}


def test_run_whose_checkpoints_were_moved_is_not_trained_again(folder):
    shutil.move("run/checkpoints", "elsewhere")
    for evaluation in (*Path("run").glob("evaluation-*.json"), None):
        before = _everything(Path("run"))
        for command in (("train", "run", "--resume"), ("translate", "run", "--input", "tiny.yaml")):
            with pytest.raises(UserError, match="no checkpoints any more, although its training saved some"):
                _s2s(*command)
        assert _everything(Path("run")) == before
        if evaluation:
            evaluation.unlink()
    _s2s("train", "run/recipe.yaml", "run.dir=run", "--overwrite")
    again = load_file("run/checkpoints/0000005/model.safetensors")
    before = load_file("elsewhere/0000005/model.safetensors")
    assert all(again[name].equal(before[name]) for name in before)


def test_run_that_ended_before_its_first_checkpoint_begins_again(folder):
    shutil.rmtree("run/checkpoints")
    Path("run/evaluation-test.json").unlink()
    lines = Path("run/metrics.jsonl").read_text().splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if "validation" in line)
    Path("run/metrics.jsonl").write_text("".join(lines[: first + 1]))
    _s2s("train", "run", "--resume")
    assert read_progress(Path("run/checkpoints/0000005")).update == 5


def test_resume_of_a_finished_run_says_how_to_train_longer(folder, capsys):
    bits = _bits(Path("run"))
    _s2s("train", "run", "--resume")
    longer = "s2s train run --resume training.updates=10"
    assert f"resuming after update 5, the last one; to train longer: {longer}" in capsys.readouterr().out
    assert _bits(Path("run")) == bits
    _s2s("train", "run", "--resume", "training.updates=10")
    assert read_progress(Path("run/checkpoints/0000010")).update == 10


def _bits(run: Path) -> dict[str, object]:
    tensors = {p.relative_to(run).as_posix(): p.read_bytes() for p in run.rglob("*.safetensors")}
    losses = [entry["loss"] for line in _lines(run) if "loss" in (entry := json.loads(line))]
    return tensors | {"losses": losses}


def _lines(run: Path) -> list[str]:
    return (run / "metrics.jsonl").read_text().splitlines()


def _signalled(monkeypatch, at: int, *numbers: int) -> None:
    """Sends these signals to this process within an update."""
    told = RunLog.log_step

    def update(log: RunLog, update) -> None:
        told(log, update)
        for number in numbers if update.update == at else ():
            os.kill(os.getpid(), number)

    monkeypatch.setattr(RunLog, "log_step", update)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_graceful_stop_saves_prints_the_resume_command_and_is_bit_identical(folder, monkeypatch, number):
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    with monkeypatch.context() as once:
        _signalled(once, 3, number)
        with pytest.raises(Stopped) as stopped:
            _s2s("train", "tiny.yaml", "run.dir=ein Läuf $(x)")
    assert stopped.value.signal == number
    assert "after update 3 of 5; saved" in str(stopped.value)
    assert "resume with: s2s train 'ein Läuf $(x)' --resume" in str(stopped.value)
    assert {n: signal.getsignal(n) for n in before} == before
    assert (folder / "ein Läuf $(x)/checkpoints/0000003").exists()
    _s2s("train", "ein Läuf $(x)", "--resume")
    assert _bits(folder / "ein Läuf $(x)") == _bits(folder / "run")


def test_second_signal_stops_at_once(folder, monkeypatch):
    _signalled(monkeypatch, 3, signal.SIGINT, signal.SIGINT)
    with pytest.raises(Stopped, match="after update 3 of 5; last checkpoint: update 2") as stopped:
        _s2s("train", "tiny.yaml", "run.dir=twice")
    assert stopped.value.signal == signal.SIGINT
    assert not (folder / "twice/checkpoints/0000003").exists()


def test_graceful_shutdown_ignores_ignored_signals_and_child_processes(monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with GracefulShutdown() as wish:
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert wish.signal == signal.SIGTERM
    own = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: "somebody")
    with GracefulShutdown():
        assert signal.getsignal(signal.SIGTERM) == own


def test_checkpoint_interval_changes_no_result(folder, monkeypatch):
    there = []
    save = "s2s.training.checkpoint.Checkpoints.save"
    from s2s.training.checkpoint import Checkpoints

    kept = Checkpoints.save
    monkeypatch.setattr(save, lambda *words: there.append(kept(*words)) or there[-1])
    _s2s("train", "tiny.yaml", "run.dir=often", "run.save_minutes=0.000001")
    assert [int(path.name) for path in there] == [1, 2, 3, 4, 5]
    # the last two, and the last two that a longer run would have
    kept_at_the_end = ["0000002", "0000004", "0000005", "average"]
    assert sorted(p.name for p in (folder / "often/checkpoints").iterdir()) == kept_at_the_end
    assert _bits(folder / "often") == _bits(folder / "run")


def test_resume_repeats_a_validation_that_a_lost_peer_interrupted(folder, monkeypatch):
    def cut_short(*words) -> float:
        raise PeerLostError("another process has ended", remedy="look at it")

    with monkeypatch.context() as once:
        # who loses another process ignores signals from then on
        once.setattr("s2s.training.shutdown._handled_signals", list)
        once.setattr("s2s.tasks.translation.task.TranslationTask.validate", cut_short)
        with pytest.raises(PeerLostError, match="stopped after update 2 of 5; saved"):
            _s2s("train", "tiny.yaml", "run.dir=cut")
    assert read_progress(folder / "cut/checkpoints/0000002").validation is None
    _s2s("train", "cut", "--resume")
    assert _bits(folder / "cut") == _bits(folder / "run")
    validations = [[line for line in _lines(folder / run) if "validation" in line] for run in ("cut", "run")]
    assert validations[0] == validations[1]


def test_early_stopping_is_kept_by_resume(folder, monkeypatch, capsys):
    words = (
        "tiny.yaml",
        "training.updates=20",
        "training.learning_rate=1e-30",
        "device.precision=fp32",
        "validation.patience=2",
    )
    _s2s("train", *words, "run.dir=straight")
    with monkeypatch.context() as once:
        _signalled(once, 3, signal.SIGTERM)
        with pytest.raises(Stopped):
            _s2s("train", *words, "run.dir=stopped")
    _s2s("train", "stopped", "--resume")
    assert _bits(folder / "stopped") == _bits(folder / "straight")
    capsys.readouterr()
    _s2s("train", "stopped", "--resume", "training.updates=30")
    said = "after update 6 of 30: loss has not improved for 2 validations (validation.patience)"
    assert said in capsys.readouterr().out
    assert _bits(folder / "stopped") == _bits(folder / "straight")


@pytest.mark.parametrize("schedule", ["constant", pytest.param("inverse-sqrt", marks=pytest.mark.slow)])
def test_resume_with_more_updates_equals_a_longer_run(folder, schedule):
    """Also where the shorter one ended out of turn, better than ever: at 5, with validations at 2, 4, 6 and 8."""
    words = ("tiny.yaml", f"training.schedule={schedule}")
    _s2s("train", *words, "run.dir=short")
    _s2s("train", "short", "--resume", "training.updates=9", "device.threads=1")
    _s2s("train", *words, "run.dir=long", "training.updates=9")
    assert _bits(folder / "short") == _bits(folder / "long")
    assert (folder / "short/recipe.yaml").read_text() == (folder / "long/recipe.yaml").read_text().replace(
        "dir: long", "dir: short"
    )
    _s2s("train", "short", "--resume")


def test_resume_with_more_updates_warns_of_a_cosine_schedule(folder, capsys):
    _s2s("train", "tiny.yaml", "run.dir=cosine", "training.schedule=cosine")
    _s2s("train", "cosine", "--resume", "training.updates=8")
    assert "the cosine schedule now ends at the new last update" in capsys.readouterr().out
    assert [json.loads(line)["update"] for line in _lines(folder / "cosine") if "count" in line] == list(range(1, 9))
    # 1 does not fit the warm-up, which cannot be changed with --resume
    for fewer in ("7", "1"):
        with pytest.raises(UserError, match="the run already has 8 updates"):
            _s2s("train", "cosine", "--resume", f"training.updates={fewer}")
    for wrong in ("[", "true", "many", "9" * 5000):
        with pytest.raises(UserError, match=r"training\.updates"):
            _s2s("train", "cosine", "--resume", f"training.updates={wrong}")


@contextmanager
def _room(size: int) -> Iterator[None]:
    """No file may be longer than this, in bytes: as a full disk, and seen by every library."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [100, 3_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_full_disk_is_reported_and_leaves_no_partial_file(folder, size):
    with _room(size), pytest.raises((UserError, OSError)) as refused:
        _s2s("train", "tiny.yaml", "run.dir=full", "training.updates=8")
    error = refused.value
    assert isinstance(error, UserError) or error.filename
    assert "File too large" in str(error)
    assert [path for path in folder.rglob(".unfinished*")] == []
    if (folder / "full").exists():
        assert "free disk space, then resume with: s2s train full --resume" in str(error)
        _s2s("train", "full", "--resume")
        _s2s("train", "tiny.yaml", "run.dir=roomy", "training.updates=8")
        assert _bits(folder / "full") == _bits(folder / "roomy")


def test_full_disk_keeps_existing_output_files(folder, capsys):
    # what is printed is kept in memory meanwhile: pytest's own files would find no room, either
    (folder / "there.txt").write_text("before")
    (folder / "lines.txt").write_text("A dog.\n" * 30)
    for words in (
        ("recipe", "copy", "multi30k", "new.yaml"),
        ("new", "translate", "--source", "lines.txt", "--target", "lines.txt", "--output", "other.yaml"),
        ("translate", "run", "--input", "lines.txt", "--output", "there.txt"),
        ("evaluate", "run", "--json", "there.txt"),
    ):
        with _room(10), pytest.raises(OSError, match="File too large") as refused:
            _s2s(*words)
        assert refused.value.filename
    assert not list(folder.glob("*.yaml*")) or {p.name for p in folder.glob("*.yaml")} == {"tiny.yaml"}
    assert (folder / "there.txt").read_text() == "before"
    assert not list(folder.glob(".unfinished*"))


def test_evaluate_shows_scores_that_cannot_be_saved(folder, monkeypatch, capsys):
    def refuse(path: Path, text: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(base, "write_atomically", refuse)
    _s2s("evaluate", "run")
    shown = capsys.readouterr()
    assert "chrF2++" in shown.out
    assert "could not be saved: run/evaluation-test.json: Permission denied" in shown.err


def test_second_start_of_a_run_is_refused(folder):
    recipe = read(Path("tiny.yaml"), ["run.dir=new"])
    with create_run_dir(recipe, {}, overwrite=False):
        for overwrite in (False, True):
            with pytest.raises(UserError, match=r"already contains a run|another process is training"):
                create_run_dir(recipe, {}, overwrite).__enter__()
        assert (folder / "new/recipe.yaml").exists()


def test_start_reuses_an_interrupted_start_only(folder, monkeypatch):
    def interrupt(path: Path, text: str) -> None:
        # the recipe was written elsewhere before, to see that it can be read
        if path.parent.name == "new":
            raise KeyboardInterrupt
        write_atomically(path, text)

    recipe = read(Path("tiny.yaml"), ["run.dir=new"])
    with monkeypatch.context() as once:
        once.setattr("s2s.run.folder.write_atomically", interrupt)
        with pytest.raises(KeyboardInterrupt):
            create_run_dir(recipe, {}, False).__enter__()
    assert not (folder / "new").exists()
    for name in ("new/tokenizer", "new/.unfinished-1-tokenizer"):  # killed, it cleans nothing up
        (folder / name).mkdir(parents=True)
    with pytest.raises(UserError, match="exists and is not a run"):
        create_run_dir(recipe, {}, False).__enter__()
    (folder / "new/.lock").touch()
    with create_run_dir(recipe, {}, False) as new:
        assert sorted(p.name for p in new.iterdir()) == [".lock", "recipe.yaml", "tokenizer"]


def test_resume_removes_unfinished_files(folder):
    (folder / "run/checkpoints/.unfinished-0000006/tokenizer").mkdir(parents=True)
    (folder / "run/figures").mkdir()
    for place in ("", "figures/", "tokenizer/"):
        (folder / f"run/{place}.unfinished-999999999-file").touch()
    _s2s("train", "run", "--resume")
    assert not list((folder / "run").rglob(".unfinished*"))


LAST = "checkpoints/0000005"
VALIDATION = {"update": 5, "value": 1.0, "loss": 2.0, "lower_is_better": True}
STATE = {"update": 5, "epoch": 0, "position": 5, "validations": [VALIDATION], "seconds": 1.0}


@pytest.mark.parametrize(
    "state",
    [
        *("4", 4.5, None, 1e9, [], {}),
        *(STATE | {"update": wrong} for wrong in (-1, 10**9, "5", None, True, 5.0)),
        *(STATE | {"position": wrong} for wrong in (-7, "x", 10**9)),
        *(STATE | {"seconds": wrong} for wrong in (-1, float("nan"), None)),
        *(STATE | {"validations": wrong} for wrong in (None, [5], [{"update": 5}], [VALIDATION | {"more": 1}])),
        *(STATE | {"validations": [VALIDATION | {key: None}]} for key in VALIDATION),
        *(STATE | {"validations": [VALIDATION | {key: "x"}]} for key in VALIDATION),
        STATE | {"validations": [VALIDATION | {"update": -1}]},
        *(STATE | {key: "x"} for key in ("validations", "seconds", "epoch", "more")),
        "nested",
    ],
)
def test_checkpoint_state_that_is_invalid_is_reported(tmp_path, state):
    (tmp_path / "0000005").mkdir()
    text = "[" * 100_000 if state == "nested" else json.dumps(state)
    (tmp_path / "0000005/state.json").write_text(text)
    with pytest.raises(UserError, match=r"0000005: damaged checkpoint: state.json: (.|\n)*delete this checkpoint"):
        read_progress(tmp_path / "0000005")


@pytest.mark.parametrize(
    "text", ["{}", "[{}]", "null", '[{"hashes": []}]', '[{"hashes": {}}]', '[{"hashes": {"a": "b"}}]', "[" * 99_999]
)
def test_manifest_that_is_invalid_is_reported(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(UserError, match=r"manifest.json:(1:)? (0|input should be|not JSON)(.|\n)*restore it"):
        manifest.read(tmp_path / "manifest.json")


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (f"{LAST}/state.json", json.dumps(STATE | {"update": -1}), "damaged checkpoint"),
        (f"{LAST}/state.json", json.dumps(STATE | {"digest": "", "weights": ""}), "has changed since the checkpoint"),
        ("manifest.json", "{}", "input should be a valid array"),
        ("manifest.json", "[]", "is missing or empty"),
        ("metrics.jsonl", "5", "metrics.jsonl:1: input should be an object, not 5"),
    ],
)
def test_resume_refuses_a_damaged_run(folder, file, text, message):
    (folder / "run" / file).write_text(text)
    with pytest.raises(UserError, match=message):
        _s2s("train", "run", "--resume")


@pytest.mark.parametrize("checkpoint", ["0000004", "0000005"])
def test_resume_refuses_truncated_weights_of_the_average(folder, checkpoint):
    weights = folder / "run/checkpoints" / checkpoint / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    with pytest.raises(UserError, match=rf"{checkpoint}/model.safetensors: has changed(.|\n)*restore the file"):
        _s2s("train", "run", "--resume")
    weights.unlink()
    with pytest.raises(UserError, match=rf"{checkpoint}/model.safetensors: is missing"):
        _s2s("train", "run", "--resume")


def test_extending_a_run_that_cannot_resume_is_refused(folder):
    _s2s("train", "run", "--resume")
    weights = folder / "run/checkpoints/0000004/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    before = {path: path.read_bytes() for path in (folder / "run").rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=r"has changed(.|\n)*delete this checkpoint"):
        _s2s("train", "run", "--resume", "training.updates=9")
    assert {path for path in before if path.read_bytes() != before[path]} <= {folder / "run/manifest.json"}
    # as it says
    shutil.rmtree(weights.parent)
    _s2s("train", "run", "--resume", "training.updates=9")


def test_resume_refuses_tensors_of_another_model(folder):
    path = folder / "run" / LAST / "training.safetensors"
    progress, state = read_progress(path.parent), json.loads((path.parent / "state.json").read_text())
    whole = load_file(path)
    first = next(iter(whole))
    for tensors in (
        {},
        whole | {first: whole[first].int()},
        whole | {first: whole[first][..., :1]},
        {name: tensor for name, tensor in whole.items() if name != first},
        load_file(path.with_name("model.safetensors")),
    ):
        save_file(tensors, path)
        # whoever changed the tensors changed the digest, too
        digest = hashlib.blake2b(json.dumps(asdict(progress)).encode() + path.read_bytes(), digest_size=16).hexdigest()
        (path.parent / "state.json").write_text(json.dumps(state | {"digest": digest}))
        with pytest.raises(UserError, match=r"tensors do not fit the model"):
            _s2s("train", "run", "--resume")
    # of the right shape, but not what was saved
    shutil.copy(folder / "run/checkpoints/0000004/training.safetensors", path)
    shutil.copy(folder / "run/checkpoints/0000004/state.json", path.with_name("state.json"))
    with pytest.raises(UserError, match=r"update is 4, but the folder is named 5"):
        _s2s("train", "run", "--resume")


def test_checkpoint_digest_detects_files_of_another_update(folder):
    there, asked = folder / "run/checkpoints", ("translate", "run", "--checkpoint", "last", "--input", "lines")
    Path("lines").write_text("A dog.\n")
    for name, command in (("training", ("train", "run", "--resume")), ("model", asked)):
        shutil.copy(there / f"0000004/{name}.safetensors", there / f"0000005/{name}.safetensors")
        with pytest.raises(UserError, match=r"has changed since the checkpoint was saved"):
            _s2s(*command)
