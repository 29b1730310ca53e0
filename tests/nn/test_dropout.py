"""Dropout."""

import pytest
import torch

from s2s.nn.layers import Dropout


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_dropout_share_dropped_is_the_rate_and_the_mean_stays(rate):
    torch.manual_seed(0)
    dropped = Dropout(rate)(torch.ones(1001, 997))
    # 5 standard errors of a million draws, and half a step of 1/256 of rounding
    assert (dropped == 0).float().mean().item() == pytest.approx(rate, abs=0.0025 + 1 / 512)
    assert dropped.mean().item() == pytest.approx(1.0, abs=5 * (rate / (1 - rate)) ** 0.5 / 1000)


def test_dropout_all_eight_bytes_of_a_random_word_drop_alike():
    torch.manual_seed(0)
    shares = (Dropout(0.25)(torch.ones(100_000, 8)) == 0).float().mean(0)
    assert (shares - 0.25).abs().max() < 0.007


def test_dropout_neighbours_are_dropped_independently():
    torch.manual_seed(0)
    kept = (Dropout(0.5)(torch.ones(200_000)) != 0).float()
    both = (kept[:-1] * kept[1:]).mean().item()
    assert both == pytest.approx(0.25, abs=0.006)


def test_dropout_gradient_passes_where_the_number_passed():
    torch.manual_seed(0)
    x = torch.ones(1000, requires_grad=True)
    y = Dropout(0.3)(x)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


def test_dropout_same_seed_drops_the_same_numbers():
    layer, x = Dropout(0.3), torch.randn(37, 3)
    torch.manual_seed(4)
    first = layer(x)
    torch.manual_seed(4)
    assert torch.equal(layer(x), first)
    assert not torch.equal(layer(x), first)


def test_dropout_nothing_is_dropped_in_evaluation_or_at_rate_zero():
    x = torch.randn(100)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_dropout_smallest_rates_drop_something_and_the_largest_not_all():
    torch.manual_seed(0)
    x = torch.ones(100_000)
    for rate, share in ((1e-4, 1 / 256), (0.999, 255 / 256)):
        dropped = (Dropout(rate)(x) == 0).float().mean()
        assert abs(dropped - share) < 0.002
