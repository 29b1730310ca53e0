"""Stratified hold-out: validation and test parts in which each class occurs about as often as in the whole."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int


def stratified(classes: Int[np.ndarray, " candidates"], sizes: Sequence[int]) -> tuple[Int[np.ndarray, " held"], ...]:
    """Draw disjoint parts of these sizes in which each class has about its share of the candidates.

    A class with more candidates than there are parts has at least one in each part and one in the rest, as far as the
    sizes allow (larger classes first). A smaller class is left out of the first parts; its last candidate stays in the
    rest while there are others.

    Args:
        classes: Class of each candidate; the candidates are in random order.
        sizes: Number of candidates of each part.

    Returns:
        Positions in `classes`, in ascending order, for each part.

    Example:
        >>> import numpy as np
        >>> validation, test = stratified(np.array([0, 0, 1, 0, 0, 1, 0, 1, 0]), [3, 2])
        >>> validation, test
        (array([0, 1, 2]), array([3, 5]))
    """
    left, parts = np.arange(len(classes)), []
    for number, size in enumerate(sizes):
        # one candidate of each class for each later part, and one for the rest
        chosen = np.sort(left[np.argsort(_priorities(classes[left], len(sizes) - number), kind="stable")[:size]])
        parts.append(chosen)
        left = np.setdiff1d(left, chosen)
    return tuple(parts)


def _priorities(classes: Int[np.ndarray, " left"], reserved: int) -> np.ndarray:
    """Sort keys: the first candidate of each class, then all in proportion, at last those that are reserved."""
    order = np.argsort(classes, kind="stable")
    _, starts, counts = np.unique(classes[order], return_index=True, return_counts=True)
    size = np.empty(len(classes), dtype=np.int64)
    rank = np.empty(len(classes), dtype=np.int64)
    size[order] = np.repeat(counts, counts)
    rank[order] = np.arange(len(classes)) - np.repeat(starts, counts)
    keys = np.where(rank == 0, 1 / size - 2, (rank + 0.5) / np.maximum(size, 1))
    return np.where(rank >= size - reserved, 2 + keys, keys)
