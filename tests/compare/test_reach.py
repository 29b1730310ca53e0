"""How far one model reaches, from made-up answers; and what is counted in bits."""

import math

import pytest
from scipy import stats

from s2s.comparison.questions.long_range import capacity
from s2s.comparison.questions.long_range import measure as long_range
from s2s.comparison.questions.long_range.measure import EXPERIMENT
from s2s.comparison.questions.long_range.reach import Part, TaskRuns, differences, half_distance, pooled
from s2s.evaluation.survival import Times, log_rank_p
from s2s.recipe.installed import module_of

FAR, MIDDLE, NEAR = (100,) * 5, (100, 100, 100, 100, 40), (100, 96, 60, 30, 10)


def _measured(right, solved=None, **changes):
    found = {"distances": [1, 2, 4, 8, 16], "asked": [100] * 5, "right": list(right), "baseline": [0.1] * 5}
    return found | {"solved": solved, "updates": solved or 100} | changes


def _trials(*runs):
    return TaskRuns("m", Part("recall", "full"), dict(enumerate(runs, 1)))


@pytest.mark.parametrize(
    ("right", "distance", "beyond"),
    [
        (FAR, 16, True),
        # half way from 1.0 to 0.1 is 0.55: between 8 and 16, where 1.0 falls to 0.4
        (MIDDLE, 8 * 2 ** (0.45 / 0.6), False),
        (NEAR, 4 * 2 ** (0.05 / 0.3), False),
        # half of what it has near is left at 4
        ((50, 50, 30, 30, 30), 4, False),
        ((10, 10, 10, 10, 10), 1, False),
        ((50, 50, 50, 50, 50), 16, True),
    ],
)
def test_half_of_what_is_above_chance_is_left_at_d50(right, distance, beyond):
    found = half_distance(_measured(right))
    assert found == (pytest.approx(distance), beyond)


def test_no_word_between_counts_as_one_and_chance_may_change_with_distance():
    run = _measured((100, 100, 70, 0, 0), distances=[0, 4, 8, 16, 32], baseline=[0.5, 0.5, 0.6, 0.5, 0.5])
    # above chance: 0.5, 0.5, 0.1
    assert half_distance(run)[0] == pytest.approx(4 * 2 ** (0.25 / 0.4))
    assert half_distance(_measured((50,) * 5, distances=[0, 4, 8, 16, 32], baseline=[0.5] * 5)) == (1.0, False)


def test_the_interval_is_the_wider_of_wilsons_and_students():
    agreeing = pooled([(90, 100), (90, 100), (90, 100)])
    wilson = stats.binomtest(270, 300).proportion_ci(method="wilson")
    assert (agreeing.low, agreeing.high) == (pytest.approx(100 * wilson.low), pytest.approx(100 * wilson.high))
    apart = pooled([(60, 100), (70, 100), (80, 100)])
    half = stats.t.ppf(0.975, 2) * 10 / 3**0.5
    assert (apart.low, apart.high) == (pytest.approx(70 - half), pytest.approx(70 + half))
    assert pooled([(0, 100), (100, 100)]).low == 0.0


def test_unsolved_seeds_are_censored_at_their_budget():
    own = _trials(_measured(FAR, solved=20), _measured(NEAR), _measured(FAR, solved=50))
    assert own.times() == Times([20, 50], [100])
    assert (own.num_solved(), own.beyond()) == (2, 2)


def test_reach_is_the_median_of_seeds_and_those_beyond_the_tests_are_censored():
    falls = (100, 100, 55, 10, 10)
    own = _trials(_measured(FAR), _measured(falls), _measured(falls))
    assert own.doublings() == [4, pytest.approx(2), pytest.approx(2)]
    assert own.reaches() == Times([pytest.approx(4)] * 2, [16])
    assert own.reach().value == pytest.approx(4)
    # where more than half of them are further, all that is known is the longest distance tested
    most = _trials(_measured(FAR), _measured(FAR), _measured(falls))
    assert (most.reach().value, most.reach().high) == (16, 16)
    everybody = _trials(_measured(FAR), _measured(FAR)).reach()
    assert (everybody.value, everybody.low, everybody.high) == (16, 16, 16)
    assert own.error().value == 0


def test_who_reaches_further_is_tested_by_what_is_known_of_censored_seeds():
    far = _trials(*[_measured(FAR)] * 4)
    near = _trials(*[_measured((100, 100, 55 - i, 10, 10)) for i in range(4)])
    found = differences({"far": far, "near": near})["far", "near"]
    assert found.value < -1.9
    # one of all 70 ways to share eight seeds out, and its mirror image
    assert found.p() == pytest.approx(2 / 70) == log_rank_p(far.reaches(), near.reaches())


def _copied(right, width=16, attention=False, **changes):
    losses = [0.0, 0.0, 0.1, 0.2, 2.0]
    found = {"width": width, "attention": attention, "symbol": 4, "lengths": [1, 2, 4, 8, 16], "asked": [100] * 5}
    return found | {"right": list(right), "losses": losses, "rate": 0.002, "inside": True} | changes


def test_a_symbol_counts_where_95_in_100_sequences_have_no_mistake():
    assert capacity.copied(_copied((100, 95, 94, 100, 100))) == 2
    assert capacity.copied(_copied((94, 100, 100, 100, 100))) == 0
    assert capacity.copied(_copied((95,) * 5)) == 16


def test_what_is_known_after_reading_is_a_lower_bound_in_bits():
    # of 8 symbols, 32 bits: nine pieces with their end, a fifth of a nat each
    assert capacity.conveyed(_copied((0,) * 5)) == pytest.approx(32 - 9 * 0.2 / math.log(2))


def test_with_attention_the_decoder_gets_a_vector_for_each_symbol():
    assert capacity.numbers(_copied((100, 100, 100, 100, 0))) == 16
    assert capacity.numbers(_copied((100, 100, 100, 100, 0), attention=True)) == 8 * 16


@pytest.mark.parametrize(
    ("kind", "looks"),
    [("lstm", False), ("mingru", False), ("lstm-attention", True), ("conv", True), ("transformer", True)],
)
def test_who_looks_back_is_seen_on_the_model(kind, looks, contest):
    settings = long_range.small(contest([kind]).candidates[0], 20, (30, 30), parameters=0, width=8)
    assert capacity.looks_back(module_of(kind).build(settings, 20, 20)) is looks


def test_bits_are_drawn_against_the_numbers_that_are_read(contest):
    made = contest(["gru", "transformer"], profile="lecture")
    cells = {cell.model: cell for cell in EXPERIMENT.trials(made) if cell.part == "capacity-16"}
    more = {"seed": 1, "updates": 100, "solved": None, "looks": [[1, 1.0, 0], [2, 1.0, 0], [3, 1.0, 0]], "seconds": 1.0}
    measured = {
        cells["gru"]: _copied((100, 100, 0, 0, 0), **more),
        cells["transformer"]: _copied((100,) * 5, attention=True, **more),
    }
    result = EXPERIMENT.result(made, measured)
    gru, attention, one_bit = result.figures[0].series
    assert (gru.x, gru.y) == ([16], [8])
    assert (attention.x, attention.y) == ([256], [64])
    assert one_bit.reference
    (table,) = result.tables
    assert [row[5] for row in table.rows] == [8, 64]
    assert table.rows[0][-2] == "learned"
