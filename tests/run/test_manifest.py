"""What a run notes of the machine that it was trained on."""

import platform
from pathlib import Path

import pytest

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
