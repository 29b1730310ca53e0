"""docs/metrics.md: a metric of another package, taken from the page, installed, and used on files."""

import importlib
import re
import sys
import tomllib
from pathlib import Path

import pytest

from s2s.cli.main import commands
from s2s.recipe.installed import metrics

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"
FILES = {"one": "Hunde\nab\n", "two": "Hund\nxy\n", "three": "Katze\nab\n", "reference": "Hund\nabcd\n"}


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    page = PAGE.read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert len(code.splitlines()) <= 20
    (tmp_path / "letters.py").write_text(code)
    (written,) = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    ((group, points),) = tomllib.loads(written)["project"]["entry-points"].items()
    information = tmp_path / "letters-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: letters\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "\n".join([f"[{group}]", *(f"{name} = {place}" for name, place in points.items())])
    )
    for name, text in FILES.items():
        (tmp_path / f"{name}.txt").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    metrics.cache_clear()
    yield tmp_path
    metrics.cache_clear()
    sys.modules.pop("letters", None)


def test_metric_of_the_page_scores_files(place, capsys):
    page = PAGE.read_text(encoding="utf-8")
    several, own = re.findall(r"```sh\n(s2s evaluate --hypotheses .*?)\n```", page, flags=re.DOTALL)
    commands(several.split()[1:], standalone_mode=False)
    assert capsys.readouterr().out.count("after Holm") == 2
    commands(own.split()[1:], standalone_mode=False)
    # shared letters: 4 of 5 and 4; 2 of 2 and 4
    assert f"letters {(100 * 8 / 9 + 100 * 4 / 6) / 2:7.2f}" in capsys.readouterr().out
