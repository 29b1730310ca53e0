"""Shortcut baselines: the best accuracy without doing what an exercise requires.

A model must exceed these to show that it solves the task. `Exercise.baseline` is the best accuracy without reading the
source. Partial reading yields more: values without their keys, symbols without their order. Each baseline is computed
exactly, for one distance.
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
    """A shortcut baseline.

    Attributes:
        how: Short description of what the shortcut uses and what it lacks.
        accuracy: Function from the distance to the share of correct answers, in [0, 1]; 1 if the shortcut suffices at
            that distance.
    """

    how: str
    accuracy: Callable[[int], float]


def _recall(distance: int) -> float:
    return 1 / Recall.keys


def _copy(distance: int) -> float:
    """Return the accuracy of answering with the correct symbols in a random order.

    All orders of the symbols are equally likely, so each multiset of symbols contributes
    the probability of a single order.
    """
    return math.comb(Copy.symbols + Copy.length - 1, Copy.length) / Copy.symbols**Copy.length


@cache
def _associative(distance: int) -> float:
    """Return the accuracy of answering the most frequent pair of stored values.

    Averaged over all values that can be stored; the pair is at two different positions.
    """
    total = 0
    for values in itertools.product(range(Associative.values), repeat=Associative.pairs):
        asked = Counter(itertools.permutations(values, Associative.queries))
        total += max(asked.values())
    ways = math.perm(Associative.pairs, Associative.queries)
    return total / ways / Associative.values**Associative.pairs


@cache
def _agreement(distance: int) -> float:
    """Return the better of two accuracies, counted over 1,000 sentences.

    The verb of a single relative clause has the number of the subject.
    """
    return max(verbs_alike(distance), baseline(distance))


CHEATS: dict[str, Cheat] = {
    "recall": Cheat("knows all but the first symbol", _recall),
    "copy": Cheat("knows which symbols there were, and how often, but not in which order", _copy),
    "associative": Cheat("knows which values are stored, but not with which keys", _associative),
    "agreement": Cheat("makes the verb agree with the one before it", _agreement),
}
"""Shortcut baselines by name of the exercise."""
