"""Scores from counts are those of the texts, and resampling finds what was planted."""

import random

import numpy as np
import pytest

from s2s.comparison.translation import corpus_score, counts_of, resampled_scores
from s2s.evaluation.inference import RESAMPLES, draws, estimate, ratios, slopes
from s2s.evaluation.metrics import score


def _texts(share, seed):
    """References, and translations with that share of wrong words."""
    chosen = random.Random(seed)
    words = [f"w{i}" for i in range(30)]
    references = [" ".join(chosen.choices(words, k=chosen.randint(4, 12))) for _ in range(60)]
    wrong = random.Random(100 + seed)
    texts = [" ".join("x" if wrong.random() < share else word for word in text.split()) for text in references]
    return references, texts


def test_scores_are_those_of_the_texts():
    references, texts = _texts(0.3, 2)
    found = [corpus_score(metric, np.array(counts_of(metric, texts, references))) for metric in ("bleu", "chrf")]
    quick = score(texts, references)
    assert found == pytest.approx([quick["bleu"], quick["chrf"]])
    rows = np.stack([np.ones(len(texts), int), np.arange(len(texts)) < 10])
    drawn = resampled_scores("bleu", np.array(counts_of("bleu", texts, references)), rows)
    assert drawn == pytest.approx([found[0], score(texts[:10], references[:10])["bleu"]])


def test_slopes_recover_a_planted_one():
    generator = np.random.default_rng(3)
    x = generator.integers(3, 30, 300).astype(float)
    exact = slopes(x, 50 - 1.5 * x, draws(300))
    assert exact == pytest.approx(np.full(RESAMPLES, -1.5))
    found = estimate(-1.5, slopes(x, 50 - 1.5 * x + generator.normal(0, 10, 300), draws(300)))
    assert found.low < -1.5 < found.high
    one = np.ones((1, 300), dtype=int)
    noisy = generator.normal(0, 10, 300)
    assert slopes(x, noisy, one)[0] == pytest.approx(np.polyfit(x, noisy, 1)[0])
    assert (slopes(np.full(10, 4.0), np.arange(10.0), draws(10)) == 0).all()


def test_ratios_are_of_sums():
    parts, wholes = np.array([1.0, 10.0]), np.array([1, 5])
    assert ratios(parts, wholes, np.array([[1, 1], [2, 0]])).tolist() == [11 / 6, 1.0]


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_counts_without_regard_to_case_come_to_that_score(metric):
    references = ["The old Dog saw a Cat .", "Anna reads the Book today ."]
    small = [text.lower() for text in references]
    found = [corpus_score(metric, np.array(counts_of(metric, small, references, case))) for case in (True, False)]
    assert found == pytest.approx([score(small, references, case)[metric] for case in (True, False)])
    assert found[1] < 60 < found[0]
    assert found[0] == pytest.approx(100)
