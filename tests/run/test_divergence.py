"""A training that diverged says so and ends with a status, however finite its numbers; one that learns never does."""

import json
import math

import pytest
import torch
from click.testing import CliRunner
from torch import nn

from s2s.cli.main import commands
from s2s.errors import UserError
from s2s.training.divergence import check_divergence

RECIPE = """
name: tiny
data: {train: 200, validation: 8, test: 4}
tokenizer: {kind: char, size: 200}
batches: {tokens: 400}
model: {kind: gru, width: 16, encoder_layers: 1, decoder_layers: 1}
training: {updates: 6, warmup: 0, learning_rate: 0.01, schedule: constant}
validation: {every: 3, metric: loss, sentences: 1}
decoding: {beam: 1, max_ratio: 0.1, max_extra: 1}
"""


def test_divergence_is_reported_by_a_complete_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    found = CliRunner().invoke(commands, ["train", "tiny.yaml", "training.learning_rate=1e30"], standalone_mode=False)
    assert isinstance(found.exception, UserError)
    assert "runs/tiny: the training diverged: a weight of " in str(found.exception)
    assert "lower training.learning_rate" in str(found.exception)
    # nothing is lost: it was saved and tested
    assert (tmp_path / "runs/tiny/evaluation-test.json").exists()
    assert (tmp_path / "runs/tiny/checkpoints/0000006").exists()
    again = CliRunner().invoke(commands, ["train", "runs/tiny", "--resume"], standalone_mode=False)
    assert str(again.exception) == str(found.exception)
    sound = CliRunner().invoke(commands, ["train", "tiny.yaml", "run.dir=sound"], standalone_mode=False)
    assert sound.exit_code == 0


def _check(folder, losses, choices=100, weight=1.0):
    lines = [{"update": i + 1, "loss": loss, "count": 10} for i, loss in enumerate(losses)]
    lines.insert(1, {"update": 1, "validation": {"loss": 99.0}})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight[1, 1] = weight
    check_divergence(folder, model, math.log(choices))


@pytest.mark.parametrize(
    "losses",
    [
        # guessing between a hundred has 4.6 nats
        [4.6, 3.0, 2.0],
        [4.6, 4.7],
        # large outputs at the start, and a run too short to mend it
        [9.0, 8.8, 9.2],
        # a peak on the way, and one bad batch at the end
        [4.6, *[30.0] * 5, *[2.0] * 30],
        [4.6, *[2.0] * 30, 12.0],
        [],
    ],
)
def test_divergence_is_not_reported_for_losses_below_the_first(tmp_path, losses):
    _check(tmp_path, losses)


def test_divergence_is_not_reported_for_inseparable_classes(tmp_path):
    _check(tmp_path, [0.7, 0.75, 0.9, 0.8], choices=2)


@pytest.mark.parametrize(("losses", "choices"), [([4.6, *[81.0] * 5], 100), ([4.6, *[5.3] * 30], 100), ([0.7, 2.0], 2)])
def test_a_training_that_ends_worse_than_it_began_diverged(tmp_path, losses, choices):
    with pytest.raises(UserError, match=r"the training diverged: the loss ends at .* nats; without training"):
        _check(tmp_path, losses, choices)


@pytest.mark.parametrize("weight", [8e30, -2e4, math.inf, math.nan])
def test_divergence_is_reported_for_a_huge_weight(tmp_path, weight):
    with pytest.raises(UserError, match=r"diverged: a weight of weight is "):
        _check(tmp_path, [4.6, 1.0], weight=weight)
