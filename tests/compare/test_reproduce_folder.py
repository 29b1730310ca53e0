"""Folders of reproductions: their trials are used for the same name and settings alone."""

import pytest

from s2s.comparison.reproduce.reproducing import reproduce
from s2s.comparison.reproduce.tiny import Tiny
from s2s.errors import UserError


def _asked(folder, *settings: str) -> str:
    return reproduce("tiny", folder, 1, lambda line: None, settings).command


def test_reproduce_refuses_trials_of_other_settings(tmp_path, monkeypatch):
    monkeypatch.setattr(Tiny, "trials", lambda self, seeds: [])
    assert _asked(tmp_path, "training.updates=1000") == "s2s reproduce tiny --seeds 1 training.updates=1000"
    # data may lie elsewhere now
    _asked(tmp_path, f"data.root={tmp_path}", "training.updates=1000")
    for settings in ((), ("training.updates=2000",)):
        with pytest.raises(UserError, match=r"contains measurements of another command(.|\n)*--out"):
            _asked(tmp_path, *settings)
    with pytest.raises(UserError, match="measurements of another command"):
        reproduce("radius", tmp_path, 1, lambda line: None)
    (tmp_path / "asked.json").write_text("{")
    with pytest.raises(UserError, match="measurements of another command"):
        _asked(tmp_path, "training.updates=1000")


def test_reproduce_refuses_a_wrong_setting_first(tmp_path):
    with pytest.raises(UserError, match=r"training\.updats: unknown key; did you mean updates"):
        _asked(tmp_path / "new", "training.updats=10")
    assert not (tmp_path / "new").exists()


def test_reproduce_without_any_measurement_is_an_error(tmp_path):
    absent = tmp_path / "absent"
    with pytest.raises(UserError, match=rf"(?s)tiny: all measurements failed: .*{absent}.*there is no such folder"):
        _asked(tmp_path / "out", f"data.root={absent}")
    assert not (tmp_path / "out" / "reproduction.json").exists()
