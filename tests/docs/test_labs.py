"""The notebooks of docs/labs (labs/index.md) run from top to bottom; their exercises accept the solutions alone."""

import json
import re
import shutil
from importlib import import_module

import matplotlib.pyplot as plt
import pytest

from s2s import labs
from s2s.errors import UserError
from s2s.labs.exercise import LABS, are_equal, find
from tests.docs.runner import ROOT, Code, Page, Session, execute_code

# values of cells, so that they take seconds instead of minutes
SMALL = {
    "attention": {},
    "gradients": {"updates": 40},
    "translation": {
        "models": ("lstm", "transformer"),
        "settings": {
            **{"training.updates": 6, "training.warmup": 2, "validation.every": 6, "validation.sentences": 3},
            **{"data.train": 300, "data.validation": 8, "data.test": 8, "tokenizer.size": 450, "batches.tokens": 600},
            **{"decoding.max_ratio": 0.5, "decoding.max_extra": 1, "model.width": 32, "device.precision": "fp32"},
            **{"model.encoder_layers": 1, "model.decoder_layers": 1},
        },
    },
    "own_data": {
        "count": 2000,
        "settings": {"training.updates": 6, "training.warmup": 2, "validation.every": 6, "device.precision": "fp32"},
    },
}
EXERCISES = [f"{lab}.{n}" for lab in LABS for n in range(1, len(import_module(f"s2s.labs.{lab}").EXERCISES) + 1)]


def _cells(lab):
    notebook = json.loads((ROOT / f"docs/labs/{lab}.ipynb").read_text(encoding="utf-8"))
    assert not any(cell.get("outputs") for cell in notebook["cells"])
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _save_and_close(name):
    plt.gcf().savefig(name)
    plt.close("all")


@pytest.mark.slow
@pytest.mark.parametrize("lab", LABS)
def test_lab_runs_from_top_to_bottom_and_accepts_its_solutions(lab, small_run, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "labs"
    (folder / "runs").mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setattr("s2s.labs.exercise._checked", {})
    shutil.copytree(small_run, folder / "runs/translate")
    (tmp_path / "comparison-lecture").symlink_to(ROOT / "docs/comparison-lecture")
    session = Session(lab, monkeypatch, None, small_run)
    # the current figure is that of the process
    monkeypatch.setattr("matplotlib.pyplot.savefig", _save_and_close)
    for cell in _cells(lab):
        shell = cell.startswith("!")
        execute_code(session, Code("sh" if shell else "python", cell.removeprefix("!")), Page())
        session.names.update({name: value for name, value in SMALL[lab].items() if f"{name} = " in cell})
        for call, name, variable in re.findall(r'(labs\.check\("(.*)", (\w+)\))', cell):
            assert f"{name}: not yet." in capsys.readouterr().out
            own = labs.answer(name)
            session.names[variable] = own if find(name).tried_on else own()
            exec(call, session.names)
            assert f"{name}: right." in capsys.readouterr().out
    count = len([name for name in EXERCISES if name.startswith(f"{lab}.")])
    assert f"{count} of {count} exercises solved\n" in capsys.readouterr().out


def test_lab_exercises_are_those_of_the_notebooks():
    assert [
        name for lab in LABS for cell in _cells(lab) for name in re.findall(r'labs\.check\("(.*?)"', cell)
    ] == EXERCISES


@pytest.mark.parametrize("name", EXERCISES)
def test_lab_solutions_are_right_and_other_answers_are_not(name):
    exercise = find(name)
    wrong = [lambda *_: None, lambda *_: 0.123, None, "text"] if exercise.tried_on else [None, 0.123, "text"]
    assert exercise.mistake(exercise.solution if exercise.tried_on else exercise.solution()) == ""
    assert all(exercise.mistake(answer) for answer in wrong)


def test_lab_answer_that_fails_or_was_called_is_explained(capsys):
    labs.check("gradients.1", lambda factor, steps: 1 / 0)
    labs.check("gradients.1", 0.35)
    labs.check("own_data.3", lambda pairs, held_out, seed: (pairs, pairs[:held_out]))
    said = capsys.readouterr().out
    assert "share_left(0.9, 10) raises ZeroDivisionError: division by zero." in said
    assert "The answer is a function" in said
    assert "own_data.3: not yet. split([(" in said
    labs.solution("gradients.1")
    assert "return factor**steps" in capsys.readouterr().out


def test_lab_answers_may_change_what_they_are_given(capsys):
    solution = import_module("s2s.labs.attention").EXERCISES[2].solution

    def scaled(query, keys, values):
        found = solution(query, keys, values)
        query *= 0
        values *= 0
        return found

    for answer in (scaled, solution):
        labs.check("attention.3", answer)
        assert "right" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "remedy"), [("attention.99", "attention.1 to attention.8"), ("atention.1", "attention")]
)
def test_lab_unknown_exercise_is_refused(name, remedy):
    with pytest.raises(UserError, match=remedy):
        labs.check(name, 1)


@pytest.mark.parametrize(
    ("found", "wanted", "same"),
    [
        *[(1, 1.0004, True), (1, 1.01, False), ("a", "a", True), (["a"], ["a"], True), (("a",), ["a"], False)],
        *[([1, 2], [1], False), ({"a": 1}, {"a": 1.0}, True), ({"a": 1}, {"b": 1}, False), (None, None, True)],
    ],
)
def test_lab_answers_are_compared_by_value(found, wanted, same):
    assert are_equal(found, wanted) is same
