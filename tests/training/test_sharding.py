"""A model that processes split among them learns what one process learns, and is the same on disk."""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from s2s.errors import UserError
from s2s.recipe.schema import DeviceSettings
from s2s.training.devices import choose
from s2s.training.ranks import Ranks
from s2s.training.sharding import units
from tests.training.test_ranks import ROOT, _losses


def _found(folder: Path, **asked: object) -> dict:
    command = [sys.executable, "-m", "tests.training.sharded", str(folder), json.dumps(asked)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _check_learned(found: dict, case: str, rounding: float) -> None:
    (one,) = (process[case] for process in found["1"])
    for size in set(found) & {"2", "3"}:
        for process in (each[case] for each in found[size]):
            assert [update[:2] for update in process["told"]] == [update[:2] for update in one["told"]]
            for number in (2, 3):
                told, alone = ([update[number] for update in each["told"]] for each in (process, one))
                # a norm depends on the weights to a higher power than the loss does
                assert told == pytest.approx(alone, rel=rounding * (1 if number == 2 else 10)), (case, size)
            (scores, texts, score), (own, own_texts, own_score) = one["validated"], process["validated"]
            assert own == pytest.approx(scores, rel=10 * rounding)
            assert own_texts == texts
            assert own_score == pytest.approx(score, rel=10 * rounding)
        assert len({process[case]["weights"] for process in found[size]}) == 1


def _check_same_files(one: Path, two: Path, rounding: float) -> None:
    for file in ("model.safetensors", "training.safetensors"):
        ours, theirs = load_file(one / file), load_file(two / file)
        assert {name: (t.shape, t.dtype) for name, t in ours.items()} == {
            name: (t.shape, t.dtype) for name, t in theirs.items()
        }
        for name, t in ours.items():
            # what is added to all keys changes no attention: its gradient is rounding, and Adam takes any size for one
            if not name.endswith("key.bias"):
                assert torch.allclose(t, theirs[name], rtol=rounding, atol=rounding), name


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    """What processes found."""
    folder = tmp_path_factory.mktemp("sharded")
    return _found(folder, updates=3, sizes=[1, 2], cases=["transformer", "l1"], exchanged=[2])


def test_two_processes_that_split_a_model_learn_what_one_learns(split):
    for case in ("transformer", "l1"):
        _check_learned(split, case, 1e-6)


def test_of_two_processes_each_holds_half_of_parameters_moments_and_averages(split):
    (one,), two = ([process["transformer"]["held"] for process in split[size]] for size in "12")
    # parameters, two moments and an average, in fp32
    assert one > 4 * 4 * 5000
    # vectors are split, too; each parameter's number of steps is not
    assert all(0.5 * one - 1000 < each < 0.53 * one for each in two), (one, two)


def test_what_a_split_model_saves_one_process_loads_and_what_one_saves_several_split(split):
    ((first, second),) = split["exchanged"]
    assert first["alone"] == pytest.approx(first["split"], rel=1e-6)
    # the same parts as before, so the same bits
    assert first["again"] == second["again"] == first["split"]
    assert len(first["split"]) == 2


def test_what_is_not_finite_in_one_part_all_processes_tell_by_its_module(split):
    ((first, second),) = split["exchanged"]
    assert first["said"] == second["said"]
    assert "update 5: the output of module decoder.layers.0.feedforward.expand is not finite" in first["said"]


@pytest.mark.slow
def test_split_over_two_and_three_processes_models_learn_for_50_updates_what_one_process_learns(tmp_path):
    cases = ["transformer", "lstm-attention", "frozen", "sgd", "images", "language-model"]
    found = _found(tmp_path, updates=50, sizes=[1, 2, 3], cases=cases)
    for case in cases:
        _check_learned(found, case, 1e-5)


@pytest.mark.slow
def test_split_models_learn_in_bf16_by_gloo(tmp_path):
    _check_learned(_found(tmp_path, updates=10, sizes=[1, 2], cases=["bf16"]), "bf16", 1e-2)


@pytest.mark.slow
def test_a_checkpoint_goes_on_split_over_any_number_of_processes(tmp_path):
    stories = ["one", "two", "two, on one", "two, on three", "half", "half, on two", "lost", "lost, on two"]
    found = _found(tmp_path, stories=stories)
    _check_same_files(*(tmp_path / name / "checkpoints/0000006" for name in ("two", "half")), 1e-3)
    for name in ("two, on one", "two, on three", "half, on two"):
        assert _losses(tmp_path / name) == pytest.approx(_losses(tmp_path / "one"), rel=1e-5)
        _check_same_files(*(tmp_path / story / "checkpoints/0000012" for story in ("one", name)), 1e-3)
    (_, told), _ = found["lost"]
    assert "another process of this training has ended" in told
    assert "saved is update 6" in told
    assert len(_losses(tmp_path / "lost, on two")) == len(_losses(tmp_path / "one")) == 12
    said = (tmp_path / "said").read_text()
    # of three runs of one process, one asks for it
    assert said.count("one process has nobody to share with, so nothing is sharded") == 1
    assert "2 processes, sharded, fp32" in said


@pytest.mark.slow
def test_a_number_that_cannot_be_split_learns_as_in_one_process(tmp_path):
    ((one,), two) = _found(tmp_path, numbered=[1, 2])["numbered"]
    assert one[-1][2] != one[0][2] != 1
    for process in two:
        for ours, theirs in zip(process, one, strict=True):
            assert ours == pytest.approx(theirs, rel=1e-5)


def test_what_is_compiled_is_not_split():
    assert not choose(DeviceSettings(kind="cpu", shard=True, compile=True)).shard
    with pytest.raises(UserError, match=r"device\.compile"):
        choose(DeviceSettings(kind="cpu", shard=True, compile=True), Ranks(0, 2))


class _Layers(nn.Module):
    """Three layers, one after another, with something done in between."""

    def __init__(self, between: Callable[["_Layers", Tensor], Tensor]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(3, 3), nn.Tanh()) for _ in range(3))
        self.between = between

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """A loss, twice."""
        x = self.layers[2](self.between(self, self.layers[1](self.layers[0](x))))
        return x.sum(), x.sum()


@pytest.mark.parametrize(
    ("between", "left_out"),
    [
        (lambda model, x: x, []),
        # called a second time
        (lambda model, x: model.layers[1](x), ["layers.1", "layers.1.0"]),
        # a part of it is called without it: that part can be a unit
        (lambda model, x: model.layers[1][1](x), []),
        # its parameters are read where it is not called
        (lambda model, x: x @ model.layers[1][0].weight, ["layers.1", "layers.1.0"]),
        # its output is changed in place
        (lambda model, x: x.mul_(2), ["layers.1"]),
    ],
)
def test_a_layer_is_a_unit_where_nothing_needs_its_parameters_before_or_after_its_call(between, left_out):
    model = _Layers(between)
    found = units(model, partial(model, torch.ones(2, 3)))
    assert {"layers.0", "layers.2"} <= set(found)
    assert not set(left_out) & set(found)
    assert ("layers.1" in found) == (not left_out)
