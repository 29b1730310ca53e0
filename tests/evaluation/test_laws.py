"""Power laws compared with fits by scipy."""

import math

import numpy as np
import pytest
from scipy import optimize

from s2s.evaluation.laws import gains_more, saturating

FIVE = 6e4 * np.array([0.1, 0.3, 1, 3, 9])


def _losses(sizes, floor, exponent, noise=0.0, seed=0):
    drawn = np.random.default_rng(seed).normal(size=len(sizes))
    return (floor + (sizes / 6e4) ** -exponent) * (1 + noise * drawn)


@pytest.mark.parametrize(("floor", "exponent"), [(0.3, 0.5), (1.0, 0.3), (0.0, 0.2), (0.5, 1.5)])
def test_planted_law_is_found(floor, exponent):
    fitted = saturating(FIVE, _losses(FIVE, floor, exponent), 50)
    assert fitted.exponent == pytest.approx(exponent, rel=0.006)
    assert fitted.floor == pytest.approx(floor, abs=0.02)
    assert fitted.explained == pytest.approx(1.0, abs=1e-4)
    assert fitted.determined
    assert [fitted.at(size) for size in FIVE] == pytest.approx(_losses(FIVE, floor, exponent).tolist(), rel=1e-3)


@pytest.mark.parametrize(("floor", "seed"), [(0.4, 1), (0.4, 2), (0.0, 3), (0.0, 4)])
def test_power_law_fit_is_that_of_scipy(floor, seed):
    sizes = np.repeat(FIVE, 2)
    losses = _losses(sizes, floor, 0.6, 0.01, seed)
    fitted = saturating(sizes, losses, 50)

    def missed(free):
        return (free[0] + free[1] * (sizes / fitted.middle) ** -free[2] - losses) / losses

    found = optimize.least_squares(missed, (0.2, 1.0, 0.5), bounds=((0, 0, 0.01), (np.inf, np.inf, 5)), xtol=1e-14)
    assert fitted.exponent == pytest.approx(found.x[2], rel=0.01)
    assert fitted.floor == pytest.approx(found.x[0], abs=0.01)
    # no other exponent of the grid misses less
    assert (missed((fitted.floor, fitted.scale, fitted.exponent)) ** 2).sum() <= 1.01 * 2 * found.cost


def test_interval_misses_as_often_as_it_says_and_equal_laws_differ_as_often():
    """300 pairs of equal laws: of 5 % with a standard error of 1.3 %."""
    sizes = np.repeat(FIVE, 2)
    found = []
    for seed in range(300):
        pair = [saturating(sizes, _losses(sizes, 0.3, 0.5, 0.01, 2 * seed + i), 50) for i in (0, 1)]
        ends = pair[0].estimate()
        found.append((not ends.low <= 0.5 <= ends.high, gains_more(*pair).p() < 0.05))
    missed, rejected = np.mean(found, axis=0)
    assert 0.02 <= missed <= 0.09
    assert 0.02 <= rejected <= 0.09


def test_floor_never_lies_below_nothing_and_what_rises_is_no_law():
    curved = np.exp(-0.02 * np.log(FIVE / 6e4) ** 2) * (FIVE / 6e4) ** -0.3
    assert saturating(FIVE, curved, 50).floor == 0
    rising = saturating(FIVE, _losses(FIVE, 0.0, -0.2), 50)
    assert not rising.determined
    assert rising.explained <= 0


def test_lack_of_fit_is_distinguished_from_seed_variance():
    sizes = np.repeat(FIVE, 3)
    losses = _losses(sizes, 0.3, 0.5, 0.001)
    assert saturating(sizes, losses, 50).misfit > 0.05
    bent = losses * np.repeat([1, 1.03, 0.97, 1.03, 1], 3)
    assert saturating(sizes, bent, 50).misfit < 0.001
    assert saturating(FIVE, losses[::3], 50).misfit is None


def test_too_few_points_have_no_error_and_too_few_sizes_no_law():
    three = saturating(FIVE[:3], _losses(FIVE[:3], 0.3, 0.5), 50)
    assert three.error is None
    assert (three.estimate().low, three.estimate().high) == (None, None)
    assert gains_more(three, three) is None
    assert saturating(FIVE[:2], _losses(FIVE[:2], 0.3, 0.5)) is None


def test_power_law_difference_has_the_error_of_both():
    first, second = (saturating(FIVE, _losses(FIVE, 0.3, b, 0.01, 5), 200) for b in (0.4, 0.7))
    apart = gains_more(first, second)
    assert apart.value == pytest.approx(0.3, abs=0.1)
    assert apart.error == pytest.approx(math.hypot(first.error, second.error))
    assert 2 <= apart.freedom <= 4
    assert gains_more(second, first).p() == pytest.approx(apart.p())
