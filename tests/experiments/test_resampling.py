"""The fast bootstrap is sacreBLEU's, and finds what was planted."""

import random

import numpy as np
import pytest

from s2s.evaluation.metrics import metrics, score
from s2s.evaluation.significance import compare
from s2s.experiments.resampling import (
    RESAMPLES,
    chance,
    corpus_score,
    counts_of,
    draws,
    estimate,
    ratios,
    resampled_scores,
    sentence_scores,
    slopes,
)


def _texts(share, seed):
    """References, and translations with that share of wrong words."""
    chosen = random.Random(seed)
    words = [f"w{i}" for i in range(30)]
    references = [" ".join(chosen.choices(words, k=chosen.randint(4, 12))) for _ in range(60)]
    wrong = random.Random(100 + seed)
    texts = [" ".join("x" if wrong.random() < share else word for word in text.split()) for text in references]
    return references, texts


@pytest.mark.parametrize("shares", [(0.2, 0.25), (0.1, 0.4)])
def test_p_values_are_those_of_sacrebleu(shares):
    references, first = _texts(shares[0], 1)
    wrong = random.Random(7)
    second = [" ".join("y" if wrong.random() < shares[1] else w for w in text.split()) for text in references]
    wanted = {found.metric: found for found in compare({"a": first, "b": second}, references) if found.system == "b"}
    for metric in ("bleu", "chrf"):
        counts = [np.array(counts_of(metric, texts, references)) for texts in (first, second)]
        drawn = draws(len(references))
        resampled = resampled_scores(metric, counts[1], drawn) - resampled_scores(metric, counts[0], drawn)
        difference = corpus_score(metric, counts[1]) - corpus_score(metric, counts[0])
        assert corpus_score(metric, counts[1]) == pytest.approx(wanted[metric].value)
        assert chance(difference, resampled) == pytest.approx(wanted[metric].p_value, abs=1e-9)


def test_scores_are_those_of_the_texts():
    references, texts = _texts(0.3, 2)
    found = [corpus_score(metric, np.array(counts_of(metric, texts, references))) for metric in ("bleu", "chrf")]
    assert found == pytest.approx(score(texts, references))
    each = sentence_scores("chrf", np.array(counts_of("chrf", texts, references)))
    wanted = [metrics()["chrf"].corpus_score([t], [[r]]).score for t, r in zip(texts, references, strict=True)]
    assert each == pytest.approx(wanted)


def test_systems_that_never_differ_do_not_differ():
    assert chance(0.0, np.zeros(RESAMPLES)) == 1.0


def test_draws_are_the_same_each_time_and_differ_by_stream():
    assert (draws(20) == draws(20)).all()
    assert (draws(20).sum(axis=1) == 20).all()
    assert (draws(20) != draws(20, stream=1)).any()


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
