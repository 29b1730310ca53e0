"""Subword regularization compared with its formula, and as a function of seed and example."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import sentencepiece
from click.testing import CliRunner
from datasets import Dataset
from scipy.stats import chisquare

from s2s.cli.main import commands
from s2s.data.batches import ParallelDataset
from s2s.data.mixing import FixedPairs
from s2s.data.phrasebook import phrases
from s2s.data.tokenized import SampledDataset, TokenizedDataset
from s2s.data.tokenizers import _escape, train
from s2s.errors import UserError
from s2s.recipe.pairs import BatchSettings
from s2s.recipe.schema import PieceSettings, SubwordSampling
from s2s.run.tasks import read

TEXTS = [phrase.source for phrase in phrases("train", 120, seed=5)]


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def tokenizer(request):
    return train(TEXTS, PieceSettings(kind=request.param, size=350), "source")


def _sampled(tokenizer, alpha: float = 0.3, max_length: int = 200) -> SampledDataset:
    rows = tokenizer.encode_batch(TEXTS)
    corpus = Dataset.from_dict({"source": TEXTS, "target": TEXTS[::-1]})
    data = TokenizedDataset.from_rows(rows, rows[::-1])
    return SampledDataset(data, corpus, (tokenizer, tokenizer), SubwordSampling(alpha=alpha), max_length)


def test_sampled_tokens_are_the_same_text(tokenizer):
    different = 0
    for seed, text in enumerate(TEXTS):
        found = tokenizer.sample(text, 0.2, -1, seed)
        assert tokenizer.decode(found) == tokenizer.normalize(text)
        assert found == tokenizer.sample(text, 0.2, -1, seed)
        different += found != tokenizer.encode(text)
    assert different > len(TEXTS) / 2


@pytest.mark.parametrize("nbest", [3, 8])
def test_unigram_sampling_frequencies_are_powers_of_the_probabilities(nbest):
    tokenizer = train(TEXTS, PieceSettings(kind="unigram", size=350), "source")
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer._model)
    text, alpha, draws = "house", 0.4, 4000
    rows = [tuple(row) for row in processor.nbest_encode(_escape(text), nbest_size=nbest)]
    scores = np.array([sum(processor.get_score(token) for token in row) for row in rows])
    shares = np.exp(alpha * scores) / np.exp(alpha * scores).sum()
    found = [tuple(tokenizer.sample(text, alpha, nbest, seed)) for seed in range(draws)]
    assert set(found) == set(rows)
    assert chisquare([found.count(row) for row in rows], draws * shares).pvalue > 0.001


def test_bpe_dropout_of_almost_nothing_and_almost_everything():
    tokenizer = train(TEXTS, PieceSettings(kind="bpe", size=350), "source")
    for seed, text in enumerate(TEXTS[:20]):
        assert tokenizer.sample(text, 1e-9, -1, seed) == tokenizer.encode(text)
        letters = len(tokenizer.normalize(text)) + 1  # and the space before the text
        assert len(tokenizer.sample(text, 1 - 1e-7, -1, seed)) == letters


def test_sampled_pairs_depend_on_seed_and_row_and_not_on_batch_or_thread(tokenizer):
    data, rows = _sampled(tokenizer), np.arange(len(TEXTS))
    whole = data.draw(rows, 7)
    order = np.random.default_rng(1).permutation(rows)
    with ThreadPoolExecutor(3) as threads:
        parts = [order[first : first + 9] for first in range(0, len(order), 9)]
        found = list(threads.map(lambda part: FixedPairs(data).draw(part, 7), parts))
    for part, sides in zip(parts, found, strict=True):
        for side in (0, 1):
            for row, tokens in zip(part.tolist(), sides[side], strict=True):
                assert tokens.tolist() == whole[side][row].tolist()
    other = data.draw(rows, 8)
    assert sum(a.tolist() != b.tolist() for a, b in zip(whole[0], other[0], strict=True)) > len(TEXTS) / 2
    # Equal texts of the two sides are drawn independently.
    assert any(a.tolist() != b.tolist() for a, b in zip(whole[0], whole[1][::-1], strict=True))


def test_sampled_batches_stay_within_the_limit_and_have_deterministic_lengths(tokenizer):
    longest = max(map(len, tokenizer.encode_batch(TEXTS))) + 1
    plain, sampled = (
        ParallelDataset(data, BatchSettings(tokens=600, max_length=longest))
        for data in (TokenizedDataset(*_parts(tokenizer)), _sampled(tokenizer, max_length=longest))
    )
    for one, other in zip(plain.make_batches(1, 2), sampled.make_batches(1, 2), strict=True):
        assert one.tolist() == other.tolist()
        assert sampled.collate(other, 3).source.shape[1] <= longest
        batch = plain.collate(one, 3)
        assert batch.source.equal(plain.collate(one, 4).source)


def _parts(tokenizer):
    rows = TokenizedDataset.from_rows(tokenizer.encode_batch(TEXTS), tokenizer.encode_batch(TEXTS[::-1]))
    return rows._sources, rows._targets


RECIPE = """
name: sampled
data: {train: 80, validation: 4, test: null}
tokenizer: {size: 400, sampling: {alpha: 0.2}}
batches: {tokens: 300}
model: {kind: transformer, width: 16, heads: 2, feedforward: 32, encoder_layers: 1, decoder_layers: 1}
training: {updates: 12, warmup: 4}
validation: {every: 6, metric: loss, sentences: 1}
decoding: {beam: 1, max_ratio: 0.1, max_extra: 1}
"""


def _losses(run) -> list[float]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if "loss" in line]


@pytest.mark.slow
def test_training_with_sampled_tokens_resumes_to_the_bits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sampled.yaml").write_text(RECIPE)
    for words in (
        ["sampled.yaml", "run.dir=straight"],
        ["sampled.yaml", "run.dir=two", "training.updates=7"],
        ["two", "--resume", "training.updates=12"],
        ["sampled.yaml", "run.dir=plain", "tokenizer.sampling=null"],
    ):
        assert CliRunner().invoke(commands, ["train", *words], standalone_mode=False).exception is None
    straight, two, plain = (_losses(tmp_path / name) for name in ("straight", "two", "plain"))
    assert len(straight) == 12
    assert two == straight
    assert plain != straight


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tokenizer.kind=char", "tokenizer.sampling.alpha=0.1"], "sampling has no effect on kind char"),
        (["tokenizer.kind=bpe", "tokenizer.sampling.nbest=4"], "sampling.nbest has no effect on kind bpe"),
        (["tokenizer.kind=bpe", "tokenizer.sampling.alpha=2"], "sampling.alpha is 2.0, a share of merges"),
        (["tokenizer.sampling.nbest=1"], "tokenizer.sampling.nbest"),
    ],
)
def test_subword_sampling_that_cannot_be_is_refused(tmp_path, words, message):
    (tmp_path / "a.yaml").write_text("name: a\nmodel: {kind: transformer}\n")
    with pytest.raises(UserError, match=message):
        read(tmp_path / "a.yaml", words)
