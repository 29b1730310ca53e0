import math

import pytest

from s2s.evaluation.inference import Estimate, crossings, growth, long_slope
from s2s.experiments.instruments import round_figures
from s2s.experiments.verdicts import compared, crossing_in_words

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
def test_the_law_is_found(count, law, rate):
    found = growth(LENGTHS, [count(n) for n in LENGTHS])
    assert found.law == law
    assert found.rate == pytest.approx(rate, abs=1e-6)


def test_a_law_is_said_in_words():
    assert str(growth(LENGTHS, [5 + 2 * n for n in LENGTHS])) == "grows as n: by 2 with each token"
    assert str(growth(LENGTHS, [5] * 5)) == "does not grow with n"


def test_a_slope_is_that_of_the_longer_lengths():
    times = [10, 10, 10, 20, 40, 80]
    lengths = [1, 2, 4, 8, 16, 32]
    found = long_slope(lengths, times)
    assert found is not None
    assert (found.first, found.last) == (8, 32)
    assert found.exponent.value == pytest.approx(1)
    later = long_slope(lengths, times, start=16)
    # three are the fewest
    assert later is not None
    assert later.first == 8
    assert long_slope([1, 2], [1, 2]) is None
    level = long_slope(lengths, [7.0] * 6)
    assert level is not None
    assert (level.exponent.low, level.exponent.value, level.exponent.high) == (0, 0, 0)


def test_curves_cross_where_they_are_equal():
    x = [1.0, 10.0, 100.0, 1000.0]
    found = crossings(x, [v for v in x], [30.0] * 4)
    assert found == [pytest.approx(30)]
    assert crossings(x, x, [2 * v for v in x]) == []


def test_only_lengths_at_which_intervals_are_apart_decide():
    x = [16, 32, 64, 128]
    level = [Estimate(10, 9, 11)] * 4
    rising = [Estimate(v, v - 1, v + 1) for v in (5, 10.5, 9.5, 20)]
    said = crossing_in_words(("a", "b"), x, level, rising)
    # once, between 16 and 128, though the medians cross three times
    assert said == f"{16 * 8 ** (math.log(2) / math.log(4)):,.0f}; b is faster below 45"
    assert crossing_in_words(("a", "b"), x, level, level) == "no difference to be seen between 16 and 128"
    faster = [Estimate(1, 1, 1)] * 4
    assert crossing_in_words(("a", "b"), x, faster, level) == (
        "none between 16 and 128: a is faster wherever they differ"
    )


def test_a_comparison_names_the_best_of_the_others():
    ratios = {"slow": Estimate(4.0, 3.0, 5.0), "near": Estimate(2.0, 1.5, 2.5)}
    assert compared(ratios, "as fast as", "the speed of") == (
        "2.00 times (1.50 to 2.50) as fast as near, the best of the others"
    )
    behind = {"best": Estimate(0.5, 0.4, 0.6), "other": Estimate(2.0, 1.5, 2.5)}
    assert compared(behind, "as fast as", "the speed of") == "0.50 times (0.40 to 0.60) the speed of best, the best"
    assert "no difference from x to be seen" in compared({"x": Estimate(1.1, 0.9, 1.3)}, "", "")
    assert compared({}, "", "") == "no other model was measured"


def test_figures_are_few():
    assert round_figures([1.23456789, 0.000123456789]) == [1.2346, 0.00012346]
