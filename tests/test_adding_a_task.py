"""docs/adding-a-task.md: a stranger's task, taken from the page, named in the table, trained, resumed and scored."""

import json
import random
import re
import sys
from pathlib import Path

import pytest

from s2s.cli.main import commands
from s2s.errors import UserError
from s2s.recipe.reference import reference
from s2s.run.tasks import TASKS, read, schemas

PAGE = Path(__file__).parents[1] / "docs" / "adding-a-task.md"
RECIPE = """
name: stars
task: regression
data: {train: train.tsv, validation: 20, test: test.tsv}
tokenizer: {kind: word, size: 15}
model: {kind: gru, width: 16, dropout: 0.0}
training: {updates: 40, warmup: 4, learning_rate: 0.03, schedule: constant}
validation: {every: 40}
device: {kind: cpu, precision: fp32, threads: 1}
"""
STARS = {"bad": 1, "fair": 3, "good": 5}


def _table(count: int, seed: int) -> str:
    chance, lines = random.Random(seed), ["text\tnumber"]
    for _ in range(count):
        word = chance.choice(list(STARS))
        lines.append(f"{' '.join(chance.choices(['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'], k=4))} {word}\t{STARS[word]}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    page = PAGE.read_text(encoding="utf-8")
    files = re.findall(r"`(regression/\S+\.py)`.*?```python\n(.*?)```", page, flags=re.DOTALL)
    assert [name for name, _ in files] == ["regression/recipe.py", "regression/data.py", "regression/task.py"]
    lines = sum(len(text.splitlines()) for _, text in files)
    assert f"{len(files)} files of {lines} lines in all" in page
    (tmp_path / "regression").mkdir()
    for name, text in [("regression/__init__.py", ""), *files]:
        (tmp_path / name).write_text(text)
    (tmp_path / "stars.yaml").write_text(RECIPE)
    (tmp_path / "train.tsv").write_text(_table(120, 1))
    (tmp_path / "test.tsv").write_text(_table(30, 2))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (line,) = re.findall(r"```python\n(TASKS\[.*?)\n```", page)
    monkeypatch.setitem(TASKS, "regression", None)
    exec(line, {"TASKS": TASKS})
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "regression"]:
        del sys.modules[name]


def test_the_task_on_the_page_is_checked_trains_goes_on_and_is_scored(place, capsys):
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    for command in block.strip().split("\n"):
        commands(command.split()[1:], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "stars.yaml: fine" in shown
    assert "100 texts with numbers" in shown
    assert "continuing after update 40" in shown
    assert "self-tests: 5 pass, 2 not applicable" in shown
    scores = json.loads((place / "runs/stars/evaluation-test.json").read_text())
    # guessing the mean is off by 1.6
    assert scores["error"] < 0.5
    assert f"test: off by {scores['error']:.3f}" in shown


def test_its_keys_are_told_and_held_against_its_schema(place):
    assert "## Task `regression`" in reference(schemas())
    with pytest.raises(UserError, match=r"data\.nubmer: unknown key; did you mean number\?"):
        read(Path("stars.yaml"), ["data.nubmer=stars"])
    with pytest.raises(UserError, match=r"there is no check for data of task regression"):
        commands(["data", "check", "stars.yaml"], standalone_mode=False)
