"""Stratified hold-out: validation and test splits with the overall class shares."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int


def stratified(classes: Int[np.ndarray, " candidates"], sizes: Sequence[int]) -> tuple[Int[np.ndarray, " held"], ...]:
    """Draw disjoint stratified splits of given sizes.

    Each class has about its share of the candidates in each split. A class with more candidates than there are splits
    has at least one in each split and one in the rest, as far as the sizes allow (larger classes first). A smaller
    class is missing from the first splits; its last candidate stays in the rest as long as there are others.

    Args:
        classes: Class of each candidate, shape `(candidates,)`; the candidates are in random order.
        sizes: Number of candidates of each split.

    Returns:
        Positions in `classes`, in ascending order, for each split.

    Example:
        >>> import numpy as np
        >>> validation, test = stratified(np.array([0, 0, 1, 0, 0, 1, 0, 1, 0]), [3, 2])
        >>> validation, test
        (array([0, 1, 2]), array([3, 5]))
    """
    left, parts = np.arange(len(classes)), []
    for number, size in enumerate(sizes):
        # Reserve one candidate of each class for each later split, and one for the rest.
        chosen = np.sort(left[np.argsort(_priorities(classes[left], len(sizes) - number), kind="stable")[:size]])
        parts.append(chosen)
        left = np.setdiff1d(left, chosen)
    return tuple(parts)


def _priorities(classes: Int[np.ndarray, " left"], reserved: int) -> np.ndarray:
    """Return sort keys: one of each class, then in proportion, reserved ones last."""
    order = np.argsort(classes, kind="stable")
    _, starts, counts = np.unique(classes[order], return_index=True, return_counts=True)
    size = np.empty(len(classes), dtype=np.int64)
    rank = np.empty(len(classes), dtype=np.int64)
    size[order] = np.repeat(counts, counts)
    rank[order] = np.arange(len(classes)) - np.repeat(starts, counts)
    keys = np.where(rank == 0, 1 / size - 2, (rank + 0.5) / np.maximum(size, 1))
    return np.where(rank >= size - reserved, 2 + keys, keys)
