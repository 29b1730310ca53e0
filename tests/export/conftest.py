"""A small trained run to export."""

from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from s2s.run.tasks import read
from s2s.run.training import train

RECIPE = """
name: small
description: A small translator.
data: {corpus: built-in, train: 300, validation: 10, test: 10}
tokenizer: {size: 400}
batches: {tokens: 800}
model: {kind: transformer, width: 32, heads: 4, feedforward: 48, encoder_layers: 1, decoder_layers: 1}
training: {updates: 60, warmup: 5, learning_rate: 0.01}
validation: {every: 60, metric: loss}
decoding: {max_ratio: 1.0}
device: {kind: cpu, threads: 1, precision: fp32}
"""


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Callable[..., Path]:
    """Trains a run by the recipe above and overrides, and gives its folder."""

    def run(name: str, *overrides: str) -> Path:
        folder = tmp_path_factory.mktemp("exported")
        (folder / "small.yaml").write_text(RECIPE, encoding="utf-8")
        recipe = read(folder / "small.yaml", [f"run.dir={folder / name}", *overrides])
        return train(recipe, Console(quiet=True))

    return run


@pytest.fixture(scope="session")
def small(trained) -> Path:
    """The run as the recipe has it."""
    return trained("small")
