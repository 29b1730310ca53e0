"""The benchmarks' n-gram model compared with its formula."""

import itertools
import math
import runpy
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

BOS, EOS, PIECES = 0, 1, 30
KneserNey = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "kneser_ney.py"))["KneserNey"]


def _documents(seed: int, count: int) -> list[np.ndarray]:
    chance = np.random.default_rng(seed)
    # words follow words that are near them in number, so that long n-grams come again
    found = []
    for _ in range(count):
        steps = chance.integers(1, 4, size=chance.integers(0, 9))
        found.append(np.array([BOS, *(2 + np.cumsum(steps) % (PIECES - 2)), EOS]))
    return found


def _by_hand(learned: list[np.ndarray], order: int):
    """Chen & Goodman (1999), section 3, by dictionaries; the probability of a piece after a history."""
    occurs = defaultdict(Counter)
    for document in learned:
        row = tuple(document.tolist())
        for n, i in itertools.product(range(1, order + 1), range(1, len(row))):
            if i - n + 1 >= 0:
                occurs[n][row[i - n + 1 : i + 1]] += 1
    counts = {order: dict(occurs[order])}
    for n in range(1, order):
        counts[n] = {}
        for gram in occurs[n]:
            before = len({longer[0] for longer in occurs[n + 1] if longer[1:] == gram})
            counts[n][gram] = occurs[n][gram] if gram[0] == BOS else before
    discounts = {}
    for n, each in counts.items():
        n1, n2, n3, n4 = (sum(count == k for count in each.values()) for k in (1, 2, 3, 4))
        y = n1 / (n1 + 2 * n2) if n1 else 0
        usual = (0, 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3) if n1 * n2 * n3 * n4 else (-1,)
        discounts[n] = usual if min(usual) >= 0 else (0, 0.5, 1, 1.5)
    assert discounts[order] != (0, 0.5, 1, 1.5)

    def probability(history: tuple, piece: int) -> float:
        n = len(history) + 1
        lower = probability(history[1:], piece) if history else 1 / (PIECES - 1)
        same = {gram: count for gram, count in counts[n].items() if gram[:-1] == history}
        if not sum(same.values()):
            return lower
        count = counts[n].get((*history, piece), 0)
        left = sum(discounts[n][min(3, c)] for c in same.values())
        return (count - discounts[n][min(3, count)] + left * lower) / sum(same.values())

    return probability


@pytest.mark.parametrize("order", [2, 3, 5])
def test_kneser_ney_probabilities_are_those_of_the_formula_and_sum_to_one(order):
    learned, asked = _documents(1, 150), _documents(2, 12)
    model, by_hand = KneserNey(learned, PIECES, PIECES - 1, order), _by_hand(learned, order)
    expected = [
        math.log(by_hand(tuple(row[max(0, i - order + 1) : i]), row[i]))
        for row in (document.tolist() for document in asked)
        for i in range(1, len(row))
    ]
    np.testing.assert_allclose(model.log_probabilities(asked), expected, rtol=1e-10)
    for document in asked[:4]:
        every = [np.array([*document[:-1], piece]) for piece in range(1, PIECES)]
        last = [model.log_probabilities([row])[-1] for row in every]
        assert sum(math.exp(each) for each in last) == pytest.approx(1)
