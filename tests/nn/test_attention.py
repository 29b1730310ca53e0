"""Attention: fused and explicit computations, masks, grouped heads."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from s2s.nn import attention
from s2s.nn.attention import Attention, attention_weights, causal_mask


def _attention(implementation: str, dropout: float = 0.0) -> Attention:
    torch.manual_seed(3)
    return Attention(12, 3, dropout, implementation).double()


@pytest.fixture
def case() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(5)
    mask = torch.ones(2, 1, 1, 7, dtype=torch.bool)
    mask[1, ..., 4:] = False
    return torch.randn(2, 5, 12).double(), torch.randn(2, 7, 12).double(), mask


def test_fused_attention_is_explicit_attention(case):
    targets, sources, mask = case
    fused, explicit = _attention("fused"), _attention("explicit")
    torch.testing.assert_close(
        fused(targets, *fused.project_keys_values(sources), mask),
        explicit(targets, *explicit.project_keys_values(sources), mask),
        atol=1e-10,
        rtol=0,
    )


def test_our_attention_with_copied_weights_is_that_of_torch(case):
    targets, sources, mask = case
    ours = _attention("explicit")
    theirs = nn.MultiheadAttention(12, 3, batch_first=True).double()
    with torch.no_grad():
        projections = (ours.query, ours.key, ours.value)
        theirs.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
        theirs.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
        theirs.out_proj.weight.copy_(ours.output.weight)
        theirs.out_proj.bias.copy_(ours.output.bias)
    key, value = ours.project_keys_values(sources)
    read, weights = theirs(targets, sources, sources, ~mask[:, 0, 0], average_attn_weights=False)
    torch.testing.assert_close(ours(targets, key, value, mask), read)
    torch.testing.assert_close(ours.weights(targets, key, mask), weights)


@pytest.mark.parametrize(
    ("precision", "sources", "fused"),
    [(torch.bfloat16, 1024, False), (torch.bfloat16, 1025, True), (torch.float32, 4, True)],
)
def test_attention_auto_takes_what_was_measured_to_be_faster(monkeypatch, precision, sources, fused):
    query, key = torch.randn(1, 2, 3, 2, dtype=precision), torch.randn(1, 2, sources, 2, dtype=precision)
    expected = Attention(4, 2, 0.0, "fused" if fused else "explicit").attend(query, key, key, None)
    # the other way is shut
    shut = (attention, "attention_weights") if fused else (functional, "scaled_dot_product_attention")
    monkeypatch.setattr(*shut, None)
    assert torch.equal(Attention(4, 2, 0.0, "auto").attend(query, key, key, None), expected)


@pytest.mark.parametrize("implementation", ["fused", "explicit"])
def test_attention_causal_mask_that_is_not_written_out_is_the_one_that_is(case, implementation):
    _, states, _ = case
    attention = _attention(implementation)
    offers = attention.project_keys_values(states)
    matrix = causal_mask(7, 7, states.device)[None, None]
    torch.testing.assert_close(
        attention(states, *offers, "causal"), attention(states, *offers, matrix), atol=1e-12, rtol=0
    )
    assert torch.equal(attention.weights(states, offers[0], "causal"), attention.weights(states, offers[0], matrix))


@pytest.mark.parametrize("implementation", ["fused", "explicit"])
def test_attention_causal_mask_of_fewer_targets_or_more_rows_is_refused(case, implementation):
    _, states, _ = case
    attention = _attention(implementation)
    key, value = attention.project_keys_values(states)
    for targets, keys, values in ((states[:, -2:], key, value), (states, key[:1], value[:1])):
        with pytest.raises(ValueError, match="as many rows and positions"):
            attention(targets, keys, values, "causal")


def test_attention_weights_sum_to_one_over_real_sources_and_padding_gets_none(case):
    targets, sources, mask = case
    attention = _attention("auto")
    weights = attention.weights(targets, attention.project_keys_values(sources)[0], mask)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 5).double())
    assert weights[1, ..., 4:].abs().max() == 0


def test_attention_weights_are_the_softmax_written_out_in_loops():
    torch.manual_seed(1)
    query, key = torch.randn(1, 1, 2, 3).double(), torch.randn(1, 1, 4, 3).double()
    weights = attention_weights(query, key, None)
    for i in range(2):
        scores = [sum(query[0, 0, i, d] * key[0, 0, j, d] for d in range(3)) / 3**0.5 for j in range(4)]
        total = sum(torch.exp(s) for s in scores)
        for j in range(4):
            assert weights[0, 0, i, j].item() == pytest.approx((torch.exp(scores[j]) / total).item())


def test_attention_causal_mask_of_later_steps_is_the_end_of_the_whole_mask():
    whole = causal_mask(6, 6, torch.device("cpu"))
    assert torch.equal(causal_mask(2, 6, torch.device("cpu")), whole[4:])
    assert whole.tolist() == [[j <= i for j in range(6)] for i in range(6)]


@pytest.mark.parametrize("implementation", ["fused", "explicit"])
def test_attention_dropout_acts_in_training_only(case, implementation):
    targets, sources, mask = case
    plain, dropping = _attention(implementation), _attention(implementation, dropout=0.5)
    expected = plain(targets, *plain.project_keys_values(sources), mask)
    assert not torch.allclose(dropping(targets, *dropping.project_keys_values(sources), mask), expected)
    dropping.eval()
    torch.testing.assert_close(dropping(targets, *dropping.project_keys_values(sources), mask), expected)


def _grouped(groups: int | None, size: int | None = None) -> Attention:
    torch.manual_seed(3)
    return Attention(12, 4, 0.0, "auto", size, groups).double()


def test_grouped_query_attention_with_all_heads_is_plain_attention(case):
    targets, sources, mask = case
    plain, grouped = _grouped(None), _grouped(4)
    assert torch.equal(
        plain(targets, *plain.project_keys_values(sources), mask),
        grouped(targets, *grouped.project_keys_values(sources), mask),
    )


@pytest.mark.parametrize(("groups", "size"), [(2, None), (1, None), (2, 5)])
def test_grouped_queries_are_plain_attention_whose_keys_and_values_are_tied(case, groups, size):
    targets, sources, mask = case
    ours, tied = _grouped(groups, size), _grouped(None, size)
    with torch.no_grad():
        for name in ("query", "output"):
            getattr(tied, name).load_state_dict(getattr(ours, name).state_dict())
        for name in ("key", "value"):
            own, theirs = getattr(ours, name), getattr(tied, name)
            wide = size or 3
            for head in range(4):
                group = head // (4 // groups)
                theirs.weight[head * wide : (head + 1) * wide] = own.weight[group * wide : (group + 1) * wide]
                theirs.bias[head * wide : (head + 1) * wide] = own.bias[group * wide : (group + 1) * wide]
    offered = ours.project_keys_values(sources)
    assert offered[0].shape[1] == offered[1].shape[1] == groups
    torch.testing.assert_close(
        ours(targets, *offered, mask), tied(targets, *tied.project_keys_values(sources), mask), atol=1e-12, rtol=0
    )
    torch.testing.assert_close(
        ours.weights(targets, offered[0], mask), tied.weights(targets, tied.project_keys_values(sources)[0], mask)
    )


def test_attention_wide_heads_are_the_sum_of_single_heads_of_the_whole_width(case):
    """As in the lecture: each head is attention of its own over all of the width, and one matrix joins them."""
    targets, sources, mask = case
    wide = Attention(12, 3, 0.0, "auto", 12).double()
    total = wide.output.bias.expand(2, 5, 12)
    for head in range(3):
        rows = slice(12 * head, 12 * (head + 1))
        query, key, value = (
            functional.linear(x, p.weight[rows], p.bias[rows])
            for x, p in ((targets, wide.query), (sources, wide.key), (sources, wide.value))
        )
        looks = attention_weights(query[:, None], key[:, None], mask)[:, 0]
        total = total + looks @ value @ wide.output.weight[:, rows].T
    torch.testing.assert_close(wide(targets, *wide.project_keys_values(sources), mask), total, atol=1e-12, rtol=0)
