import json
from pathlib import Path

import pytest
import torch
from torch import nn

from s2s.errors import UserError
from s2s.training.checkpoint import (
    Checkpoints,
    Progress,
    average,
    check_fit,
    load_weights,
    read_progress,
    save_weights,
)


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
    progress = Progress(update, 0, update, score, None if score is None else loss)
    return checkpoints.save(_model(update), {"x": torch.ones(2)}, progress)


def test_a_checkpoint_gives_back_what_was_saved(tmp_path):
    path = _save(Checkpoints(_run(tmp_path)), 7, 1.5)
    model = _model(0.0)
    load_weights(model, path / "model.safetensors")
    assert torch.equal(model.weight, _model(7).weight)
    assert read_progress(path) == Progress(7, 0, 7, 1.5, 1.0)
    assert (path / "recipe.yaml").read_text() == "name: x\n"
    assert (path / "tokenizer" / "shared.model").read_bytes() == b"pieces"


def test_the_best_and_the_last_are_kept(tmp_path):
    checkpoints = Checkpoints(_run(tmp_path), keep_best=2, keep_last=1)
    for update, score in enumerate([3.0, 9.0, 1.0, 8.0, 2.0, 0.5], start=1):
        _save(checkpoints, update, score)
    assert [int(p.name) for p in checkpoints.numbered()] == [2, 4, 6]
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
    assert {path.name for path in checkpoints.numbered()} == {best, "0000004"}


def test_the_newest_is_that_of_the_largest_number_however_many_digits_it_has(tmp_path):
    checkpoints = Checkpoints(_run(tmp_path))
    for update in (9_999_999, 10_000_000):
        _save(checkpoints, update, None)
    assert [path.name for path in checkpoints.numbered()] == ["10000000"]


def test_unvalidated_checkpoints_do_not_count_as_best(tmp_path):
    checkpoints = Checkpoints(_run(tmp_path), keep_best=1, keep_last=2)
    for update, score in ((1, None), (2, -5.0), (3, None)):
        _save(checkpoints, update, score)
    assert checkpoints.best().name == "0000002"


def test_what_a_crash_leaves_half_written_is_no_checkpoint(tmp_path, monkeypatch):
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


def test_the_average_of_checkpoints_is_the_mean_of_their_weights(tmp_path):
    checkpoints = Checkpoints(_run(tmp_path), keep_last=3)
    paths = [_save(checkpoints, update, 0.5) for update in (1, 2, 6)]
    model = _model(0.0)
    average(model, paths)
    assert torch.equal(model.weight, _model(3.0).weight)


def test_a_damaged_file_is_named(tmp_path):
    path = _save(Checkpoints(_run(tmp_path)), 1, None)
    (path / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(UserError, match=r"model.safetensors: cannot be read"):
        load_weights(_model(0.0), path / "model.safetensors")
    (path / "state.json").write_text(json.dumps({"update": 1})[:-1])
    with pytest.raises(UserError, match=r"0000001: not a whole checkpoint"):
        read_progress(path)


@pytest.mark.parametrize("name", ["encoder.embedding.weight", "adam.exp_avg.encoder.embedding.weight"])
def test_a_recurrent_model_of_an_older_version_is_told_to_be_trained_again(name):
    wanted = {name.replace("embedding", "embedding.tokens"): torch.zeros(3)}
    with pytest.raises(UserError, match=r"(?s)an older s2s.*train it again, or use it with the version"):
        check_fit({name: torch.zeros(3)}, wanted, Path("model.safetensors"))


def test_weights_of_another_model_are_refused_and_change_nothing(tmp_path):
    save_weights(nn.Linear(3, 2), tmp_path / "other.safetensors")
    model = _model(4.0)
    with pytest.raises(UserError, match=r"do not fit the model, first weight"):
        load_weights(model, tmp_path / "other.safetensors")
    assert torch.equal(model.weight, _model(4.0).weight)
