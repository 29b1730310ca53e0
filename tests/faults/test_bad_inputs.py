"""Every bad input gives one message and status 2, and leaves nothing behind."""

import os
import re
import shlex
import subprocess
import sys

import pytest

from s2s.cli.main import main
from tests.faults.bad_inputs import CASES, Answer, run_cases
from tests.faults.world import make_world


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("good") / "world")


def test_every_bad_input_is_answered_in_a_line_and_leaves_nothing(world, tmp_path):
    found = run_cases(list(CASES), world, tmp_path / "cases")
    assert [f"{name}: {wrong}" for name, wrong in found if wrong] == []


@pytest.mark.parametrize("name", ["override: deep nesting", pytest.param("words: a command", marks=pytest.mark.slow)])
def test_bad_inputs_are_refused_in_a_shell(world, tmp_path, name):
    case = CASES[name]
    case.lay_out(tmp_path / "here")
    words = [word.replace("{world}", str(world)) for word in case.command]
    done = subprocess.run(
        [sys.executable, "-m", "s2s.cli.main", *words],
        cwd=tmp_path / "here",
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        check=False,
    )
    assert Answer(done.returncode, done.stderr, 0, []).wrong(case) == ""


def test_bad_inputs_commands_that_are_printed_can_be_copied_into_a_shell(world, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = "ein Läuf $(x)/run"
    monkeypatch.setattr(sys, "argv", ["s2s", "train", str(world / "t.yaml"), f"run.dir={folder}"])
    main()
    use, curves = capsys.readouterr().out.strip().split("\n")[-2:]
    assert shlex.split(use)[1:4] == ["s2s", "translate", folder]
    assert shlex.split(curves)[-1] == "ein Läuf $(x)"
    # and again, where it is refused
    with pytest.raises(SystemExit):
        main()
    command = re.search(r"`(s2s train .*)`", capsys.readouterr().err)
    assert command
    assert shlex.split(command[1]) == ["s2s", "train", folder, "--resume"]
