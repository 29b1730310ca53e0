"""Regression of censored values, compared with least squares and with known truth."""

import numpy as np
import pytest

from s2s.evaluation.survival import censored_line

X = np.linspace(0, 4, 200)
Y = 1 + 0.5 * X + 0.3 * np.random.default_rng(1).standard_normal(200)


def test_without_censoring_it_is_the_line_of_least_squares():
    line = censored_line(X, Y, [0] * 200)
    slope, start = np.polyfit(X, Y, 1)
    assert (line.a, line.b) == (pytest.approx(start, abs=1e-5), pytest.approx(slope, abs=1e-5))
    assert line.spread == pytest.approx(float((Y - start - slope * X).std()), rel=1e-4)
    assert line.at(2.0) == pytest.approx(line.a + 2 * line.b)


def test_censored_fit_is_not_biased_by_values_beyond_the_limit():
    cut = np.clip(Y, 1.2, 2.0)
    beyond = np.sign(Y - cut).astype(int)
    assert {-1, 0, 1} == set(beyond.tolist())
    line = censored_line(X, cut, beyond)
    assert (line.a, line.b) == (pytest.approx(1, abs=0.1), pytest.approx(0.5, abs=0.05))
    # where limits are taken for values, it is bent
    assert censored_line(X, cut, [0] * 200).b < 0.4


def test_censoring_line_needs_three_values_at_two_places():
    assert censored_line([1, 2], [1, 2], [0, 0]) is None
    assert censored_line([1, 1, 1], [1, 2, 3], [0, 0, 0]) is None
