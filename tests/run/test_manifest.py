"""What a run notes of the machine that it was trained on, and of the code."""

import platform
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from s2s.run import manifest
from s2s.run.manifest import processor_name

_MILAN = "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: AMD EPYC\nflags\t\t: fpu vme\n"
_TURIN = _MILAN.replace("25", "26").replace("model\t\t: 1", "model\t\t: 2")


def _named(text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(Path, "read_text", lambda path, **_: text)
    return processor_name()


def test_manifest_distinguishes_processors_of_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [_named(text, monkeypatch) for text in (_MILAN, _TURIN)]
    assert found == ["AMD EPYC (family 25, model 1)", "AMD EPYC (family 26, model 2)"]


def test_manifest_processor_does_not_depend_on_the_number_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    two = f"{_MILAN}\n" + _MILAN.replace("processor\t: 0", "processor\t: 1")
    assert _named(two, monkeypatch) == _named(_MILAN, monkeypatch)


def test_manifest_processor_without_a_name_is_its_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _named("processor\t: 0\nCPU part\t: 0xd0c\n", monkeypatch) == platform.machine()


def test_manifest_code_version_is_a_digest_of_the_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(name: str, text: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    code = manifest.code_version.__wrapped__
    monkeypatch.setattr(manifest, "__file__", str(tmp_path / "s2s/run/manifest.py"))
    write("s2s/run/manifest.py", "one")
    write("baselines/cells.py", "one")
    first = code()
    assert first.startswith(f"s2s {version('s2s')} (modules ")
    assert first.endswith(f" with torch {torch.__version__}")
    write("s2s/comparison/METHOD.md", "words change nothing that is measured")
    write("tests/test_cells.py", "nor do tests")
    assert code() == first
    found = {first}
    for name, text in (("baselines/cells.py", "two"), ("s2s/new.py", ""), ("s2s/new.py", "a"), ("s2s/neu.py", "a")):
        write(name, text)
        found.add(code())
    assert len(found) == 5
    # the same files in other places are other modules
    (tmp_path / "s2s/neu.py").rename(tmp_path / "baselines/neu.py")
    assert code() not in found
    monkeypatch.setattr(torch, "__version__", "9.9")
    assert code().endswith(" with torch 9.9")
