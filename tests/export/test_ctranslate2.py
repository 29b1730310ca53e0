"""CTranslate2 computes the same as the exported model."""

from typing import Any, get_args

import numpy as np
import pytest
import torch

from s2s.data.tokenizers import Tokenizer, train_pair
from s2s.decoding.generate import TextTranslator, max_output_lengths
from s2s.models.transformer import Settings, build
from s2s.recipe.schema import DecodingSettings, TokenizerSettings

pytest.importorskip("ctranslate2")

from s2s.export.ctranslate2 import save
from s2s.export.exportable import exportable
from s2s.export.sentencepiece import vocabulary
from s2s.tasks.translation.recipe import Recipe

LINES = ["a dog runs", "", "the small cat sees a big dog", "dogs", "   ", "a cat", "the dog that sees the cat runs"]
SMALL: dict[str, Any] = {"width": 32, "heads": 4, "feedforward": 48, "encoder_layers": 2, "decoder_layers": 2}
INSIDE = ("rope", "relative", "learned", "none")
VARIANTS: list[dict[str, Any]] = [
    {},
    {"norm": "post"},
    {"norm": "post", "norm_kind": "rms"},
    *({"activation": kind} for kind in get_args(Settings.model_fields["activation"].annotation) if kind != "relu"),
    {"embedding_norm": True, "norm_epsilon": 0.01, "scale_embeddings": False},
    *({"encoder_positions": kind, "decoder_positions": kind} for kind in INSIDE),
    {"encoder_positions": "rope"},
    {"decoder_positions": "relative"},
    {"encoder_positions": "relative", "decoder_positions": "relative", "max_distance": 17},
    {"heads_kind": "wide"},
    {"key_value_heads": 2},
    {"heads_kind": "wide", "key_value_heads": 1, "encoder_positions": "rope", "decoder_positions": "rope"},
    {"tie": "target"},
    {"tie": "none"},
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_pair(LINES * 5, LINES * 5, TokenizerSettings(kind="char", size=60))[0]


def _model(tokenizer: Tokenizer, **options):
    torch.manual_seed(1)
    settings = Settings(kind="transformer", **(SMALL | {"max_positions": 300} | options))
    model = build(settings, tokenizer.size, tokenizer.size).eval()
    with torch.no_grad():
        for p in model.parameters():
            # biases and norms are then other numbers than in a new model
            p += 0.1 * torch.randn_like(p)
    return settings, model


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_ctranslate2_every_variant_gives_each_piece_the_same_probability(options, tokenizer, tmp_path):
    import ctranslate2

    settings, model = _model(tokenizer, **options)
    save(model, settings, (tokenizer,), tmp_path, "float32")
    names = vocabulary(tokenizer)
    # long enough for far distances, which share buckets
    rows = [torch.randint(4, tokenizer.size, (length,)).tolist() for length in (180, 40, 3)]
    engine = ctranslate2.Translator(str(tmp_path), compute_type="float32", intra_threads=1)
    theirs = engine.score_batch(
        [[names[i] for i in row] for row in rows], [[names[i] for i in reversed(row)] for row in rows]
    )
    for row, found in zip(rows, theirs, strict=True):
        source, target = torch.tensor([[*row, 2]]), torch.tensor([[1, *reversed(row)]])
        with torch.no_grad():
            ours = model.logits(source, source > 0, target).log_softmax(-1)
        wanted = ours[0].gather(1, torch.tensor([*reversed(row), 2])[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(found.log_probs), wanted, atol=1e-4, rtol=1e-5)


def test_ctranslate2_each_variant_that_is_called_exportable_is_in_this_test():
    """And those that are not are refused by name."""
    kinds = ("sinusoidal", "learned", "rope", "alibi", "relative", "none")
    tested = {"sinusoidal", *INSIDE}
    for kind in kinds:
        model = Settings(kind="transformer", encoder_positions=kind)
        recipe = Recipe[Settings](name="x", model=model)
        assert ("ctranslate2" in exportable(recipe)) == (kind in tested), kind


@pytest.fixture(scope="module")
def learned(tokenizer):
    """A model that has learned, not too well, to copy words."""
    settings, model = _model(tokenizer, encoder_layers=1, decoder_layers=1)
    rows = [[*tokenizer.encode(line), 2] for line in LINES if line.strip()]
    source = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    target = torch.cat((torch.ones_like(source[:, :1]), source[:, :-1]), dim=1)
    optimizer = torch.optim.Adam(model.train().parameters(), lr=3e-3)
    for _ in range(120):
        loss = torch.nn.functional.cross_entropy(
            model.logits(source, source > 0, target).flatten(0, 1), source.flatten(), ignore_index=0
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return settings, model.eval()


@pytest.mark.parametrize("decoding", [{"max_ratio": 2.0}, {"max_ratio": 0.5, "max_extra": 1}], ids=str)
def test_ctranslate2_greedy_translations_equal_those_of_the_model(decoding, learned, tokenizer, tmp_path):
    import ctranslate2

    settings, model = learned
    save(model, settings, (tokenizer,), tmp_path, "float32")
    translator = TextTranslator(model, tokenizer, tokenizer, DecodingSettings(beam=1, **decoding))
    engine = ctranslate2.Translator(str(tmp_path), compute_type="float32", intra_threads=1)
    names, translations = vocabulary(tokenizer), set()
    lines = [*(line for line in LINES if line.strip()), "home runs the cat", "god", "that a dog a small sees"]
    for line in lines:
        tokens = tokenizer.encode(line)
        source, limit = (
            [names[token] for token in tokens],
            max_output_lengths(np.array([len(tokens)]), translator.settings),
        )
        found = engine.translate_batch([source], beam_size=1, max_decoding_length=int(limit[0])).pop().hypotheses[0]
        (ours,) = translator.translate([line])
        assert found == [names[token] for token in ours.candidates[0].hypothesis.tokens]
        translations.add(ours.text)
    assert len(translations) > 4


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"min_length": 14}, {"min_decoding_length": 14}),
        ({"no_repeat_ngram": 2}, {"no_repeat_ngram_size": 2}),
        ({"no_repeat_ngram": 3, "min_length": 12}, {"no_repeat_ngram_size": 3, "min_decoding_length": 12}),
    ],
    ids=str,
)
def test_ctranslate2_constraints_on_greedy_search_are_those_of_the_model(ours, theirs, learned, tokenizer, tmp_path):
    import ctranslate2

    settings, model = learned
    save(model, settings, (tokenizer,), tmp_path, "float32")
    limits = DecodingSettings(beam=1, max_ratio=1e-3, max_extra=30)
    free, bound = (TextTranslator(model, tokenizer, tokenizer, limits.model_copy(update=each)) for each in ({}, ours))
    engine = ctranslate2.Translator(str(tmp_path), compute_type="float32", intra_threads=1)
    names, changed, limit = vocabulary(tokenizer), 0, max_output_lengths(np.array([20]), limits)[0]
    for line in (line for line in LINES if line.strip()):
        source = [names[token] for token in tokenizer.encode(line)]
        found = (
            engine.translate_batch([source], beam_size=1, max_decoding_length=int(limit), **theirs).pop().hypotheses[0]
        )
        (text,) = bound.translate([line])
        assert found == [names[token] for token in text.candidates[0].hypothesis.tokens]
        changed += text.text != next(free.translate([line])).text
    assert changed


def test_ctranslate2_continues_a_forced_prefix_as_the_model_does(learned, tokenizer, tmp_path):
    import ctranslate2

    settings, model = learned
    save(model, settings, (tokenizer,), tmp_path, "float32")
    translator = TextTranslator(model, tokenizer, tokenizer, DecodingSettings(beam=1, max_ratio=1e-3, max_extra=30))
    engine = ctranslate2.Translator(str(tmp_path), compute_type="float32", intra_threads=1)
    names, limit = vocabulary(tokenizer), max_output_lengths(np.array([20]), translator.settings)[0]
    for line, prefix in (("a dog runs", "the"), ("the small cat sees a big dog", "a big"), ("dogs", "cat")):
        (ours,) = translator.translate_chunk([line], prefixes=[prefix])
        source, begin = ([names[token] for token in tokenizer.encode(text)] for text in (line, prefix))
        found = engine.translate_batch([source], target_prefix=[begin], beam_size=1, max_decoding_length=int(limit))
        assert found[0].hypotheses[0] == [names[token] for token in ours.candidates[0].hypothesis.tokens]
        assert ours.text.startswith(f"{prefix}")
