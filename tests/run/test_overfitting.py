"""`s2s train RECIPE --overfit`: overfitting succeeds, or gives advice."""

import re

import pytest

from s2s.errors import UserError
from s2s.run.tasks import read
from s2s.tasks.translation import diagnosis
from s2s.tasks.translation.diagnosis import overfit

RECIPE = """
name: heart
data: {{train: 300, validation: 10, test: 10}}
tokenizer: {{size: 450}}
model: {{kind: {kind}, width: 64, encoder_layers: 1, decoder_layers: 1, dropout: 0.1}}
"""


def _recipe(folder, kind: str, *overrides: str):
    (folder / "heart.yaml").write_text(RECIPE.format(kind=kind))
    return read(folder / "heart.yaml", overrides)


@pytest.mark.parametrize(("kind", "rate"), [("transformer", 0.004), ("lstm-attention", 0.008), ("mingru", 0.008)])
@pytest.mark.slow
def test_overfit_learns_sixteen_pairs(kind, rate, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    overfit(_recipe(tmp_path, kind, f"training.learning_rate={rate}"), said.append)
    assert said[-1].startswith("overfitted after")
    assert int(re.findall(r"(\d+) % of the translations exact", said[-2])[0]) >= 90
    assert not (tmp_path / "runs").exists()


def test_overfit_advises_a_lower_learning_rate(tmp_path, monkeypatch):
    monkeypatch.setattr(diagnosis, "_UPDATES", 8)
    recipe = _recipe(tmp_path, "gru", "training.learning_rate=1e30", "training.warmup=0")
    with pytest.raises(UserError, match=r"the training diverged: a weight of (.|\n)*lower training.learning_rate"):
        overfit(recipe, lambda line: None)


@pytest.mark.slow
def test_overfit_advises_a_higher_learning_rate(tmp_path, monkeypatch):
    monkeypatch.setattr(diagnosis, "_UPDATES", 20)
    recipe = _recipe(tmp_path, "transformer", "training.learning_rate=1e-7")
    with pytest.raises(UserError, match=r"the model did not overfit 16 pairs(.|\n)*training.learning_rate"):
        overfit(recipe, lambda line: None)
