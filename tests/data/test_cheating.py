"""Scores of shortcut solutions, computed and measured."""

import itertools
import random
from collections import Counter

import pytest

from s2s.data.exercises import CHEATS, EXERCISES, Associative, Copy, agreeing_verb
from s2s.data.phrasebook import phrases

BY_NAME = {exercise.name: exercise for exercise in EXERCISES}
CHANCE = random.Random(1)
COUNT = 6_000


def _shuffled(pieces):
    return CHANCE.sample(pieces, len(pieces))


def _copy(source):
    return _shuffled(source[: Copy.length])


def _associative(source):
    values = source[1 : 2 * Associative.pairs : 2]
    return list(Counter(itertools.permutations(values, 2)).most_common(1)[0][0])


def _agreement(verbs):
    """The number of the verb before the agreeing one, if there is one."""
    *before, verb = verbs
    return not before or before[-1].endswith(("n", "sind")) == verb.endswith(("n", "sind"))


ANSWERS = {"copy": _copy, "associative": _associative}


@pytest.mark.parametrize(("name", "distance"), [("copy", 1), ("associative", 4)])
def test_expected_cheat_score_is_the_measured_one(name, distance):
    examples = BY_NAME[name].examples(distance, COUNT, seed=1)
    right = sum(ANSWERS[name](s) == t for s, t in zip(examples.sources, examples.targets, strict=True)) / COUNT
    wanted = CHEATS[name].accuracy(distance)
    assert right == pytest.approx(wanted, abs=4 * (wanted * (1 - wanted) / COUNT) ** 0.5 + 1e-12)


def test_cheat_values_without_keys_are_worth_what_a_referee_computed():
    assert CHEATS["associative"].accuracy(16) == pytest.approx(0.159, abs=5e-4)


@pytest.mark.parametrize("depth", [1, 4])
def test_cheat_verb_that_agrees_with_the_one_before_it_is_right_as_often_as_is_counted(depth):
    alike = []
    for phrase in phrases("validation", 400, depth=depth):
        verb = agreeing_verb(phrase)[1]
        # in a relative clause the verb stands last
        clauses = phrase.target.replace(".", "").split(", ")[1:-1]
        alike.append(_agreement([*(clause.split()[-1] for clause in clauses), verb]))
    wanted = CHEATS["agreement"].accuracy(4 * depth)
    assert sum(alike) / 400 == pytest.approx(wanted, abs=0.06)
    assert (wanted == 1) == (depth < 2)


def test_cheat_cheating_is_never_worse_than_not_reading():
    assert set(CHEATS) == {*BY_NAME, "agreement"}
    for name in BY_NAME:
        cheat = CHEATS[name]
        for distance in (1, 2, 4, 16):
            assert BY_NAME[name].baseline(distance) - 1e-9 <= cheat.accuracy(distance) <= 1 + 1e-9
