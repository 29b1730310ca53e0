"""Fits of curves that are known."""

import math

import numpy as np
import pytest

from s2s.comparison.questions.gradients.paths import brief, curve, decay, factor, half_life


def test_an_exponential_has_its_own_factor():
    norms = np.array([[5.0], [0.1]]) * 0.8 ** np.arange(12)
    # distance 0 is no step, and may be anything
    norms[:, 0] = 99
    found = decay(norms, first=0)
    assert found.slopes == pytest.approx([math.log(0.8)] * 2)
    assert found.slope == pytest.approx(math.log(0.8))
    assert (found.fit, found.left, found.reach, found.span) == (pytest.approx(1), pytest.approx(0.8**10), 11, 11)


def test_the_first_column_may_be_distance_one():
    found = decay(0.5 ** np.arange(1, 9)[None], first=1)
    assert (found.slopes, found.left, found.span) == ([pytest.approx(math.log(0.5))], pytest.approx(0.5**7), 8)


def test_what_is_no_exponential_has_a_poor_fit():
    zigzag = np.where(np.arange(20) % 2, 1.0, 3.0)[None]
    found = decay(zigzag, first=1)
    assert found.fit is not None
    assert found.fit < 0.1


def test_beyond_the_last_gradient_there_is_nothing():
    norms = np.zeros((2, 10))
    norms[:, :5] = 0.5 ** np.arange(5)
    norms[0, 4] = 0
    found = decay(norms, first=0)
    assert (found.reach, found.left, found.span) == (4, 0.0, 9)
    assert found.slopes == pytest.approx([math.log(0.5)] * 2)


def test_two_distances_give_no_factor():
    found = decay(np.array([[1.0, 0.5, 0.2, 0, 0]]), first=0)
    assert (found.slopes, found.slope, found.fit) == ([None], None, None)


def test_no_gradient_at_all_reaches_nowhere():
    found = decay(np.zeros((1, 6)), first=0)
    assert (found.slope, found.fit, found.left, found.reach) == (None, None, 0.0, 0)


def test_the_factor_is_the_geometric_mean_with_students_interval():
    found = factor([math.log(0.5), math.log(0.8)])
    assert found.value == pytest.approx(math.sqrt(0.4))
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.5 < 0.8 < found.high
    assert math.sqrt(found.low * found.high) == pytest.approx(found.value)


def test_half_is_left_after_the_half_life():
    steps = half_life(0.9)
    assert steps is not None
    assert 0.9**steps == pytest.approx(0.5)
    assert (half_life(1.0), half_life(1.2)) == (None, None)


def test_a_curve_is_the_median_of_what_there_is():
    found = curve(np.array([[1.0, 2.0, math.nan], [3.0, 4.0, math.nan], [5.0, math.nan, math.nan]]), first=1)
    assert found["distance"] == [1, 2, 3]
    assert found["median"] == [3, 3, None]
    assert found["low"][0] == pytest.approx(1.1)
    assert found["high"][0] == pytest.approx(4.9)


def test_numbers_are_brief():
    assert (brief(1 / 3), brief(math.inf), brief(math.nan), brief(1.23456789e-30)) == (
        0.333333,
        None,
        None,
        1.23457e-30,
    )
