"""Subword regularization compared with its formula, and as a function of seed, epoch and example."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from datasets import Dataset
from safetensors.torch import load_file
from scipy.stats import chisquare

from s2s.cli.main import commands
from s2s.data.batches import ParallelDataset
from s2s.data.dataset import shard_batches
from s2s.data.mixing import FixedPairs
from s2s.data.phrasebook import phrases
from s2s.data.subword_sampling import random_numbers
from s2s.data.tokenized import SampledDataset, TokenizedDataset
from s2s.data.tokenizers import UNK, Tokenizer, train
from s2s.errors import UserError
from s2s.recipe.pairs import BatchSettings
from s2s.recipe.schema import PieceSettings
from s2s.run.tasks import read

TEXTS = [phrase.source for phrase in phrases("train", 400, seed=5)]
# Prefix tokens, bytes of unknown characters, characters with a meaning for SentencePiece, and long or empty texts.
ODD = [
    "<2de> the house",
    "a<2fr>b<2de>",
    "日本語 Ω the",
    "a\u2581b \x00",
    "\ufdd0 x",
    "",
    "é🙂🙂 z",
    "x" * 300,
    "  a  b ",
]


def _train(kind: str, texts: list[str] = TEXTS, **settings) -> Tokenizer:
    size = 350 if texts is TEXTS else 24
    return train(texts, PieceSettings(kind=kind, size=size, **settings), "source", ["<2de>", "<2fr>"])


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def tokenizer(request):
    return _train(request.param)


def _draw(tokenizer: Tokenizer, rate: float, texts: list[str], seed: int = 1) -> list[list[int]]:
    sample = tokenizer.sampler(rate)
    assert sample is not None
    return [sample(text, random_numbers(seed, row)) for row, text in enumerate(texts)]


def _sampled(tokenizer, rate: float = 0.3, max_length: int = 200) -> SampledDataset:
    rows = tokenizer.encode_batch(TEXTS)
    corpus = Dataset.from_dict({"source": TEXTS, "target": TEXTS[::-1]})
    data = TokenizedDataset.from_rows(rows, rows[::-1])
    return SampledDataset(data, corpus, (tokenizer, tokenizer), rate, max_length)


@pytest.mark.parametrize("normalization", ["identity", "nfkc"])
@pytest.mark.parametrize("byte_fallback", [True, False])
@pytest.mark.parametrize(("kind", "rate"), [("unigram", 1e4), ("bpe", 0.0)])
def test_subword_sampling_without_randomness_is_the_tokenization_of_sentencepiece(
    kind, rate, byte_fallback, normalization
):
    tokenizer = _train(kind, byte_fallback=byte_fallback, normalization=normalization)
    texts = ODD + TEXTS
    expected = tokenizer.encode_batch(texts)
    assert _draw(tokenizer, rate, texts) == expected
    assert any(UNK in row for row in expected) == (not byte_fallback)


def test_sampled_tokens_are_the_same_text(tokenizer):
    texts = ODD + TEXTS
    found = _draw(tokenizer, 0.2, texts)
    assert [tokenizer.decode(row) for row in found] == list(map(tokenizer.normalize, texts))
    assert found == _draw(tokenizer, 0.2, texts)
    assert sum(map(list.__ne__, found, tokenizer.encode_batch(texts))) > len(texts) / 2
    # A prefix token is never split.
    assert tokenizer.tokens(found[0])[0] == "▁<2de>"


def _check_frequencies(tokenizer: Tokenizer, rate: float, word: str, shares: dict[tuple[str, ...], float]) -> None:
    """Compare 4,000 draws with the probability of each tokenization (chi-square test)."""
    draws = 4000
    processor = tokenizer._pieces._processor
    found = [tuple(map(processor.id_to_piece, row)) for row in _draw(tokenizer, rate, [word] * draws)]
    assert set(found) <= set(shares)
    assert sum(shares.values()) == pytest.approx(1)
    often = [row for row, share in shares.items() if share * draws > 5]
    observed, expected = [found.count(row) for row in often], [shares[row] * draws for row in often]
    if len(often) < len(shares):
        observed, expected = [*observed, draws - sum(observed)], [*expected, draws - sum(expected)]
    assert len(observed) > 3
    assert chisquare(observed, expected).pvalue > 0.001


def _scores(tokenizer: Tokenizer) -> dict[str, float]:
    processor = tokenizer._pieces._processor
    ids = range(UNK + 1, processor.get_piece_size())
    return {processor.id_to_piece(i): processor.get_score(i) for i in ids}


def _splits(word: str, pieces: dict[str, float]) -> list[tuple[str, ...]]:
    ends = [end for end in range(1, len(word) + 1) if word[:end] in pieces]
    return [(word[:end], *rest) for end in ends for rest in _splits(word[end:], pieces)] if word else [()]


@pytest.mark.parametrize("word", ["interesting", "congratulated"])
@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
def test_unigram_sampling_frequencies_are_powers_of_the_probabilities(alpha, word):
    tokenizer = _train("unigram")
    scores = _scores(tokenizer)
    weights = {row: np.exp(alpha * sum(map(scores.__getitem__, row))) for row in _splits("▁" + word, scores)}
    _check_frequencies(tokenizer, alpha, word, {row: one / sum(weights.values()) for row, one in weights.items()})


def _dropout_shares(pieces: tuple[str, ...], ranks: dict[str, float], dropout: float) -> dict[tuple[str, ...], float]:
    """Probability of each outcome of BPE-dropout, by enumerating which merges of each step are left out."""
    places = [place for place in range(len(pieces) - 1) if pieces[place] + pieces[place + 1] in ranks]
    found = {pieces: 1.0} if not places else {}
    for kept in range(2 ** len(places)) if places else ():
        left = [place for number, place in enumerate(places) if kept >> number & 1]
        share = (1 - dropout) ** len(left) * dropout ** (len(places) - len(left))
        if not left:
            found[pieces] = found.get(pieces, 0) + share
            continue
        best = min(left, key=lambda place: (ranks[pieces[place] + pieces[place + 1]], place))
        merged = (*pieces[:best], pieces[best] + pieces[best + 1], *pieces[best + 2 :])
        for outcome, rest in _dropout_shares(merged, ranks, dropout).items():
            found[outcome] = found.get(outcome, 0) + share * rest
    return found


@pytest.mark.parametrize("word", ["brother", "forgotten"])
@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_bpe_dropout_frequencies_are_those_of_the_algorithm(dropout, word):
    tokenizer = _train("bpe")
    ranks = {piece: -score for piece, score in _scores(tokenizer).items() if "<" not in piece}
    _check_frequencies(tokenizer, dropout, word, _dropout_shares(tuple("▁" + word), ranks, dropout))


def test_sampled_pairs_depend_on_seed_and_row_and_not_on_batch_thread_or_rank(tokenizer):
    data, rows = _sampled(tokenizer), np.arange(len(TEXTS))
    whole = data.draw(rows, 7)
    order = np.random.default_rng(1).permutation(rows)
    batches = [order[first : first + 9] for first in range(0, len(order), 9)]
    shares = [part for rank in range(2) for part in shard_batches(batches, rank, 2)]
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(lambda part: FixedPairs(_sampled(tokenizer)).draw(part, 7), shares))
    assert sorted(row for part in shares for row in part.tolist()) == rows.tolist()
    for part, sides in zip(shares, found, strict=True):
        for side in (0, 1):
            for row, tokens in zip(part.tolist(), sides[side], strict=True):
                assert tokens.tolist() == whole[side][row].tolist()
    other = data.draw(rows, 8)
    assert sum(a.tolist() != b.tolist() for a, b in zip(whole[0], other[0], strict=True)) > len(TEXTS) / 2
    # Equal texts of the two sides are drawn independently.
    assert any(a.tolist() != b.tolist() for a, b in zip(whole[0], whole[1][::-1], strict=True))


def test_sampled_batches_stay_within_the_limit_and_have_deterministic_lengths(tokenizer):
    rows = tokenizer.encode_batch(TEXTS)
    longest = max(map(len, rows)) + 1
    plain, sampled = (
        ParallelDataset(data, BatchSettings(tokens=600, max_length=longest))
        for data in (TokenizedDataset.from_rows(rows, rows[::-1]), _sampled(tokenizer, max_length=longest))
    )
    for one, other in zip(plain.make_batches(1, 2), sampled.make_batches(1, 2), strict=True):
        assert one.tolist() == other.tolist()
        assert sampled.collate(other, 3).source.shape[1] <= longest
        assert plain.collate(one, 3).source.equal(plain.collate(one, 4).source)


def test_sampled_side_of_another_kind_keeps_its_tokens(tokenizer):
    characters = train(TEXTS, PieceSettings(kind="char", size=100), "target")
    data = TokenizedDataset.from_rows(tokenizer.encode_batch(TEXTS), characters.encode_batch(TEXTS))
    corpus, rows = Dataset.from_dict({"source": TEXTS, "target": TEXTS}), np.arange(len(TEXTS))
    sources, targets = SampledDataset(data, corpus, (tokenizer, characters), 0.2, 200).draw(rows, 1)
    assert all(map(np.array_equal, targets, data.rows(rows)[1]))
    assert not all(map(np.array_equal, sources, data.rows(rows)[0]))
    with pytest.raises(UserError, match="a tokenizer of kind char has one tokenization of each text"):
        SampledDataset(data, corpus, (characters, characters), 0.2, 200)


RECIPE = """
name: sampled
data: {train: 80, validation: 4, test: null}
tokenizer: {size: 400, sampling: 0.2}
batches: {tokens: 300}
model: {kind: transformer, width: 16, heads: 2, feedforward: 32, encoder_layers: 1, decoder_layers: 1}
training: {updates: 24, warmup: 4}
validation: {every: 6, metric: loss, sentences: 1}
decoding: {beam: 1, max_ratio: 0.1, max_extra: 1}
"""


def _train_process(folder: Path, *words: str, ranks: int = 1) -> subprocess.Popen:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    environment = os.environ | {"PYTHONHASHSEED": "random", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *torchrun, "-m", "s2s", "train", *words, "device.precision=fp32", "device.threads=1"]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _finish(process: subprocess.Popen) -> None:
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors.decode()


def _losses(run: Path) -> list[float]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if "loss" in line]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "rate"), [("unigram", 0.2), ("bpe", 0.3)])
def test_killed_training_with_sampled_tokens_resumes_in_another_process_to_the_bits(tmp_path, kind, rate):
    (tmp_path / "sampled.yaml").write_text(RECIPE)
    plain = ["sampled.yaml", f"tokenizer.kind={kind}"]
    words = [*plain, f"tokenizer.sampling={rate}"]
    killed = _train_process(tmp_path, *words, "run.dir=killed", "run.save_minutes=0.0001")
    metrics, deadline = tmp_path / "killed/metrics.jsonl", time.monotonic() + 120
    while not metrics.exists() or metrics.read_bytes().count(b'"loss"') < 14:
        assert killed.poll() is None, killed.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.002)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert len(_losses(tmp_path / "killed")) < 24
    _finish(_train_process(tmp_path, "killed", "--resume"))
    _finish(_train_process(tmp_path, *words, "run.dir=straight"))
    _finish(_train_process(tmp_path, *plain, "run.dir=plain", "tokenizer.sampling=null"))
    straight, resumed, without = (_losses(tmp_path / name) for name in ("straight", "killed", "plain"))
    assert len(straight) == 24
    assert resumed == straight
    assert without != straight
    for file in ("model.safetensors", "training.safetensors"):
        one, two = (load_file(tmp_path / run / "checkpoints/0000024" / file) for run in ("straight", "killed"))
        assert one.keys() == two.keys()
        assert all(one[name].equal(two[name]) for name in one)


@pytest.mark.slow
def test_two_ranks_train_on_the_sampled_tokens_of_one(tmp_path):
    (tmp_path / "sampled.yaml").write_text(RECIPE)
    words = ["sampled.yaml", "model.dropout=0.0", "training.tokens_per_update=600"]
    _finish(_train_process(tmp_path, *words, "run.dir=one"))
    _finish(_train_process(tmp_path, *words, "run.dir=two", ranks=2))
    assert _losses(tmp_path / "two") == pytest.approx(_losses(tmp_path / "one"), rel=1e-4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tokenizer.kind=char", "tokenizer.sampling=0.1"], "sampling has no effect on kind char"),
        (["tokenizer.kind=bpe", "tokenizer.sampling=2"], "sampling is 2.0, a share of merges"),
        (["tokenizer.sampling=0"], "tokenizer.sampling"),
    ],
)
def test_subword_sampling_that_cannot_be_is_refused(tmp_path, words, message):
    (tmp_path / "a.yaml").write_text("name: a\nmodel: {kind: transformer}\n")
    with pytest.raises(UserError, match=message):
        read(tmp_path / "a.yaml", words)


def test_fine_tuning_samples_with_its_own_rate_from_the_tokenizer_of_the_other_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text(RECIPE)
    brief = ["training.updates=2", "validation.every=2", "training.warmup=1", "tokenizer.kind=bpe"]
    brief.append("device.precision=fp32")
    first = ["run.dir=first", "tokenizer.shared=false", "tokenizer.size=330"]
    other = ["init_from=first", "tokenizer.shared=false", "tokenizer.sampling=0.5"]
    # of the encoder alone, and with both vocabularies
    for words in (first, ["run.dir=second", *other], ["run.dir=third", *other, "init.parts=all"]):
        result = CliRunner().invoke(commands, ["train", "a.yaml", *brief, *words], standalone_mode=False)
        assert result.exception is None
    rates = [read(tmp_path / run / "recipe.yaml").tokenizer.sampling for run in ("first", "second", "third")]
    assert rates == [0.2, 0.5, 0.5]
