"""Intervals and tests against what they are known to be."""

import math

import numpy as np
import pytest

from s2s.experiments.statistics import exponent, mean, paired_difference, share


def test_the_interval_of_a_mean_is_students():
    found = mean([1.0, 2.0, 4.0])
    half = 4.302652729911275 * np.std([1, 2, 4], ddof=1) / math.sqrt(3)
    assert (found.value, found.low, found.high) == pytest.approx((7 / 3, 7 / 3 - half, 7 / 3 + half))


def test_one_value_has_no_interval():
    assert (mean([3.0]).value, mean([3.0]).low, mean([3.0]).high) == (3.0, None, None)


def test_a_power_is_found_and_noise_widens_its_interval():
    x = [16, 32, 64, 128, 256]
    exact = exponent(x, [3 * v**1.5 for v in x])
    assert (exact.value, exact.low, exact.high) == pytest.approx((1.5, 1.5, 1.5))
    noisy = exponent(x, [3 * v**1.5 * f for v, f in zip(x, (1.1, 0.9, 1.05, 0.95, 1.1), strict=True)])
    assert noisy.low < 1.5 < noisy.high
    assert noisy.high - noisy.low > 0.05


def test_a_level_line_has_exponent_zero():
    found = exponent([1, 2, 4, 8], [5.0] * 4)
    assert (found.value, found.low, found.high) == (0.0, 0.0, 0.0)


def test_a_share_has_wilsons_interval():
    # Wilson (1927), 8 of 10, by hand
    z, n, p = 1.959963984540054, 10, 0.8
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    found = share(8, 10)
    assert (found.value, found.low, found.high) == pytest.approx((0.8, centre - half, centre + half))
    assert share(10, 10).high == pytest.approx(1.0)


def test_a_paired_difference_needs_three_pairs_for_a_test():
    estimate, p = paired_difference([1, 2], [2, 4])
    assert (estimate.value, p) == (1.5, None)
    estimate, p = paired_difference([1.0, 2.0, 3.0, 4.0], [2.0, 3.1, 3.9, 5.0])
    assert estimate.low > 0
    assert p < 0.01
    assert paired_difference([1, 2, 3], [1, 2, 3])[1] == 1.0
