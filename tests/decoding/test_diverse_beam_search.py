"""Diverse beam search, compared with ordinary beam search of its groups and with a simple loop."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from s2s.data.tokenizers import BOS, EOS
from s2s.decoding.beam_search import Beam, Hypothesis, search
from s2s.decoding.constraints import Constraints
from s2s.models.ensemble import Ensemble
from tests.decoding.test_beam_search import WORDS, log_probability


@pytest.fixture(params=["one", "ensemble"])
def searched(request, model, other_model):
    return model if request.param == "one" else Ensemble([model, other_model])


def assert_equal(found: list[Hypothesis], expected: list[tuple[tuple[int, ...], float]]) -> None:
    """Compare hypotheses with targets and scores."""
    assert [h.tokens for h in found] == [tokens for tokens, _ in expected]
    assert [h.score for h in found] == pytest.approx([score for _, score in expected], abs=1e-5)


@pytest.mark.parametrize(("size", "groups"), [(4, 2), (6, 3), (3, 3)])
def test_diverse_beam_search_without_a_penalty_is_beam_search_of_one_group(searched, sources, size, groups):
    limits = np.array([6, 9, 4, 7, 5])
    diverse = search(searched, *sources, limits, Beam(size, 2, groups=groups, diversity_penalty=0.0))
    one = search(searched, *sources, limits, Beam(size // groups, 2))
    for found, expected in zip(diverse, one, strict=True):
        assert_equal(found, [(h.tokens, h.score) for h in expected])


@pytest.mark.parametrize("penalty", [0.1, 0.5, 3.0])
def test_diverse_beam_search_of_groups_of_one_is_greedy_search_with_penalties(searched, sources, penalty):
    groups, limit = 3, 6
    beam = Beam(groups, groups, length_penalty=0.6, groups=groups, diversity_penalty=penalty)
    found = search(searched, *sources, np.array([limit] * 5), beam)
    for row in range(5):
        source, valid = sources[0][row : row + 1], sources[1][row : row + 1]
        written: list[list[int]] = [[] for _ in range(groups)]
        ended = [False] * groups
        for _ in range(limit):
            taken: Counter[int] = Counter()
            for group in range(groups):
                if ended[group]:
                    continue
                logits = searched.logits(source, valid, torch.tensor([[BOS, *written[group]]]))[0, -1]
                scores = logits.log_softmax(0).tolist()
                best = max(WORDS, key=lambda token: scores[token] - penalty * taken[token])
                ended[group] = scores[EOS] - penalty * taken[EOS] >= scores[best] - penalty * taken[best]
                # A continuation counts for later groups although its own group ends here.
                taken.update([best, EOS] if ended[group] else [best])
                written[group] += [] if ended[group] else [best]
        assert {h.tokens for h in found[row]} == {tuple(tokens) for tokens in written}
        for h in found[row]:
            again = log_probability(searched, source, valid, h.tokens)
            assert h.score == pytest.approx(again / beam.penalty(len(h.tokens) + 1), abs=1e-5)


@pytest.mark.parametrize("nbest", [1, 2, 3])
def test_diverse_beam_search_of_fewer_hypotheses_than_groups_returns_the_best_ones(searched, sources, nbest):
    beam, limits = Beam(4, 4, groups=4, diversity_penalty=3.0), np.array([6] * 5)
    every = search(searched, *sources, limits, beam)
    # in some source the first group, which has no penalty, is not the best one
    first = search(searched, *sources, limits, Beam(1))
    assert any(ranked[0].score > one[0].score + 1e-3 for ranked, one in zip(every, first, strict=True))
    for found, ranked in zip(search(searched, *sources, limits, replace(beam, nbest=nbest)), every, strict=True):
        assert_equal(found, [(h.tokens, h.score) for h in ranked[:nbest]])


def test_diverse_beam_search_of_a_high_penalty_begins_with_different_tokens(model, sources):
    beam = Beam(4, 4, constraints=Constraints(min_length=1), groups=4, diversity_penalty=50.0)
    for found in search(model, *sources, np.array([6] * 5), beam):
        assert {h.tokens[0] for h in found} == set(WORDS)
