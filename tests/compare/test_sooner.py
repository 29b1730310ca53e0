"""How soon a model learns, beside the others: medians, log-rank tests, and what stays elsewhere."""

import math

import pytest

from s2s.comparison.questions.long_range.reach import Part, TaskRuns
from s2s.comparison.questions.long_range.sooner import ROW, assess, median, verdicts
from s2s.evaluation.survival import log_rank_p

WHOLE = Part("recall", "full")
BUDGET = 100


def _trials(model, *solved, part=WHOLE, inside=True):
    """Trainings that solved the task after so many updates; None: not within the budget."""
    looks = [[10, 2.0, 0.0], [20, 1.9, 0.0], [100, 1.0, 0.0]]
    runs = {
        seed: {
            "distances": [1, 2, 4],
            "trained": 2,
            "budget": BUDGET,
            "updates": at or BUDGET,
            "solved": at,
            "looks": looks,
        }
        for seed, at in enumerate(solved, 1)
    }
    return TaskRuns(
        model, part, runs, {"best": 0.002, "inside": inside, "tried": {"0.001": {}, "0.002": {}, "0.004": {}}}
    )


def _of(*trials):
    return {each.model: each for each in trials}


FAST, SLOW = (20, 20, 40, 40, 40), (60, 60, 80, 80, None)


def test_the_sooner_one_is_better_by_the_test_of_all_pairs():
    of_all = _of(_trials("a", *FAST), _trials("b", *SLOW), _trials("c", *SLOW))
    p = log_rank_p(of_all["a"].times(), of_all["b"].times())
    assert p == pytest.approx(2 / math.comb(10, 5))
    found = assess("a", of_all)
    # three pairs: the two smallest p-values are equal
    assert (found.standing, found.rival, found.p) == ("better", "b", pytest.approx(3 * p))
    assert found.facts == {"median of b (updates)": 80, "seeds that solve it, b": "4 of 5"}
    found = assess("b", of_all)
    assert (found.standing, found.rival) == ("worse", "a")


def test_what_is_not_told_apart_is_undecided_and_what_nobody_solves_is_no_verdict():
    of_all = _of(_trials("a", 20, 40, 40), _trials("b", 40, 40, 20))
    assert assess("a", of_all).standing == "undecided"
    never = _of(_trials("a", None, None), _trials("b", None, None))
    assert assess("a", never).reasons == ("neither solves the task with any seed",)
    assert assess("a", _of(_trials("a", *FAST))).standing == "not measurable"


def test_what_is_one_look_apart_is_not_told_apart_whatever_the_test_says():
    first, second, third = (_trials(name, *[at] * 5) for name, at in (("a", 10), ("b", 20), ("c", 30)))
    found = assess("a", _of(first, second))
    assert (found.standing, found.rival) == ("undecided", "b")
    assert found.reasons == ("medians are no further apart than two looks, 10 updates",)
    assert assess("a", _of(first, third)).standing == "better"


def test_a_rate_at_an_end_is_no_verdict_and_no_measure_for_others():
    of_all = _of(_trials("a", *FAST, inside=False), _trials("b", *SLOW), _trials("c", *FAST))
    found = assess("a", of_all)
    assert (found.standing, "rate" in found.reasons[0]) == ("not measurable", True)
    assert assess("b", of_all).rival == "c"
    # of one pair nothing is corrected
    p = log_rank_p(of_all["b"].times(), of_all["c"].times())
    assert assess("b", of_all).p == pytest.approx(p)


def test_a_median_beyond_the_budget_is_the_budget():
    assert (median(_trials("a", 20, None, None)).value, median(_trials("a", None)).value) == (BUDGET, BUDGET)
    assert median(_trials("a", 20, 40, None)).value == 40


def test_a_verdict_is_looked_at_at_another_rate_in_other_forms_and_tasks():
    copy, head = Part("copy", "full"), Part("recall", "head")
    trials = {
        WHOLE: _of(_trials("a", *FAST), _trials("b", *SLOW)),
        copy: _of(_trials("a", None, None, part=copy), _trials("b", 40, 40, part=copy)),
        head: _of(_trials("a", 20, 20, part=head), _trials("b", 20, 20, part=head)),
        Part("agreement", "full"): _of(_trials("a", None, None), _trials("b", None, None)),
    }
    first, second = verdicts(WHOLE, trials, _of(_trials("a", 20, 20), _trials("b", 40, 40)))
    # who takes as long elsewhere is neither better nor worse there; where nobody learns it, nothing is said
    kept = {"next best rate": True, "copy": False, "linear head": False}
    assert first.variations == second.variations == kept
    assert (first.row, first.value, first.figure) == (ROW, 40, "recall-full-solved")
    assert not first.at_least
    assert (first.standing, second.standing) == ("better", "worse")


def test_who_has_mostly_not_learned_it_has_a_lower_bound():
    of_all = {WHOLE: _of(_trials("a", 20, None, None), _trials("b", 20, 20, None))}
    assert [(each.value, each.at_least) for each in verdicts(WHOLE, of_all, {})] == [(BUDGET, True), (20, False)]


def test_a_training_that_fails_has_not_solved_its_task_and_how_far_its_model_reaches_is_not_said():
    failing, well = _trials("a", 20, 20, 40, None, None, None, None, None), _trials("b", *[60] * 8)
    for run in list(failing.by_seed.values())[3:]:
        run |= {"failure": "its answers are no longer finite", "looks": [[10, 9.9, 0.0]]}
    of_all = _of(failing, well)
    found = assess("a", of_all)
    # those that went well were sooner: three of eight are not
    assert found.standing == "undecided"
    assert found.facts["seeds that solve it, a"] == "3 of 8"
    (gate,) = failing._failed()
    assert not gate.passed
    assert gate.sentence == "the training of 5 of 8 seeds failed: its answers are no longer finite"
    assert failing._over().passed
    assert well._failed() == []
