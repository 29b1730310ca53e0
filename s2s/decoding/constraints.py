"""Constraints on outputs: minimum length, n-grams that may not repeat, forced prefixes; and the copy penalty.

Constraints set scores of next tokens to -inf, and change no other score.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor

from s2s.data.tokenizers import EOS, SPECIAL_TOKENS

_NEVER = float("-inf")


@dataclass(frozen=True)
class Constraints:
    """Constraints of all outputs.

    Attributes:
        min_length: Least tokens of an output, EOS not counted; the length limit wins.
        no_repeat_ngram: Size of n-grams that an output may have only once; 0 for none.
    """

    min_length: int = 0
    no_repeat_ngram: int = 0

    def apply(
        self,
        scores: Float[Tensor, "rows vocabulary"],
        written: Int[np.ndarray, "rows length"],
        must_end: Bool[np.ndarray, " rows"],
        forced: Int[np.ndarray, " rows"] | None,
    ) -> None:
        """Set the scores of forbidden next tokens to -inf, in place.

        Args:
            scores: Scores of the next tokens.
            written: Tokens of each output so far.
            must_end: True for outputs at their length limit.
            forced: Next token of each output, -1 where it is free; None if all are free.

        Example:
            >>> import torch
            >>> scores = torch.zeros(1, 7)
            >>> free = np.array([False])
            >>> Constraints(no_repeat_ngram=2).apply(scores, np.array([[5, 6, 5]]), free, None)
            >>> scores.tolist()
            [[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -inf]]
        """
        length, n = written.shape[1], self.no_repeat_ngram
        rows = np.flatnonzero(forced >= 0) if forced is not None else np.empty(0, dtype=int)
        # A forced token may repeat an n-gram.
        kept = scores[rows, forced[rows]] if forced is not None else None
        if length < self.min_length:
            scores[np.flatnonzero(~must_end), EOS] = _NEVER
        if n and length >= n:
            # Earlier places where the last n - 1 tokens stand, (rows, length - n + 1).
            windows = sliding_window_view(written, n, axis=1)
            found = (windows[:, :, : n - 1] == written[:, None, length - n + 1 :]).all(axis=2)
            output, place = np.nonzero(found)
            scores[output, windows[output, place, n - 1]] = _NEVER
        if forced is not None and kept is not None and len(rows):
            scores[rows] = _NEVER
            scores[rows, forced[rows]] = kept


NO_CONSTRAINTS = Constraints()
"""Everything is allowed."""


def copy_penalties(
    source: Int[Tensor, "batch source"], valid: Bool[Tensor, "batch source"], penalty: float
) -> Float[Tensor, "batch tokens"]:
    """Return what the score of each next token loses because it occurs in the source, up to the largest source token.

    Args:
        source: Token ids; special tokens have no penalty.
        valid: Padding mask.
        penalty: Penalty of a copied token, in nats.

    Example:
        >>> import torch
        >>> copy_penalties(torch.tensor([[5, 6, 2, 0]]), torch.tensor([[True, True, True, False]]), 0.5).tolist()
        [[0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.5]]
    """
    found = torch.zeros(len(source), int(source.max()) + 1, device=source.device)
    found.scatter_(1, torch.where(valid, source, 0), penalty)
    found[:, : len(SPECIAL_TOKENS)] = 0
    return found


def forced_tokens(prefixes: Sequence[Sequence[int]], length: int) -> Int[np.ndarray, " outputs"] | None:
    """Return the next token of each output with a forced prefix.

    Args:
        prefixes: Tokens with which each output begins.
        length: Tokens written so far.

    Returns:
        The tokens, -1 where the prefix is over; None if all are over.

    Example:
        >>> forced_tokens([[7, 8], [9], []], 1)
        array([ 8, -1, -1])
    """
    found = np.array([prefix[length] if length < len(prefix) else -1 for prefix in prefixes])
    return found if (found >= 0).any() else None
