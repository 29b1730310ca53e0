"""Checkpoints are atomic, verified and complete."""

import json
import math
import os
from pathlib import Path

import pytest
import torch
from torch import nn

from s2s.errors import UserError
from s2s.training.checkpoint import (
    Checkpoints,
    Progress,
    average_checkpoints,
    check_weights,
    read_progress,
    read_training,
)
from s2s.training.tensor_files import load_weights, save_weights
from s2s.training.validation import Validation


def _run(folder: Path) -> Path:
    (folder / "tokenizer").mkdir(parents=True)
    (folder / "tokenizer" / "shared.model").write_bytes(b"pieces")
    (folder / "recipe.yaml").write_text("name: x\n")
    return folder


def _model(value: float) -> nn.Module:
    model = nn.Linear(2, 2)
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(value)
    return model


def _save(checkpoints: Checkpoints, update: int, score: float | None, loss: float = 1.0) -> Path:
    found = [] if score is None else [Validation(update, score, loss, lower_is_better=False)]
    progress = Progress(update, 0, update, found)
    return checkpoints.save(_model(update), {"x": torch.ones(2)}, progress, "cpu, fp32")


def test_checkpoint_gives_back_what_was_saved(tmp_path):
    path = _save(Checkpoints(_run(tmp_path)), 7, 1.5)
    model = _model(0.0)
    load_weights(model, path / "model.safetensors")
    assert torch.equal(model.weight, _model(7).weight)
    assert read_progress(path) == Progress(7, 0, 7, [Validation(7, 1.5, 1.0, lower_is_better=False)])
    assert (path / "recipe.yaml").read_text() == "name: x\n"
    assert (path / "tokenizer" / "shared.model").read_bytes() == b"pieces"


def test_checkpoint_best_and_the_last_are_kept(tmp_path):
    checkpoints = Checkpoints(_run(tmp_path), keep_best=2, keep_last=1)
    for update, score in enumerate([3.0, 9.0, 1.0, 8.0, 2.0, 0.5], start=1):
        _save(checkpoints, update, score)
    assert [int(p.name) for p in checkpoints.all()] == [2, 4, 6]
    assert checkpoints.best().name == "0000002"
    assert checkpoints.last().name == "0000006"


@pytest.mark.parametrize(
    ("losses", "best"),
    [
        # the lowest loss
        ([4.0, 2.0, 3.0, 2.5], "0000002"),
        # of equal losses the newest
        ([4.0, 2.0, 3.0, 2.0], "0000004"),
    ],
)
def test_best_checkpoint_of_equal_scores_has_the_lowest_loss(tmp_path, losses, best):
    checkpoints = Checkpoints(_run(tmp_path))
    for update, loss in enumerate(losses, start=1):
        _save(checkpoints, update, 0.0, loss)
    assert checkpoints.best().name == best
    assert {path.name for path in checkpoints.all()} == {best, "0000004"}


def test_checkpoint_newest_is_that_of_the_largest_number_however_many_digits_it_has(tmp_path):
    checkpoints = Checkpoints(_run(tmp_path))
    for update in (9_999_999, 10_000_000):
        _save(checkpoints, update, None)
    assert [path.name for path in checkpoints.all()] == ["10000000"]


def test_unvalidated_checkpoints_do_not_count_as_best(tmp_path):
    checkpoints = Checkpoints(_run(tmp_path), keep_best=1, keep_last=2)
    for update, score in ((1, None), (2, -5.0), (3, None)):
        _save(checkpoints, update, score)
    assert checkpoints.best().name == "0000002"


def test_checkpoint_extension_drops_the_validation_that_only_the_end_has(tmp_path):
    checkpoints = Checkpoints(_run(tmp_path), every=4)
    first, *others = [Validation(update, 2.0, 1.5, lower_is_better=False) for update in (4, 7, 8)]
    for last in others:
        checkpoints.save(
            _model(1.0), {"x": torch.ones(2)}, Progress(last.update, 0, last.update, [first, last]), "cpu, fp32"
        )
        checkpoints.prepare_extension()
        progress = read_progress(checkpoints.last())
        # one that was due at that step stays
        assert progress.validations == ([first, last] if last.update == 8 else [first])
        assert progress.validation == (last if last.update == 8 else None)


def test_checkpoint_half_written_by_a_crash_is_ignored(tmp_path, monkeypatch):
    checkpoints = Checkpoints(_run(tmp_path))
    _save(checkpoints, 1, 1.0)

    def crash(*_arguments: object) -> None:
        raise KeyboardInterrupt

    for step in ("s2s.training.checkpoint.save_weights", "s2s.files._sync", "pathlib.Path.replace"):
        with monkeypatch.context() as broken:
            broken.setattr(step, crash)
            with pytest.raises(KeyboardInterrupt):
                _save(checkpoints, 2, 2.0)
        assert checkpoints.last().name == "0000001"
        assert read_progress(checkpoints.last()).update == 1
    _save(checkpoints, 2, 2.0)
    assert checkpoints.last().name == "0000002"


def test_average_of_checkpoints_is_the_mean_of_their_weights(tmp_path):
    checkpoints = Checkpoints(_run(tmp_path), keep_last=3)
    paths = [_save(checkpoints, update, 0.5) for update in (1, 2, 6)]
    model = _model(0.0)
    average_checkpoints(model, paths)
    assert torch.equal(model.weight, _model(3.0).weight)


def test_checkpoint_damaged_file_is_named(tmp_path):
    path = _save(Checkpoints(_run(tmp_path)), 1, None)
    (path / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(UserError, match=r"model.safetensors: cannot be read"):
        load_weights(_model(0.0), path / "model.safetensors")
    (path / "state.json").write_text(json.dumps({"update": 1})[:-1])
    with pytest.raises(UserError, match=r"0000001: damaged checkpoint"):
        read_progress(path)


def test_checkpoint_weights_of_another_model_are_refused_and_change_nothing(tmp_path):
    save_weights(nn.Linear(3, 2), tmp_path / "other.safetensors")
    model = _model(4.0)
    with pytest.raises(UserError, match=r"do not fit the model, first weight"):
        load_weights(model, tmp_path / "other.safetensors")
    assert torch.equal(model.weight, _model(4.0).weight)


def test_checkpoint_weights_that_are_not_finite_are_refused_by_the_tensors_name(tmp_path):
    model = _model(1.0)
    for value in (math.nan, math.inf):
        broken = _model(2.0)
        with torch.no_grad():
            broken.weight[0, 0] = value
        save_weights(broken, tmp_path / "model.safetensors")
        with pytest.raises(UserError, match=r"model.safetensors: tensor weight contains NaN or infinity(.|\n)*→"):
            load_weights(model, tmp_path / "model.safetensors")
        assert torch.equal(model.weight, _model(1.0).weight)


@pytest.mark.parametrize("key", ["digest", "weights"])
def test_checkpoint_without_digests_is_refused(tmp_path, key):
    path = _save(Checkpoints(_run(tmp_path)), 1, None)
    state = json.loads((path / "state.json").read_text())
    (path / "state.json").write_text(json.dumps({name: state[name] for name in state if name != key}))
    with pytest.raises(UserError, match=f"state.json: has no digest '{key}'(.|\n)*→ restore"):
        (check_weights if key == "weights" else read_training)(path)
    (path / "state.json").unlink()
    with pytest.raises(UserError, match=r"damaged checkpoint: state\.json: there is no such file"):
        check_weights(path)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir])
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("state.json", check_weights),
        ("model.safetensors", check_weights),
        ("training.safetensors", read_training),
        ("device.txt", lambda path: Checkpoints(path.parents[1]).device()),
    ],
)
def test_checkpoint_special_file_is_refused_and_never_waited_for(tmp_path, name, read, make):
    path = _save(Checkpoints(_run(tmp_path)), 1, None)
    (path / name).unlink(missing_ok=True)
    make(path / name)
    with pytest.raises(UserError, match=r"not a regular file|is a folder"):
        read(path)


def test_folders_that_are_called_almost_like_a_number_are_no_checkpoints(tmp_path):
    path = _save(Checkpoints(_run(tmp_path)), 1, None)
    for name in ("²", "٣", "1²"):
        (tmp_path / "checkpoints" / name).mkdir()
    assert Checkpoints(tmp_path).all() == [path]


def test_checkpoints_are_not_written_through_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    _run(tmp_path / "run")
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="checkpoints: is a symbolic link"):
        Checkpoints(tmp_path / "run").save(_model(1.0), {}, Progress(1, 0, 1), "cpu, fp32")
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("key", ["update", "validations", "seconds"])
def test_checkpoint_that_lacks_a_field_is_refused(tmp_path, key):
    path = _save(Checkpoints(_run(tmp_path)), 1, None)
    state = json.loads((path / "state.json").read_text())
    del state[key]
    (path / "state.json").write_text(json.dumps(state))
    with pytest.raises(UserError, match=rf"damaged checkpoint: state\.json: has no '{key}'"):
        read_progress(path)
