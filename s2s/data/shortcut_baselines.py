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

from s2s.data.agreement import baseline, verbs_alike
from s2s.data.exercises import Associative, Copy, Recall


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
def _associative(distance: int) -> float:
    """Over all values that could be stored, the likeliest pair of them at two different places."""
    total = 0
    for values in itertools.product(range(Associative.values), repeat=Associative.pairs):
        asked = Counter(itertools.permutations(values, Associative.queries))
        total += max(asked.values())
    ways = math.perm(Associative.pairs, Associative.queries)
    return total / ways / Associative.values**Associative.pairs


@cache
def _agreement(distance: int) -> float:
    """Counted over a thousand sentences: the verb of a single clause has the subject's own number."""
    return max(verbs_alike(distance), baseline(distance))


CHEATS: dict[str, Cheat] = {
    "recall": Cheat("knows all but the first symbol", _recall),
    "copy": Cheat("knows which symbols there were, and how often, but not in which order", _copy),
    "associative": Cheat("knows which values are stored, but not with which keys", _associative),
    "agreement": Cheat("makes the verb agree with the one before it", _agreement),
}
"""By the exercise's name."""
