"""The best answers of those who do not do what an exercise asks: a model that scores no more has shown nothing.

`Exercise.baseline` is the best answer of one who has read nothing. Much more can be had by reading without doing the
task: values without their keys, symbols without their order. Each is computed exactly, for one distance.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from s2s.data.exercises import DIGITS, Associative, Copy, Dyck, ListOps, Recall, _answers


@dataclass(frozen=True)
class Cheat:
    """A way of answering without doing what is asked.

    Attributes:
        how: what is known and what is not, in a few words.
        accuracy: share of right answers at a distance, from 0 to 1; 1 where the distance asks for nothing more.
    """

    how: str
    accuracy: Callable[[int], float]


def _recall(distance: int) -> float:
    return 1 / Recall.keys


def _copy(distance: int) -> float:
    """All orders of known symbols are equally likely, so each set of symbols is right as often as one order of it."""
    return math.comb(Copy.symbols + Copy.length - 1, Copy.length) / Copy.symbols**Copy.length


@cache
def _adding(distance: int) -> float:
    """The expected share of the most frequent among the sums of all pairs so far apart.

    With p(s) the probability of a sum, that no sum occurs more than k times among n pairs has the probability
    n! · [xⁿ] Π_s Σ_{j ≤ k} (p(s) x)ʲ / j!; what is expected of a count is the sum of the probabilities that it is more.
    """
    sums = Counter(a + b for a, b in itertools.product(range(DIGITS), repeat=2))
    expected = 0.0
    for most in range(distance):
        # coefficients of a polynomial in x, up to the number of pairs
        series = [1.0] + [0.0] * distance
        for ways in sums.values():
            share = ways / DIGITS**2
            terms = [share**j / math.factorial(j) for j in range(most + 1)]
            series = [sum(terms[j] * series[i - j] for j in range(min(i, most) + 1)) for i in range(distance + 1)]
        expected += 1 - math.factorial(distance) * series[distance]
    return expected / distance


@cache
def _associative(distance: int) -> float:
    """Over all values that could be stored, the likeliest pair of them at two different places."""
    total = 0
    for values in itertools.product(range(Associative.values), repeat=Associative.pairs):
        asked = Counter(itertools.permutations(values, Associative.queries))
        total += max(asked.values())
    ways = math.perm(Associative.pairs, Associative.queries)
    return total / ways / Associative.values**Associative.pairs


def _dyck(distance: int) -> float:
    """As for copies: sets of open brackets over orders of them."""
    return math.comb(distance + Dyck.kinds - 1, distance) / Dyck.kinds**distance


@cache
def _listops(distance: int) -> float:
    """For each operation and its digits, the value that most answers of what is nested lead to."""
    if distance == 1:
        return 1.0
    inner = _answers(distance - 1)
    total = 0.0
    for operation, arity in itertools.product(ListOps.operations, ListOps.arities):
        for digits in itertools.product(range(DIGITS), repeat=arity - 1):
            values: dict[int, float] = {}
            for nested, share in enumerate(inner):
                value = operation((nested, *digits))
                values[value] = values.get(value, 0.0) + share
            total += max(values.values()) / DIGITS ** (arity - 1)
    return total / (len(ListOps.operations) * len(ListOps.arities))


CHEATS: dict[str, Cheat] = {
    "recall": Cheat("knows all but the first symbol", _recall),
    "copy": Cheat("knows which symbols there were, and how often, but not in which order", _copy),
    "adding": Cheat("knows all digits, but not which two are marked", _adding),
    "associative": Cheat("knows which values are stored, but not with which keys", _associative),
    "dyck": Cheat("knows which brackets are open, but not in which order", _dyck),
    "listops": Cheat("reads the outermost operation, and not what is nested in it", _listops),
}
"""By the exercise's name; agreement in translation has only its baseline."""
