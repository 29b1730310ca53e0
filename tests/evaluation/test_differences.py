"""Differences over seeds and sentences, equivalence and power, compared with a second computation."""

import math
from statistics import mean

import numpy as np
import pytest
from scipy import stats

from s2s.comparison.paired_tests import difference
from s2s.evaluation.differences import Difference, over_seeds_and_sentences, paired, trimmed, welch
from s2s.evaluation.inference import Estimate, drawn_rows, draws
from s2s.evaluation.metrics import metrics, scores_of


def test_trimmed_is_yuens_test_against_a_constant():
    generator = np.random.default_rng(8)
    for count in (5, 8, 11):
        one, two = generator.normal(3, 1, (2, count))
        # beside so many equal values, those of the second sample do not count
        theirs = stats.ttest_ind(two - one, np.zeros(10_000), trim=0.2, equal_var=False)
        assert trimmed(one, two).p() == pytest.approx(theirs.pvalue)
        assert trimmed(one, two, share=0.0).p() == pytest.approx(paired(one, two).p())
    # the most extreme value on a side may be any
    assert trimmed([0.0] * 5, [1.0, 2.0, 3.0, 4.0, 5.0]) == trimmed([0.0] * 5, [-9.0, 2.0, 3.0, 4.0, 99.0])
    assert trimmed([1.0], [2.0]) is None


def test_difference_of_two_means_is_welchs():
    generator = np.random.default_rng(1)
    for sizes in ((2, 2), (3, 5), (5, 5), (10, 4)):
        one, two = generator.normal(30, 1, sizes[0]), generator.normal(31, 3, sizes[1])
        theirs = stats.ttest_ind(two, one, equal_var=False)
        found = welch(one, two)
        assert found.p() == pytest.approx(theirs.pvalue)
        ends = theirs.confidence_interval(0.95)
        assert found.interval() == pytest.approx((ends.low, ends.high))
        assert found.value == pytest.approx(two.mean() - one.mean())
    assert welch([1.0], [2.0, 3.0]) is None


def test_difference_runs_that_never_vary_are_as_many_orders_as_there_are():
    # of the 20 ways to share out three and three, two have this order or its reverse
    assert welch([1.0] * 3, [2.0] * 3).p() == 0.1
    assert welch([1.0] * 3, [1.0] * 3).p() == 1.0
    assert welch([1.0] * 3, [1.5] * 3).equivalence_p(1.0) == 0.1
    assert welch([1.0] * 3, [2.5] * 3).equivalence_p(1.0) == 1.0


def test_paired_difference_is_scipys():
    first, second = [1.0, 2.0, 3.0, 5.0], [1.5, 2.2, 3.9, 5.1]
    found, theirs = paired(first, second), stats.ttest_rel(second, first)
    assert found is not None
    assert found.p() == pytest.approx(theirs.pvalue)
    assert found.interval() == pytest.approx(tuple(theirs.confidence_interval()))
    assert paired([1.0], [2.0]) is None
    always = paired([1.0] * 5, [2.0] * 5)
    # five coins fall alike in two of 32 ways
    assert always is not None
    assert always.p() == 1 / 16
    # also where rounding makes the differences differ
    assert paired([0.1, 0.2, 0.3, 0.4], [0.3, 0.4, 0.5, 0.6]).p() == 0.125
    assert paired([1, 2, 3], [1, 2, 3]).p() == 1.0


def test_difference_three_seeds_are_the_fewest_that_models_are_tested_over():
    alone, two, three = (
        difference(*({seed: values[seed] for seed in range(count)} for values in ([1.0, 2.0, 4.0], [2.0, 4.0, 5.5])))
        for count in (1, 2, 3)
    )
    assert (alone.over_seeds, alone.p) == (Estimate(1.0, None, None), None)
    assert (two.over_seeds.value, two.p) == (1.5, None)
    assert three.p == pytest.approx(stats.ttest_rel([2.0, 4.0, 5.5], [1.0, 2.0, 4.0]).pvalue)
    assert difference({1: 1.0}, {2: 1.0}) is None


def test_difference_tie_is_a_ninety_percent_interval_within_the_margins():
    generator = np.random.default_rng(2)
    decided = set()
    for _ in range(200):
        found = welch(generator.normal(0, 1, 8), generator.normal(generator.uniform(-1.5, 1.5), 1, 8))
        low, high = found.interval(0.1)
        within = low > -1.5 and high < 1.5
        assert (found.equivalence_p(1.5) < 0.05) == within
        decided.add(within)
    assert decided == {True, False}


def test_difference_two_one_sided_tests_are_two_one_sided_tests():
    one, two = np.array([30.1, 29.6, 30.4, 30.0]), np.array([30.3, 30.2, 29.9, 30.6])
    below = stats.ttest_ind(two + 1, one, equal_var=False, alternative="greater").pvalue
    above = stats.ttest_ind(two - 1, one, equal_var=False, alternative="less").pvalue
    assert welch(one, two).equivalence_p(1) == pytest.approx(max(below, above))


def _detectable(seeds, paired=True):
    """In standard deviations of one seed, or of what two differ by."""
    error, freedom = (math.sqrt(1 / seeds), seeds - 1) if paired else (math.sqrt(2 / seeds), 2 * seeds - 2)
    return Difference(0.3, error, freedom).detectable()


def test_detectable_difference_equals_an_independent_computation():
    assert [round(_detectable(n), 2) for n in (3, 5, 10)] == [3.26, 1.68, 1.0]
    # systems whose seeds have nothing to do with each other, in standard deviations of one of them (Cohen's d)
    assert [round(_detectable(n, paired=False), 2) for n in (3, 5, 10)] == [3.07, 2.02, 1.32]


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_detectable_difference_is_detected_with_power_80_percent(seeds):
    generator = np.random.default_rng(seeds)
    size = (20_000, seeds)
    differences = generator.normal(_detectable(seeds), 1, size)
    assert np.mean(stats.ttest_1samp(differences, 0, axis=1).pvalue < 0.05) == pytest.approx(0.8, abs=0.012)
    one, two = generator.normal(0, 1, size), generator.normal(_detectable(seeds, paired=False), 1, size)
    assert np.mean(stats.ttest_ind(one, two, axis=1).pvalue < 0.05) == pytest.approx(0.8, abs=0.012)


def _mean(sums):
    return sums[:, 0] / sums[:, 1]


def _runs(generator, seeds, sentences, shift, spreads):
    """Scores of sentences: the system's, the seed's, the system's on the sentence, the run's on the sentence."""
    by_seed, by_sentence, noise = spreads
    own = generator.normal(0, by_sentence, sentences)
    values = shift + generator.normal(0, by_seed, (seeds, 1)) + own + generator.normal(0, noise, (seeds, sentences))
    return [np.stack([row, np.ones(sentences)], axis=1) for row in values]


@pytest.mark.parametrize("spreads", [(1.0, 6.0, 2.0), (0.0, 5.0, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, 8.0)])
def test_difference_error_is_how_far_repetitions_of_the_whole_study_lie_apart(spreads):
    generator = np.random.default_rng(3)
    drawn = draws(80)[:200]
    found = []
    for _ in range(400):
        pair = [_runs(generator, 6, 80, shift, spreads) for shift in (0.0, 2.0)]
        found.append(over_seeds_and_sentences(*pair, _mean, drawn))
    values = [each.value for each in found]
    assert np.mean(values) == pytest.approx(2.0, abs=0.2)
    assert np.mean([each.error**2 for each in found]) == pytest.approx(np.var(values, ddof=1), rel=0.2)


def test_difference_with_runs_that_are_all_the_same_only_sentences_vary():
    generator = np.random.default_rng(4)
    words = generator.integers(5, 20, 100)
    first, second = (np.stack([generator.binomial(words, share), words], axis=1) for share in (0.5, 0.6))
    drawn = draws(100)
    found = over_seeds_and_sentences([first] * 3, [second] * 3, _mean, drawn)
    plain = [_mean((row @ second)[None])[0] - _mean((row @ first)[None])[0] for row in drawn_rows(100)]
    assert found.error == pytest.approx(np.std(plain, ddof=1))
    assert found.freedom > 50
    assert over_seeds_and_sentences([first], [second], _mean, drawn) is None
    # not even sentences vary: what is left is that the runs of one system all stand before those of the other
    words = np.full(100, 10)
    first, second = (np.stack([np.full(100, errors), words], axis=1) for errors in (1, 2))
    assert over_seeds_and_sentences([first] * 3, [second] * 3, _mean, drawn).p() == 0.1


def test_differences_of_bleu_are_sacrebleus():
    metric = metrics()["bleu"]
    references = [f"the {word} dog runs over the green hill {word}" for word in ("old", "big", "red", "sad") * 10]
    chosen = np.random.default_rng(5)

    def _worse(share):
        return [" ".join("x" if chosen.random() < share else w for w in text.split()) for text in references]

    systems = [[_worse(share) for _ in range(3)] for share in (0.2, 0.1)]
    counts = [[np.array(metric._extract_corpus_statistics(texts, [references])) for texts in runs] for runs in systems]
    found = over_seeds_and_sentences(*counts, lambda sums: scores_of(metric, sums), draws(40)[:100])
    values = [[_bleu(texts, references) for texts in runs] for runs in systems]
    assert found.value == pytest.approx(mean(values[1]) - mean(values[0]))
    assert found.error >= math.sqrt(sum(np.var(each, ddof=1) / 3 for each in values)) - 1e-9


def _bleu(texts, references):
    """By Papineni et al. (2002), from the words."""
    shares, written, wanted = [], 0, 0
    for order in range(1, 5):
        hit = total = 0
        for text, reference in zip(texts, references, strict=True):
            pieces = [
                [tuple(words[i : i + order]) for i in range(len(words) - order + 1)]
                for words in (text.split(), reference.split())
            ]
            hit += sum(min(pieces[0].count(each), pieces[1].count(each)) for each in set(pieces[0]))
            total += len(pieces[0])
        shares.append(hit / total)
    written, wanted = (sum(len(text.split()) for text in side) for side in (texts, references))
    return 100 * min(1.0, math.exp(1 - wanted / written)) * math.exp(mean(map(math.log, shares)))
