"""Word alignment from attention, in Pharaoh format: `0-0 1-2` (source-target)."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from s2s.inspection.words import Word

Link = tuple[int, int]


def links(weights: Float[np.ndarray, "target source"], source: Sequence[Word], target: Sequence[Word]) -> list[Link]:
    """Align each target word with its most attended source word.

    A source word's attention is the sum over its tokens; a target word's is the mean over its tokens. Tokens that are
    not part of a word, such as the end of the text, do not count.

    Args:
        weights: Attention weights by target and source token.

    Returns:
        One link per target word, as pairs of positions, sorted by source word.

    Example:
        >>> weights = np.array([[0.1, 0.9], [0.8, 0.2]])
        >>> links(weights, [Word("a", (0,)), Word("b", (1,))], [Word("x", (0,)), Word("y", (1,))])
        [(0, 1), (1, 0)]
    """
    if not source or not target:
        return []
    on_source = np.stack([weights[:, list(word.places)].sum(axis=1) for word in source], axis=1)
    looked = np.stack([on_source[list(word.places)].mean(axis=0) for word in target])
    return sorted((int(row.argmax()), place) for place, row in enumerate(looked))


def pharaoh(found: Sequence[Link]) -> str:
    """Format links in Pharaoh format; empty for none.

    Example:
        >>> pharaoh([(0, 1), (1, 0)])
        '0-1 1-0'
    """
    return " ".join(f"{source}-{target}" for source, target in found)
