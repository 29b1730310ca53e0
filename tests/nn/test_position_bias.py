"""Rotary embeddings and position biases compared with the papers' formulas."""

import math

import pytest
import torch

from s2s.models.transformer import Settings, build
from s2s.nn.attention import Attention, add_bias_to_mask, causal_mask
from s2s.nn.positions import Alibi, RelativeBuckets, Rotary, alibi_slopes, distance_buckets


def _rotary(size: int) -> Rotary:
    return Rotary(size).double()


def test_position_bias_rotation_turns_each_pair_by_its_angle():
    x = torch.randn(1, 1, 20, 6).double()
    turned = _rotary(6)(x, 0)
    for m in (0, 1, 19):
        for i in range(3):
            angle = m * 10_000 ** (-2 * i / 6)
            left, right = x[0, 0, m, 2 * i : 2 * i + 2].tolist()
            # equation 13 of the paper, the matrix times the pair
            expected = [
                left * math.cos(angle) - right * math.sin(angle),
                left * math.sin(angle) + right * math.cos(angle),
            ]
            assert turned[0, 0, m, 2 * i : 2 * i + 2].tolist() == pytest.approx(expected, abs=1e-5)


def test_position_bias_rotated_dot_product_depends_on_the_distance_alone():
    torch.manual_seed(0)
    rotary, query, key = _rotary(8), torch.randn(1, 1, 1, 8).double(), torch.randn(1, 1, 1, 8).double()

    def score(at: int, from_: int) -> float:
        return float((rotary(query, at) * rotary(key, from_)).sum())

    for distance in (0, 1, 7):
        scores = [score(start + distance, start) for start in (0, 3, 100, 700)]
        # the table's angles have fp32's digits
        assert scores == pytest.approx([scores[0]] * 4, abs=1e-3)
    assert abs(score(7, 0) - score(0, 0)) > 0.05
    assert abs(score(7, 0) - score(0, 7)) > 0.05


def test_rotation_leaves_lengths_and_the_first_position_as_they_are():
    x = torch.randn(2, 3, 400, 4).double()
    turned = _rotary(4)(x, 0)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1), atol=1e-6, rtol=0)
    assert torch.equal(turned[:, :, 0], x[:, :, 0])


def test_position_bias_rotation_that_grew_while_decoding_may_be_trained_with():
    rotary, x = Rotary(4), torch.randn(1, 1, 1, 4, requires_grad=True)
    with torch.inference_mode():
        rotary(x, 299)
    rotary(x, 299).sum().backward()
    torch.testing.assert_close(rotary(x, 299), Rotary(4)(torch.cat([x] * 300, dim=2), 0)[:, :, 299:])


def test_position_bias_slopes_are_those_of_the_paper():
    assert alibi_slopes(8) == [1 / 2**n for n in range(1, 9)]
    # "for 16 heads, we interpolate … 2^-0.5, 2^-1, 2^-1.5 …"
    assert alibi_slopes(16) == pytest.approx([2 ** (-n / 2) for n in range(1, 17)])
    # 12 heads: those of 8, and between them the first four of those of 16 that 8 has not
    assert alibi_slopes(12) == pytest.approx([2**-n for n in range(1, 9)] + [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5])
    assert alibi_slopes(1) == [2**-8]
    assert alibi_slopes(3) == pytest.approx([2**-4, 2**-8, 2**-2])


def test_position_bias_alibi_is_minus_the_slope_times_the_distance():
    bias = Alibi(3, "decoder")(5, 5)
    for head, slope in enumerate(alibi_slopes(3)):
        for i in range(5):
            assert bias[head, i].tolist() == pytest.approx([-slope * abs(i - j) for j in range(5)])


def test_position_bias_in_an_encoder_the_heads_have_the_slopes_in_reverse_order_ahead():
    behind, whole = Alibi(4, "decoder")(6, 6), Alibi(4, "encoder")(6, 6)
    assert torch.equal(whole.tril(), behind.tril())
    assert torch.equal(whole.triu(), behind.flip(0).triu())
    # its own mirror image in the other heads, not in the same ones
    assert torch.equal(whole.flip(1, 2), whole.flip(0))
    assert not torch.equal(whole.flip(1, 2), whole)


def _bucket(distance: int, bidirectional: bool, count: int = 32, farthest: int = 128) -> int:
    """The formula of transformers' `T5Attention._relative_position_bucket`, for one distance (memory minus query)."""
    bucket = 0
    if bidirectional:
        count //= 2
        bucket += count if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = -min(distance, 0)
    exact = count // 2
    if distance < exact:
        return bucket + distance
    large = exact + int(math.log(distance / exact) / math.log(farthest / exact) * (count - exact))
    return bucket + min(large, count - 1)


@pytest.mark.parametrize("farthest", [128, 40, 17])
@pytest.mark.parametrize("both", [True, False])
def test_position_bias_buckets_are_those_of_the_published_formula(both, farthest):
    distances = torch.arange(-300, 301)
    found = distance_buckets(distances, both, farthest)
    assert found.tolist() == [_bucket(distance, both, farthest=farthest) for distance in distances.tolist()]
    if farthest == 128:
        assert set(found.tolist()) == set(range(32)) - ({16} if both else set())
    # all from here on are alike
    assert len(set(found[distances <= -farthest].tolist())) == 1
    assert len(set(found[distances >= farthest].tolist())) == 1


def test_distances_beyond_the_largest_have_its_bias():
    settings = Settings(width=16, heads=2, feedforward=8, encoder_positions="relative", max_distance=20)
    bias = build(settings, 9, 9).encoder.bias(40, 40)
    assert (bias[:, 0, 20:] == bias[:, 0, 20:21]).all()
    assert (bias[:, 39, :20] == bias[:, 39, 19:20]).all()
    assert not (bias[:, 0, 15] == bias[:, 0, 20]).any()


def test_learned_bias_is_looked_up_by_distance_for_each_head():
    for side in ("encoder", "decoder"):
        relative = RelativeBuckets(2, 16, side)
        bias = relative(6, 6)
        for head in range(2):
            for i in range(6):
                for j in range(6):
                    assert bias[head, i, j] == relative.values.weight[_bucket(j - i, side == "encoder"), head]


@pytest.mark.parametrize(
    "make", [lambda: Alibi(2, "encoder"), lambda: RelativeBuckets(2, 8, "decoder")], ids=["alibi", "t5"]
)
def test_bias_of_the_newest_targets_is_the_end_of_the_whole_bias(make):
    bias = make()
    whole = bias(7, 7)
    assert torch.equal(bias(2, 7), whole[:, 5:])
    assert torch.equal(bias(1, 7), whole[:, 6:])


def test_biased_mask_is_minus_infinity_at_masked_positions_and_the_bias_elsewhere():
    bias = Alibi(2, "encoder")(4, 4)
    padded = torch.tensor([[True] * 4, [True] * 2 + [False] * 2])[:, None, None, :]
    masked = add_bias_to_mask(padded, bias)
    assert torch.equal(masked[0], bias)
    assert torch.equal(masked[1, ..., :2], bias[..., :2])
    assert masked[1, ..., 2:].max() == float("-inf")
    seen = causal_mask(4, 4, bias.device)
    causal = add_bias_to_mask("causal", bias)[0]
    assert torch.equal(causal[:, seen], bias[:, seen])
    assert causal[:, ~seen].max() == float("-inf")
    assert torch.equal(add_bias_to_mask(None, bias)[0], bias)
    assert add_bias_to_mask("causal", None) == "causal"
    # A float mask is a bias itself.
    assert torch.equal(add_bias_to_mask(masked, bias), masked + bias)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_fused_attention_with_a_bias_is_explicit_attention(dtype):
    torch.manual_seed(2)
    query, key, value = (torch.randn(2, 3, 5, 4).to(dtype) for _ in range(3))
    padded = torch.tensor([[True] * 5, [True] * 2 + [False] * 3])[:, None, None, :]
    mask = add_bias_to_mask(padded, RelativeBuckets(3, 2, "encoder").double()(5, 5))
    fused, explicit = (
        Attention(12, 3, 0.0, kind).attend(query, key, value.to(mask.dtype) if kind == "explicit" else value, mask)
        for kind in ("fused", "explicit")
    )
    torch.testing.assert_close(
        fused.double(), explicit.double(), atol=1e-10 if dtype == torch.float64 else 0.02, rtol=0
    )
