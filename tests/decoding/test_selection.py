"""The best ways to go on, selected from groups of pieces and from all of them."""

import pytest
import torch

from s2s.decoding import selection
from s2s.decoding.selection import best_ways


@pytest.mark.parametrize("pieces", [640, 641, 700, 8003])
@pytest.mark.parametrize("width", [1, 3])
def test_the_best_of_groups_are_the_best_of_all(pieces, width):
    generator = torch.Generator().manual_seed(pieces + width)
    scores = torch.randn(4 * width, pieces, generator=generator).log_softmax(dim=1)
    before = torch.randn(4 * width, generator=generator)
    # some rows may end alone, and some have little to choose from
    scores[1] = float("-inf")
    scores[1, pieces - 1] = -0.5
    scores[2, 5:] = float("-inf")
    best, piece, parent = best_ways(scores, before, width, 10)
    every = (scores + before.unsqueeze(1)).view(4, -1)
    expected, place = every.topk(10, dim=1)
    assert torch.equal(best, expected)
    known = best > float("-inf")
    places = (parent - width * torch.arange(4).unsqueeze(1)) * pieces + piece
    assert torch.equal(places[known], place[known])
    assert int(parent.min()) >= 0
    assert bool(((parent // width) == torch.arange(4).unsqueeze(1)).all())
    assert bool((piece < pieces).all())


@pytest.mark.parametrize(("pieces", "width", "count"), [(639, 2, 10), (7, 3, 10), (2, 2, 10), (700, 3, 10)])
def test_both_ways_to_select_find_the_same(pieces, width, count, monkeypatch):
    scores = torch.randn(2 * width, pieces, generator=torch.Generator().manual_seed(1))
    before = torch.zeros(2 * width)
    found = best_ways(scores, before, width, count)
    monkeypatch.setattr(selection, "_GROUP", 10**9)
    for one, other in zip(found, best_ways(scores, before, width, count), strict=True):
        assert torch.equal(one, other)
    assert found[0].shape == (2, min(count, width * pieces))
