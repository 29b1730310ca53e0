"""A SentencePiece model of the user, compared with SentencePiece itself."""

import io
from pathlib import Path

import pytest
import sentencepiece
import tokenizers
from click.testing import CliRunner

import s2s
from s2s.cli.main import commands
from s2s.data.phrasebook import phrases
from s2s.data.tokenizers import SPECIAL_TOKENS, UNK, Tokenizer, train
from s2s.errors import UserError
from s2s.recipe.schema import PieceSettings
from s2s.run.tasks import read

TEXTS = [text for phrase in phrases("train", 80, seed=5) for text in (phrase.source, phrase.target)]


@pytest.fixture(params=[{}, {"byte_fallback": True}, {"model_type": "bpe", "pad_id": 3}], ids=str)
def file(request, tmp_path) -> Path:
    """A model as SentencePiece's own command trains it: with its ids, normalization and special tokens."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=written, vocab_size=400, minloglevel=2, **request.param
    )
    (tmp_path / "own.model").write_bytes(written.getvalue())
    return tmp_path / "own.model"


def test_own_sentencepiece_model_gives_its_own_tokens(file, tmp_path):
    tokenizer = train([], PieceSettings(model=str(file)), "shared")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(file))
    tokenizer.save(tmp_path, "shared")
    for each in (tokenizer, Tokenizer.load(tmp_path, "shared")):
        for text in [*TEXTS[:40], "① ﬁne   spaces", "Ωmega"]:
            tokens = each.encode(text)
            names = ["<unk>" if processor.is_unknown(i) else processor.id_to_piece(i) for i in processor.encode(text)]
            assert each.tokens(tokens) == names
            if UNK not in tokens:
                assert each.decode(tokens) == processor.decode(processor.encode(text))
    special = sum(processor.is_control(i) or processor.is_unknown(i) for i in range(400))
    assert tokenizer.size == 400 - special + len(SPECIAL_TOKENS)


@pytest.fixture(params=["bytes", "wordpiece", "unigram"])
def theirs(request, tmp_path) -> tokenizers.Tokenizer:
    """A Hugging Face tokenizer with special tokens of its own, saved as `own.json`."""
    if request.param == "bytes":
        made = tokenizers.ByteLevelBPETokenizer()
        made.train_from_iterator(TEXTS, vocab_size=400, special_tokens=["<s>", "<mask>"])
    elif request.param == "wordpiece":
        made = tokenizers.BertWordPieceTokenizer(lowercase=False)
        made.train_from_iterator(TEXTS, vocab_size=300)
    else:
        made = tokenizers.SentencePieceUnigramTokenizer()
        made.train_from_iterator(TEXTS, vocab_size=300, special_tokens=["<unk>", "</s>"], unk_token="<unk>")
    made.save(str(tmp_path / "own.json"))
    return tokenizers.Tokenizer.from_file(str(tmp_path / "own.json"))


def _shown(theirs: tokenizers.Tokenizer, token: int) -> str:
    name = theirs.id_to_token(token)
    if isinstance(theirs.model, tokenizers.models.WordPiece):
        return "<unk>" if name == "[UNK]" else name[2:] if name.startswith("##") and name != "##" else f"▁{name}"
    if not isinstance(theirs.decoder, tokenizers.decoders.ByteLevel):
        return name
    # the table of GPT-2: bytes without a character of their own are shifted by 256
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}
    try:
        return bytes(table[c] for c in name).decode().replace(" ", "▁")
    except UnicodeDecodeError:
        return name


def test_own_json_tokenizer_gives_its_own_tokens(theirs, tmp_path):
    tokenizer = train([], PieceSettings(model=str(tmp_path / "own.json")), "shared")
    tokenizer.save(tmp_path, "shared")
    for each in (tokenizer, Tokenizer.load(tmp_path, "shared")):
        for text in [*TEXTS[:40], "① ﬁne   spaces", "Ωmega"]:
            found = theirs.encode(text, add_special_tokens=False)
            names = [_shown(theirs, i) for i in found.ids]
            tokens = each.encode(text)
            assert each.tokens(tokens) == names
            if UNK not in tokens:
                assert each.decode(tokens) == theirs.decode(found.ids).strip()
    assert tokenizer.decode([UNK]) == "⁇"
    special = [each for each in theirs.get_added_tokens_decoder().values() if each.special]
    has_unknown = theirs.token_to_id("<unk>") is not None and not any(each.content == "<unk>" for each in special)
    assert tokenizer.size == theirs.get_vocab_size() - len(special) - has_unknown + len(SPECIAL_TOKENS)


def _check_continuation(tokenizer: Tokenizer, text: str) -> None:
    """Tokens of a text in two parts are those of the whole text where no token joins the parts."""
    assert tokenizer.decode([*tokenizer.encode(text), *tokenizer.encode_continuation(".")]) == f"{text}."
    assert tokenizer.tokens(tokenizer.encode_continuation(".")) == ["."]
    word = text.split()[-1]
    for cut in range(1, len(word)):
        parts = [*tokenizer.encode(word[:cut]), *tokenizer.encode_continuation(word[cut:])]
        assert tokenizer.decode(parts) == word
        assert "▁" not in "".join(tokenizer.tokens(tokenizer.encode_continuation(word[cut:])))


def test_own_sentencepiece_model_continues_a_word_without_a_space(file):
    _check_continuation(train([], PieceSettings(model=str(file)), "shared"), "Der Hund")


@pytest.mark.parametrize("kind", ["metaspace", "prepend", "bytes"])
def test_own_json_tokenizer_continues_a_word_without_a_space(kind, tmp_path):
    if kind == "bytes":
        made = tokenizers.ByteLevelBPETokenizer(add_prefix_space=True)
        made.train_from_iterator(TEXTS, vocab_size=400)
    elif kind == "prepend":
        # as Llama's: a normalizer puts the space there
        made = tokenizers.Tokenizer(tokenizers.models.Unigram())
        made.normalizer = tokenizers.normalizers.Sequence(
            [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
        )
        made.decoder = tokenizers.decoders.Sequence(
            [tokenizers.decoders.Replace("▁", " "), tokenizers.decoders.Fuse(), tokenizers.decoders.Strip(" ", 1, 0)]
        )
        made.train_from_iterator(TEXTS, tokenizers.trainers.UnigramTrainer(vocab_size=300, unk_token="<unk>"))
    else:
        made = tokenizers.SentencePieceUnigramTokenizer()
        made.train_from_iterator(TEXTS, vocab_size=300, special_tokens=["<unk>"], unk_token="<unk>")
    made.save(str(tmp_path / "own.json"))
    _check_continuation(train([], PieceSettings(model=str(tmp_path / "own.json")), "shared"), "Der Hund")


def test_own_wordpiece_in_json_continues_with_punctuation_only(tmp_path):
    made = tokenizers.BertWordPieceTokenizer(lowercase=False)
    made.train_from_iterator(TEXTS, vocab_size=300)
    made.save(str(tmp_path / "own.json"))
    tokenizer = train([], PieceSettings(model=str(tmp_path / "own.json")), "shared")
    assert tokenizer.encode_continuation(".") == tokenizer.encode(".")
    with pytest.raises(UserError, match="'e' would continue a word"):
        tokenizer.encode_continuation("e")


@pytest.mark.parametrize("lowercase", [False, True])
def test_own_tokenizers_tell_if_they_lowercase(lowercase, tmp_path):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_prefix=str(tmp_path / "own"),
        vocab_size=400,
        minloglevel=2,
        normalization_rule_name="nmt_nfkc_cf" if lowercase else "nmt_nfkc",
    )
    made = tokenizers.BertWordPieceTokenizer(lowercase=lowercase)
    made.train_from_iterator(TEXTS, vocab_size=300)
    made.save(str(tmp_path / "own.json"))
    for name in ("own.model", "own.json"):
        assert train([], PieceSettings(model=str(tmp_path / name)), "shared").writes_lowercase == lowercase


@pytest.mark.slow
def test_run_with_an_own_tokenizer_needs_its_file_no_more(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text(
        "name: own\n"
        "data: {train: 60, validation: 2, test: null}\n"
        "tokenizer: {model: own.model}\n"
        "model: {kind: transformer, width: 16, heads: 2, feedforward: 32, encoder_layers: 1, decoder_layers: 1}\n"
        "training: {updates: 2, warmup: 1}\n"
        "validation: {every: 2, metric: loss, sentences: 1}\n"
        "decoding: {beam: 1, max_ratio: 0.1, max_extra: 1}\n"
    )
    run = CliRunner().invoke(commands, ["train", "own.yaml"], standalone_mode=False, catch_exceptions=False)
    assert "vocabulary: " in run.output
    own = read(tmp_path / "runs/own/recipe.yaml").tokenizer
    assert (own.kind, own.normalization) == ("published", "identity")
    file.unlink()
    assert len(s2s.load("runs/own").candidates(["A dog runs."])) == 1
    CliRunner().invoke(
        commands, ["train", "runs/own", "--resume", "training.updates=3"], standalone_mode=False, catch_exceptions=False
    )


def test_own_tokenizer_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "text.model").write_text("not a model")
    (tmp_path / "text.json").write_text("not a model")
    (tmp_path / "empty.model").touch()
    for name, message in (
        ("none.model", "there is no such file"),
        ("text.model", "is not a SentencePiece model"),
        ("empty.model", "is not a SentencePiece model"),
        ("none.json", "there is no such file"),
        ("text.json", "is no tokenizer: expected"),
    ):
        with pytest.raises(UserError, match=f"tokenizer.model: .*{name}: {message}"):
            train([], PieceSettings(model=str(tmp_path / name)), "shared")
    (tmp_path / "a.yaml").write_text("name: a\nmodel: {kind: transformer}\n")
    with pytest.raises(UserError, match="kind is bpe, but model names a trained tokenizer"):
        read(tmp_path / "a.yaml", ["tokenizer.kind=bpe", "tokenizer.model=own.model"])
