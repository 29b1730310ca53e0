"""Tokenizers are lossless, deterministic, and verified when loaded."""

import hashlib
import io
import json
import re
import subprocess
import sys
import threading
import unicodedata

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from s2s.data import tokenizers
from s2s.data.tokenizers import BOS, EOS, PAD, UNK, Tokenizer, lowered_sizes, train, train_pair
from s2s.errors import UserError
from s2s.recipe.schema import TokenizerSettings

ANIMALS = ["dog", "cat", "horse", "bird", "cow", "sheep", "goat", "duck", "hen", "fox", "wolf", "bear", "mouse", "frog"]
LINES = [f"The {a} saw {n} {b}s near the {c}." for n, a in enumerate(ANIMALS) for b in ANIMALS for c in ANIMALS[::4]]

KINDS = ("unigram", "bpe", "char", "word", "bytes")
COMPLETE = ("unigram", "bpe", "bytes")

# what sentencepiece, its decoder or a normaliser might take for its own
ODD = "▁▅⁇\ufdd0\ufdd1\ufdd6\ufffd\ufeff\0\t\n\r\x0b\x1c\x85\u2028\u00a0\u200b\u0301\u0331 ﬁİΣςẞHk\U0010ffff日"
SNIPPETS = ("<s>", "</s>", "<unk>", "<pad>", "<0x41>", "  ", "The dog", " saw ", ".", "é", "e\u0301")
any_text = st.one_of(
    st.text(),
    st.text(st.sampled_from(ODD + "ab")),
    st.lists(st.one_of(st.sampled_from(SNIPPETS), st.text(max_size=3))).map("".join),
)


def trained(kind: str, size: int = 300, lines: list[str] = LINES, **others) -> Tokenizer:
    return train(lines, TokenizerSettings(kind=kind, size=size, **others), "source")


@pytest.fixture(scope="module")
def made() -> dict[tuple[str, str, bool], Tokenizer]:
    options = [("identity", False), ("identity", True), ("nfkc", False), ("nfkc", True)]
    return {
        (kind, normalization, lowercase): trained(kind, normalization=normalization, lowercase=lowercase)
        for kind in KINDS
        for normalization, lowercase in options
    }


@pytest.mark.parametrize("kind", COMPLETE)
@settings(max_examples=200, deadline=None)
@given(text=any_text)
def test_tokenizers_identity_brings_back_every_character_of_any_text(made, kind, text):
    tokenizer = made[kind, "identity", False]
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("normalization", ["identity", "nfkc"])
@pytest.mark.parametrize("kind", COMPLETE)
@settings(max_examples=100, deadline=None)
@given(text=any_text)
def test_decoding_gives_the_normalised_text_which_is_its_own_normal_form(made, kind, normalization, lowercase, text):
    tokenizer = made[kind, normalization, lowercase]
    normal = tokenizer.normalize(text)
    assert tokenizer.decode(tokenizer.encode(text)) == normal
    assert tokenizer.normalize(normal) == normal
    assert tokenizer.encode(normal) == tokenizer.encode(text)


@settings(max_examples=200, deadline=None)
@given(text=any_text)
def test_tokenizers_normalisation_is_what_the_recipe_calls_it(made, text):
    assert made["bpe", "identity", False].normalize(text) == text
    assert made["bpe", "identity", True].normalize(text) == text.lower()
    folded = made["bpe", "nfkc", False].normalize(text)
    assert "".join(folded.split()) == "".join(unicodedata.normalize("NFKC", text).split())
    assert not any(c.isspace() for c in folded.replace(" ", ""))
    assert folded == folded.strip()
    assert "  " not in folded


def test_tokenizers_lower_case_letters_that_compose_are_composed(made):
    assert made["unigram", "nfkc", True].normalize("H\u0331") == "\u1e96"


@pytest.mark.parametrize("kind", ["char", "word"])
@settings(max_examples=100, deadline=None)
@given(words=st.lists(st.sampled_from(["The", "saw", "the", "dog", "7", "frogs", "zebra", "Zürich"]), max_size=9))
def test_tokenizers_only_what_is_unknown_changes_and_it_shows(made, kind, words):
    tokenizer = made[kind, "nfkc", False]
    known = {c for line in LINES for c in line} if kind == "char" else {w for line in LINES for w in line.split()}
    text = " ".join(words)
    parts = list(text) if kind == "char" else words
    marked = ("" if kind == "char" else " ").join(p if p in known else "⁇" for p in parts)
    pieces = tokenizer.encode(text)
    if kind == "word":
        assert len(pieces) == len(words)
    assert tokenizer.decode(pieces) == (re.sub("⁇+", "⁇", marked) if kind == "char" else marked)


def test_tokenizers_without_byte_fallback_unknown_characters_show():
    tokenizer = trained("unigram", size=50, byte_fallback=False)
    assert tokenizer.decode(tokenizer.encode("The dog saw 日本.")) == "The dog saw ⁇."
    assert UNK in tokenizer.encode("日")


@pytest.mark.parametrize("kind", KINDS)
def test_tokenizers_batch_is_its_texts_one_by_one_and_special_ids_are_passed_over(made, kind):
    tokenizer = made[kind, "nfkc", False]
    texts = [*LINES[:80], "", "zebra 日本"]
    ids = tokenizer.encode_batch(texts)
    # texts alone and in small batches are encoded by this thread, large batches by several
    assert ids == [tokenizer.encode(text) for text in texts]
    assert ids[-20:] == tokenizer.encode_batch(texts[-20:])
    assert ids[-2] == []
    assert all(UNK <= i < tokenizer.size for row in ids for i in row)
    assert tokenizer.decode([BOS, *ids[0], EOS, PAD, PAD]) == LINES[0]


def test_tokenizers_pieces_are_shown_as_they_stand_in_the_text(made):
    for kind in ("unigram", "bpe", "char", "word"):
        tokenizer = made[kind, "identity", False]
        shown = tokenizer.tokens([BOS, *tokenizer.encode("The dog saw 7 frogs"), EOS, PAD])
        assert "".join(shown) == "<s>▁The▁dog▁saw▁7▁frogs</s><pad>"
    tokenizer = made["unigram", "identity", False]
    assert tokenizer.tokens(tokenizer.encode("é")) == ["▁", "<0xC3>", "<0xA9>"]
    tokenizer = made["bytes", "identity", False]
    assert tokenizer.tokens([UNK, *tokenizer.encode("a é\n")]) == ["<unk>", "a", "▁", "<0xC3>", "<0xA9>", "<0x0A>"]


def test_tokenizers_bytes_are_utf_8_above_the_special_ids_and_broken_ones_show(made):
    tokenizer = made["bytes", "identity", False]
    assert tokenizer.size == 260
    assert tokenizer.encode("aé") == [0x61 + 4, 0xC3 + 4, 0xA9 + 4]
    assert tokenizer.decode([0xC3 + 4, UNK, UNK, 0x61 + 4]) == "\ufffd⁇⁇a"


@pytest.mark.parametrize("character", "▁▅\0\n\r\t⁇é")
def test_tokenizer_learns_every_character_of_the_training_text(character):
    lines = [f"x{character}", f"{character}y", *LINES]
    tokenizer = trained("char", lines=lines, normalization="identity")
    text = f"{character}xy{character}{character}"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode(text)) == 1 + len(text)
    assert tokenizer.size == 4 + len({*"".join(lines)})


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize(("between", "size"), [("", 263), ("ab ", 265), ("日本 ", 263)], ids=["word", "words", "bytes"])
def test_tokenizers_no_training_line_is_left_out_for_its_length(kind, between, size):
    line = between.join(["日本"] * 100_000)
    tokenizer = trained(kind, size, [line])
    assert "<0xE6>" not in tokenizer.tokens(tokenizer.encode("日本"))


def test_tokenizer_learns_from_an_even_sample_of_many_lines(monkeypatch):
    monkeypatch.setattr(tokenizers, "_MOST_LINES", 10)
    kept = tokenizers._thinned(str(n) for n in range(100))
    assert kept == [str(n) for n in range(0, 100, 16)]
    assert tokenizers._thinned(str(n) for n in range(10)) == [str(n) for n in range(10)]


def test_tokenizers_sentencepiece_is_silent(capfd):
    trained("unigram")
    with pytest.raises(UserError):
        trained("unigram", size=1)
    trained("unigram", size=5000)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("lines", [LINES[:7], LINES], ids=["little", "more"])
@pytest.mark.parametrize("fallback", [True, False])
def test_tokenizers_sizes_named_as_largest_and_smallest_are_exactly_these(kind, lines, fallback):
    def limit(size: int) -> int:
        with pytest.raises(
            UserError, match=rf"tokenizer\.source\.size: {size} tokens are(.|\n)*→ set tokenizer\.source\.size="
        ) as e:
            trained(kind, size, lines, byte_fallback=fallback)
        return int(re.search(r"tokenizer\.source\.size=(\d+)", e.value.remedy)[1])

    smallest = limit(1)
    assert trained(kind, smallest, lines, byte_fallback=fallback).size == smallest
    assert limit(smallest - 1) == smallest
    assert limit(4) == smallest


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("lines", [LINES[:7], LINES], ids=["little", "more"])
@pytest.mark.parametrize("fallback", [True, False])
def test_tokenizers_size_is_lowered_to_the_maximum_of_the_text(kind, lines, fallback):
    lowered = trained(kind, 100_000, lines, byte_fallback=fallback)
    assert trained(kind, lowered.size, lines, byte_fallback=fallback).digest == lowered.digest
    assert trained(kind, lowered.size + 1, lines, byte_fallback=fallback).digest == lowered.digest
    asked = TokenizerSettings(kind=kind, size=100_000)
    (line,) = lowered_sizes(asked, {"source": lowered})
    assert line.startswith(f"tokenizer.source.size: lowered from 100,000 to {lowered.size:,}, ")
    assert not list(lowered_sizes(asked.model_copy(update={"size": lowered.size}), {"source": lowered}))


def test_tokenizers_size_of_char_and_word_is_a_limit():
    assert trained("char", 100_000).size == 4 + len(set("".join(LINES)))
    assert trained("word", 100_000).size == 4 + len({word for line in LINES for word in line.split()})
    for kind in ("char", "word"):
        assert trained(kind, 9).size == 9
        assert trained(kind, 5).size == 5
        with pytest.raises(UserError, match=r"source\.size: 4 tokens are too few(.|\n)*source\.size=5"):
            trained(kind, 4)


@pytest.mark.parametrize("kind", ["unigram", "bpe", "char", "word"])
def test_tokenizers_nothing_to_learn_from_is_said_so(kind):
    with pytest.raises(UserError, match=r"data\.train: there is no text to train a tokenizer on \(target\)"):
        train(["", " \t "], TokenizerSettings(kind=kind), "target")


def test_tokenizers_training_again_in_another_process_gives_the_same_bytes():
    code = (
        "import sys, json; from s2s.data.tokenizers import train; from s2s.recipe.schema import TokenizerSettings\n"
        "lines = json.load(sys.stdin)\n"
        "for kind in ('unigram', 'bpe', 'char', 'word'):\n"
        "    print(train(lines, TokenizerSettings(kind=kind, size=300), 'source').digest)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(LINES), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [trained(kind).digest for kind in ("unigram", "bpe", "char", "word")]


def test_tokenizers_shared_vocabulary_is_one_object_that_knows_both_sides():
    german = [line.replace("The", "Das").replace("saw", "sah") for line in LINES]
    source, target = train_pair(LINES, german, TokenizerSettings(kind="word", size=900))
    assert source is target
    assert UNK not in source.encode("The Das saw sah")
    source, target = train_pair(LINES, german, TokenizerSettings(kind="word", size=900, shared=False))
    assert UNK not in source.encode("The saw") + target.encode("Das sah")
    assert UNK in source.encode("The Das")
    assert UNK in target.encode("The Das")


@pytest.mark.parametrize("kind", KINDS)
def test_loaded_tokenizer_is_the_saved_one(made, kind, tmp_path):
    tokenizer = made[kind, "nfkc", True]
    tokenizer.save(tmp_path, "source")
    loaded = Tokenizer.load(tmp_path, "source")
    texts = [*LINES[:20], "Zürich\u00a0日本"]
    assert loaded.encode_batch(texts) == tokenizer.encode_batch(texts)
    assert (loaded.digest, loaded.size, loaded.kind) == (tokenizer.digest, tokenizer.size, kind)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["source.json", "source.model"]


def test_tokenizers_that_cut_differently_have_different_digests(made):
    digests = [tokenizer.digest for tokenizer in made.values()]
    assert len(set(digests)) == len(digests)
    assert all(len(digest) == hashlib.sha256().digest_size * 2 for digest in digests)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("source.model", b"identity", b"nfkc_cf.", "has changed since it was saved"),
        ("source.json", b'"lowercase": false', b'"lowercase": true', "has changed since it was saved"),
        ("source.json", b'"kind"', b'"sort"', r"source\.json: kind: field required"),
        ("source.json", b"{", b"", r"source\.json:2: not JSON: "),
        ("source.json", None, None, r"source\.json: there is no such file"),
        ("source.model", None, None, r"source\.model: there is no such file"),
    ],
)
def test_tokenizers_changed_or_missing_file_is_refused(made, tmp_path, file, old, new, message):
    made["bpe", "nfkc", False].save(tmp_path, "source")
    path = tmp_path / file
    if old is None:
        path.unlink()
    else:
        content = path.read_bytes()
        assert old in content
        path.write_bytes(content.replace(old, new, 1))
    with pytest.raises(UserError, match=message + r"(.|\n)*→ copy both files of the tokenizer again"):
        Tokenizer.load(tmp_path, "source")


@pytest.mark.parametrize("kind", COMPLETE)
@settings(max_examples=100, deadline=None)
@given(first=any_text, second=any_text)
def test_tokenizers_continuation_adds_no_space_of_its_own(made, kind, first, second):
    tokenizer = made[kind, "identity", False]
    assert (
        tokenizer.decode([*tokenizer.encode(first or "a"), *tokenizer.encode_continuation(second)])
        == (first or "a") + second
    )


@pytest.mark.parametrize("kind", KINDS)
def test_tokenizers_mask_piece_is_no_piece_of_any_text(made, kind):
    tokenizer = made[kind, "identity", False]
    assert tokenizer.mask == tokenizer.size
    assert max(max(tokenizer.encode(line)) for line in LINES) < tokenizer.mask


@pytest.mark.parametrize("model", [b"", b"nonsense", "specials"])
def test_tokenizers_forged_model_is_refused_though_its_digest_is_right(made, tmp_path, model):
    tokenizer = made["unigram", "nfkc", True]
    if model == "specials":
        written = io.BytesIO()
        lines = iter(["hello world a b c"] * 20)
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines, model_writer=written, vocab_size=20, hard_vocab_limit=False, minloglevel=2
        )
        model = written.getvalue()
    tokenizer.save(tmp_path, "shared")
    described = json.loads((tmp_path / "shared.json").read_text())
    settings = {key: described[key] for key in ("kind", "normalization", "lowercase")}
    (tmp_path / "shared.model").write_bytes(model)
    (tmp_path / "shared.json").write_text(json.dumps(described | {"digest": _digest(model, settings)}))
    with pytest.raises(UserError, match=r"shared.model and shared.json are not a tokenizer: (.|\n)*copy"):
        Tokenizer.load(tmp_path, "shared")


def _digest(model: bytes, settings: dict) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode() + b"\n" + model).hexdigest()


@pytest.mark.parametrize("changes", [{"kind": "foo"}, {"normalization": 5}, {"lowercase": "yes"}])
def test_settings_that_no_recipe_can_have_are_no_tokenizers(made, tmp_path, changes):
    tokenizer = made["unigram", "nfkc", True]
    tokenizer.save(tmp_path, "shared")
    described = json.loads((tmp_path / "shared.json").read_text()) | changes
    settings = {key: described[key] for key in ("kind", "normalization", "lowercase")}
    digest = _digest((tmp_path / "shared.model").read_bytes(), settings)
    (tmp_path / "shared.json").write_text(json.dumps(described | {"digest": digest}))
    with pytest.raises(UserError, match=r"are not a tokenizer|shared\.json: (normalization|lowercase): input should"):
        Tokenizer.load(tmp_path, "shared")


def test_tokenizer_training_without_threads_is_an_error(monkeypatch):
    def start(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(UserError, match=r"16 threads(.|\n)*ulimit"):
        train(["a line", "another line"], TokenizerSettings(kind="char", size=20), "shared")


@pytest.mark.parametrize("digest", [5, None, ["x"]])
def test_tokenizers_digest_that_is_no_text_is_no_digest(made, tmp_path, digest):
    made["bytes", "nfkc", False].save(tmp_path, "shared")
    described = json.loads((tmp_path / "shared.json").read_text())
    (tmp_path / "shared.json").write_text(json.dumps(described | {"digest": digest}))
    with pytest.raises(UserError, match=r"shared\.json: digest: input should be a valid string"):
        Tokenizer.load(tmp_path, "shared")
