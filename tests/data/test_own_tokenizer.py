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


def test_own_json_tokenizer_gives_its_own_tokens(theirs, tmp_path):
    tokenizer = train([], PieceSettings(model=str(tmp_path / "own.json")), "shared")
    tokenizer.save(tmp_path, "shared")
    for each in (tokenizer, Tokenizer.load(tmp_path, "shared")):
        for text in [*TEXTS[:40], "① ﬁne   spaces", "Ωmega"]:
            found = theirs.encode(text, add_special_tokens=False)
            names = [theirs.id_to_token(i).replace("[UNK]", "<unk>") for i in found.ids]
            tokens = each.encode(text)
            assert each.tokens(tokens) == names
            if UNK not in tokens:
                assert each.decode(tokens) == theirs.decode(found.ids).strip()
    assert tokenizer.decode([UNK]) == "⁇"
    special = [each for each in theirs.get_added_tokens_decoder().values() if each.special]
    has_unknown = theirs.token_to_id("<unk>") is not None and not any(each.content == "<unk>" for each in special)
    assert tokenizer.size == theirs.get_vocab_size() - len(special) - has_unknown + len(SPECIAL_TOKENS)


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
    for name, message in (
        ("none.model", "there is no such file"),
        ("text.model", "is not a SentencePiece model"),
        ("none.json", "there is no such file"),
        ("text.json", "is no tokenizer: expected"),
    ):
        with pytest.raises(UserError, match=f"tokenizer.model: .*{name}: {message}"):
            train([], PieceSettings(model=str(tmp_path / name)), "shared")
    (tmp_path / "a.yaml").write_text("name: a\nmodel: {kind: transformer}\n")
    with pytest.raises(UserError, match="kind is bpe, but model names a trained tokenizer"):
        read(tmp_path / "a.yaml", ["tokenizer.kind=bpe", "tokenizer.model=own.model"])
