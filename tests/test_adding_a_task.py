"""docs/adding-a-task.md: a stranger's task, taken from the page, installed, trained, resumed and evaluated."""

import importlib
import json
import random
import re
import sys
import tomllib
from pathlib import Path

import pytest

from s2s.cli.main import commands
from s2s.errors import UserError
from s2s.recipe.installed import tasks
from s2s.recipe.reference import reference
from s2s.run.tasks import read, schemas

PAGE = Path(__file__).parents[1] / "docs" / "adding-a-task.md"
STARS = {"bad": 1, "fair": 3, "good": 5}


def _table(count: int, seed: int) -> str:
    chance, lines = random.Random(seed), ["text"]
    for _ in range(count):
        word = chance.choice(list(STARS))
        lines.append(f"{' '.join(chance.choices(['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'], k=4))} {word} {STARS[word]}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    page = PAGE.read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 120
    files = re.findall(r"`(regression/\S+\.py)`.*?```python\n(.*?)```", page, flags=re.DOTALL)
    assert [name for name, _ in files] == ["regression/recipe.py", "regression/task.py"]
    (tmp_path / "regression").mkdir()
    for name, text in [("regression/__init__.py", ""), *files]:
        (tmp_path / name).write_text(text)
    (project,) = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    recipe = PAGE.with_name("stars.yaml").read_text(encoding="utf-8")
    project = tomllib.loads(project)["project"]
    ((group, points),) = project["entry-points"].items()
    information = tmp_path / "s2s_regression-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0\n")
    entry = "\n".join([f"[{group}]", *(f"{name} = {place}" for name, place in points.items())])
    (information / "entry_points.txt").write_text(entry)
    (tmp_path / "stars.yaml").write_text(f"{recipe}device: {{kind: cpu, precision: fp32, threads: 1}}\n")
    (tmp_path / "train.tsv").write_text(_table(120, 1))
    (tmp_path / "test.tsv").write_text(_table(30, 2))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    tasks.cache_clear()
    yield tmp_path
    tasks.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "regression"]:
        del sys.modules[name]


def test_task_on_the_page_is_checked_trains_resumes_and_is_evaluated(place, capsys):
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    for command in block.strip().split("\n"):
        commands(command.split()[1:], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "stars.yaml: fine" in shown
    assert "train: 100 texts" in shown
    assert "resuming after update 40" in shown
    scores = json.loads((place / "runs/stars/evaluation-test.json").read_text())
    # guessing the mean is off by 1.6
    assert scores["error"] < 0.5
    assert f"test: error {scores['error']:.3f}" in shown
    for command, said in (
        ("inspect", "runs of task regression cannot be inspected"),
        ("diagnose", "no diagnosis of task regression"),
    ):
        with pytest.raises(UserError, match=said):
            commands([command, "runs/stars"], standalone_mode=False)
    commands(["diagnose", "runs/stars", "--only", "signs"], standalone_mode=False)
    assert "only the log of the training" in capsys.readouterr().out


def test_added_task_has_reference_and_validated_keys(place):
    assert "## Task `regression`" in reference(schemas())
    with pytest.raises(UserError, match=r"data\.tests: unknown key; did you mean test\?"):
        read(Path("stars.yaml"), ["data.tests=stars"])
    with pytest.raises(UserError, match=r"task: is 'regresion'; did you mean regression\?"):
        read(Path("stars.yaml"), ["task=regresion"])
    with pytest.raises(UserError, match=r"task regression has no data check"):
        commands(["data", "check", "stars.yaml"], standalone_mode=False)


def test_two_packages_with_one_task_are_refused(place):
    other = place / "other-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (other / "entry_points.txt").write_text("[s2s.tasks]\ntranslation = other\n")
    tasks.cache_clear()
    with pytest.raises(UserError, match=r"two installed tasks have .* 'translation': .*\(s2s\) and other \(other\)"):
        read(Path("stars.yaml"))
    (other / "entry_points.txt").write_text("[s2s.tasks]\nbroken = other.broken\n")
    tasks.cache_clear()
    with pytest.raises(UserError, match=r"'broken' cannot be loaded: other\.broken: ModuleNotFoundError"):
        read(Path("stars.yaml"), ["task=broken"])


def test_a_task_whose_recipe_lacks_a_key_is_refused(place):
    page = (place / "regression" / "recipe.py").read_text()
    (place / "regression" / "recipe.py").write_text(re.sub(r"    (batches|training): .*\n", "", page))
    with pytest.raises(UserError, match=r"'regression' is incomplete: .* has no batches, training"):
        read(Path("stars.yaml"))
