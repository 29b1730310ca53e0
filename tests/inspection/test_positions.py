"""Position vectors are those that an embedding adds."""

import pytest
import torch
from torch import nn

from s2s.inspection.positions import position_vectors, positions_of
from s2s.nn.embeddings import Embedding


@pytest.mark.parametrize("kind", ["sinusoidal", "learned"])
def test_positions_vectors_are_what_the_embedding_adds(kind):
    embedding = Embedding(nn.Embedding(9, 8), kind, 100)
    tokens = torch.randint(9, (1, 70))
    added = embedding(tokens)[0] - embedding.tokens(tokens)[0] * embedding.scale
    (found,) = positions_of("encoder", embedding, 70)
    torch.testing.assert_close(torch.from_numpy(found.vectors).float(), added.detach(), atol=1e-5, rtol=0)
    by_hand = [[float((a * b).sum()) for b in added.detach()] for a in added.detach()[:3]]
    torch.testing.assert_close(torch.from_numpy(found.products)[:3].tolist(), by_hand, atol=1e-4, rtol=0)
    assert (found.name, found.kind) == ("encoder", kind)


def test_positions_are_all_learned_ones_or_the_requested_ones():
    embedding = Embedding(nn.Embedding(9, 8), "learned", 12)
    assert [len(positions_of("e", embedding, *n)[0].vectors) for n in ((5,), (20,), (5, 0))] == [12, 12, 5]


def test_without_positions_there_is_nothing():
    assert position_vectors(Embedding(nn.Embedding(9, 8), "none", 0), 5) is None
    assert positions_of("encoder", nn.Embedding(9, 8), 5) == positions_of("decoder", None, 5) == []
