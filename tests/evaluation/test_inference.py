"""Hypothesis tests have their level and power; confidence intervals have their coverage."""

import math
import random

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest
from scipy import stats

from s2s.evaluation.inference import (
    RESAMPLES,
    Estimate,
    coin,
    drawn_rows,
    draws,
    estimate,
    mean,
    median,
    paired_p,
    trend_p,
    wilson,
)
from s2s.evaluation.metrics import metrics, scores_of
from s2s.evaluation.significance import GroupComparison, compare, mcnemar

TRIALS = 2500


def _rate(sums):
    """Errors in a hundred words."""
    return 100 * sums[:, 0] / sums[:, 1]


def _systems(generator, advantage=0.0, sentences=60):
    """Errors and words of two systems: sentences differ in length and hardness, and both find the same ones hard."""
    words = generator.integers(4, 30, sentences)
    hardness = generator.beta(1, 3, sentences)
    chance = [np.clip(hardness + generator.normal(0, 0.1, sentences) + by, 0, 1) for by in (advantage, 0.0)]
    return [np.stack([generator.binomial(words, share), words], axis=1) for share in chance]


def test_inference_systems_that_are_equally_good_are_called_different_in_five_of_a_hundred_cases():
    generator = np.random.default_rng(1)
    found = [paired_p(*_systems(generator), _rate, swaps=199) for _ in range(TRIALS)]
    for level in (0.01, 0.05, 0.1):
        assert np.mean(np.array(found) <= level) == pytest.approx(level, abs=4 * math.sqrt(level / TRIALS))
    assert 0.035 < np.mean(np.array(found) <= 0.05) < 0.065


def test_inference_real_difference_is_seen_in_either_direction():
    generator = np.random.default_rng(2)
    for way in (1, -1):
        found = [paired_p(*_systems(generator, 0.1)[::way], _rate, swaps=199) for _ in range(200)]
        assert np.mean(np.array(found) <= 0.05) > 0.9


def test_inference_p_values_are_those_of_sacrebleus_randomisation():
    chosen = random.Random(3)
    references = [" ".join(chosen.choices("abcdefghij", k=chosen.randint(4, 12))) for _ in range(80)]
    first, second, third = (
        [" ".join("x" if chosen.random() < share else w for w in text.split()) for text in references]
        for share in (0.2, 0.23, 0.5)
    )
    test = PairedTest(
        [("a", first), ("b", second), ("c", third)], {"bleu": BLEU()}, [references], test_type="ar", n_samples=1000
    )
    theirs = [result.p_value for result in test()[1]["BLEU"][1:]]
    ours = [c.p_value for c in compare({"a": first, "b": second, "c": third}, references) if c.metric == "bleu"][1:]
    assert ours == pytest.approx(theirs, abs=0.05)
    assert 0.05 < ours[0] < 0.95
    assert ours[1] <= 0.001


def test_inference_equal_scores_of_different_translations_are_no_difference():
    references = ["a b c d e f", "g h i j k l"] * 20
    first = ["a b c d e f", "x x x x x x"] * 20
    # as many right sentences, but others
    second = ["x x x x x x", "g h i j k l"] * 20
    found = {(c.system, c.metric): c for c in compare({"a": first, "b": second, "same": list(first)}, references)}
    for metric in metrics():
        assert found["b", metric].value == pytest.approx(found["a", metric].value)
        assert found["b", metric].p_value == found["same", metric].p_value == 1.0


def test_paired_test_of_an_unknown_loss_finds_no_difference():
    first = np.column_stack(([2.0, 3.0, 4.0], [1.0, 1.0, 1.0]))
    second = np.column_stack(([np.nan, 3.0, 4.0], [1.0, 1.0, 1.0]))
    assert paired_p(first, second, lambda sums: sums[..., 0] / sums[..., 1]) == 1.0


def test_paired_test_is_symmetric_in_the_systems():
    first, second = _systems(np.random.default_rng(4), 0.03)
    assert paired_p(first, second, _rate) == paired_p(second, first, _rate)
    # one sentence cannot tell two systems apart
    assert paired_p(first[:1], second[:1], _rate) == 1.0


def test_inference_scores_of_sums_are_those_of_the_texts():
    references, texts = ["the cat sat on the mat", "a dog ran"], ["the cat sat on mat", "a big dog ran"]
    for metric in metrics().values():
        counts = np.array(metric._extract_corpus_statistics(texts, [references]))
        whole = metric.corpus_score(texts, [references]).score
        assert scores_of(metric, counts.sum(axis=0)[None]) == pytest.approx(whole)


@pytest.mark.parametrize("disagreements", [5, 24, 25, 26, 60, 200])
def test_inference_mcnemars_test_never_rejects_more_often_than_its_level(disagreements):
    truth, wrong = np.zeros(disagreements, int), np.ones(disagreements, int)
    rejected = [
        b
        for b in range(disagreements + 1)
        if mcnemar(
            truth, np.where(np.arange(disagreements) < b, truth, wrong), (np.arange(disagreements) < b) * wrong
        ).p_value
        <= 0.05
    ]
    assert stats.binom.pmf(rejected, disagreements, 0.5).sum() <= 0.05
    assert rejected or disagreements < 6


def test_inference_coin_is_scipys_binomial_test():
    for heads, tosses in ((0, 1), (3, 10), (5, 10), (9, 10), (0, 40), (25, 40)):
        assert coin(heads, tosses) == pytest.approx(stats.binomtest(heads, tosses).pvalue)
    assert coin(0, 0) == 1.0


def test_inference_share_has_wilsons_interval():
    for successes, trials in ((0, 7), (1, 1), (8, 10), (499, 1000)):
        theirs = stats.binomtest(successes, trials).proportion_ci(0.95, method="wilson")
        found = wilson(successes, trials, whole=1)
        assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)
        assert wilson(successes, trials).value == pytest.approx(100 * found.value)
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0.0, 100.0)


def test_inference_interval_of_a_mean_is_students():
    found = mean([1.0, 2.0, 4.0])
    low, high = stats.t.interval(0.95, 2, loc=7 / 3, scale=stats.sem([1, 2, 4]))
    assert (found.value, found.low, found.high) == pytest.approx((7 / 3, low, high))
    assert (mean([3.0]).value, mean([3.0]).low, mean([3.0]).high) == (3.0, None, None)


def test_inference_draws_are_sacrebleus_and_the_same_each_time_and_differ_by_stream():
    theirs = np.random.default_rng(12345).choice(20, size=(RESAMPLES, 20), replace=True)
    assert (draws(20) == np.stack([np.bincount(row, minlength=20) for row in theirs])).all()
    # of many sentences, resamples are not drawn all at once
    theirs = np.random.default_rng(12345).choice(901, size=(RESAMPLES, 901), replace=True)
    wanted = np.stack([np.bincount(row, minlength=901) for row in theirs])
    assert (draws(901) == wanted).all()
    assert (np.stack(list(drawn_rows(901))) == wanted).all()
    assert (draws(20) == draws(20)).all()
    assert (draws(20) != draws(20, stream=1)).any()


def test_inference_bootstrap_interval_holds_its_share_of_the_truth():
    generator = np.random.default_rng(5)
    drawn = draws(80)
    inside = 0
    for _ in range(400):
        values = generator.gamma(2.0, 1.0, 80)
        found = estimate(values.mean(), (drawn @ values) / 80)
        inside += found.low <= 2.0 <= found.high
    assert 0.9 < inside / 400 < 0.98


@pytest.mark.parametrize("rounds", [(1, 2, 3, 4, 5, 6, 7, 8), (2, 3, 5, 6, 8), (1, 4, 8)])
def test_inference_trend_is_that_of_scipys_permutations(rounds):
    values = np.random.default_rng(len(rounds)).normal(0, 1, len(rounds)) + np.array(rounds) / 3
    x = np.log(np.array(rounds) - rounds[0] + 1)

    def correlation(own, axis):
        return abs(stats.pearsonr(np.broadcast_to(x, own.shape), own, axis=axis)[0])

    orders = stats.permutation_test(
        (values,), correlation, permutation_type="pairings", alternative="greater", vectorized=True
    )
    # scipy counts the given order once more where it has not seen all
    wanted = orders.pvalue if len(rounds) < 8 else pytest.approx(orders.pvalue, abs=0.02)
    assert trend_p(rounds, values) == wanted
    assert trend_p(rounds, -values) == trend_p(rounds, values)


def test_inference_times_that_never_vary_or_are_two_have_no_trend():
    assert trend_p([1, 2, 3, 4, 5, 6], [0.3] * 6) == 1
    assert trend_p(range(1, 10), [0.3] * 9) == 1
    assert trend_p([1, 2], [1.0, 2.0]) == 1
    # of more values Student's distribution, which is close to what orders say of eight
    rising = [0.1, 0.5, 0.2, 0.6, 0.4, 0.7, 0.5, 0.8]
    assert trend_p(range(1, 10), [*rising, 0.7]) == pytest.approx(trend_p(range(1, 9), rising), abs=0.03)


@pytest.mark.parametrize(("rounds", "least"), [(5, 0.15), (6, 0.4), (8, 0.7)])
@pytest.mark.parametrize("how", [lambda i: i / i.max(), lambda i: 1 - np.exp(-i / 2)])
def test_inference_drift_of_a_third_is_seen_among_noise_of_a_twentieth(rounds, least, how):
    generator, at = np.random.default_rng(rounds), np.arange(rounds)
    drifts = np.log(1.35) * how(at) + generator.normal(0, 0.05, (500, rounds))
    assert np.mean([trend_p(range(1, rounds + 1), each) < 0.01 for each in drifts]) > least


def test_median_interval_is_that_of_order_statistics_at_their_coverage():
    values = np.random.default_rng(4).normal(size=9)
    x = np.sort(values)
    for depth in range(1, 5):
        covered = 1 - 2 * stats.binom.cdf(depth - 1, 9, 0.5)
        found = median(values, covered)
        assert (found.value, found.low, found.high) == pytest.approx((np.median(x), x[depth - 1], x[-depth]))
    # between two of them, the interval is between, too
    wide, narrow = (
        median(values, 1 - 2 * stats.binom.cdf(0, 9, 0.5)),
        median(values, 1 - 2 * stats.binom.cdf(1, 9, 0.5)),
    )
    found = median(values, 0.98)
    assert wide.low < found.low < narrow.low < narrow.high < found.high < wide.high


def test_median_has_no_interval_below_six_values():
    assert [median([1.0] * count).low is None for count in range(1, 8)] == [True] * 5 + [False] * 2


@pytest.mark.parametrize(
    ("p", "shown"),
    [(0.0068, "p = 0.0068"), (0.00005, "p = 0.0001"), (0.00004, "p < 0.0001"), (math.nan, "p = nan")],
)
def test_significance_shows_no_p_value_as_zero(p, shown):
    one, apart = Estimate(40.0, 39.0, 41.0), Estimate(-1.0, -2.0, -0.5)
    assert str(GroupComparison("b", "bleu", 3, one, apart, p)).endswith(f"against the first, {shown}")
