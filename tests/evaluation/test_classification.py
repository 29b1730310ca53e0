"""Metrics of classification compared with counts by hand."""

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from scipy import stats

from s2s.errors import UserError
from s2s.evaluation.classification import (
    accuracy,
    calibration,
    chosen_examples,
    classification_scores,
    confusion,
    macro_f1,
    per_class,
)
from s2s.evaluation.inference import holm
from s2s.evaluation.significance import compare_classifiers, mcnemar

NAMES = ["world", "sports", "business", "never seen"]


@pytest.fixture
def classified() -> tuple[np.ndarray, np.ndarray]:
    """True classes, and probabilities that are often right; the last class neither occurs nor is predicted."""
    generator = np.random.default_rng(1)
    truth = generator.choice(3, size=400, p=[0.6, 0.3, 0.1])
    scores = generator.normal(size=(400, 4)) + 1.5 * np.eye(4)[truth]
    scores[:, 3] = -20
    weights = np.exp(2 * scores)
    return truth, weights / weights.sum(axis=1, keepdims=True)


def test_classification_confusion_and_scores_are_those_counted_by_hand(classified):
    truth, probabilities = classified
    predicted = probabilities.argmax(axis=1)
    matrix = confusion(truth, predicted, 4)
    scores = per_class(matrix, NAMES)
    for i, score in enumerate(scores):
        right = sum(t == p == i for t, p in zip(truth, predicted, strict=True))
        called, there = sum(predicted == i), sum(truth == i)
        assert matrix[i].tolist() == [sum((truth == i) & (predicted == j)) for j in range(4)]
        assert (score.support, score.predicted) == (there, called)
        if i < 3:
            precision, recall = right / called, right / there
            assert score.precision == pytest.approx(100 * precision)
            assert score.recall == pytest.approx(100 * recall)
            assert score.f1 == pytest.approx(100 * 2 * precision * recall / (precision + recall))
    assert macro_f1(scores) == pytest.approx(sum(score.f1 for score in scores[:3]) / 3)
    assert accuracy(truth, predicted).value == pytest.approx(100 * (truth == predicted).mean())


def test_classification_class_that_is_never_right_has_zeros_and_counts():
    scores = per_class(confusion(np.array([0, 0, 1]), np.array([0, 0, 0]), 2), ["a", "b"])
    assert (scores[1].precision, scores[1].recall, scores[1].f1) == (0, 0, 0)
    assert macro_f1(scores) == pytest.approx(80 / 2)


def test_classification_calibration_error_is_that_of_a_loop(classified):
    truth, probabilities = classified
    error = 0.0
    for m in range(15):
        inside = [i for i in range(len(truth)) if m / 15 < probabilities[i].max() <= (m + 1) / 15]
        if inside:
            right = sum(probabilities[i].argmax() == truth[i] for i in inside)
            sure = sum(float(probabilities[i].max()) for i in inside)
            error += len(inside) / len(truth) * abs(right / len(inside) - sure / len(inside))
    found = calibration(truth, probabilities)
    assert found.error == pytest.approx(100 * error)
    assert error > 0.01
    assert sum(each.count for each in found.bins) == len(truth)


def test_classification_confidence_at_the_upper_end_of_a_bin_is_in_it():
    probabilities = np.array([[0.6, 0.4], [1.0, 0.0], [0.5, 0.5]])
    found = calibration(np.zeros(3, dtype=int), probabilities, bins=5)
    assert [(each.high, each.count) for each in found.bins] == [(0.6, 2), (1.0, 1)]
    # as single precision may round the sum of a softmax
    above = calibration(np.zeros(1, dtype=int), np.array([[1.0000001, 0.0]]), bins=5)
    assert [(each.high, each.count, each.confidence) for each in above.bins] == [(1.0, 1, 100.0)]


def test_classification_adaptive_bins_hold_equally_many_and_equal_confidences_stay_together(classified):
    truth, probabilities = classified
    found = calibration(truth, probabilities, bins=10, spacing="count")
    assert [each.count for each in found.bins] == [40] * 10
    parts = np.array_split(np.argsort(probabilities.max(axis=1)), 10)
    errors = [
        abs((probabilities[rows].argmax(axis=1) == truth[rows]).mean() - probabilities[rows].max(axis=1).mean())
        for rows in parts
    ]
    assert found.error == pytest.approx(100 * np.mean(errors))
    certain = np.array([[1.0, 0.0]] * 7 + [[0.7, 0.3]] * 3)
    bins = calibration(np.zeros(10, dtype=int), certain, bins=5, spacing="count").bins
    assert [(each.count, each.low, each.high) for each in bins] == [(3, 0.7, 0.7), (7, 1.0, 1.0)]
    few = calibration(truth[:4], probabilities[:4], bins=10, spacing="count").bins
    assert [each.high for each in few] == sorted(probabilities[:4].max(axis=1))


def test_classification_calibration_does_not_depend_on_the_order_of_examples(classified):
    truth, probabilities = classified
    turned = slice(None, None, -1)
    for spacing in ("width", "count"):
        here = calibration(truth, probabilities, spacing=spacing)
        assert calibration(truth[turned], probabilities[turned], spacing=spacing).error == pytest.approx(here.error)


@pytest.mark.parametrize(("b", "c"), [(0, 0), (1, 0), (0, 5), (9, 9), (4, 15), (12, 13), (20, 60), (500, 400)])
def test_classification_mcnemar_is_the_binomial_test_written_out(b, c):
    truth = np.zeros(b + c + 8, dtype=int)
    first, second = truth.copy(), truth.copy()
    second[:b] = 1
    first[b : b + c] = 2
    # both wrong, in different ways: no disagreement about who is right
    first[-1], second[-1] = 1, 2
    found = mcnemar(truth, first, second)
    assert (found.only_first, found.only_second) == (b, c)
    tail = sum(math.comb(b + c, k) for k in range(min(b, c) + 1)) / 2 ** (b + c)
    assert found.exact == pytest.approx(min(1.0, 2 * tail))
    if b != c:
        assert found.chi_square_p == pytest.approx(stats.chi2.sf((abs(b - c) - 1) ** 2 / (b + c), 1))
    else:
        assert found.chi_square_p == found.exact == 1
    assert found.method == ("exact" if b + c < 25 else "chi-square")
    assert found.p_value == (found.exact if b + c < 25 else found.chi_square_p)
    assert found.chi_square_p == pytest.approx(found.exact, abs=0.6 if b + c < 25 else 0.01)


def test_classification_every_classifier_is_tested_against_the_first(classified):
    truth, probabilities = classified
    predicted = probabilities.argmax(axis=1)
    worse = np.where(np.arange(400) % 4 == 0, 1, predicted)
    found = compare_classifiers(truth, {"a": predicted, "b": worse, "c": predicted.copy()})
    assert [each.run for each in found] == ["a", "b", "c"]
    assert found[0].test is None
    assert found[1].test == mcnemar(truth, predicted, worse)
    assert found[1].test.p_value < 0.01
    assert found[2].test.p_value == 1
    assert "p = 1.0000, 1.0000 after Holm against the first (McNemar, exact" in str(found[2])
    assert [each.corrected for each in found] == [None, *holm([found[1].test.p_value, 1.0])]
    (_, alone) = compare_classifiers(truth, {"a": predicted, "b": worse})
    assert alone.corrected is None
    assert "Holm" not in str(alone)
    with pytest.raises(UserError, match=r"'b': 399"):
        compare_classifiers(truth, {"a": predicted, "b": worse[1:]})


def test_classification_page_says_it_all_and_is_json(classified):
    truth, probabilities = classified
    found = classification_scores(truth, probabilities, NAMES)
    page = str(found)
    assert f"{found.accuracy.value:.2f} %" in page
    assert "15 bins of equal width" in page
    assert all(name in page for name in NAMES)
    assert found.loss == pytest.approx(-np.mean([math.log(p[t]) for p, t in zip(probabilities, truth, strict=True)]))
    again = json.loads(json.dumps(asdict(found)))
    assert again["confusion"] == confusion(truth, probabilities.argmax(axis=1), 4).tolist()
    assert found.main()["macro_f1"] == found.macro_f1


def test_classification_page_names_classes_without_an_example_and_how_macro_f1_is_averaged():
    probabilities = np.tile([0.8, 0.1, 0.1], (5, 1))
    page = str(classification_scores(np.zeros(5, dtype=np.int64), probabilities, ("neg", "pos", "odd")))
    assert "no example of classes pos, odd: macro-F1 is the mean of 1 of 3 classes" in page
    page = str(classification_scores(np.array([0, 1, 2]), probabilities[:3], ("neg", "pos", "odd")))
    assert "no example" not in page


def test_classification_examples_are_chosen_by_seed_and_are_what_they_are_called(classified):
    truth, probabilities = classified
    predicted = probabilities.argmax(axis=1)
    right, wrong = chosen_examples(truth, predicted, 3, seed=5)
    assert (truth[right] == predicted[right]).all()
    assert (truth[wrong] != predicted[wrong]).all()
    assert len(set(right)) == len(set(wrong)) == 3
    assert (right, wrong) == chosen_examples(truth, predicted, 3, seed=5)
    assert (right, wrong) != chosen_examples(truth, predicted, 3, seed=6)
    assert chosen_examples(truth, truth, 3) == (chosen_examples(truth, truth, 3)[0], [])
