"""Survival analysis compared with textbook tables and brute force."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from s2s.evaluation.inference import Estimate
from s2s.evaluation.survival import Times, kaplan_meier, log_rank_p, median_within

# weeks of remission of leukaemia under 6-mercaptopurine and under placebo (Freireich et al. 1963)
TREATED = Times([6, 6, 6, 7, 10, 13, 16, 22, 23], [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35])
PLACEBO = Times([1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23])


def test_survival_curve_is_the_textbooks():
    curve = kaplan_meier(TREATED)
    assert curve.times == [6, 7, 10, 13, 16, 22, 23]
    assert [round(share.value, 4) for share in curve.left] == [0.8571, 0.8067, 0.7529, 0.6902, 0.6275, 0.5378, 0.4482]
    assert curve.median().value == 23
    assert kaplan_meier(PLACEBO).median().value == 8


def test_kaplan_meier_interval_is_greenwoods_on_a_log_log_scale():
    for times in (TREATED, PLACEBO):
        share, variance = 1.0, 0.0
        curve = kaplan_meier(times)
        for t, found in zip(curve.times, curve.left, strict=True):
            there = sum(each >= t for each in (*times.ended, *times.waited))
            ended = times.ended.count(t)
            share *= 1 - ended / there
            assert found.value == pytest.approx(share)
            if not share:
                assert (found.low, found.high) == (0.0, 0.0)
                continue
            variance += ended / (there * (there - ended))
            half = stats.norm.ppf(0.975) * math.sqrt(variance) / abs(math.log(share))
            assert (found.low, found.high) == pytest.approx((share ** math.exp(half), share ** math.exp(-half)))


def test_median_is_none_if_half_of_the_runs_are_censored():
    assert kaplan_meier(Times([5.0], [10.0, 10.0])).median().value == math.inf
    solved = kaplan_meier(Times([100.0, 200.0, 300.0]))
    assert solved.median().value == 200.0


@pytest.mark.parametrize("runs", [1, 2, 3, 4, 5, 6, 8, 12])
def test_interval_of_the_median_covers_it_in_95_percent_of_the_cases_or_is_missing(runs):
    chance, true, covered = np.random.default_rng(runs), math.log(2), []
    for _ in range(400):
        median = kaplan_meier(Times(chance.exponential(size=runs).tolist())).median()
        covered.append(None if median.low is None else median.low <= true <= median.high)
    if runs < 6:
        # even from the least to the greatest of five values, an interval misses the median in 2 of 32 cases
        assert set(covered) == {None}
    else:
        assert np.mean(covered) >= 0.92


def test_median_within_a_limit_counts_runs_beyond_it():
    waited = [50.0] * 4
    assert median_within(Times([], waited), 50.0) == Estimate(50.0, None, None)
    assert median_within(Times([], 2 * waited), 50.0) == Estimate(50.0, 50.0, 50.0)
    few = Times([10.0, 20.0, 30.0, 40.0, 45.0], waited)
    curve = kaplan_meier(few).median()
    assert (curve.value, curve.high) == (45.0, math.inf)
    assert median_within(few, 50.0) == Estimate(45.0, curve.low, 50.0)


def test_survival_censored_runs_are_not_taken_for_solved_ones():
    # in a budget of 10, half are solved; to leave the others out would say that 3 are enough
    median = kaplan_meier(Times([1, 2, 3, 4], [10, 10, 10, 10, 10])).median().value
    assert median == math.inf


def test_survival_many_runs_are_tested_as_in_the_textbook():
    assert log_rank_p(TREATED, PLACEBO) == pytest.approx(4.17e-5, rel=0.01)
    assert log_rank_p(PLACEBO, TREATED) == pytest.approx(log_rank_p(TREATED, PLACEBO))


def _observed_less_expected(first, second):
    """Mantel's sum over times: how many of the first group ended, less how many of all, times its share of the runs."""
    total = 0.0
    for t in sorted({*first.ended, *second.ended}):
        there = [sum(each >= t for each in (*group.ended, *group.waited)) for group in (first, second)]
        ended = [group.ended.count(t) for group in (first, second)]
        total += ended[0] - sum(ended) * there[0] / sum(there)
    return total


def test_survival_few_runs_are_tested_exactly():
    first, second = Times([2, 3, 5], [6]), Times([3, 8, 9], [12, 12])
    runs = [(t, 1) for t in first.ended] + [(t, 0) for t in first.waited]
    runs += [(t, 1) for t in second.ended] + [(t, 0) for t in second.waited]
    wanted = abs(_observed_less_expected(first, second))
    as_far = []
    for chosen in itertools.combinations(range(9), 4):
        groups = [[runs[i] for i in range(9) if (i in chosen) == inside] for inside in (True, False)]
        times = [Times([t for t, over in g if over], [t for t, over in g if not over]) for g in groups]
        as_far.append(abs(_observed_less_expected(*times)) >= wanted - 1e-9)
    assert log_rank_p(first, second) == pytest.approx(np.mean(as_far))


def test_logrank_without_events_finds_no_difference():
    assert log_rank_p(Times([], [10, 10, 10]), Times([], [10, 10, 10])) == 1.0
    # three solved at once against three never: one of twenty ways, and its reverse
    assert log_rank_p(Times([1, 1, 1]), Times([], [10, 10, 10])) == pytest.approx(0.1)
