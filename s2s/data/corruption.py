"""Span corruption: a text without some of its spans, and the spans, as source and target (Raffel et al. 2020, 3.1.4).

Of n pieces, `share` are taken out, rounded and at least one, in spans whose number is what is taken out over the mean
length of a `span`, rounded and at least one. In the source a sentinel stands in the place of each span, and in the
target before it: source and target together have every piece once. T5's code lets each text begin with what stays and
end with what is taken out; here every placing of the spans that keeps a piece between them is equally likely, and the
target ends with `EOS` rather than with a sentinel more. Lengths follow from n alone, so batches can be planned.
"""

import numpy as np
from jaxtyping import Int

from s2s.data.batches import windows
from s2s.data.tokenized import TokenizedTexts
from s2s.errors import UserError

SENTINELS = 100
"""Pieces beside those of a tokenizer: sentinel i has the tokenizer's size plus i as its number."""

Row = Int[np.ndarray, " pieces"]
Counts = Int[np.ndarray, " texts"]


def masked_counts(lengths: Counts, share: float, span: float) -> tuple[Counts, Counts]:
    """How many pieces are taken out of texts of these lengths, above 0, and in how many spans."""
    tokens = np.clip(np.rint(lengths * share).astype(np.int64), 1, lengths)
    # between two spans a piece stays
    spans = np.clip(np.rint(tokens / span).astype(np.int64), 1, np.minimum(tokens, lengths - tokens + 1))
    return tokens, spans


def _parts(total: int, number: int, generator: np.random.Generator) -> Int[np.ndarray, " parts"]:
    """One of the ways to divide a total into so many parts of at least one, all equally likely."""
    cuts = np.sort(generator.choice(total - 1, number - 1, replace=False)) + 1
    return np.diff([0, *cuts, total])


def corrupt(tokens: Row, size: int, share: float, span: float, generator: np.random.Generator) -> tuple[Row, Row]:
    """The source and the target of a text, which has a piece or more; sentinels count from `size`."""
    (count,), (spans,) = masked_counts(np.array([len(tokens)]), share, span)
    inside = _parts(int(count), int(spans), generator)
    # what stays stands before, between and behind the spans; before and behind it may be nothing
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
    """Texts of which a model writes what was taken out, drawn anew for each seed; long ones are cut into windows.

    Args:
        texts: in pieces.
        prefix: pieces before each source.
        size: of the tokenizer.
        share: of the pieces that is taken out.
        span: mean length of what is taken out, in pieces.
        longest: pieces of a window at most, `EOS` and the prefix counted.

    Raises:
        UserError: a window would need more spans than there are sentinels.
    """

    def __init__(self, texts: TokenizedTexts, prefix: Row, size: int, share: float, span: float, longest: int) -> None:
        self.texts, self.prefix, self.size, self.share, self.span = texts, prefix, size, share, span
        room = longest - 1 - len(prefix)
        if room < 1:
            raise UserError("leaves no room for text beside the prefix", "batches.max_length", "raise it")
        self.numbers, self.first, self.lengths = windows(texts.lengths, room)
        if not len(self.lengths):
            raise UserError("there is no text to take spans out of", "data.corpora", "name a corpus with text")
        tokens, spans = masked_counts(self.lengths, share, span)
        if spans.max() > SENTINELS:
            raise UserError(
                f"a text of {self.lengths.max()} pieces has {spans.max()} spans, and there are {SENTINELS} sentinels",
                where="batches.max_length",
                remedy="lower it, or raise the corpus' span",
            )
        self.source_lengths = self.lengths - tokens + spans + len(prefix) + 1
        self.target_lengths = tokens + spans + 1

    def draw(self, indices: Int[np.ndarray, " chosen"], seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The windows, corrupted, each by its row and the seed."""
        sources, targets = [], []
        whole = self.texts.rows(self.numbers[indices])
        for row, text in zip(indices.tolist(), whole, strict=True):
            window = text[self.first[row] : self.first[row] + self.lengths[row]]
            generator = np.random.default_rng([seed % 2**64, row])
            source, target = corrupt(window, self.size, self.share, self.span, generator)
            sources.append(np.concatenate([self.prefix, source]).astype(np.int32))
            targets.append(target)
        return sources, targets
