"""Each sign of a bad run is found where it was planted, and not elsewhere."""

import math
import random

import numpy as np
import pytest

from s2s.evaluation.learning_signs import Learning, learning_signs
from s2s.evaluation.signs import class_signs, entropy, says_again, share_sign, text_signs, unknown
from s2s.tasks.symptoms import collapsed

SOURCES = [f"the {n} old men saw {m} red houses today" for n in range(10) for m in range(20)]
REFERENCES = [f"die {n} alten Herren sahen heute {m} rote Gebäude" for n in range(10) for m in range(20)]
SIGNS = {"copies the source", "repeats itself", "too short", "too long", "cut off"}


def _found(signs) -> set[str]:
    return {sign.name for sign in signs if sign.found}


def test_good_texts_show_no_sign():
    signs = text_signs(SOURCES, REFERENCES, REFERENCES, 0)
    assert {sign.name for sign in signs} == SIGNS
    assert _found(signs) == set()
    assert not collapsed(SOURCES, REFERENCES, REFERENCES).found


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("copies the source", lambda source, reference: source),
        ("repeats itself", lambda source, reference: " ".join([*reference.split()[:-3], "Haus", "Haus", "Haus"])),
        ("too short", lambda source, reference: " ".join(reference.split()[:6])),
        ("too long", lambda source, reference: f"{reference} und dann weiter"),
    ],
)
def test_signs_each_fault_of_texts_is_named_alone(name, output):
    outputs = [output(*pair) for pair in zip(SOURCES, REFERENCES, strict=True)]
    assert _found(text_signs(SOURCES, outputs, REFERENCES, 0)) == {name}


def test_signs_name_outputs_cut_by_the_length_limit():
    assert _found(text_signs(SOURCES, REFERENCES, REFERENCES, 20)) == {"cut off"}


def test_signs_same_answer_to_all_is_named():
    assert collapsed(SOURCES, ["ein Mann"] * len(SOURCES), REFERENCES).found
    assert collapsed(SOURCES, [""] * len(SOURCES), REFERENCES).found


def test_signs_few_answers_are_no_fault_where_few_are_right():
    judgements = [("good", "bad")[n % 2] for n in range(len(SOURCES))]
    assert not collapsed(SOURCES, judgements, judgements).found
    assert collapsed(SOURCES, ["good"] * len(SOURCES), [f"{n} good" for n in range(len(SOURCES))]).found


def test_signs_ignore_repetition_that_references_have_too():
    names = [f"Anna {n} Weber" for n in range(50)]
    again = ["ja ja ja"] * 50
    assert _found(text_signs(names, names, names, 0)) == set()
    assert _found(text_signs(names, again, again, 0)) == set()


@pytest.mark.parametrize("said", ["a a a", "x a b a b a b", "a b c d a b c d a b c d"])
def test_signs_three_times_in_a_row_is_again(said):
    assert says_again(said.split())
    assert not says_again(said.split()[:-1])


def test_few_examples_are_no_sign():
    few, many = (share_sign("n", n // 10, n, "are", 5, "", "") for n in (10, 1000))
    assert few.value == many.value == 10
    assert (few.found, many.found) == (False, True)
    assert not share_sign("n", 0, 0, "are", 5, "", "").found


def _answers(right: float, sure: float, count: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Classes, and probabilities of three of them: so many right, so sure; wrong ones fall on both others."""
    truth = np.arange(count) % 3
    hits = np.arange(count) // 3 % 100 < 100 * right
    said = np.where(hits, truth, (truth + 1 + np.arange(count) // 3 % 2) % 3)
    probabilities = np.full((count, 3), (1 - sure) / 2)
    probabilities[np.arange(count), said] = sure
    return truth, probabilities


NAMES = ["a", "b", "c"]


@pytest.mark.parametrize(
    ("right", "sure", "found"), [(0.9, 0.9, set()), (0.7, 0.95, {"too sure"}), (0.95, 0.6, {"not sure enough"})]
)
def test_signs_report_classifier_confidence(right, sure, found):
    assert _found(class_signs(*_answers(right, sure), NAMES)) == found


def test_signs_class_that_is_never_named_and_a_confused_pair():
    truth, probabilities = _answers(0.95, 0.95)
    probabilities[truth == 2] = [0.025, 0.95, 0.025]
    probabilities[:, 2] = np.minimum(probabilities[:, 2], 0.025)
    signs = class_signs(truth, probabilities, NAMES)
    assert {"classes never predicted", "classes confused"} <= _found(signs)
    said = {sign.name: sign.measured for sign in signs}
    assert "c (200 examples)" in said["classes never predicted"]
    assert "examples of c are predicted as b" in said["classes confused"]


def test_signs_one_class_for_all_is_named():
    truth = np.repeat([0, 1, 2], [300, 50, 50])
    probabilities = np.tile([0.75, 0.125, 0.125], (400, 1))
    assert {"majority class only", "classes never predicted"} <= _found(class_signs(truth, probabilities, NAMES))


def _log(training, validation=None, every: int = 50, seed: int = 1) -> Learning:
    """A log of 400 updates whose losses are functions of the update, with a little noise."""
    chance = random.Random(seed)
    losses = [training(n) + chance.gauss(0, 0.02) for n in range(1, 401)]
    looks = [(n, {"loss": (validation or training)(n)}) for n in range(every, 401, every)]
    return Learning(losses, [100] * 400, looks)


def _learns(update: float) -> float:
    return 0.5 + 5 * math.exp(-update / 30)


LOGS = {
    "over-fitted": _log(_learns, lambda n: _learns(n) + 0.002 * max(0, n - 200)),
    "not trained to the end": _log(lambda n: 6 - 0.5 * math.log2(n)),
    "rate too high": _log(lambda n: _learns(n) + 3 * (n % 90 > 75)),
    "learned nothing": _log(lambda n: 5.5),
}


@pytest.mark.parametrize("name", LOGS)
def test_signs_each_fault_of_a_training_is_named_alone(name):
    assert _found(learning_signs(LOGS[name], 5.5)) == {name}


def test_signs_tell_memorization_from_no_learning():
    log = _log(_learns, lambda n: 5.4 + 0.01 * n)
    assert _found(learning_signs(log, 5.5)) == {"over-fitted"}


def test_signs_hard_batches_are_no_rate_too_high():
    # as they come where batches hold pairs of one length: one of twenty is far above the others
    log = _log(lambda n: _learns(n) + 2 * (n % 20 == 7))
    assert "rate too high" not in _found(learning_signs(log, 5.5))


def test_good_training_shows_no_sign():
    assert _found(learning_signs(_log(_learns), 5.5)) == set()


def test_signs_tell_a_slow_loss_from_a_flat_one():
    slow = _log(lambda n: 9 - n / 400)
    assert "rate too low" in _found(learning_signs(slow, 5.5))
    assert "learned nothing" not in _found(learning_signs(slow, 5.5))


def test_signs_do_not_judge_the_loss_of_few_updates():
    brief = Learning([6.0 - 0.1 * n for n in range(4)], [100] * 4, [(2, {"loss": 5.9}), (4, {"loss": 5.8})])
    assert not {"learned nothing", "rate too low"} & _found(learning_signs(brief, 5.5))


def test_signs_loss_that_ends_far_above_its_lowest_is_a_rate_too_high():
    assert "rate too high" in _found(learning_signs(_log(lambda n: _learns(n) + 2 * (n > 300)), None))


def test_signs_without_looks_the_training_loss_tells_whether_it_still_learns():
    still, over = (_log(each, every=300) for each in (lambda n: 9 - math.log2(n), _learns))
    assert "not trained to the end" in _found(learning_signs(still, None))
    assert "not trained to the end" not in _found(learning_signs(over, None))


def test_signs_empty_log_says_nothing():
    assert _found(learning_signs(Learning([], [], []), 5.0)) == set()


def test_signs_unknown_pieces_and_those_that_training_never_had():
    pieces = np.array([3] * 5 + [7] * 5 + [8] * 90)
    assert unknown(pieces, 3, None).value == 5
    assert unknown(pieces, 3, [8]).value == 10
    assert unknown(np.full(500, 8), 3, [8]).found is False
    assert unknown(np.tile(pieces, 10), 3, [8]).found


def test_signs_entropy_of_what_is_drawn_evenly_is_the_logarithm_of_its_kinds():
    drawn = np.random.default_rng(1).integers(0, 50, 400)
    assert entropy(drawn) == pytest.approx(math.log(50), abs=0.02)
    assert entropy(np.full(9, 4)) == 0
