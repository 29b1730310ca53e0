"""Recipes of `s2s new` learn data with rules."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RULES = Path(__file__).parents[2] / "benchmarks" / "rules.py"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "ending"), [("words", "csv"), ("tasks", "txt")])
def test_recipe_of_new_learns_data_with_rules(name, ending, tmp_path):
    subprocess.run([sys.executable, str(RULES), str(tmp_path)], check=True)
    data = ["--data", f"{name}_train.{ending}", "--test", f"{name}_test.{ending}"]
    for words in (["new", "translate", *data, "--output", f"{name}.yaml"], ["train", f"{name}.yaml"]):
        command = [sys.executable, "-m", "s2s.cli.main", *words]
        environment = os.environ | {"HF_HUB_OFFLINE": "1"}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1800, check=False
        )
        assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / f"runs/{name}/evaluation-test.json").read_text())["exact"] > 99
