"""The gradient noise scale of a loss with known noise."""

from itertools import product

import numpy as np
import pytest

from s2s.training.step import Noise, estimate_noise, noise_scale

POINTS = np.array([[1.0, 2.0], [-0.5, 3.0], [4.0, 0.0]])
# the gradient of half the squared distance to a point; that of all is the mean
GRADIENTS = np.array([0.3, -1.0]) - POINTS
WHOLE = GRADIENTS.mean(axis=0)
SPREAD = float(((GRADIENTS - WHOLE) ** 2).sum(axis=1).mean())
SQUARE = float(WHOLE @ WHOLE)


def _estimate(drawn: np.ndarray, counts: tuple[int, ...]) -> Noise:
    parts = np.split(drawn, np.cumsum(counts)[:-1])
    squares = [float(part.mean(axis=0) @ part.mean(axis=0)) for part in parts]
    return estimate_noise(counts, squares, float(drawn.mean(axis=0) @ drawn.mean(axis=0)))


@pytest.mark.parametrize("counts", [(1, 1), (1, 3), (2, 2), (1, 1, 3), (1, 2, 2)])
def test_noise_over_all_that_could_be_drawn_both_estimates_are_right_in_the_mean(counts):
    every = [_estimate(GRADIENTS[list(rows)], counts) for rows in product(range(3), repeat=sum(counts))]
    assert np.mean([noise.spread for noise in every]) == pytest.approx(SPREAD)
    assert np.mean([noise.square for noise in every]) == pytest.approx(SQUARE)


def test_without_noise_there_is_none():
    gradients = np.repeat(GRADIENTS[:1], 4, axis=0)
    noise = _estimate(gradients, (2, 2))
    assert noise.spread == pytest.approx(0, abs=1e-12)
    assert noise.square == pytest.approx(float(gradients[0] @ gradients[0]))


def test_noise_scale_of_many_updates_is_the_ratio_of_the_means():
    generator = np.random.default_rng(0)
    noises = [_estimate(GRADIENTS[generator.integers(0, 3, 8)], (4, 4)) for _ in range(1500)]
    assert noise_scale(noises) == pytest.approx(SPREAD / SQUARE, rel=0.1)
    assert noise_scale([Noise(1.0, -2.0), Noise(1.0, 1.0)]) is None
    assert noise_scale([]) is None
