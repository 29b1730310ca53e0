"""Special, linked or damaged files of a run give one message."""

import contextlib
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from s2s.cli.main import commands
from s2s.errors import UserError
from tests.faults.world import fifo, make_world, zero

FILES = (
    *("recipe.yaml", "manifest.json", "metrics.jsonl", ".lock", "evaluation-test.json", "tokenizer/shared.model"),
    *("tokenizer/shared.json", "tokenizer/seen.json", "checkpoints/0000001/state.json"),
    *("checkpoints/0000001/model.safetensors", "checkpoints/0000001/training.safetensors"),
    *("checkpoints/0000001/recipe.yaml", "checkpoints/0000001/device.txt"),
    *("checkpoints/0000001/tokenizer/shared.model", "checkpoints/0000001/tokenizer/seen.json"),
)
COMMANDS = {
    "translate": ("translate", "run", "--input", "lines"),
    "evaluate": ("evaluate", "run"),
    "diagnose": ("diagnose", "run"),
    "resume": ("train", "run", "--resume", "training.updates=2"),
    "export": ("export", "run", "--to", "hub", "--output", "out"),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """A run of translation."""
    return make_world(tmp_path_factory.mktemp("special") / "world", "t")


@pytest.fixture
def here(world, tmp_path, monkeypatch) -> Path:
    """A working directory with a copy of the run, and a line to be translated."""
    shutil.copytree(world / "runs/t", tmp_path / "run")
    (tmp_path / "lines").write_text("A dog.\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextlib.contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    """Ends what waits."""

    def late(_number: int, _frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _answered(*words: str) -> str:
    """The message of a command; empty where it succeeded."""
    with _at_most(60):
        try:
            CliRunner().invoke(commands, words, standalone_mode=False, catch_exceptions=False)
        except UserError as error:
            return str(error)
    return ""


def _matrix() -> Iterator[object]:
    fast = {("translate", "checkpoints/0000001/state.json"), ("resume", ".lock"), ("diagnose", "metrics.jsonl")}
    for command in COMMANDS:
        for file in FILES:
            for make in (fifo, zero):
                marks = [] if (command, file) in fast else [pytest.mark.slow]
                yield pytest.param(command, file, make, id=f"{command}-{file}-{make.__name__}", marks=marks)


@pytest.mark.parametrize(("command", "file", "make"), list(_matrix()))
def test_special_file_is_refused_by_its_kind_or_not_needed(
    here: Path, command: str, file: str, make: Callable[[Path], None]
):
    assert (here / "run" / file).exists()
    (here / "run" / file).unlink()
    make(here / "run" / file)
    message = _answered(*COMMANDS[command])
    assert message == "" or ("→" in message and Path(file).name in message), message


@pytest.mark.parametrize(
    ("link", "command"),
    [
        *(("evaluation-test.json", "evaluate"), (".lock", "resume"), ("manifest.json", "resume")),
        *(("metrics.jsonl", "resume"), ("figures", "evaluate"), ("checkpoints", "resume"), ("recipe.yaml", "resume")),
    ],
)
def test_special_file_links_in_a_foreign_run_are_not_written_through(here, link, command):
    place, victim = here / "run" / link, here / "victim"
    if place.exists():
        place.rename(victim)
    else:
        victim.mkdir()
    place.symlink_to(victim)
    before = {path: path.is_file() and path.read_bytes() for path in (victim, *victim.rglob("*"))}
    message = _answered(*COMMANDS[command])
    assert {path: path.is_file() and path.read_bytes() for path in (victim, *victim.rglob("*"))} == before
    assert message == "" or (link in message and "symbolic link" in message)


DAMAGED = (
    *(
        b"5",
        b"null",
        b"{",
        b"[" * 99_999,
        b'{"update": "x"}',
        b'{"update": true}',
        b'{"update": Infinity}',
        b"\xff\xfe",
    ),
    *(b'{"update": 1, "loss": "x", "count": 1}', b'{"update": 1, "loss": null}', b'{"update": 1, "loss": 1.0}'),
    *(b'{"update": 1, "validation": {"loss": "x"}}', b'{"update": 1' + b"0" * 500 + b"}", b"\0" * (1 << 21)),
)


def test_special_file_damaged_log_is_named_by_its_line(here):
    log = here / "run/metrics.jsonl"
    first = log.read_bytes().splitlines(keepends=True)[0]
    for line in DAMAGED:
        log.write_bytes(first + line + b"\n" + first)
        message = _answered("diagnose", "run", "--only", "signs")
        assert "run/metrics.jsonl:2: " in message
        assert "→" in message
    log.write_bytes(b'{"update": 1, "loss": 1.0}\n')
    assert "run/metrics.jsonl:1: " in _answered(*COMMANDS["resume"])


def test_special_file_damaged_evaluation_or_manifest_is_named_where_a_run_is_exported(here):
    for name in ("evaluation-test.json", "manifest.json"):
        kept = (here / "run" / name).read_text()
        changed = [kept.replace('"told": "', '"told": 5, "x": "'), kept.replace('"train": 40', '"train": "x"')]
        for text in ("[" * 99_999, "5", "{", kept[:-9], *(text for text in changed if text != kept)):
            (here / "run" / name).write_text(text)
            message = _answered(*COMMANDS["export"])
            assert f"run/{name}" in message, text[:99]
            assert "→" in message
        (here / "run" / name).write_text(kept)
