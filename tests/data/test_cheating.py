"""What cheating is worth: computed, and tried on the exercises' own examples."""

import itertools
import random
from collections import Counter

import pytest

from s2s.data.cheating import CHEATS
from s2s.data.exercises import DIGITS, EXERCISES, FIRST, Associative, Copy, Dyck, ListOps, _answers

BY_NAME = {exercise.name: exercise for exercise in EXERCISES}
CHANCE = random.Random(1)
COUNT = 6_000


def _shuffled(pieces):
    return CHANCE.sample(pieces, len(pieces))


def _copy(source):
    return _shuffled(source[: Copy.length])


def _dyck(source):
    opened = []
    for piece in source:
        if piece - FIRST < Dyck.kinds:
            opened.append(piece + Dyck.kinds)
        else:
            opened.pop()
    return _shuffled(opened)


def _adding(source):
    digits = [(piece - FIRST) % DIGITS for piece in source]
    half = len(digits) // 2
    sums = Counter(a + b for a, b in zip(digits, digits[half:], strict=False))
    return [FIRST + int(digit) for digit in str(sums.most_common(1)[0][0])]


def _associative(source):
    values = source[1 : 2 * Associative.pairs : 2]
    return list(Counter(itertools.permutations(values, 2)).most_common(1)[0][0])


def _listops(source):
    """The outermost operation, with every digit in the place of what is nested, as likely as such an answer is."""
    depth = sum(piece > ListOps.close for piece in source)
    level, digits = 0, []
    for piece in source:
        level += (piece > ListOps.close) - (piece == ListOps.close)
        if level == 1 and piece < ListOps.close:
            digits.append(piece - FIRST)
    shares = Counter()
    for nested, share in enumerate(_answers(depth - 1)):
        shares[ListOps.operations[source[0] - ListOps.close - 1]((nested, *digits))] += share
    return [FIRST + shares.most_common(1)[0][0]]


ANSWERS = {"copy": _copy, "dyck": _dyck, "adding": _adding, "associative": _associative, "listops": _listops}


@pytest.mark.parametrize(
    ("name", "distance"),
    [
        ("copy", 1),
        ("dyck", 1),
        ("dyck", 2),
        ("dyck", 4),
        ("adding", 1),
        ("adding", 2),
        ("adding", 8),
        ("adding", 32),
        ("associative", 4),
        ("listops", 2),
        ("listops", 6),
    ],
)
def test_what_is_computed_is_what_a_cheat_scores(name, distance):
    examples = BY_NAME[name].examples(distance, COUNT, seed=1)
    right = sum(ANSWERS[name](s) == t for s, t in zip(examples.sources, examples.targets, strict=True)) / COUNT
    wanted = CHEATS[name].accuracy(distance)
    assert right == pytest.approx(wanted, abs=4 * (wanted * (1 - wanted) / COUNT) ** 0.5 + 1e-12)


def test_values_without_keys_are_worth_what_a_referee_computed():
    assert CHEATS["associative"].accuracy(16) == pytest.approx(0.159, abs=5e-4)


def test_cheating_is_never_worse_than_not_reading():
    assert set(CHEATS) == set(BY_NAME)
    for name, cheat in CHEATS.items():
        for distance in (1, 2, 4, 16):
            assert BY_NAME[name].baseline(distance) - 1e-9 <= cheat.accuracy(distance) <= 1 + 1e-9
