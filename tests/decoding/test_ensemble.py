"""Ensembles compared with the mean of their members' probabilities, and with a member itself."""

import itertools

import numpy as np
import pytest
import torch

from s2s.data.tokenizers import BOS, EOS, PAD
from s2s.decoding.beam_search import Beam, search
from s2s.models.ensemble import Ensemble
from tests.decoding.test_beam_search import SIZE

LIMITS = np.array([3, 2, 3, 1, 0])


@pytest.mark.parametrize(("mean", "count"), [("probabilities", 2), ("probabilities", 3), ("log", 2)])
def test_ensemble_of_equal_models_searches_to_the_bits_of_one(model, sources, mean, count):
    beam = Beam(size=4, nbest=3)
    assert search(Ensemble([model] * count, mean), *sources, LIMITS, beam) == search(model, *sources, LIMITS, beam)


@pytest.mark.parametrize("mean", ["probabilities", "log"])
def test_ensemble_with_a_wide_beam_is_exhaustive_search_of_the_mean(model, other_model, sources, mean):
    members = [model, other_model]
    found = search(Ensemble(members, mean), *sources, LIMITS, Beam(size=200, nbest=5, length_penalty=0.6))
    words = [token for token in range(SIZE) if token not in (PAD, BOS, EOS)]
    for i, limit in enumerate(LIMITS):
        source, valid = sources[0][i : i + 1], sources[1][i : i + 1]
        scored: dict[tuple[int, ...], float] = {}
        for length in range(limit + 1):
            space = list(itertools.product(words, repeat=length))
            fed = torch.tensor([[BOS, *tokens] for tokens in space])
            each = [m.logits(source.expand(len(space), -1), valid.expand(len(space), -1), fed) for m in members]
            if mean == "log":
                joint = sum(logits.double().log_softmax(2) for logits in each) / 2
            else:
                joint = (sum(logits.double().softmax(2) for logits in each) / 2).log()
            written = torch.tensor([[*tokens, EOS] for tokens in space])
            logs = joint.gather(2, written[:, :, None]).sum(dim=(1, 2)).tolist()
            scored |= {tokens: log / ((6 + length) / 6) ** 0.6 for tokens, log in zip(space, logs, strict=True)}
        expected = sorted(scored.items(), key=lambda item: -item[1])[:5]
        assert [h.tokens for h in found[i]] == [tokens for tokens, _ in expected]
        assert [h.score for h in found[i]] == pytest.approx([score for _, score in expected], abs=1e-5)
