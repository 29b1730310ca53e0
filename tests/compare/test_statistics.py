"""Exponents against what they are known to be."""

import pytest

from s2s.evaluation.inference import exponent


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
