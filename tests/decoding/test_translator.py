"""Translation of lines: order, batches, empty lines, streams."""

import threading
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from s2s.data.batches import collate
from s2s.data.tokenizers import train_pair
from s2s.decoding.generate import TextTranslator, describe_collapse, split_evenly
from s2s.errors import UserError
from s2s.models.transformer import Settings, build
from s2s.recipe.schema import DecodingSettings, TokenizerSettings
from s2s.tasks.source_use import rescore_texts

LINES = [
    "a dog runs",
    "",
    "the small cat sees a big dog",
    "dogs",
    "   ",
    "a cat",
    "the dog that sees the cat runs home",
]


@pytest.fixture(scope="module")
def parts():
    torch.manual_seed(0)
    tokenizer, _ = train_pair(LINES * 5, LINES * 5, TokenizerSettings(kind="char", size=60))
    small = Settings(width=16, heads=2, feedforward=16, encoder_layers=1, decoder_layers=1)
    model = build(small, tokenizer.size, tokenizer.size)
    with torch.no_grad():
        model.projection.weight.mul_(3)
    return model, tokenizer


def _translator(parts, nbest: int = 1, **settings) -> TextTranslator:
    model, tokenizer = parts
    return TextTranslator(
        model, tokenizer, tokenizer, DecodingSettings(**({"beam": 3, "max_ratio": 1.0} | settings)), nbest
    )


def test_translator_file_is_its_lines_alone_in_the_same_order(parts):
    together = list(_translator(parts, batch=3).translate(LINES))
    alone = [next(iter(_translator(parts).translate([line]))) for line in LINES]
    assert [t.text for t in together] == [t.text for t in alone]
    assert len({t.text for t in together}) > 3
    for one, other in zip(together, alone, strict=True):
        assert [c.score for c in one.candidates] == pytest.approx([c.score for c in other.candidates], abs=1e-5)


@given(count=st.integers(0, 300), most=st.integers(1, 80))
def test_batches_are_even_in_number_and_of_nearly_equal_size(count, most):
    batches = split_evenly(list(range(count)), most)
    assert [item for batch in batches for item in batch] == list(range(count))
    sizes = [len(batch) for batch in batches]
    assert all(1 <= size <= most for size in sizes)
    assert max(sizes, default=0) - min(sizes, default=0) <= 1
    fewest = -(-count // most)
    assert len(batches) in (fewest, fewest + 1)
    # a single batch, or one for each item, cannot be even in number
    assert len(batches) % 2 == 0 or len(batches) in (1, count)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_translator_batches_beside_each_other_are_those_one_after_another(parts, precision, monkeypatch):
    """Each by a thread that computes alone; those of the process are as many afterwards, and errors are raised."""
    translator = _translator(parts, batch=1, precision=precision)
    threads = torch.get_num_threads()
    searched: list[tuple[str, int, int]] = []
    search = translator.search

    def watched(sources, prefixes):
        searched.append((threading.current_thread().name, torch.get_num_threads(), len(sources[0])))
        return search(sources, prefixes)

    monkeypatch.setattr(translator, "search", watched)
    try:
        torch.set_num_threads(1)
        one_after_another = translator.translate_chunk(LINES)
        torch.set_num_threads(2)
        beside = translator.translate_chunk(LINES)
        assert torch.get_num_threads() == 2
        monkeypatch.setattr(translator, "search", lambda sources, prefixes: [[]][len(sources) :][0])
        with pytest.raises(IndexError):
            translator.translate_chunk(LINES)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert beside == one_after_another
    first, second = searched[:5], searched[5:]
    assert len(first) == len(second) == 5
    assert [length for _, _, length in first] == sorted((length for _, _, length in first), reverse=True)
    assert {(name, count) for name, count, _ in first} == {(threading.current_thread().name, 1)}
    assert {count for _, count, _ in second} == {1}
    assert threading.current_thread().name not in {name for name, _, _ in second}


def test_translator_products_are_of_the_precision_that_is_asked_for(parts):
    said = []
    hook = parts[0].projection.register_forward_hook(lambda module, given, out: said.append(out.dtype))
    exact, reduced = (list(_translator(parts, precision=name).translate(LINES)) for name in ("fp32", "bf16"))
    hook.remove()
    assert set(said) == {torch.float32, torch.bfloat16}
    assert said[-1] == torch.bfloat16
    pairs = [(one.candidates[0], other.candidates[0]) for one, other in zip(exact, reduced, strict=True) if one.text]
    assert [one.score for one, _ in pairs] == pytest.approx([other.score for _, other in pairs], abs=0.1)
    assert [one.score for one, _ in pairs] != [other.score for _, other in pairs]


def test_translator_sentinels_are_not_written(parts):
    """As no text has one, they would vanish without a word, and the search's best with them."""
    tokenizer, sentinels = parts[1], 5
    torch.manual_seed(0)
    size = tokenizer.size + sentinels
    model = build(Settings(width=16, heads=2, feedforward=16, encoder_layers=1, decoder_layers=1), size, size)
    with torch.no_grad():
        model.projection.weight[tokenizer.size :] *= 30
    for translation in _translator((model, tokenizer), nbest=3).translate(LINES):
        for candidate in translation.candidates:
            assert max(candidate.hypothesis.tokens, default=0) < tokenizer.size


def test_translator_empty_lines_give_empty_lines(parts):
    found = list(_translator(parts).translate(LINES))
    assert [i for i, t in enumerate(found) if not t.candidates] == [1, 4]
    assert found[1].text == found[4].text == ""
    assert list(_translator(parts).translate([])) == []


def test_translator_first_of_the_n_best_is_the_translation(parts):
    many = list(_translator(parts, nbest=3).translate(LINES))
    assert [t.text for t in many] == [t.text for t in _translator(parts).translate(LINES)]
    assert all(len(t.candidates) == 3 for t in many if t.candidates)


def test_translator_lines_are_read_as_they_are_needed(parts):
    read = []

    def lines():
        for i in range(1000):
            read.append(i)
            yield "a cat"

    next(_translator(parts, batch=2, beam=1, max_extra=0).translate(lines()))
    assert len(read) == 100


def test_translator_more_best_than_the_beam_holds_is_an_error(parts):
    with pytest.raises(UserError, match=r"4 best .* beam size is 3(.|\n)*--beam 4"):
        _translator(parts, nbest=4)


def test_collapse_is_distinguished_from_a_working_model():
    sources = [f"sentence {i}" for i in range(50)]
    references = [f"Satz {i}" for i in range(50)]
    assert describe_collapse(sources, references, references) is None
    assert "only 1 different" in describe_collapse(sources, ["ja"] * 50, references)
    assert "empty" in describe_collapse(sources, [""] * 30 + ["ja"] * 20, references)
    assert describe_collapse(["a"] * 50, ["b"] * 50, references) is None
    # two answers, half of each, are all that there is to say
    assert describe_collapse(sources, ["ja", "nein"] * 25, ["ja", "nein"] * 25) is None
    assert "only 1 different" in describe_collapse(sources, ["ja"] * 50, ["ja", "nein"] * 25)
    assert describe_collapse(sources, ["ja"] * 50, ["ja"] * 50) is None


@pytest.mark.parametrize("threads", [1, 2])
def test_translator_before_step_ends_a_search_at_the_next_step(parts, threads, monkeypatch):
    """In one thread and in several: what it raises is raised, after at most a step of each thread."""
    model, tokenizer = parts
    settings = DecodingSettings(beam=3, max_ratio=1.0, batch=1)
    lock, steps = threading.Lock(), []

    def before_step() -> None:
        with lock:
            steps.append(threading.current_thread().name)
            if len(steps) > 4:
                raise TimeoutError

    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    translator = TextTranslator(model, tokenizer, tokenizer, settings, before_step=before_step)
    with pytest.raises(TimeoutError):
        list(translator.translate(LINES))
    # a batch that has begun ends at its next step
    assert 5 <= len(steps) <= 5 + len(LINES)
    # one of two threads may take all steps before the other begins
    own = threading.current_thread().name
    assert set(steps) == {own} if threads == 1 else own not in steps and len(set(steps)) <= threads


def test_translator_forced_prefixes_begin_the_translations(parts):
    translator = _translator(parts, batch=2)
    prefixes = ["der", "", "die", "der", ""][: len(LINES)] + [""] * (len(LINES) - 5)
    found = translator.translate_chunk(LINES, prefixes=prefixes)
    free = translator.translate_chunk(LINES)
    for line, prefix, forced, own in zip(LINES, prefixes, found, free, strict=True):
        tokens = translator.target.encode(prefix)
        if line.strip():
            assert list(forced.candidates[0].hypothesis.tokens[: len(tokens)]) == tokens
        if not prefix:
            assert forced == own


def test_translator_samples_of_a_line_are_the_same_in_any_batch(parts):
    settings = {"sample": True, "temperature": 5.0, "beam": 1}
    translator = _translator(parts, nbest=3, batch=3, **settings)
    together = translator.translate_chunk(LINES, prefixes=["der", *[""] * (len(LINES) - 1)])
    for line, prefix, found in zip(LINES, ["der", *[""] * (len(LINES) - 1)], together, strict=True):
        (alone,) = translator.translate_chunk([line], prefixes=[prefix])
        assert [each.hypothesis.tokens for each in found.candidates] == [e.hypothesis.tokens for e in alone.candidates]
        (one,) = _translator(parts, **settings).translate_chunk([line], prefixes=[prefix])
        assert [each.text for each in found.candidates[:1]] == [each.text for each in one.candidates]
        assert len(found.candidates) == (3 if line.strip() else 0)
    assert any(len({each.text for each in found.candidates}) == 3 for found in together)


def test_translator_copy_penalty_needs_a_shared_vocabulary(parts):
    assert _translator(parts, copy_penalty=1.0).beam.copy_penalty == 1.0
    model, tokenizer = parts
    other, _ = train_pair(LINES[:3], LINES[:3], TokenizerSettings(kind="char", size=100))
    with pytest.raises(UserError, match=r"decoding\.copy_penalty: has no meaning"):
        TextTranslator(model, tokenizer, other, DecodingSettings(copy_penalty=1.0))


def test_rescored_search_has_no_copy_penalty(parts):
    model, tokenizer = parts
    settings = DecodingSettings(beam=3, max_ratio=1.0, copy_penalty=1.0)
    rows = [tokenizer.encode(line) for line in LINES if line.strip()]
    run = SimpleNamespace(model=model, tokenizers=(tokenizer, tokenizer), recipe=SimpleNamespace(decoding=settings))
    with torch.no_grad():
        found = rescore_texts(run, collate(rows, rows, range(len(rows))))
    assert (found.reported - found.again).abs().max() < 1e-3


def test_translator_forced_prefix_longer_than_a_one_to_one_source_is_refused(parts, monkeypatch):
    translator = _translator(parts)
    monkeypatch.setattr(translator.model.decoder, "is_one_to_one", True)
    with pytest.raises(
        UserError, match=r"forced prefix 1: has 8 tokens, but the model writes one for each of 5 source tokens"
    ):
        translator.translate_chunk(["dogs"], prefixes=["the dog"])
    with pytest.raises(UserError, match=r"forced prefix 1: .*the tokenizer does not know"):
        translator.translate_chunk(["dogs"], prefixes=["Ω"])
    with pytest.raises(UserError, match=r"forced prefix 3,252: .*the tokenizer does not know"):
        translator.translate_chunk(["dogs", "dogs"], prefixes=["", "Ω"], before=3_250)


def test_decoding_settings_with_a_beam_neither_sample_nor_diversify():
    for settings in (DecodingSettings(sample=True, top_k=3), DecodingSettings(beam=4, beam_groups=2)):
        found = settings.with_beam(3)
        assert (found.beam, found.beam_groups, found.sample) == (3, 1, False)
