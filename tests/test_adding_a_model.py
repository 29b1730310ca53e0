"""docs/adding-a-model.md: build, install, test and train the package of the page."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from s2s.cli.main import commands
from s2s.comparison.claims import traits
from s2s.recipe.installed import models, module_of

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "adding-a-model.md"
BRIEF = (
    "data.train=300 data.validation=8 data.test=8 tokenizer.size=450 training.updates=6 training.warmup=2 "
    "validation.every=6 validation.sentences=3 batches.tokens=600 device.precision=fp32 decoding.max_ratio=0.5 "
    "decoding.max_extra=1"
)


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """What is installed for a test is not there for the next one."""
    yield
    models.cache_clear()
    for name in ("bag_model", "bag_network"):
        sys.modules.pop(name, None)


def test_model_package_of_the_page_is_listed_passes_self_tests_and_trains(tmp_path, monkeypatch):
    page = PAGE.read_text(encoding="utf-8")
    files = re.findall(r"`(bag/\S+)`:\n\n```\w+\n(.*?)```", page, flags=re.DOTALL)
    assert [name for name, _ in files] == [
        "bag/pyproject.toml",
        "bag/bag_model.py",
        "bag/bag_network.py",
        "bag/test_bag.py",
    ]
    (tmp_path / "bag").mkdir()
    for name, text in files:
        (tmp_path / name).write_text(text)
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{tmp_path / 'site'}:{ROOT}",
        "HF_HUB_OFFLINE": "1",
    }
    (block,) = re.findall(r"```sh\n(.*?)```", page, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    outputs = {}
    for command in block.strip().split("\n"):
        program, *words = shlex.split(command)
        if program == "s2s":
            small = BRIEF.split() if words[0] == "train" else []
            done = CliRunner().invoke(commands, [*words, *small], standalone_mode=False, catch_exceptions=False)
            outputs[words[0]] = done.output
            continue
        # beside the environment of the tests, not into it
        run = f"{sys.executable} -m {command}"
        run = run.replace("pip install", "pip install -q --no-deps --no-build-isolation --target site")
        run += " -q -p no:cacheprovider" * (program == "pytest")
        done = subprocess.run(
            run, shell=True, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"
        outputs[program] = done.stdout
        if program == "pip":
            monkeypatch.syspath_prepend(tmp_path / "site")
            models.cache_clear()
    built = module_of("bag").build(module_of("bag").Settings(width=8), 9, 9)
    assert traits(built).in_words == "scan decoder"
    assert list(outputs) == ["pip", "recipe", "pytest", "train"]
    assert re.search(r"^bag +bag-model +A bag of words in", outputs["recipe"], flags=re.MULTILINE)
    assert "update 6: validation" in outputs["train"]
    assert "1 passed" in outputs["pytest"]
