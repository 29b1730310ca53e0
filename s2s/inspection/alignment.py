"""Word alignments read off attention, in Pharaoh's format: `0-0 1-2`, source word and target word, counted from 0."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from s2s.inspection.words import Word

Link = tuple[int, int]


def links(weights: Float[np.ndarray, "target source"], source: Sequence[Word], target: Sequence[Word]) -> list[Link]:
    """For each target word, the source word that it looked at most: one link each, in the order of the source.

    A word was looked at as much as all its pieces together, and it looked as its pieces did on average. What was looked
    at beside words, such as the text's end, does not count.
    """
    if not source or not target:
        return []
    on_source = np.stack([weights[:, list(word.places)].sum(axis=1) for word in source], axis=1)
    looked = np.stack([on_source[list(word.places)].mean(axis=0) for word in target])
    return sorted((int(row.argmax()), place) for place, row in enumerate(looked))


def pharaoh(found: Sequence[Link]) -> str:
    """A line of links; empty where there are none."""
    return " ".join(f"{source}-{target}" for source, target in found)
