"""Every bad input gives one message and status 2, and leaves nothing behind."""

import os
import re
import shlex
import subprocess
import sys

import pytest

from s2s.cli.main import main
from tests.faults.bad_inputs import CASES, Answer, ask, run_cases
from tests.faults.world import Case, make_world

# in processes of their own, as a shell starts them: what the others share with this one could hide something
REAL = (
    "override: deep nesting",
    "page: billion laughs",
    "t: model.kind=" + "k" * 30,
    "words: a command",
    "report: summary with a parent for an experiment",
)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("good") / "world")


def test_bad_inputs_are_three_hundred_with_distinct_names():
    assert len(CASES) >= 300
    assert all(case.tells and all(case.tells) for case in CASES.values())


def test_every_bad_input_is_answered_in_a_line_and_leaves_nothing(world, tmp_path):
    found = run_cases(list(CASES), world, tmp_path / "cases")
    assert [f"{name}: {wrong}" for name, wrong in found if wrong] == []


@pytest.mark.parametrize(
    "name", [pytest.param(REAL[0]), *(pytest.param(name, marks=pytest.mark.slow) for name in REAL[1:])]
)
def test_bad_inputs_so_it_is_from_a_shell(world, tmp_path, name):
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


def test_bad_answer_is_recognized(world, tmp_path):
    case = CASES["words: a command"]
    fine = ask(Case("fine", ("recipe", "validate", "{world}/t.yaml"), ("x",)), world, tmp_path / "fine")
    assert "status 0" in fine.wrong(case)
    copied = ask(Case("copied", ("recipe", "copy", "translate"), ("x",)), world, tmp_path / "copied")
    assert [name.rpartition("/")[2] for name in copied.left] == ["translate.yaml"]
    answer = "'transalte': did you mean translate?"
    assert Answer(2, answer, 0, []).wrong(case) == ""
    for words, wrong in {
        "does not name": Answer(2, "→ something", 0, []),
        "said too much": Answer(2, f"Traceback {answer}", 0, []),
        "left": Answer(2, answer, 0, ["x"]),
        "took": Answer(2, answer, 11, []),
    }.items():
        assert words in wrong.wrong(case)
    assert "no remedy" in Answer(2, "x", 0, []).wrong(Case("x", (), ("x",)))


def test_bad_inputs_commands_that_are_printed_can_be_copied_into_a_shell(world, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = "ein Läuf $(x)/run"
    monkeypatch.setattr(sys, "argv", ["s2s", "train", str(world / "t.yaml"), f"run.dir={folder}"])
    main()
    use, curves = capsys.readouterr().out.strip().split("\n")[-2:]
    assert shlex.split(use)[-3:] == ["s2s", "translate", folder]
    assert shlex.split(curves)[-1] == "ein Läuf $(x)"
    # and again, where it is refused
    with pytest.raises(SystemExit):
        main()
    command = re.search(r"`(s2s train .*)`", capsys.readouterr().err)
    assert command
    assert shlex.split(command[1]) == ["s2s", "train", folder, "--resume"]
