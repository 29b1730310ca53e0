"""Sampling compared with the probabilities of all targets, and with beam search."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from s2s.data.tokenizers import BOS, EOS, SPECIAL_TOKENS, UNK
from s2s.decoding.beam_search import Beam
from s2s.decoding.constraints import Constraints
from s2s.decoding.sampling import Draws, Sampling, sample_targets
from tests.decoding.test_beam_search import WORDS, log_probability

DRAWN = [word for word in WORDS if word != UNK]


def _sample(model, sources, limits, sampling=Sampling(), beam=Beam(), seed=0, prefixes=None):  # noqa: B008
    generators = [np.random.default_rng([seed, row]) for row in range(len(limits))]
    return sample_targets(model, *sources, np.array(limits), beam, Draws(sampling, generators), prefixes=prefixes)


def _filtered(scores, sampling):
    """Probabilities by token after temperature, top-k, top-p and min-p, by sorting Python numbers."""
    shares = {token: np.exp(scores[token].item() / sampling.temperature) for token in [EOS, *DRAWN]}
    ranked = sorted(shares, key=lambda token: -shares[token])[: sampling.top_k]
    total, kept, reached = sum(shares[token] for token in ranked), [], 0.0
    for token in ranked:
        if reached < sampling.top_p:
            kept.append(token)
        reached += shares[token] / total
    kept = [token for token in kept if shares[token] >= sampling.min_p * shares[ranked[0]]]
    return {token: shares[token] / sum(shares[each] for each in kept) for token in kept}


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(0.5),
        Sampling(top_k=3),
        Sampling(top_p=0.7),
        Sampling(min_p=0.5),
        Sampling(2.0, 4, 0.9, 0.2),
    ],
)
def test_sampling_frequencies_are_the_filtered_probabilities(model, sources, sampling):
    torch.manual_seed(3)
    torch.nn.init.normal_(model.projection.weight, std=0.6)
    source, valid = (each[:1] for each in sources)
    expected: dict[tuple[int, ...], float] = {}
    for tokens in [(), *((word,) for word in DRAWN), *itertools.product(DRAWN, repeat=2)]:
        share, scores = 1.0, model.logits(source, valid, torch.tensor([[BOS, *tokens]]))[0].detach()
        for place, token in enumerate(tokens):
            share *= _filtered(scores[place], sampling).get(token, 0.0)
        # the limit of two tokens ends the others
        expected[tokens] = share * (_filtered(scores[-1], sampling).get(EOS, 0.0) if len(tokens) < 2 else 1.0)
    assert sum(expected.values()) == pytest.approx(1)
    count = 4000
    found = _sample(model, (source.expand(count, -1), valid.expand(count, -1)), [2] * count, sampling)
    observed = {tokens: 0 for tokens in expected}
    for each in found:
        observed[each.tokens] += 1
    assert all(share > 0 for tokens, share in expected.items() if observed[tokens])
    likely = [tokens for tokens, share in expected.items() if share * count >= 5]
    rest = count - sum(observed[tokens] for tokens in likely), 1 - sum(expected[tokens] for tokens in likely)
    pairs = [(observed[tokens], count * expected[tokens]) for tokens in likely] + [(rest[0], count * rest[1])]
    pairs = [pair for pair in pairs if pair[1] > 0]
    assert stats.chisquare(*zip(*pairs, strict=True)).pvalue > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sampling_probabilities_leave_the_scores_unchanged(dtype):
    scores = torch.zeros(1, 7, dtype=dtype)
    assert Sampling().probabilities(scores).dtype == torch.float64
    assert not scores.any()


def test_sampling_temperature_zero_is_greedy_search_without_unknown_tokens(model, sources):
    limits = [6, 3, 5, 9, 2]
    for i, found in enumerate(_sample(model, sources, limits, Sampling(temperature=0.0))):
        tokens, best = [BOS], BOS
        while best != EOS and len(tokens) <= limits[i]:
            scores = model.logits(sources[0][i : i + 1], sources[1][i : i + 1], torch.tensor([tokens]))[0, -1]
            best = max([EOS, *DRAWN], key=lambda token: scores[token].item())
            tokens += [best] if best != EOS else []
        assert list(found.tokens) == tokens[1 : limits[i] + 1]


def test_sampling_reports_the_log_probability_of_the_model(model, sources):
    sampling, beam = Sampling(temperature=2.0, top_k=4), Beam(length_penalty=0.7)
    for i, found in enumerate(_sample(model, sources, [6, 9, 4, 7, 5], sampling, beam)):
        again = log_probability(model, sources[0][i : i + 1], sources[1][i : i + 1], found.tokens)
        assert found.log_probability == pytest.approx(again, abs=1e-4)
        assert found.score == pytest.approx(again / beam.penalty(len(found.tokens) + 1), abs=1e-4)


def test_sampling_target_does_not_depend_on_the_batch(model, sources):
    limits = [6, 9, 4, 7, 5]
    together = _sample(model, sources, limits)
    for i, limit in enumerate(limits):
        one = sources[0][i : i + 1, : int(sources[1][i].sum())], sources[1][i : i + 1, : int(sources[1][i].sum())]
        draws = Draws(Sampling(), [np.random.default_rng([0, i])])
        assert sample_targets(model, *one, np.array([limit]), Beam(), draws)[0].tokens == together[i].tokens


def test_sampled_target_that_constraints_leave_nothing_to_write_ends(model, sources):
    beam = Beam(constraints=Constraints(min_length=9, no_repeat_ngram=1))
    for sampling in (Sampling(), Sampling(temperature=0.0)):
        found = _sample(model, sources, [9] * 5, sampling, beam)
        assert [sorted(each.tokens) for each in found] == [DRAWN] * 5
        # the constraints ended it, not the length limit
        assert not any(each.cut for each in found)


def test_sampling_with_a_large_copy_penalty_copies_nothing(model, sources):
    for beam in (Beam(), Beam(copy_penalty=100.0)):
        copied = [
            token >= len(SPECIAL_TOKENS) and token in sources[0][row][sources[1][row]]
            for seed in range(20)
            for row, each in enumerate(_sample(model, sources, [6, 5, 4, 2, 3], beam=beam, seed=seed))
            for token in each.tokens
        ]
        assert any(copied) == (beam == Beam())


def test_sampling_obeys_constraints_and_prefixes(model, sources):
    prefixes = [[6, 4], [], [5], [4, 4, 4], []]
    beam = Beam(constraints=Constraints(min_length=3, no_repeat_ngram=2))
    for seed in range(20):
        found = _sample(model, sources, [6, 5, 4, 2, 3], beam=beam, seed=seed, prefixes=prefixes)
        for each, prefix in zip(found, prefixes, strict=True):
            pairs = list(itertools.pairwise(each.tokens))
            assert list(each.tokens[: len(prefix)]) == prefix
            assert len(each.tokens) >= 3
            assert all(pair not in pairs[:j] for j, pair in enumerate(pairs) if j >= len(prefix) - 1)
