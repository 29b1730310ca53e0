"""Examples of docstrings are executed."""

import doctest
import importlib
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for package in ("s2s", "baselines")
    for path in sorted((ROOT / package).rglob("*.py"))
    # examples that need a trained run are skipped
    if any(">>>" in line and "+SKIP" not in line for line in path.read_text(encoding="utf-8").splitlines())
]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_give_what_they_show(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # of the CPU only: a device that other tests register in Python has no generator
    with torch.random.fork_rng(devices=[]):
        found = doctest.testmod(importlib.import_module(name))
    assert found.attempted
    assert found.failed == 0
