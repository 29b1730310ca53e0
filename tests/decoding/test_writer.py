"""Every kind of model writes captions by the same beam search."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from s2s.data.batches import collate
from s2s.data.tokenizers import train
from s2s.decoding.beam_search import Hypothesis
from s2s.decoding.generate import Candidate, Generator, Translation
from s2s.errors import UserError
from s2s.recipe.installed import models, module_of
from s2s.recipe.schema import PieceSettings
from s2s.tasks.captioning.data import as_read, positions_of
from s2s.tasks.captioning.generation import attention, build_model, looks, write
from s2s.tasks.captioning.recipe import CaptionRecipe
from s2s.tasks.seq2seq import PLAIN_LOSS

KINDS = sorted(kind for kind in models() if models()[kind].value.startswith(("s2s.", "baselines.")))
TEXTS = ["a red circle above two blue squares", "three white crosses", "two green triangles at the top"]


@pytest.fixture(scope="module")
def tokenizer():
    return train(TEXTS, PieceSettings(kind="char", size=40), "text")


@pytest.fixture
def pixels() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (3, 3, 16, 16), dtype=np.uint8)


def recipe_of(kind: str, stem: str = "convolution") -> CaptionRecipe:
    options = {"width": 16, "dropout": 0.0, "max_positions": 64, "tie": "target"}
    settings = module_of(kind).Settings
    return CaptionRecipe[settings].model_validate(
        {
            "name": "a",
            "task": "captioning",
            "model": {"kind": kind} | {k: v for k, v in options.items() if k in settings.model_fields},
            "data": {"size": 16, "mean": (0.5,) * 3, "deviation": (0.3,) * 3},
            "stem": {"kind": stem, "size": 4},
            "decoding": {"max_length": 9, "batch": 2},
        }
    )


@pytest.mark.parametrize("kind", KINDS)
def test_captioner_captions_of_a_batch_are_those_of_single_images_and_score_as_when_forced(kind, tokenizer, pixels):
    recipe = recipe_of(kind)
    if kind == "rnn-tagger":
        with pytest.raises(UserError, match="one token for each vector of the image"):
            build_model(recipe, tokenizer.size)
        return
    model = build_model(recipe, tokenizer.size)
    writer = Generator(model, tokenizer, recipe.decoding)
    together = write(recipe, writer, pixels)
    alone = [write(recipe, writer, image[None])[0] for image in pixels]
    assert len(together) == 3
    for one, other, image in zip(together, alone, pixels, strict=True):
        best = one.candidates[0]
        assert best.hypothesis.tokens == other.candidates[0].hypothesis.tokens
        assert best.score == pytest.approx(other.candidates[0].score, rel=1e-4)
        batch = collate([[]], [list(best.hypothesis.tokens)], [0])
        with torch.no_grad():
            source, valid = as_read(image[None], positions_of(recipe))
            scores = model.logits(source, valid, batch.target_in).log_softmax(dim=2)
        forced = scores.gather(2, batch.target_out[:, :, None]).sum()
        assert best.hypothesis.log_probability == pytest.approx(float(forced), rel=1e-4)


@pytest.mark.parametrize("stem", ["patches", "convolution"])
@pytest.mark.parametrize("kind", ["transformer", "lstm-attention", "gru"])
def test_captioner_image_is_what_decides_and_learning_reaches_the_stem(kind, stem, tokenizer, pixels):
    recipe = recipe_of(kind, stem)
    model = build_model(recipe, tokenizer.size)
    batch = collate([[]] * 3, tokenizer.encode_batch(TEXTS), [0, 1, 2])
    source, valid = as_read(pixels, positions_of(recipe))
    with torch.no_grad():
        states = model(source, valid, batch.target_in[:1].expand(3, -1))
    assert (states[0] - states[1]).abs().max() > 1e-3
    loss, plain = PLAIN_LOSS(model, replace(batch, source=source, source_valid=valid))
    expected = model.logits(source, valid, batch.target_in).log_softmax(2)
    expected = -expected.gather(2, batch.target_out[:, :, None])[batch.target_valid].sum()
    assert float(plain.detach()) == pytest.approx(float(expected.detach()), rel=1e-4)
    loss.backward()
    moved = [p.grad for name, p in model.named_parameters() if "encoder.embedding" in name and p.grad is not None]
    assert len(moved) > 1
    assert all(gradient.abs().sum() > 0 for gradient in moved if gradient.dim() > 1)


@pytest.mark.parametrize("kind", ["transformer", "lstm-attention", "conv"])
def test_captioner_looks_are_shares_by_word_of_what_single_images_had(kind, tokenizer, pixels):
    recipe = recipe_of(kind)
    model = build_model(recipe, tokenizer.size)
    written = write(recipe, Generator(model, tokenizer, recipe.decoding), pixels)
    pieces = [list(each.candidates[0].hypothesis.tokens) for each in written]
    pieces[0] = tokenizer.encode("two red")
    weights = attention(model, pixels, pieces, positions_of(recipe))
    for row, image in enumerate(pixels):
        alone = attention(model, image[None], pieces[row : row + 1], positions_of(recipe))[0]
        np.testing.assert_allclose(weights[row][: len(alone)], alone, atol=1e-5)
        np.testing.assert_allclose(alone.sum(axis=1), 1, atol=1e-5)
    found = looks(recipe, model, tokenizer, pixels, written, ["1", "2", "3"])
    for look, image, each in zip(found, pixels, written, strict=True):
        assert [word for word in look.words if word] == each.text.replace("⁇", "<unk>").split()
        assert [np.shape(shares) for shares in look.maps] == [(4, 4)] * len(look.words)
        assert all(np.sum(shares) == pytest.approx(1, abs=1e-4) for shares in look.maps)
        assert (np.array(look.pixels) == image).all()


def test_captioner_word_looks_where_its_pieces_look_on_average(tokenizer, pixels, monkeypatch):
    recipe = recipe_of("transformer")
    model = build_model(recipe, tokenizer.size)
    tokens = tokenizer.encode("two red")
    assert [len(piece) for piece in tokenizer.tokens(tokens)] == [1] * 8
    given = np.random.default_rng(1).random((1, 9, 16))
    monkeypatch.setattr("s2s.tasks.captioning.generation.attention", lambda *_: given)

    best = Candidate("two red", 0.0, Hypothesis(tuple(tokens), 0.0, 0.0, False))
    (look,) = looks(recipe, model, tokenizer, pixels[:1], [Translation((best,))], ["1"])
    assert look.words == ["two", "red"]
    np.testing.assert_allclose(np.array(look.maps[0]).ravel(), given[0, :4].mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(np.array(look.maps[1]).ravel(), given[0, 4:8].mean(axis=0), atol=1e-6)


def test_captioner_model_without_attention_has_no_looks(tokenizer, pixels):
    recipe = recipe_of("gru")
    model = build_model(recipe, tokenizer.size)
    written = write(recipe, Generator(model, tokenizer, recipe.decoding), pixels)
    assert looks(recipe, model, tokenizer, pixels, written, ["1", "2", "3"]) == []
