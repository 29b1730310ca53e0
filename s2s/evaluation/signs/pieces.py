"""How texts are cut: unknown pieces, those that never occurred in training, and what their frequencies alone tell."""

from collections.abc import Collection

import numpy as np
from jaxtyping import Int

from s2s.evaluation.signs import Finding, share_sign

Numbers = Int[np.ndarray, " pieces"]


def unknown(tokens: Numbers, unknown_piece: int, seen: Collection[int] | None) -> Finding:
    """Pieces of texts that are unknown or, where it was kept which ones occurred in training, new."""
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
    """What frequencies alone leave to be told of an item, in nats: their entropy (Miller & Madow's, 1955).

    Σ −p log p over the shares p, plus (kinds − 1) / 2n: of n items alone, the plain sum is too low by about so much.
    """
    counts = np.unique(items, return_counts=True)[1]
    shares = counts / max(1, len(items))
    return float(-(shares * np.log(shares)).sum() + (len(counts) - 1) / (2 * max(1, len(items))))
