"""Selection of continuations compared with slower implementations."""

import numpy as np
import pytest
import torch

from s2s.decoding import beam_search
from s2s.decoding.beam_search import top_tokens, topk_continuations


@pytest.mark.parametrize("tokens", [1280, 1281, 1400, 8003])
@pytest.mark.parametrize("count", [1, 6, 10])
def test_topk_top_tokens_of_groups_are_the_top_tokens_of_all(tokens, count):
    scores = torch.randn(12, tokens, generator=torch.Generator().manual_seed(tokens))
    # a row with one possible token, in the rest that fills no group, and one with few
    scores[1] = float("-inf")
    scores[1, tokens - 1] = -0.5
    scores[2, 5:] = float("-inf")
    best, token = top_tokens(scores, count)
    assert torch.equal(best, scores.topk(count, dim=1).values)
    assert torch.equal(scores.gather(1, token), best)
    assert all(len(set(row)) == count for row in token.tolist())


@pytest.mark.parametrize(("tokens", "count"), [(639, 10), (7, 10), (2, 10), (1500, 10)])
def test_topk_top_tokens_do_not_depend_on_groups(tokens, count, monkeypatch):
    scores = torch.randn(6, tokens, generator=torch.Generator().manual_seed(1))
    found = top_tokens(scores, count)
    monkeypatch.setattr(beam_search, "_GROUP", 10**9)
    for one, other in zip(found, top_tokens(scores, count), strict=True):
        assert torch.equal(one, other)
    assert found[0].shape == (6, min(count, tokens))


def _select_by_sorting(log_probability: np.ndarray, size: int) -> list[tuple[int, int]]:
    """The same selection for one sentence, from the definition."""
    taken: list[tuple[int, int]] = []
    for slot in range(size):
        offers = [(row, rank) for row, rank in np.ndindex(log_probability.shape) if row <= slot]
        left = [offer for offer in offers if offer not in taken]
        taken.append(max(left, key=lambda offer: log_probability[offer]))
    return taken


@pytest.mark.parametrize("rows", [1, 4])
def test_topk_select_nested_follows_its_definition(rows):
    random = np.random.default_rng(rows)
    scores = -np.sort(random.exponential(size=(5, rows, 4)).astype(np.float32), axis=2)
    row, rank, picked = topk_continuations(scores, 4)
    for i in range(5):
        expected = _select_by_sorting(scores[i], 4)
        assert list(zip(row[i].tolist(), rank[i].tolist(), strict=True)) == expected
        assert picked[i].tolist() == [scores[i][offer] for offer in expected]
    # the first slots do not depend on how many follow
    for some, every in zip(topk_continuations(scores, 2), (row, rank, picked), strict=True):
        assert np.array_equal(some, every[:, :2])


def test_topk_select_nested_leaves_slots_empty_where_there_are_too_few_continuations():
    scores = np.array([[[-1.0, -2.0]], [[-1.0, -np.inf]]], dtype=np.float32)
    row, rank, picked = topk_continuations(scores, 4)
    assert picked.tolist() == [[-1.0, -2.0, -np.inf, -np.inf], [-1.0, -np.inf, -np.inf, -np.inf]]
    assert row.max() == 0
    assert rank.max() <= 1
