"""Validity checks pass and fail on either side of their limits."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from s2s.evaluation.differences import LEVEL, Difference, Pairwise, welch
from s2s.evaluation.gates import (
    BUSY,
    DOUBLINGS,
    EQUIVALENCE,
    Assessment,
    Gate,
    Progress,
    above_chance,
    assess_pair,
    best_other,
    can_close,
    converged,
    decide_outcome,
    device_busy,
    failed,
    improves_little,
    machine_steady,
    powerful,
    progress_of,
    rate_inside,
    slope_per_doubling,
    speed_changed,
    steady_rounds,
    uses_its_source,
)
from s2s.evaluation.inference import Estimate, holm, mean


def test_gate_translator_that_needs_no_source_is_not_compared():
    assert uses_its_source(2.0, 2.31).passed
    assert not uses_its_source(2.0, 2.29).passed
    # worse with the right sources than with wrong ones is no use either
    assert not uses_its_source(2.6, 2.0).passed
    assert not uses_its_source(math.nan, 2.0).passed
    assert "0.31 nats" in uses_its_source(2.0, 2.31).sentence


def _curve(per_doubling, looks=12):
    tokens = np.arange(1, looks + 1) * 1e5
    return tokens, 5 - per_doubling * np.log2(tokens)


def test_gate_training_that_still_learns_is_not_over():
    assert converged(*_curve(0.04)).passed
    assert not converged(*_curve(0.06)).passed
    assert "still falls by 0.20" in converged(*_curve(0.2)).sentence
    # one that gets worse again has long been at its best
    assert converged(*_curve(-0.3)).passed


@pytest.mark.parametrize("loss", [0.02, 0.3, 1.2, 1.7, 4.0])
def test_converged_allows_smaller_falls_at_lower_losses(loss):
    tokens = 1e5 * 2 ** np.array([0, 0.5, 1])
    # by a point of probability, or by 0.05 nats, whichever is less
    point = -math.log1p(-0.01 * math.exp(loss))
    for share, passes in ((0.99, True), (1.01, False)):
        losses = loss + min(0.05, point) * share * np.array([1, 0.5, 0.0])
        assert converged(tokens, losses).passed is passes
        assert converged(tokens, losses, points=5.0).passed is (min(0.05, point) * share < 0.05)


def test_progress_of_is_the_mean_slope_over_seeds():
    tokens = [[1e5, 2e5, 3e5, 4e5], [1e5, 2e5, 4e5]]
    scores = [[10.0, 15.0, 17.0, 18.5], [9.0, 13.0, 15.0]]
    found = progress_of(tokens, scores)
    assert found.value == np.mean([18.5, 15.0])
    assert found.gain == mean([slope_per_doubling(*each) for each in zip(tokens, scores, strict=True)])
    assert progress_of([*tokens, [1e5, 2e5]], [*scores, [1.0, 2.0]]) is None


def test_improves_little_needs_less_than_the_margin():
    gates = {gain: improves_little({"BLEU": Progress(30.0, Estimate(gain, None, None))}) for gain in (0.9, 1.1, -3.0)}
    assert {gain: gate.passed for gain, gate in gates.items()} == {0.9: True, 1.1: False, -3.0: True}
    assert improves_little({"BLEU": Progress(30.0, Estimate(1.1, None, None))}, margin=2.0).passed
    # a model gains no more than what is left to the highest score
    near = {value: Progress(value, Estimate(2.0, None, None), 100.0) for value in (98.5, 99.5)}
    assert [improves_little({"BLEU": each}).passed for each in near.values()] == [False, True]
    assert [each.next_gain for each in near.values()] == [1.5, 0.5]
    unknown = improves_little({"BLEU": None, "nats": Progress(-1.0, Estimate(0.1, None, None))})
    assert (unknown.passed, unknown.progress) == (False, {})


def _trained(curve, last):
    """The score of one seed without chance, after `last` doublings, and its gain with the last of them."""
    doublings = last - 1 + np.array([0, 0.5, 1])
    found = progress_of([2**doublings], [curve(doublings)])
    return {"BLEU": replace(found, gain=Estimate(found.gain.value, found.gain.value, found.gain.value))}


def _slowing(height, below, pace, doublings):
    """A score that nears its height, by less with each doubling."""
    return height - below * np.exp(-pace * doublings)


def _steady(start, pace, doublings):
    return start + pace * doublings


def test_can_close_is_right_of_simulated_trainings():
    generator = np.random.default_rng(5)
    verdicts = []
    for _ in range(400):
        ahead = partial(_steady, generator.uniform(20, 60), 0.0)
        # gains shrink, so a gap that cannot close at the last gain does not close
        behind = partial(_slowing, generator.uniform(20, 60), generator.uniform(5, 40), generator.uniform(0.05, 0.6))
        verdicts.append(can_close(_trained(behind, 6), _trained(ahead, 6)))
        assert verdicts[-1] or behind(6 + DOUBLINGS) < ahead(6 + DOUBLINGS)
        # where gains stay, the answer is exact
        behind = partial(_steady, generator.uniform(5, 40), generator.uniform(0, 5))
        closes = behind(6 + DOUBLINGS) >= ahead(6 + DOUBLINGS)
        assert can_close(_trained(behind, 6), _trained(ahead, 6)) == closes
    assert 0.1 < np.mean(verdicts) < 0.9


def test_can_close_needs_the_gap_in_every_score_and_an_interval():
    def _side(bleu, gain, loss, fall, high=0.0):
        ends = None if high is None else (gain + high, fall + high / 10)
        gains = Estimate(gain, None, ends and ends[0]), Estimate(fall, None, ends and ends[1])
        return {"BLEU": Progress(bleu, gains[0]), "nats": Progress(-loss, gains[1])}

    ahead = _side(90, 0, 0.1, 0)
    assert not can_close(_side(10, 2, 1.5, 0.1), ahead)
    assert can_close(_side(10, 2, 1.5, 0.5), ahead)
    assert can_close(_side(10, 20, 1.5, 0.1), ahead)
    # the upper end of the gain counts, and one seed has none
    assert can_close(_side(10, 2, 1.5, 0.1, high=19.0), ahead)
    assert can_close(_side(10, 2, 1.5, 0.1, high=None), ahead)
    assert can_close({}, ahead)


def _learning(bleu, gain):
    return improves_little({"BLEU": Progress(bleu, Estimate(gain, gain, gain), 100.0)})


@pytest.mark.parametrize(
    ("difference", "gates", "standing"),
    [
        (-30.0, {"gru": (10, 2.0), "lstm": (40, 2.0)}, "worse"),
        (-30.0, {"gru": (10, 8.0), "lstm": (40, 0.0)}, "still learning"),
        (30.0, {"gru": (40, 3.0), "lstm": (10, 2.0)}, "better"),
        # the one ahead has learned, the other one has not
        (30.0, {"gru": (40, 0.0), "lstm": (10, 2.0)}, "better"),
        (30.0, {"gru": (40, 0.0), "lstm": (10, 9.0)}, "not measurable"),
        (0.1, {"gru": (40, 2.0), "lstm": (40, 1.5)}, "tie"),
        (0.1, {"gru": (40, 3.0), "lstm": (40, 1.5)}, "still learning"),
        (0.1, {"gru": (40, 0.5), "lstm": (40, 0.0)}, "tie"),
        (0.1, {"gru": (98, 9.0), "lstm": (98, 1.5)}, "tie"),
    ],
)
def test_beside_has_a_verdict_that_training_would_not_change(difference, gates, standing):
    checks = {name: [_learning(*own)] for name, own in gates.items()}
    pair = _one_pair(Difference(difference, 0.1, 8), 0.001)
    found = assess_pair("gru", "lstm", pair, checks)
    assert found.standing == standing
    assert (found.difference is None) == (standing in ("still learning", "not measurable"))
    # another failed check leaves no verdict
    blocked = assess_pair("gru", "lstm", pair, checks | {"gru": [READS, *checks["gru"]]})
    assert blocked.standing == "not measurable"
    # the rival of the best may still learn
    assert best_other("gru", {"gru": 1, "lstm": 3, "rnn": 2}, {**checks, "rnn": [OPEN]}) == "lstm"


def test_gate_only_the_last_doubling_says_how_it_ends():
    tokens = [1e5, 2e5, 4e5, 8e5, 10e5, 12e5, 14e5, 16e5]
    fallen = [6.0, 5.0, 4.0, 3.0, 2.999, 2.998, 2.997, 2.996]
    assert slope_per_doubling(tokens, fallen) == pytest.approx(-0.004, abs=1e-3)
    assert converged(tokens, fallen).passed
    # the same looks in the other order of their falls: late learners are learners
    late = [6.0, 5.999, 5.998, 5.997, 5.6, 5.2, 4.8, 4.4]
    assert not converged(tokens, late).passed


def test_gate_two_looks_say_nothing():
    assert not converged([1e5, 2e5], [3.0, 3.0]).passed
    assert slope_per_doubling([1e5, 2e5], [3.0, 3.0]) is None
    # three far apart are the last three
    assert slope_per_doubling([1e5, 4e5, 16e5], [3.0, 2.0, 1.0]) == pytest.approx(-0.5)


def test_gate_rate_at_an_end_says_so():
    assert rate_inside(0.002, (0.001, 0.004, 0.002), True).passed
    gate = rate_inside(0.008, (0.004, 0.008), False)
    assert not gate.passed
    assert gate.sentence == "its rate 0.008 lies at an end of the range tried: 0.004, 0.008"


OPEN, CLOSED = Gate("converged", True, "it is over"), Gate("converged", False, "its loss still falls")
READS = Gate("uses its source", False, "reads nothing")


@pytest.mark.parametrize(
    ("difference", "p", "gates", "expected"),
    [
        (Difference(3.0, 0.5, 8), 0.001, {}, Assessment("better", "lstm", p=0.001, test="t-test, Holm")),
        (Difference(-3.0, 0.5, 8), 0.001, {}, Assessment("worse", "lstm", p=0.001, test="t-test, Holm")),
        (Difference(0.1, 0.1, 8), 0.4, {}, Assessment("tie", "lstm", p=9.27e-6, test=EQUIVALENCE)),
        (Difference(2.0, 1.5, 8), 0.2, {}, Assessment("undecided", "lstm", p=0.2, test="t-test, Holm")),
        (None, None, {}, Assessment("not measurable", "lstm", reasons=("one seed, so no test over seeds",))),
        (Difference(3.0, 0.5, 8), 0.001, {"gru": [CLOSED]}, Assessment("still learning", reasons=(CLOSED.sentence,))),
        (
            Difference(3.0, 0.5, 8),
            0.001,
            {"lstm": [CLOSED]},
            Assessment("not measurable", "lstm", reasons=(f"lstm: {CLOSED.sentence}",)),
        ),
        (
            Difference(3.0, 0.5, 8),
            0.001,
            {"gru": [READS, CLOSED]},
            Assessment("not measurable", reasons=(READS.sentence, CLOSED.sentence)),
        ),
    ],
)
def test_gate_assessment_names_what_it_rests_on(difference, p, gates, expected):
    found = assess_pair("gru", "lstm", _one_pair(difference, p), {"gru": [OPEN], "lstm": [OPEN]} | gates)
    assert (found.standing, found.rival, found.test) == (expected.standing, expected.rival, expected.test)
    assert found.p == (None if expected.p is None else pytest.approx(expected.p, rel=0.01))
    if expected.reasons:
        assert found.reasons == expected.reasons
        assert found.difference is None
    elif difference:
        assert (found.difference, found.unit) == (difference.estimate(), "BLEU")
        assert bool(found.reasons) == (found.standing == "undecided")


def _one_pair(difference, p, pairs=1):
    """Differences of all pairs of which the first, of `lstm` and `gru`, has this p-value after correction."""
    found = Pairwise({("lstm", "gru"): difference} if difference else {})
    found.update({("other", str(i)): Difference(9.0, 0.1, 8) for i in range(pairs - 1)})
    found.p = {names: p for names in found}
    return found


def test_gate_machine_that_changed_is_not_timed():
    steady = {i: [1.35e-3, 1.48e-3] for i in range(5)}
    assert machine_steady({"1 thread": steady}).passed
    assert machine_steady({"1 thread": steady | {5: [1.4e-3, 3.07e-3]}}).passed
    assert steady_rounds(steady | {5: [1.4e-3, 3.07e-3]}) == [0, 1, 2, 3, 4]
    assert not machine_steady({"1 thread": steady | {4: [1.49e-3, 1.35e-3]}}).passed
    gate = machine_steady({"1 thread": {0: [3.07e-3, 1.35e-3], 1: [1.35e-3]}})
    assert "in 1 of 2 rounds" in gate.sentence
    assert "1.35 to 3.07 ms with 1 thread" in gate.sentence
    assert not machine_steady({}).passed
    # of two places each has rounds of its own
    two = {"1 thread": steady | {5: [1.4e-3, 3.07e-3]}, "2 threads": steady | {0: [1.4e-3, 2e-3], 5: [1.4e-3] * 2}}
    assert steady_rounds(*two.values()) == [1, 2, 3, 4]
    assert not machine_steady(two).passed
    assert all(machine_steady({place: own}).passed for place, own in two.items())


def test_drift_gate_closes_on_drift_of_a_steady_machine():
    steady = {i: [1.35e-3, 1.48e-3] for i in range(1, 9)}
    level = {i: 2.0 + 0.1 * (i % 3) for i in steady}
    drift = {i: 2.0 * 1.05**i for i in steady}
    assert machine_steady({"1 thread": steady}, {"gru": level}).passed
    gate = machine_steady({"1 thread": steady}, {"gru": level, "lstm": drift})
    assert not gate.passed
    assert "lstm drifts: 1.41 times as long in round 8 as in round 1" in gate.sentence
    # what drifts in rounds that do not count has no part
    shaken = steady | {i: [1.35e-3, 3e-3] for i in (6, 7, 8)}
    late = dict(enumerate((2.0, 2.1, 2.05, 2.15, 2.1, 2.3, 2.35, 2.4), 1))
    assert not machine_steady({"1 thread": steady}, {"gru": late}).passed
    assert machine_steady({"1 thread": shaken}, {"gru": late}).passed


def test_gate_clock_that_is_slower_in_whole_rounds_is_steady_within_them_and_another_program_is_not():
    rounds = {0: [1.24e-3, 1.24e-3], 1: [1.37e-3, 1.5e-3], 2: [1.54e-3, 1.54e-3], 3: [1.56e-3, 1.56e-3]}
    assert steady_rounds(rounds) == [0, 1, 2]
    assert speed_changed([1.0, 1.1], 1.0) == pytest.approx(0)
    assert speed_changed([1.2, 1.3], 1.0) == pytest.approx(1.3 / 1.25 - 1)


def test_skill_gate_closes_for_scores_of_a_trivial_rule():
    assert not above_chance(Estimate(16.8, 14.0, 19.6), 15.9).passed
    assert above_chance(Estimate(25.0, 22.0, 28.0), 15.9).passed
    # without an interval nothing is excluded
    assert not above_chance(Estimate(99.0, None, None), 15.9).passed


def test_comparison_reports_its_detectable_difference():
    sharp, blunt = Difference(0.2, 0.2, 8), Difference(4.8, 3.0, 4)
    assert powerful(sharp).passed
    assert not powerful(blunt).passed
    assert f"{blunt.detectable():.1f} BLEU" in powerful(blunt).sentence

    # of fifteen differences the smallest p-value counts fifteen times: less would be seen
    assert f"{sharp.detectable(level=0.05 / 15):.1f} BLEU" in powerful(sharp, pairs=15).sentence
    found = assess_pair("gru", "lstm", _one_pair(Difference(0.2, 1.5, 8), 0.9, pairs=15), {"gru": [], "lstm": []})
    seen = Difference(0.2, 1.5, 8).detectable(level=0.05 / 15)
    assert found.reasons[0].startswith(f"a difference of {seen:.1f} BLEU would be detected in 80 %")


def test_gate_runs_that_never_vary_are_sure_of_as_much_as_their_number_allows():
    few, more = (welch([1.0] * seeds, [9.0] * seeds) for seeds in (3, 5))
    found = assess_pair("gru", "lstm", _one_pair(few, few.p()), {"gru": [], "lstm": []})
    assert found.standing == "undecided"
    assert found.reasons == ("the runs do not vary, and so few can give no p-value below 0.1",)
    assert powerful(more).passed
    assert not powerful(more, pairs=15).passed
    assert "0.12" in powerful(more, pairs=15).sentence


def test_gate_tie_must_be_proven():
    near = [30.0, 30.1, 29.9, 30.2, 29.8]
    shifted = [each + 0.1 for each in near]
    assert decide_outcome(welch(near, shifted), []) == "tie"
    assert decide_outcome(welch(near, [each + 3 for each in near]), []) == "better"
    assert decide_outcome(welch(near, [each - 3 for each in near]), []) == "worse"
    # no difference is seen, and none is excluded: the seeds lie too far apart
    assert decide_outcome(welch([20.0, 40.0, 30.0], [29.0, 31.0, 36.0]), []) == "undecided"
    # significant, but smaller than what anybody cares about
    assert decide_outcome(Difference(0.5, 0.05, 20), []) == "tie"
    assert decide_outcome(Difference(2.0, 0.5, 20), [], p=0.2) == "undecided"


def test_gate_tie_among_many_must_be_proven_as_often():
    close = Difference(0.2, 0.35, 12)
    assert 0.05 / 3 < close.equivalence_p(1.0) < 0.05
    names = ("gru", "lstm", "conv", "rnn")
    for learned, found in ((2, "tie"), (3, "undecided"), (4, "undecided")):
        # of those whose gates are closed nobody would have said that they are equal
        gates = {name: [OPEN] if i < learned else [CLOSED] for i, name in enumerate(names)}
        assessed = assess_pair("gru", "lstm", _one_pair(close, close.p(), pairs=6), gates)
        assert assessed.standing == found
        if found == "tie":
            assert (assessed.p, assessed.test) == (close.equivalence_p(1.0), EQUIVALENCE)


def test_behind_a_closed_gate_there_is_no_verdict():
    sure = Difference(10.0, 0.1, 20)
    learning, blind = Gate("converged", False, ""), Gate("uses its source", False, "")
    assert decide_outcome(sure, [Gate("power", True, "")]) == "better"
    assert decide_outcome(sure, [learning]) == "still learning"
    assert decide_outcome(sure, [learning, blind]) == "not measurable"
    assert decide_outcome(None, []) == "not measurable"
    assert failed([learning, Gate("power", True, "")]) == [learning]


def test_pairs_share_one_correction_and_are_reported_for_both_models():
    values = {"a": [1.0, 1.1, 0.9], "b": [2.0, 2.1, 1.8], "c": [1.0, 1.2, 1.1], "alone": [5.0]}
    pairs = Pairwise.of(values, lambda one, other: welch(values[one], values[other]))
    # of a single seed nothing is tested, and nothing is corrected for
    assert list(pairs) == [("a", "b"), ("a", "c"), ("b", "c")]
    assert pairs.level == LEVEL / 3
    assert list(pairs.p.values()) == holm([each.p() for each in pairs.values()])
    there, back = pairs.compare("b", "a"), pairs.compare("a", "b")
    assert there == (pairs["a", "b"], pairs.p["a", "b"])
    assert back == (replace(pairs["a", "b"], value=-pairs["a", "b"].value), pairs.p["a", "b"])
    assert pairs.compare("a", "alone") == (None, None)


def test_power_uses_the_number_of_tested_pairs():
    pairs = Pairwise({("gru", "lstm"): Difference(0.2, 1.5, 8)})
    gates = {"gru": [], "lstm": [], "alone": []}
    found = assess_pair("lstm", "gru", pairs, gates)
    assert (found.standing, found.p) == ("undecided", pairs["gru", "lstm"].p())
    assert not found.decided
    assert assess_pair("alone", "gru", pairs, gates).reasons == ("one seed, so no test over seeds",)
    assert assess_pair("gru", "", pairs, gates).reasons == ("no other model was measured",)


def test_gate_device_that_waits_for_its_next_operation_is_not_measured():
    # 32 texts in the time of one, as on an H200 (docs/dev/log.md), and in three times that, as on a processor
    idle, busy = device_busy(0.0070, 0.0069, 32), device_busy(0.004, 0.012, 32)
    assert (idle.passed, busy.passed) == (False, True)
    assert idle.sentence == "a batch of 32 texts takes 0.99 times as long as one text (≥ 1.5 required)"
    assert [device_busy(1.0, BUSY + more, 8).passed for more in (-0.01, 0.0)] == [False, True]
    # few texts need not take longer
    assert device_busy(1.0, 1.0, 7).passed


def test_reference_model_must_pass_its_gates_unless_none_does():
    values = {"gru": 1.0, "lstm": 3.0, "rnn": 2.0}
    shut = [Gate("converged", False, "")]
    assert best_other("gru", values, {"gru": [], "lstm": [], "rnn": []}) == "lstm"
    assert best_other("gru", values, {"gru": [], "lstm": shut, "rnn": []}) == "rnn"
    assert best_other("gru", values, {"gru": [], "lstm": shut, "rnn": shut}) == "lstm"
    assert best_other("gru", {"gru": 1.0}, {"gru": []}) == ""
