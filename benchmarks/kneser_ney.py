"""An n-gram model with interpolated, modified Kneser-Ney smoothing (Chen & Goodman 1999), on rows of numbers.

The highest order counts how often an n-gram occurs. A lower one counts after how many different pieces it does, save
for n-grams that begin a document, before which there is none: these count how often. From each count a discount is
taken, one for once, one for twice, one for more often; what is taken from a context's n-grams goes to the next lower
order, and what is taken from single pieces is spread evenly.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class _Order:
    """The n-grams of one length, by context · pieces + piece, in rising order; sums and shares are by context."""

    keys: np.ndarray
    counts: np.ndarray
    discounts: np.ndarray
    sums: np.ndarray
    left: np.ndarray

    def discounted(self, keys: np.ndarray) -> np.ndarray:
        """Counts less their discounts; zero for n-grams that never occurred."""
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        counts = np.where(self.keys[places] == keys, self.counts[places], 0)
        return counts - self.discounts[np.minimum(counts, 3)]


class KneserNey:
    """Learns from documents that begin with a piece that is never said, and says how probable others are."""

    def __init__(self, documents: Sequence[np.ndarray], pieces: int, said: int, order: int = 5) -> None:
        """Counts n-grams up to an order of 2 or more; of the `pieces`, so many are ever `said`."""
        self.pieces, self.said, self.order = pieces, said, order
        row, place = _joined(documents)
        # of each n-gram length, the number of the n-gram that ends at each place, and where each first does
        numbers, keys, firsts = [row], [np.arange(pieces)], [np.arange(len(row))]
        for n in range(2, order + 1):
            there = np.flatnonzero(place >= n - 1)
            found, first, number = np.unique(numbers[-1][there - 1] * pieces + row[there], True, True)
            numbers.append(np.full(len(row), -1))
            numbers[-1][there] = number
            keys.append(found)
            firsts.append(there[first])
        self.orders = []
        for n in range(1, order + 1):
            ends = numbers[n - 1]
            counts = np.bincount(ends[(ends >= 0) & (place > 0)], minlength=len(keys[n - 1]))
            if n < order:
                before = np.bincount(ends[firsts[n]], minlength=len(counts))
                begin = np.zeros(len(counts), dtype=bool)
                begin[ends[place == n - 1]] = n > 1
                counts = np.where(begin, counts, before)
            self.orders.append(_smoothed(keys[n - 1], counts, pieces, len(keys[n - 2]) if n > 1 else 1))

    def log_probabilities(self, documents: Sequence[np.ndarray]) -> np.ndarray:
        """The logarithm of the probability of each piece but the first of each document, one after the other."""
        row, place = _joined(documents)
        probability, numbers = np.full(len(row), 1 / self.said), np.zeros(len(row), dtype=np.int64)
        for n, order in enumerate(self.orders, start=1):
            # the number of what stands before each place, of n - 1 pieces; -1 where that never occurred
            context = np.concatenate(([-1], numbers[:-1])) if n > 1 else np.zeros(len(row), dtype=np.int64)
            known = (place >= max(1, n - 1)) & (context >= 0)
            known[known] = order.sums[context[known]] > 0
            keys, above = context[known] * self.pieces + row[known], context[known]
            share = order.discounted(keys) / order.sums[above]
            probability[known] = share + order.left[above] * probability[known]
            keys = context * self.pieces + row
            at = np.minimum(np.searchsorted(order.keys, keys), len(order.keys) - 1)
            there = (context >= 0) & (place >= n - 1) & (order.keys[at] == keys)
            numbers = np.where(there, at, -1)
        return np.log(probability[place > 0])


def _joined(documents: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """All documents in one row, and where each piece stands in its own."""
    lengths = np.array([len(document) for document in documents])
    starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.concatenate(documents).astype(np.int64), np.arange(lengths.sum()) - starts


def _smoothed(keys: np.ndarray, counts: np.ndarray, pieces: int, contexts: int) -> _Order:
    discounts = np.array([0.0, *_discounts([int((counts == n).sum()) for n in range(1, 5)])])
    context = keys // pieces
    sums = np.bincount(context, weights=counts, minlength=contexts)
    taken = np.bincount(context, weights=discounts[np.minimum(counts, 3)], minlength=contexts)
    return _Order(keys, counts, discounts, sums, taken / np.maximum(sums, 1))


def _discounts(rare: Sequence[int]) -> tuple[float, float, float]:
    """Equation 26 of Chen & Goodman (1999), by how many n-grams have the counts 1 to 4.

    Where one of these is none, or a discount is not between nothing and the count, those that KenLM falls back to.
    """
    if all(rare):
        share = rare[0] / (rare[0] + 2 * rare[1])
        found = tuple(n - (n + 1) * share * rare[n] / rare[n - 1] for n in (1, 2, 3))
        if all(0 <= discount <= n for n, discount in enumerate(found, start=1)):
            return found  # type: ignore[return-value]
    return 0.5, 1.0, 1.5
