"""Verdicts call equal models different as seldom as the level says, however many models there are."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from s2s.comparison.paired_tests import against, corrected, difference

MODELS = ["rnn", "lstm", "gru", "conv", "transformer"]


def _pairs(scores):
    by_seed = {model: dict(enumerate(row)) for model, row in scores.items()}
    return {(a, b): difference(by_seed[a], by_seed[b]) for a, b in combinations(scores, 2)}


def _verdicts(generator, better=0.0, contests=300):
    for _ in range(contests):
        scores = dict(zip(MODELS, generator.normal(30, 1, (len(MODELS), 5)), strict=True))
        scores["rnn"] = scores["rnn"] + better
        values, pairs = {model: float(row.mean()) for model, row in scores.items()}, _pairs(scores)
        yield {model: against(model, values, pairs, "BLEU", max, {}) for model in MODELS}


def test_a_much_better_model_is_called_better():
    found = list(_verdicts(np.random.default_rng(2), better=10.0, contests=50))
    assert np.mean([verdicts["rnn"].p < 0.05 and verdicts["rnn"].difference.value > 0 for verdicts in found]) > 0.9


def test_two_models_need_no_correction():
    pairs = _pairs({"rnn": np.array([1.0, 2.0, 3.1]), "lstm": np.array([2.0, 3.5, 4.2])})
    assert corrected(pairs) == pairs
    found = against("lstm", {"rnn": 1.0, "lstm": 2.0}, pairs, "times as fast", max, {})
    assert found.p == pairs["rnn", "lstm"].p
    assert found.difference.value == pytest.approx(np.exp(pairs["rnn", "lstm"].over_seeds.value))


def test_pairs_without_a_test_are_left_without_one():
    pairs = _pairs({"rnn": np.array([1.0, 2.0]), "lstm": np.array([2.0, 3.0]), "gru": np.array([2.0, 3.5])})
    assert all(pair.p is None and pair.test_p is None for pair in corrected(pairs).values())
    found = against("rnn", {"rnn": 1.5, "lstm": 2.5}, pairs, "BLEU", max, {})
    assert (found.rival, found.difference.value, found.p) == ("lstm", -1.0, None)


@pytest.mark.parametrize("test_p", [0.01, 0.5])
def test_tests_over_examples_are_corrected_too(test_p):
    pairs = {
        models: replace(pair, test="McNemar", test_p=test_p, seed=1)
        for models, pair in _pairs({model: np.array([1.0, 2.0]) for model in MODELS[:3]}).items()
    }
    assert {pair.test_p for pair in corrected(pairs).values()} == {min(1.0, 3 * test_p)}
