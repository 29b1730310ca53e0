"""Scoring of given answers, without a search."""

import pytest

from s2s.data.tokenizers import train_pair
from s2s.errors import UserError
from s2s.models.transformer import Settings, build
from s2s.recipe.schema import TokenizerSettings
from s2s.tasks.text_to_text.answers import log_probabilities


def test_answers_line_beyond_the_learned_positions_is_one_message():
    cut = train_pair(["a dog runs"] * 5, ["a cat"] * 5, TokenizerSettings(kind="char", size=30))[0]
    sizes = {"width": 8, "heads": 2, "feedforward": 8, "encoder_layers": 1, "decoder_layers": 1, "max_positions": 9}
    settings = Settings.model_validate(
        {"kind": "transformer", "encoder_positions": "learned", "decoder_positions": "learned", **sizes}
    )
    model = build(settings, cut.size, cut.size)
    assert log_probabilities(model, cut, ["a dog"], ["a", "dog"], 2).shape == (1, 2)
    with pytest.raises(UserError, match="a sentence of 11 tokens, and its end, are longer than the 9 positions"):
        log_probabilities(model, cut, ["a dog", "a dog runs"], ["a", "dog"], 2)
