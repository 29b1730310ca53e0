"""Every test that comparisons use, where there is nothing to be found: it finds something in 5 of 100 cases.

Paired randomisation of sentences is in `test_inference.py`; what counts whole numbers may only reject more seldom.
"""

import numpy as np
import pytest
from scipy import stats

from s2s.evaluation.differences import over_seeds_and_sentences, paired, trimmed, welch
from s2s.evaluation.gates import DRIFT
from s2s.evaluation.inference import draws, median, trend_p
from s2s.evaluation.significance import mcnemar
from s2s.evaluation.survival import Times, log_rank_p

# calibrations by simulation
pytestmark = pytest.mark.slow

LEVEL = 0.05


def _rejections(p_values):
    return 100 * np.mean(np.array(p_values) <= LEVEL)


def _check(p_values):
    assert 3.5 < _rejections(p_values) < 6.5


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_calibration_tests_over_seeds(seeds):
    pairs = np.random.default_rng(seeds).normal(30, 1, (3_000, 2, seeds))
    _check([paired(one, two).p() for one, two in pairs])
    if seeds > 3:
        # with three and three Welch's test rejects a little too seldom
        _check([welch(one, two).p() for one, two in pairs])


@pytest.mark.parametrize("rounds", [5, 6, 8])
def test_calibration_trimmed_test_over_rounds(rounds):
    generator = np.random.default_rng(rounds)
    for moved in (generator.normal(0, 1, (3_000, rounds)), generator.standard_t(3, (3_000, rounds))):
        _check([trimmed(np.zeros(rounds), each).p() for each in moved])


def test_trimmed_sees_what_one_disturbed_round_hides():
    generator = np.random.default_rng(7)
    disturbed = generator.normal(0.03, 0.01, (1_000, 8))
    disturbed[:, 3] -= generator.exponential(0.5, 1_000)
    found = [[test(np.zeros(8), each).p() for each in disturbed] for test in (trimmed, paired)]
    assert _rejections(found[0]) > 90 > 30 > _rejections(found[1])


def test_calibration_welchs_test_with_three_seeds_errs_on_the_side_of_caution():
    pairs = np.random.default_rng(4).normal(30, 1, (3_000, 2, 3))
    assert 2.5 < _rejections([welch(one, two).p() for one, two in pairs]) < 6.5


def _score(sums):
    return sums[:, 0] / sums[:, 1]


@pytest.mark.parametrize(
    "spreads", [(1.0, 4.0, 4.0), (1.0, 0.0, 4.0), (0.2, 8.0, 2.0)], ids=["both", "seeds", "sentences"]
)
def test_calibration_hierarchical_bootstrap(spreads):
    by_seed, by_sentence, noise = spreads
    generator = np.random.default_rng(6)
    seeds, sentences, drawn = 5, 60, draws(60)[:150]
    words = np.ones(sentences)
    found = []
    for _ in range(1_200):
        shape = (2, seeds, sentences)
        # what a system is good at, what a seed is worth, and what happens in one sentence of one run
        values = generator.normal(0, by_sentence, (2, 1, sentences)) + generator.normal(0, by_seed, (2, seeds, 1))
        values = values + generator.normal(0, noise, shape)
        first, second = ([np.stack([row, words], axis=1) for row in system] for system in values)
        found.append(over_seeds_and_sentences(first, second, _score, drawn).p())
    _check(found)


def test_calibration_equivalence_at_its_boundary():
    generator = np.random.default_rng(7)
    found = [
        welch(generator.normal(0, 0.5, 6), generator.normal(way, 0.5, 6)).equivalence_p(1.0)
        for way in (-1.0, 1.0) * 1_500
    ]
    _check(found)


def _censored(times, budget):
    return Times([t for t in times if t <= budget], [budget for t in times if t > budget])


def test_calibration_log_rank_test_of_few_runs():
    pairs = np.random.default_rng(9).exponential(1, (800, 2, 5))
    _check([log_rank_p(_censored(one, 2.5), _censored(two, 2.5)) for one, two in pairs])


def test_calibration_log_rank_test_of_many_runs():
    pairs = np.random.default_rng(10).exponential(1, (1_000, 2, 30))
    _check([log_rank_p(_censored(one, 1.5), _censored(two, 1.5)) for one, two in pairs])


def test_calibration_mcnemars_test():
    generator = np.random.default_rng(11)
    truth, found = np.zeros(2_000, int), []
    for _ in range(2_000):
        first, second = (generator.random(2_000) < 0.3 for _ in range(2))
        found.append(mcnemar(truth, first.astype(int), second.astype(int)).p_value)
    _check(found)


def test_calibration_simulations_would_see_a_test_that_is_too_sure():
    pairs = np.random.default_rng(13).normal(30, 1, (2_000, 2, 5))
    normal = [2 * stats.norm.sf(abs(found.value / found.error)) for one, two in pairs if (found := welch(one, two))]
    assert _rejections(normal) > 6.5


@pytest.mark.parametrize(("rounds", "most"), [(5, 0.0084), (6, 0.01), (7, 0.01), (8, 0.01)])
@pytest.mark.parametrize("noise", ["normal", "standard_cauchy"])
def test_calibration_rounds_that_are_steady_are_said_to_drift_in_one_of_a_hundred_cases(rounds, most, noise):
    values = getattr(np.random.default_rng(rounds), noise)(size=(3_000, rounds))
    rejected = np.mean([trend_p(range(1, rounds + 1), each) < DRIFT for each in values])
    # three standard errors; of five rounds there are 120 orders, so that one alone is rejected
    assert abs(rejected - most) < 3 * np.sqrt(0.01 / 3_000)


@pytest.mark.parametrize("count", [6, 7, 8, 12])
def test_calibration_interval_of_a_median(count):
    generator = np.random.default_rng(count)
    for drawn in (generator.normal(size=(3_000, count)), generator.exponential(size=(3_000, count)) - np.log(2)):
        found = [median(values) for values in drawn]
        assert 93.5 < 100 * np.mean([each.low <= 0 <= each.high for each in found]) < 96.5
