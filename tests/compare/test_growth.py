import math

import numpy as np
import pytest
from scipy import stats

from s2s.evaluation.inference import growth, long_slope

LENGTHS = [16, 32, 64, 128, 256]


@pytest.mark.parametrize(
    ("count", "law", "rate"),
    [
        (lambda n: 153, "constant", 0),
        (lambda n: 33 + 24 * n, "linear", 24),
        (lambda n: 20 + 8 * math.log2(n), "logarithmic", 8),
        (lambda n: 3 * n**2, "power", 2),
        # a scan's length is no power of two, so it misses by a little
        (lambda n: 20 + 8 * math.ceil(math.log2(n + 1)), "logarithmic", 8),
        # a law that follows chance is no better
        (lambda n: 100 + {16: 0, 32: 2, 64: -1, 128: 1, 256: 1}[n], "constant", 0),
        (lambda n: 308 if n < 64 else 242, "constant", 0),
    ],
)
def test_growth_selects_the_law(count, law, rate):
    found = growth(LENGTHS, [count(n) for n in LENGTHS])
    assert found.law == law
    assert found.rate == pytest.approx(rate, abs=1e-6)


def test_growth_describes_the_law():
    assert str(growth(LENGTHS, [5 + 2 * n for n in LENGTHS])) == "grows as n: by 2 with each token"
    assert str(growth(LENGTHS, [5] * 5)) == "does not grow with n"


def test_long_slope_uses_the_longer_lengths():
    times = [10, 10, 10, 20, 40, 80]
    lengths = [1, 2, 4, 8, 16, 32]
    found = long_slope(lengths, times)
    assert found is not None
    assert (found.first, found.last) == (8, 32)
    assert (found.exponent, found.local) == (pytest.approx(1), pytest.approx(1))
    assert (found.r2, found.residual) == (pytest.approx(1), pytest.approx(0))
    later = long_slope(lengths, times, start=16)
    # three are the fewest
    assert later is not None
    assert later.first == 8
    assert long_slope([1, 2], [1, 2]) is None
    level = long_slope(lengths, [7.0] * 6)
    assert level is not None
    assert (level.exponent, level.local, level.r2, level.residual) == (pytest.approx(0), 0, 1, pytest.approx(0))
    # one point 21 % too high in the middle of three: a third of its logarithm is the line's, two thirds are missed
    bent = long_slope([1, 2, 4], [1, 2 * 1.21, 4])
    assert bent is not None
    assert bent.exponent == pytest.approx(1)
    assert bent.residual == pytest.approx(1.21 ** (2 / 3) - 1)
    assert bent.local == pytest.approx(math.log2(4 / 2.42))
    assert bent.r2 == pytest.approx(stats.linregress(np.log([1, 2, 4]), np.log([1, 2.42, 4])).rvalue ** 2)
