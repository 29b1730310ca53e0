"""What a run notes of the machine that it was trained on, and of the code."""

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from s2s.run import manifest
from s2s.run.manifest import processor

_MILAN = "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: AMD EPYC\nflags\t\t: fpu vme\n"
_TURIN = _MILAN.replace("25", "26").replace("model\t\t: 1", "model\t\t: 2")


def _named(text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(Path, "read_text", lambda path, **_: text)
    return processor()


def test_processors_of_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [_named(text, monkeypatch) for text in (_MILAN, _TURIN)]
    assert found == ["AMD EPYC (family 25, model 1)", "AMD EPYC (family 26, model 2)"]


def test_each_core_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    two = f"{_MILAN}\n" + _MILAN.replace("processor\t: 0", "processor\t: 1")
    assert _named(two, monkeypatch) == _named(_MILAN, monkeypatch)


def test_a_processor_without_a_name_is_its_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _named("processor\t: 0\nCPU part\t: 0xd0c\n", monkeypatch) == platform.machine()


def test_the_code_is_the_last_commit_that_changed_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        done = subprocess.run(["git", *who, *words], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(name: str, text: str) -> str:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        git("add", "-A")
        git("commit", "-q", "-m", name)
        return git("rev-parse", "--short", "HEAD")

    code = manifest.code.__wrapped__
    monkeypatch.setattr(manifest, "__file__", str(tmp_path / "s2s/run/manifest.py"))
    git("init", "-q")
    first = commit("s2s/run/manifest.py", "one")
    assert code().endswith(f" at {first}")
    commit("docs/log.md", "words change nothing that is measured")
    assert code().endswith(f" at {first}")
    other = commit("baselines/cells.py", "a baseline does")
    assert code().endswith(f" at {other}")
    (tmp_path / "baselines/cells.py").write_text("and what is not committed, too")
    assert code().endswith(f" at {other} with changes")
    # installed within a repository that is not its own
    git("rm", "-q", "--cached", "s2s/run/manifest.py")
    assert code() == f"s2s {version('s2s')}"
