"""Recurrent attention compared with its equations."""

import pytest
import torch
from torch.nn import functional

from baselines import lstm_attention
from baselines.attention import Additive, Attention, Concat, CoverageAttention, Dot, General, Location, build_score
from s2s.errors import UserError

WIDTH = 5


@pytest.fixture
def sides() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    valid = torch.ones(3, 4, dtype=torch.bool)
    valid[1, 2:] = False
    return torch.randn(3, 2, WIDTH), torch.randn(3, 4, WIDTH), valid


def _scores(score, queries, states) -> torch.Tensor:
    return score(queries, score.keys(states))


def test_attention_concat_is_additive_in_another_spelling(sides):
    queries, states, _ = sides
    additive, concat = Additive(WIDTH), Concat(WIDTH)
    with torch.no_grad():
        concat.hidden.weight.copy_(torch.cat((additive.query.weight, additive.key.weight), dim=1))
        concat.score.weight.copy_(additive.score.weight)
    torch.testing.assert_close(_scores(concat, queries, states), _scores(additive, queries, states))


def test_attention_general_with_the_identity_is_dot(sides):
    queries, states, _ = sides
    general = General(WIDTH)
    with torch.no_grad():
        general.weight.weight.copy_(torch.eye(WIDTH))
    torch.testing.assert_close(_scores(general, queries, states), _scores(Dot(), queries, states))


@pytest.mark.parametrize("kind", ["additive", "dot", "general", "concat"])
def test_attention_each_score_is_its_formula_pair_by_pair(kind, sides):
    queries, states, _ = sides
    score = build_score(kind, WIDTH, 9)
    named = dict(score.named_parameters())

    def formula(h: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        if kind == "dot":
            return h @ s
        if kind == "general":
            return h @ named["weight.weight"] @ s
        if kind == "additive":
            return named["score.weight"][0] @ torch.tanh(named["query.weight"] @ h + named["key.weight"] @ s)
        return named["score.weight"][0] @ torch.tanh(named["hidden.weight"] @ torch.cat((h, s)))

    pairs = [[[formula(h, s) for s in states[b]] for h in queries[b]] for b in range(3)]
    expected = torch.stack([torch.stack([torch.stack(row) for row in rows]) for rows in pairs])
    torch.testing.assert_close(_scores(score, queries, states), expected)


def test_attention_context_vector_is_the_weighted_mean_of_real_states(sides):
    queries, states, valid = sides
    attention = Attention(Dot())
    context_vectors, weights = attention(queries, states, states, valid)
    assert weights[1, :, 2:].abs().max() == 0
    alone, _ = attention(queries[1:2], states[1:2, :2], states[1:2, :2], valid[1:2, :2])
    torch.testing.assert_close(context_vectors[1:2], alone)
    torch.testing.assert_close(context_vectors, torch.einsum("bts,bsw->btw", weights, states))


def test_coverage_turns_attention_away_or_towards_what_was_looked_at(sides):
    queries, states, valid = sides
    attention = CoverageAttention(Additive(WIDTH), WIDTH)
    keys = attention.score.keys(states)
    unseen = attention(queries[:, :1], states, keys, valid, torch.zeros(3, 4))[1]
    torch.testing.assert_close(unseen, Attention(attention.score)(queries[:, :1], states, keys, valid)[1])
    seen = attention(queries[:, :1], states, keys, valid, torch.tensor([[9.0, 0, 0, 0]] * 3))[1]
    assert (seen - unseen).abs().max() > 0.01


def test_attention_model_with_coverage_calls_its_weights_as_checkpoints_do():
    settings = lstm_attention.Settings(kind="lstm-attention", width=8, attention="additive", coverage=True)
    found = [name for name, _ in lstm_attention.build(settings, 9, 9).named_parameters() if "attention" in name]
    names = ("score.query", "score.key", "score.score", "coverage")
    assert found == [f"decoder.attention.{name}.weight" for name in names]


def test_attention_source_beyond_the_learned_positions_is_refused_with_the_remedy(sides):
    queries, states, _ = sides
    with pytest.raises(UserError, match=r"4 tokens(.|\n)*3 positions(.|\n)*model.max_positions"):
        _scores(Location(WIDTH, 3), queries, states)


@pytest.mark.parametrize("kind", ["dot", "general", "additive", "concat", "location"])
def test_attention_score_says_whether_it_is_a_product_of_query_and_key(kind, sides):
    queries, states, _ = sides
    score = build_score(kind, WIDTH, 4)
    keys = score.keys(states)
    product = torch.einsum("btw,bsw->bts", queries, keys)
    assert score.is_product == torch.allclose(score(queries, keys), product, atol=1e-5)


@pytest.mark.parametrize("kind", ["dot", "general", "additive", "concat", "location"])
def test_attention_context_vector_without_weights_is_the_one_with_them(kind, sides):
    queries, states, valid = sides
    attention = Attention(build_score(kind, WIDTH, 9))
    keys = attention.score.keys(states)
    torch.testing.assert_close(
        attention.context_vectors(queries, states, keys, valid), attention(queries, states, keys, valid)[0]
    )


@pytest.mark.parametrize("kind", ["dot", "general"])
def test_attention_one_kernel_reads_what_it_reads_no_slower_than_products_and_a_softmax(kind, sides, monkeypatch):
    queries, states, valid = sides
    attention, ways = Attention(build_score(kind, WIDTH, 9)), []
    kernel = functional.scaled_dot_product_attention
    monkeypatch.setattr(
        functional,
        "scaled_dot_product_attention",
        lambda *asked, **how: ways.append(asked[0].dtype) or kernel(*asked, **how),
    )
    keys = attention.score.keys(states)
    in_fp32 = attention.context_vectors(queries, states, keys, valid)
    low = [each.bfloat16() for each in (queries, states, keys)]
    in_bf16 = attention.context_vectors(*low, valid)
    assert ways == [torch.float32]
    torch.testing.assert_close(in_bf16.float(), in_fp32, atol=0.05, rtol=0.05)
