"""Signs of tokenization: unknown or unseen tokens; and the unigram entropy."""

from collections.abc import Collection

import numpy as np
from jaxtyping import Int

from s2s.evaluation.signs import Finding, share_sign

Numbers = Int[np.ndarray, " pieces"]


def unknown(tokens: Numbers, unknown_piece: int, seen: Collection[int] | None) -> Finding:
    """Check for tokens that are unknown or did not occur in training.

    Args:
        tokens: Token ids of the inputs.
        unknown_piece: Id of the unknown token.
        seen: Token ids that occurred in training; None if not recorded.
    """
    strange = tokens == unknown_piece
    if seen is not None:
        strange |= ~np.isin(tokens, list(seen))
    what = "are unknown" if seen is None else "are unknown or never stood in the training sources"
    return share_sign(
        "unknown pieces",
        int(strange.sum()),
        len(tokens),
        f"pieces that were read {what}",
        1,
        "nothing taught their vectors, and one in a text of a hundred spoils what stands beside it",
        "cut texts as the training's were; tokenizer.byte_fallback=true, tokenizer.kind=unigram or a smaller "
        "tokenizer.size; training data of the kind that is read (data.train)",
    )


def entropy(items: Numbers) -> float:
    """Estimate the entropy of item frequencies in nats (Miller & Madow 1955).

    Σ −p log p over relative frequencies p, plus the bias correction (kinds − 1) / 2n for n items.

    Example:
        >>> round(entropy(np.array([1, 1, 2, 2])), 3)
        0.818
    """
    counts = np.unique(items, return_counts=True)[1]
    shares = counts / max(1, len(items))
    return float(-(shares * np.log(shares)).sum() + (len(counts) - 1) / (2 * max(1, len(items))))
