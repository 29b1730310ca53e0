"""The SentencePiece files of an export encode and decode as the tokenizers of s2s."""

import io
import json
import random
import sys

import pytest
import sentencepiece
import tokenizers

from s2s.data.phrasebook import phrases
from s2s.data.published import pack_sentencepiece, pack_wordpiece
from s2s.data.tokenizers import UNK, Tokenizer, train
from s2s.export.sentencepiece import sentencepiece_files, vocabulary
from s2s.recipe.schema import PieceSettings

LINES = [text for phrase in phrases("train", 300, seed=5) for text in (phrase.source, phrase.target)]
# White space, characters that s2s escapes, composed and decomposed ones, and names of special tokens
TEXTS = ["", " ", "  ", "   a", "a ", "a  b ", " a  b  ", "\n", "a\nb\r\n", "\t a\tb", "\u2028", "x\u00a0y", "\u3000"]
TEXTS += [
    "▁",
    "a▁b",
    "▅x",
    "\ufdd0",
    "\ufdd1\ufdd2",
    "\ufdd0\ufdd3",
    "<s> </s> <unk> <0x41>",
    "⁇",
    "a\u200bb",
    "😀日本語",
]
TEXTS += ["ﬁ ① ½ Å A\u030a e\u0301 \u1112\u1161\u11ab", "â\u0301", "¨ ´a", "ß ẞ İ ǅ", "THE Small DOG"]


@pytest.fixture(scope="module")
def texts():
    chance = random.Random(1)
    few = "ab cde  éß▁\n①日😀ﬁ .,ThoÉ"
    found = ["".join(chance.choice(few) for _ in range(chance.randrange(12))) for _ in range(1000)]
    # one of any script in each; combining marks after compatibility characters are the exception of docs/export.md
    some = [chr(chance.choice([*range(1, 0xD800, 7), *range(0xE000, sys.maxunicode, 97)])) for _ in range(1000)]
    return [*LINES, *TEXTS, *found, *(f"a {character} b" for character in some)]


def _standalone(tokenizer: Tokenizer) -> sentencepiece.SentencePieceProcessor:
    files = sentencepiece_files([tokenizer])
    assert files["source.spm"] == files["target.spm"]
    return sentencepiece.SentencePieceProcessor(model_proto=files["source.spm"])


@pytest.mark.parametrize("kind", ["unigram", "bpe", "char", "bytes"])
@pytest.mark.parametrize(("normalization", "lowercase"), [("nfkc", False), ("nfkc", True), ("identity", False)])
def test_sentencepiece_file_encodes_and_decodes_like_the_tokenizer(kind, normalization, lowercase, texts):
    settings = PieceSettings(kind=kind, size=400, normalization=normalization, lowercase=lowercase)
    tokenizer = train(LINES, settings, "source")
    alone = _standalone(tokenizer)
    ours = [tokenizer.encode(text) for text in texts]
    assert [text for text, row in zip(texts, ours, strict=True) if alone.encode(text) != row] == []
    assert [text for text, row in zip(texts, ours, strict=True) if alone.decode(row) != tokenizer.decode(row)] == []
    # Bytes that are no text are shown in another way.
    pool = [token for token in range(UNK, tokenizer.size) if not alone.is_byte(token)]
    chance = random.Random(1)
    for row in ([chance.choice(pool) for _ in range(9)] for _ in range(1000)):
        text = tokenizer.decode(row)
        assert alone.decode(row) == (text.lstrip(" ") if normalization == "nfkc" else text)
    assert [alone.id_to_piece(token) for token in range(tokenizer.size)] == vocabulary(tokenizer)


def test_sentencepiece_file_of_words_encodes_each_word_by_itself(texts):
    tokenizer = train(LINES, PieceSettings(kind="word", size=100), "source")
    alone = _standalone(tokenizer)
    for text in texts:
        row = [token for word in text.split() for token in alone.encode(word)]
        assert row == tokenizer.encode(text), text
        assert alone.decode(row).strip() == tokenizer.decode(row), text


@pytest.fixture(scope="module")
def own_model(tmp_path_factory):
    """A SentencePiece model of a user, with its normalization and other ids."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=model, vocab_size=300, hard_vocab_limit=False, minloglevel=2
    )
    path = tmp_path_factory.mktemp("own") / "own.model"
    path.write_bytes(model.getvalue())
    return path


def test_sentencepiece_file_of_a_users_model_has_the_ids_of_the_tokenizer(own_model, texts):
    tokenizer = train(LINES, PieceSettings(model=str(own_model)), "source")
    alone = _standalone(tokenizer)
    for text in texts:
        row = tokenizer.encode(text)
        assert alone.encode(text) == row, text
        assert alone.decode(row).strip() == tokenizer.decode(row), text


def test_sentencepiece_file_gives_pieces_that_the_network_does_not_know_ids_after_all_others(own_model):
    names = json.loads(train(LINES, PieceSettings(model=str(own_model)), "source").model)["pieces"]
    packed = pack_sentencepiece([*names[:100], "only here"], own_model.read_bytes())
    tokenizer = Tokenizer(packed, "published", "identity", lowercase=False)
    alone = _standalone(tokenizer)
    rows = [[(token, UNK)[token >= tokenizer.size] for token in alone.encode(text)] for text in LINES]
    assert rows == [tokenizer.encode(text) for text in LINES]
    assert any(UNK in row for row in rows)
    assert vocabulary(tokenizer)[-2:] == [names[99], "only here"]


def test_sentencepiece_file_is_not_written_for_tokenizers_that_sentencepiece_does_not_have(own_model, tmp_path):
    words = Tokenizer(
        pack_wordpiece(["play", "##ing", "##▁play"], True, True, True), "published", "identity", lowercase=False
    )
    lowered = train(LINES, PieceSettings(model=str(own_model), lowercase=True), "source")
    assert sentencepiece_files([words]) == sentencepiece_files([lowered]) == sentencepiece_files([]) == {}
    library = tokenizers.ByteLevelBPETokenizer()
    library.train_from_iterator(LINES, vocab_size=300)
    library.save(str(tmp_path / "own.json"))
    own = train(LINES, PieceSettings(model=str(tmp_path / "own.json")), "source")
    assert sentencepiece_files([own]) == {}
    assert len({*vocabulary(own)}) == own.size
    assert vocabulary(words) == ["<pad>", "<s>", "</s>", "<unk>", "▁play", "ing", "▁play#6"]
