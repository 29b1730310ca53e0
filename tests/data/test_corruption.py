"""Span corruption: reconstruction, counts by the formula, uniform places."""

import itertools
from collections import Counter

import numpy as np
import pytest

from s2s.data.batches import windows
from s2s.data.corruption import CorruptedText, corrupt, masked_counts
from s2s.data.tokenized import RaggedArray

SIZE = 1_000


def lists(texts):
    return RaggedArray.from_rows(texts)


def together(source, target):
    """The text of a corrupted one: each sentinel of the source stands for what follows it in the target."""
    spans, found = {}, []
    for piece in target:
        if piece >= SIZE:
            spans[int(piece)] = found = []
        else:
            found.append(int(piece))
    return [p for piece in source for p in (spans[int(piece)] if piece >= SIZE else [int(piece)])]


@pytest.mark.parametrize(("share", "span"), [(0.15, 3.0), (0.5, 1.0), (0.9, 4.0)])
def test_corruption_source_and_target_give_the_text_again_and_have_the_formulas_counts(share, span):
    for length in [*range(1, 60), 512]:
        text = np.random.default_rng(length).integers(4, SIZE, length)
        source, target = corrupt(text, SIZE, share, span, np.random.default_rng([1, length]))
        assert together(source, target) == text.tolist()
        out = min(length, max(1, round(length * share)))
        spans = max(1, min(round(out / span), out, length - out + 1))
        assert (target < SIZE).sum() == out
        assert (source < SIZE).sum() == length - out
        assert source[source >= SIZE].tolist() == target[target >= SIZE].tolist() == [SIZE + i for i in range(spans)]
        # spans that touch would be one
        assert not any(a >= SIZE and b >= SIZE for a, b in itertools.pairwise(source))


def test_corruption_all_ways_to_place_the_spans_are_equally_likely():
    text = np.arange(4, 11)
    draws = [corrupt(text, SIZE, 3 / 7, 1.5, np.random.default_rng([2, i])) for i in range(6_000)]
    found = Counter(tuple(source.tolist()) for source, _ in draws)
    # 3 pieces in 2 spans, 4 that stay: 2 ways to divide the spans, 10 places
    assert len(found) == 20
    assert sum((count - 300) ** 2 / 300 for count in found.values()) < 43.8  # chi-square, 19 degrees, p = 0.001


def test_corruption_texts_are_drawn_by_seed_and_row_and_their_lengths_are_known_before():
    texts = [list(range(4, 4 + n)) for n in (40, 3, 90, 17)]
    made = CorruptedText(lists(texts), np.array([500, 501]), SIZE, 0.15, 3.0, 33)
    rows = np.arange(len(made.lengths))
    sources, targets = made.draw(rows, 6)
    assert [len(s) + 1 for s in sources] == made.source_lengths.tolist()
    assert [len(t) + 1 for t in targets] == made.target_lengths.tolist()
    assert made.source_lengths.max() <= 33
    assert all(s[:2].tolist() == [500, 501] for s in sources)
    alone = [made.draw(np.array([row]), 6) for row in rows[::-1]][::-1]
    assert [s[0].tolist() for s, _ in alone] == [s.tolist() for s in sources]
    assert [s.tolist() for s in made.draw(rows, 7)[0]] != [s.tolist() for s in sources]
    whole = [together(s[2:], t) for s, t in zip(sources, targets, strict=True)]
    numbers, _, _ = windows(np.array([40, 3, 90, 17]), 30)
    joined = [[p for n, w in zip(numbers, whole, strict=True) if n == text for p in w] for text in range(4)]
    assert joined == texts
    # many spans of one token, whose sentinels make the target longer than the window
    dense = CorruptedText(lists([list(range(4, 494))]), np.array([], np.int64), SIZE, 0.6, 1.0, 50)
    assert max(dense.source_lengths.max(), dense.target_lengths.max()) <= 50
    assert dense.lengths.sum() == 490
    pieces, spans = masked_counts(np.array([512]), 0.15, 3.0)
    assert (pieces.tolist(), spans.tolist()) == ([77], [26])
