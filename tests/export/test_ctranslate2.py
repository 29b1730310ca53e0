"""What CTranslate2 computes of an export is what the model computes."""

from dataclasses import replace
from typing import Any, cast

import pytest
import torch

from s2s.data.tokenizers import BOS, EOS, Tokenizer, train_pair
from s2s.decoding.translator import LineTranslator, Translator
from s2s.errors import UserError
from s2s.models.transformer import Settings, build
from s2s.recipe.schema import DecodingSettings, TokenizerSettings
from s2s.run.exported import seal
from s2s.run.folder import opened

pytest.importorskip("ctranslate2")

from s2s.export import engine
from s2s.export.ctranslate2 import save, vocabulary
from s2s.export.engine import Engine, EngineTranslator
from s2s.export.exportable import exportable
from s2s.export.folder import check_exported
from s2s.tasks.translation.recipe import Recipe

LINES = ["a dog runs", "", "the small cat sees a big dog", "dogs", "   ", "a cat", "the dog that sees the cat runs"]
SMALL: dict[str, Any] = {"width": 32, "heads": 4, "feedforward": 48, "encoder_layers": 2, "decoder_layers": 2}
INSIDE = ("rope", "relative", "learned", "none")
VARIANTS: list[dict[str, Any]] = [
    {},
    {"norm": "post"},
    {"norm": "post", "norm_kind": "rms"},
    {"activation": "gelu"},
    {"activation": "swiglu"},
    {"embedding_norm": True, "norm_epsilon": 0.01, "scale_embeddings": False},
    *({"encoder_positions": kind, "decoder_positions": kind} for kind in INSIDE),
    {"encoder_positions": "rope"},
    {"decoder_positions": "relative"},
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
def test_every_variant_gives_each_piece_the_same_probability(options, tokenizer, tmp_path):
    import ctranslate2

    settings, model = _model(tokenizer, **options)
    save(model, settings, (tokenizer,), tmp_path, "float32")
    names = vocabulary(tokenizer)
    # long enough for far distances, which share buckets
    rows = [torch.randint(4, tokenizer.size, (length,)).tolist() for length in (180, 40, 3)]
    engine = ctranslate2.Translator(str(tmp_path), compute_type="float32", intra_threads=1)
    theirs = engine.score_batch(
        [[*(names[i] for i in row), "</s>"] for row in rows], [[names[i] for i in reversed(row)] for row in rows]
    )
    for row, found in zip(rows, theirs, strict=True):
        source, target = torch.tensor([[*row, 2]]), torch.tensor([[1, *reversed(row)]])
        with torch.no_grad():
            ours = model.logits(source, source > 0, target).log_softmax(-1)
        wanted = ours[0].gather(1, torch.tensor([*reversed(row), 2])[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(found.log_probs), wanted, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize(("kind", "there"), [("mps", "mps"), ("cuda", "cpu")])
def test_an_export_from_another_machine_is_computed_by_what_is_here(kind, there, small_world, monkeypatch):
    run = opened(small_world / "runs/t")
    recipe = run.recipe.model_copy(update={"device": run.recipe.device.model_copy(update={"kind": kind})})
    for name in ("cuda", "mps"):
        monkeypatch.setattr(
            f"torch.{'backends.' * (name == 'mps')}{name}.is_available", lambda name=name: name == there
        )
    monkeypatch.setattr(engine, "Engine", lambda folder, source, target, device, threads: device)
    monkeypatch.setattr(engine, "check_files", lambda folder: None)
    translator, _ = engine.line_translator(replace(run, recipe=recipe), 1)
    assert cast(Any, translator).engine == "cpu"


def test_each_variant_that_is_called_exportable_is_in_this_test():
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


def test_an_export_has_one_checkpoint_and_its_own_precision(small_world, tmp_path):
    seal(tmp_path, "ctranslate2", "0000001")
    run = replace(opened(small_world / "runs/t"), path=tmp_path)
    check_exported(run, "ctranslate2", None)
    for asked, checkpoint in ((("decoding.beam=2", "decoding.precision=bf16"), None), ((), "last")):
        with pytest.raises(UserError, match=r"precision=bf16: says nothing to an export|an export has one checkpoint"):
            check_exported(replace(run, overrides=asked), "ctranslate2", checkpoint)
    with pytest.raises(UserError, match=r"is not exported to onnx\n.*s2s export THE-RUN-ITSELF --to onnx"):
        check_exported(run, "onnx", None)
    with pytest.raises(UserError, match=rf"s2s export {small_world / 'runs/t'} --to onnx"):
        check_exported(opened(small_world / "runs/t"), "onnx", None)


def _both(
    learned, tokenizer, folder, nbest: int | None = None, threads: int = 1, **decoding
) -> tuple[LineTranslator, LineTranslator]:
    settings, model = learned
    save(model, settings, (tokenizer,), folder, "float32")
    how = DecodingSettings(**({"beam": 3} | decoding))
    before = torch.get_num_threads()
    engine = Engine(folder, tokenizer, tokenizer, "cpu", threads)
    # ctranslate2 alone would have changed them for the whole process
    assert torch.get_num_threads() == before
    nbest = nbest or how.beam
    ours = Translator(model, tokenizer, tokenizer, how, nbest)
    return ours, EngineTranslator(engine, (tokenizer,), how, nbest, (2048, 2048))


_UNSEEN = ["home runs the cat", "god", "that a dog a small sees", "catscatscats"]


@pytest.mark.parametrize("decoding", [{}, {"length_penalty": 0.0}, {"length_penalty": 2.0}, {"batch": 2}], ids=str)
def test_greedy_translations_and_their_scores_are_those_of_the_run(decoding, learned, tokenizer, tmp_path):
    ours, theirs = _both(learned, tokenizer, tmp_path, threads=2, **{"beam": 1} | decoding)
    lines = [*LINES, *_UNSEEN]
    found = list(zip(ours.translate_chunk(lines), theirs.translate_chunk(lines), strict=True))
    assert len({c.text for one, _ in found for c in one.candidates}) > 4
    for one, other in found:
        assert not any(c.hypothesis.cut for c in one.candidates)
        assert [c.text for c in one.candidates] == [c.text for c in other.candidates]
        assert [c.score for c in one.candidates] == pytest.approx([c.score for c in other.candidates], abs=1e-4)


@pytest.mark.parametrize("decoding", [{}, {"length_penalty": 0.0}, {"length_penalty": 2.0}, {"beam": 6}], ids=str)
@pytest.mark.parametrize("nbest", [None, 1])
def test_scores_of_a_beam_are_the_model_s_own(decoding, nbest, learned, tokenizer, tmp_path):
    """CTranslate2's beam may hold other hypotheses than ours; each has the score that the model gives it."""
    _, theirs = _both(learned, tokenizer, tmp_path, nbest, threads=2, **decoding)
    lines = [*LINES, *_UNSEEN]
    model, scored = learned[1], 0
    for line, found in zip(lines, theirs.translate_chunk(lines), strict=True):
        assert [c.score for c in found.candidates] == sorted((c.score for c in found.candidates), reverse=True)
        source = torch.tensor([[*tokenizer.encode(line), EOS]])
        for candidate in found.candidates:
            tokens = candidate.hypothesis.tokens
            logits = model.logits(source, source > 0, torch.tensor([[BOS, *tokens]]))
            wanted = logits.log_softmax(2)[0].gather(1, torch.tensor([*tokens, EOS])[:, None]).sum().item()
            assert candidate.hypothesis.log_probability == pytest.approx(wanted, abs=1e-3)
            assert candidate.score == pytest.approx(wanted / theirs.beam.penalty(len(tokens) + 1), abs=1e-3)
            scored += 1
    assert scored > 4


def test_no_translation_is_longer_than_the_settings_allow(learned, tokenizer, tmp_path):
    _, theirs = _both(learned, tokenizer, tmp_path, max_ratio=0.5, max_extra=1)
    for line, found in zip(LINES, theirs.translate_chunk(LINES), strict=True):
        limit = theirs.limits([tokenizer.encode(line)])[0]
        assert all(len(c.hypothesis.tokens) <= limit for c in found.candidates)


def test_pieces_that_are_shown_alike_have_names_of_their_own():
    class Alike:
        size = 6

        def pieces(self, ids):
            return ["<pad>", "<s>", "</s>", "<unk>", "▁", "▁"]

    assert vocabulary(cast(Tokenizer, Alike())) == ["<pad>", "<s>", "</s>", "<unk>", "▁", "▁#5"]


def test_a_line_that_is_too_long_is_told(learned, tokenizer, tmp_path):
    _, theirs = _both(learned, tokenizer, tmp_path)
    with pytest.raises(UserError, match="longer than the 2048 positions"):
        theirs.translate_chunk(["a dog " * 500])
