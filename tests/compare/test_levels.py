"""Calibration of the tests of the bottleneck and transfer questions under the null hypothesis.

Models of one and the same distribution are called different in 5 of 100 cases. The general ones are in
`tests/evaluation/test_null.py`.
"""

import sys
from functools import partial

import numpy as np
import pytest
from scipy.linalg import block_diag

from s2s.comparison.longer_texts import kept_share
from s2s.comparison.questions.transfer.analyse import Arm, Pretraining, TransferRun, gain_of
from s2s.comparison.translation import joined_texts
from s2s.evaluation.differences import over_seeds_and_sentences
from s2s.evaluation.inference import draws
from s2s.evaluation.metrics import metrics, scores_of

LEVEL = 0.05
SENTENCES = 60
RESAMPLES = 100
TOGETHER = (1, 2, 3)


def _bleu(_, sums):
    """As sacreBLEU, for texts in which some word is right, and all rows at once."""
    written, wanted, right, whole = sums[:, 0], sums[:, 1], sums[:, 2:6], sums[:, 6:10]
    shares = np.where(right > 0, right, 0.5 ** np.cumsum(right == 0, axis=1)) / whole
    return 100 * np.exp(np.minimum(0, 1 - wanted / written) + np.log(shares).mean(axis=1))


@pytest.fixture
def quick(monkeypatch):
    """Simulations take thousands of BLEUs at once."""
    monkeypatch.setattr(sys.modules[kept_share.__module__], "scores_of", _bleu)


def test_the_quick_bleu_is_sacrebleus():
    chance = np.random.default_rng(0)
    right = np.sort(chance.integers(0, 9, (200, 4)), axis=1)[:, ::-1]
    right[:, 0] += 1
    rows = np.hstack([chance.integers(5, 40, (200, 2)), right, right + chance.integers(1, 9, (200, 4))])
    assert (right == 0).any(axis=1).sum() > 20
    assert _bleu(None, rows.astype(float)) == pytest.approx(scores_of(metrics()["bleu"], rows))


def _counted(chance, words, logits):
    """What BLEU counts in texts of so many words, each of which is right with the text's own probability."""
    right = chance.random((len(words), words.max())) < 1 / (1 + np.exp(-logits[:, None]))
    right &= np.arange(words.max()) < words[:, None]
    run, hits = right, [right.sum(axis=1)]
    for n in range(1, 4):
        run = run[:, :-1] & right[:, n:]
        hits.append(run.sum(axis=1))
    whole = [np.maximum(words - n, 0) for n in range(4)]
    return np.stack([words, words, *hits, *whole], axis=1).astype(float)


def _kept_p(chance, rows, drawn, by_seed, by_sentence):
    """The p-value of two models of one distribution: five seeds each, on texts joined of the same sentences."""
    words, hard = chance.integers(5, 13, SENTENCES), chance.normal(0, 1, SENTENCES)
    systems = []
    for _ in range(2):
        # what a system is good at, and, for each seed, what it can do and what it loses with length
        own, runs = hard + chance.normal(0, by_sentence, SENTENCES), []
        for level, slope in chance.normal(0, by_seed, (5, 2)):
            good = own + chance.normal(0, 0.1, SENTENCES) + 2.5 + level / 2
            texts = [
                _counted(chance, words[each].sum(axis=1), good[each].mean(axis=1) + (slope - 0.5) * (k - 1))
                for k, each in zip(TOGETHER, rows, strict=True)
            ]
            runs.append(block_diag(*texts))
        systems.append(runs)
    return over_seeds_and_sentences(*systems, partial(kept_share, kinds=len(TOGETHER) - 1), drawn).p()


def _rejections(cases, by_seed, by_sentence):
    chance = np.random.default_rng(21)
    rows = [np.array(joined_texts(SENTENCES, k, SENTENCES)) for k in TOGETHER]
    drawn = np.hstack([draws(len(each), stream=1 + i)[:RESAMPLES] for i, each in enumerate(rows)]).astype(float)
    return 100 * np.mean([_kept_p(chance, rows, drawn, by_seed, by_sentence) <= LEVEL for _ in range(cases)])


@pytest.mark.slow
def test_what_is_kept_of_a_models_own_bleu(quick):
    assert 3.5 < _rejections(2_000, by_seed=0.5, by_sentence=0.5) < 6.5
    assert 3.5 < _rejections(2_000, by_seed=1.0, by_sentence=0.2) < 6.5


@pytest.mark.slow
def test_where_sentences_matter_most_what_is_kept_is_judged_with_caution(quick):
    # what a sentence is worth is nearly the same alone and in a text, but both are drawn as if they were others
    assert _rejections(500, by_seed=0.1, by_sentence=1.5) < 5.0


def _run(chance, words, own, by_seed, noise):
    """A run of three arms in which pretraining gains nothing."""
    shifts = {"scratch": 0.0, "unrelated": 0.0, "real": chance.normal(0, by_seed)}
    arms = {}
    for name, shift in shifts.items():
        losses = words * (2 + shift + (own if name == "real" else 0) + chance.normal(0, noise, len(words)))
        arms[name] = Arm([], 0, {}, losses, [], 0.0, Pretraining())
    return TransferRun(10, 0, words, 0.0, arms)


@pytest.mark.parametrize("spreads", [(0.1, 0.1), (0.1, 1.0), (0.02, 1.0)], ids=["seeds", "both", "sentences"])
def test_a_gain_over_three_seeds(monkeypatch, spreads):
    by_seed, by_sentence = spreads
    fewer = draws(SENTENCES)[:RESAMPLES].astype(float)
    monkeypatch.setattr(sys.modules[gain_of.__module__], "draws", lambda count: fewer)
    chance, found = np.random.default_rng(22), []
    for _ in range(1_500):
        # some sentences gain, others lose, whatever the seed
        words, own = chance.integers(5, 13, SENTENCES), chance.normal(0, by_sentence, SENTENCES)
        gain = gain_of({seed: _run(chance, words, own, by_seed, 0.3) for seed in (1, 2, 3)})
        found.append(gain.over["scratch"].p())
    assert 3.5 < 100 * np.mean(np.array(found) <= LEVEL) < 6.5
