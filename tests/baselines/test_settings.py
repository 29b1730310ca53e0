"""Settings of recurrent models that exclude each other are refused with file, line and remedy."""

import pickle

import pytest

from baselines import gru, lstm_attention
from s2s.errors import UserError
from s2s.run.tasks import read

MISTAKES = {
    "odd halves": (["kind: lstm", "width: 33"], 2, "width (33) must be even when bidirectional"),
    "misspelt attention": (
        ["kind: lstm-attention", "attention: aditive"],
        4,
        "model.attention: is 'aditive', expected",
    ),
    "the word that was meant": (["kind: gru-attention", "attention: generel"], 4, "did you mean general?"),
    "coverage without attention": (
        ["kind: lstm", "coverage: true"],
        4,
        "model.coverage: unknown key; it is a key of gru-attention, lstm-attention, rnn-attention",
    ),
    "coverage of a product": (["kind: lstm-attention", "coverage: true"], 2, "additive, not of general"),
    "turned twice": (["kind: gru", "reverse_source: true"], 2, "reverse_source needs bidirectional: false"),
    "another model's key": (["kind: rnn", "heads: 4"], 4, "model.heads: unknown key; it is a key of transformer"),
    "no window": (["kind: conv", "kernel: 1"], 4, "model.kernel: is 1, expected a whole number at least 2"),
    "misspelt cell": (["kind: rnn-tagger", "cell: lsmt"], 4, "did you mean lstm?"),
    "misspelt model": (["kind: lstm-atention"], 3, "did you mean lstm-attention?"),
}


@pytest.mark.parametrize(("lines", "number", "words"), MISTAKES.values(), ids=MISTAKES)
def test_bad_setting_is_named_with_its_line(lines, number, words, tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("name: x\nmodel:\n" + "".join(f"  {line}\n" for line in lines))
    with pytest.raises(UserError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:{number}: model")
    assert words in str(caught.value)


@pytest.mark.parametrize("module", [gru, lstm_attention])
def test_settings_models_sections_travel_to_another_process(module):
    for section in (module.Settings, module.EncoderSettings):
        assert pickle.loads(pickle.dumps(section(width=8))) == section(width=8)
