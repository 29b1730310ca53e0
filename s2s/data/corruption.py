"""Span corruption, the denoising objective of T5 (Raffel et al. 2020, 3.1.4).

The source is a text without some of its spans, the target has the spans. Of n tokens, `share` · n are removed (rounded,
at least one), in as many spans as the removed tokens divided by the mean length `span` (rounded, at least one). A
sentinel token takes the place of each span in the source, and precedes the span in the target. Source and target
together have each token once.

Two differences to T5's code: T5 lets each text begin with a kept token and end with a removed one, whereas here every
placement of spans with a token between them is equally likely; and the target ends with `EOS` instead of a further
sentinel. Lengths follow from n alone, so batches can be planned.
"""

import numpy as np
from jaxtyping import Int

from s2s.data.batches import windows
from s2s.data.tokenized import TokenizedTexts
from s2s.errors import UserError

SENTINELS = 100
"""Number of sentinel tokens after the vocabulary: sentinel i has the id vocabulary size + i."""

Row = Int[np.ndarray, " tokens"]
Counts = Int[np.ndarray, " texts"]


def masked_counts(lengths: Counts, share: float, span: float) -> tuple[Counts, Counts]:
    """Compute the number of removed tokens and of spans of each text of at least one token.

    Example:
        >>> removed, spans = masked_counts(np.array([10, 100]), 0.15, 3.0)
        >>> removed.tolist(), spans.tolist()
        ([2, 15], [1, 5])
    """
    tokens = np.clip(np.rint(lengths * share).astype(np.int64), 1, lengths)
    # At least one token is kept between two spans.
    spans = np.clip(np.rint(tokens / span).astype(np.int64), 1, np.minimum(tokens, lengths - tokens + 1))
    return tokens, spans


def _parts(total: int, number: int, generator: np.random.Generator) -> Int[np.ndarray, " parts"]:
    """Draw a partition of a total into parts of at least one, all equally likely."""
    cuts = np.sort(generator.choice(total - 1, number - 1, replace=False)) + 1
    return np.diff([0, *cuts, total])


def corrupt(tokens: Row, size: int, share: float, span: float, generator: np.random.Generator) -> tuple[Row, Row]:
    """Corrupt the token ids of a text; `size` is the id of the first sentinel.

    Example:
        >>> source, target = corrupt(np.arange(10, 20), 100, 0.2, 2.0, np.random.default_rng(0))
        >>> len(source), len(target), sorted([*source.tolist(), *target.tolist()])[:10]
        (9, 3, [10, 11, 12, 13, 14, 15, 16, 17, 18, 19])
    """
    (count,), (spans,) = masked_counts(np.array([len(tokens)]), share, span)
    inside = _parts(int(count), int(spans), generator)
    # Kept tokens are before, between and after the spans; before and after, there may be none.
    outside = _parts(len(tokens) - int(count) + 2, int(spans) + 1, generator)
    outside[[0, -1]] -= 1
    source, target, place = [], [], 0
    for number in range(int(spans)):
        start = place + outside[number]
        source += [tokens[place:start], [size + number]]
        target += [[size + number], tokens[start : start + inside[number]]]
        place = start + inside[number]
    return np.concatenate([*source, tokens[place:]]).astype(np.int32), np.concatenate(target).astype(np.int32)


class CorruptedText:
    """Texts with span corruption, drawn again for each seed.

    Long texts are cut into windows.

    Args:
        texts: Tokenized texts.
        prefix: Token ids before each source.
        size: Vocabulary size, the id of the first sentinel.
        share: Share of the tokens that is removed.
        span: Mean length of a span in tokens.
        max_length: Largest number of tokens of a window, including `EOS` and prefix.

    Attributes:
        source_lengths: Tokens of each source including prefix and `EOS`, shape `(windows,)`.
        target_lengths: Tokens of each target including `EOS`, shape `(windows,)`.

    Raises:
        UserError: The prefix leaves no space for text, there is no text, or a window needs more spans than there are
            sentinels.
    """

    def __init__(
        self, texts: TokenizedTexts, prefix: Row, size: int, share: float, span: float, max_length: int
    ) -> None:
        self.texts, self.prefix, self.size, self.share, self.span = texts, prefix, size, share, span
        room = max_length - 1 - len(prefix)
        tokens, spans = masked_counts(np.arange(1, room + 1), share, span)
        # Of many small spans, the target with its sentinels is longer than the window.
        if room < 1 or not (fits := tokens + spans + 1 <= max_length).any():
            raise UserError("leaves no space for text after the prefix", "batches.max_length", "raise it")
        self.numbers, self.first, self.lengths = windows(texts.lengths, int(np.count_nonzero(fits)))
        if not len(self.lengths):
            raise UserError("there is no text for span corruption", "data.corpora", "name a corpus with text")
        tokens, spans = masked_counts(self.lengths, share, span)
        if spans.max() > SENTINELS:
            what = f"a text of {self.lengths.max()} tokens has {spans.max()} spans; the limit is {SENTINELS} sentinels"
            raise UserError(what, where="batches.max_length", remedy="lower it, or raise the corpus' span")
        self.source_lengths = self.lengths - tokens + spans + len(prefix) + 1
        self.target_lengths = tokens + spans + 1

    def draw(self, indices: Int[np.ndarray, " chosen"], seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return corrupted sources and targets of the chosen windows."""
        sources, targets = [], []
        whole = self.texts.rows(self.numbers[indices])
        for row, text in zip(indices.tolist(), whole, strict=True):
            window = text[self.first[row] : self.first[row] + self.lengths[row]]
            generator = np.random.default_rng([seed % 2**64, row])
            source, target = corrupt(window, self.size, self.share, self.span, generator)
            sources.append(np.concatenate([self.prefix, source]).astype(np.int32))
            targets.append(target)
        return sources, targets
