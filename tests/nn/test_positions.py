"""Sinusoidal and learned positions."""

import math

import pytest
import torch
from torch import nn

from s2s.errors import UserError
from s2s.nn.embeddings import Embedding, sinusoids
from s2s.nn.positions import Rotary, extend_positions


def test_positions_sinusoids_are_the_published_formula():
    table = sinusoids(40, 6)
    for position in (0, 1, 17, 39):
        for i in range(3):
            angle = position / 10_000 ** (2 * i / 6)
            assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-5)
            assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-5)


@pytest.mark.parametrize("kind", ["sinusoidal", "learned", "none"])
def test_positions_embedding_a_sequence_in_two_parts_is_embedding_it_at_once(kind):
    embedding = Embedding(nn.Embedding(11, 8), kind, 600)
    tokens = torch.randint(0, 11, (2, 300))
    parts = torch.cat((embedding(tokens[:, :9]), embedding(tokens[:, 9:], 9)), dim=1)
    torch.testing.assert_close(parts, embedding(tokens))


def test_without_positions_order_is_invisible_and_with_them_it_is_not():
    table, tokens = nn.Embedding(11, 8), torch.tensor([[3, 4, 5]])
    turned = tokens.flip(1)
    none = Embedding(table, "none", 10)
    assert torch.equal(none(tokens), none(turned).flip(1))
    for kind in ("sinusoidal", "learned"):
        embedding = Embedding(table, kind, 10)
        assert not torch.allclose(embedding(tokens), embedding(turned).flip(1))


def test_tokens_beyond_the_learned_positions_are_an_error_with_a_remedy():
    embedding = Embedding(nn.Embedding(11, 8), "learned", 4)
    with pytest.raises(UserError, match=r"5 pieces .* 4 learned positions(.|\n)*model.max_positions"):
        embedding(torch.zeros(1, 5, dtype=torch.long))


def test_positions_that_grew_while_decoding_may_be_trained_with():
    embedding = Embedding(nn.Embedding(11, 8), "sinusoidal", 9)
    tokens = torch.randint(0, 11, (1, 400))
    with torch.inference_mode():
        embedding(tokens)
    assert not embedding.table.is_inference()
    (embedding(tokens) * embedding.table[:400]).sum().backward()
    assert torch.equal(embedding.table, sinusoids(800, 8))


def test_positions_lengthened_tables_are_those_that_texts_would_make_grow():
    parts = nn.ModuleList([Embedding(nn.Embedding(11, 8), kind, 10) for kind in ("sinusoidal", "learned", "none")])
    parts.append(Rotary(4))
    tokens, asked = torch.tensor([[3, 4, 5]]), torch.randn(1, 2, 3, 4)
    before = [*(part(tokens) for part in parts[:3]), parts[3](asked, 0)]
    assert extend_positions(parts, 700) == 2
    for found, expected in zip([*(part(tokens) for part in parts[:3]), parts[3](asked, 0)], before, strict=True):
        assert torch.equal(found, expected)
    assert torch.equal(parts[0].table, sinusoids(700, 8))
    assert torch.equal(parts[3].table, sinusoids(700, 4))
    # what is long enough stays
    extend_positions(parts, 300)
    assert len(parts[0].table) == 700
