"""benchmarks/ceiling.py counts the same matrix products as torch."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.ceiling import Listed, alone, flops, share
from s2s.models.transformer import Settings, build


def _update() -> None:
    torch.manual_seed(1)
    small = Settings(width=16, heads=2, feedforward=32, encoder_layers=1, decoder_layers=1, attention="explicit")
    model = build(small, 11, 11).train()
    source, valid, target = torch.randint(4, 11, (3, 5)), torch.ones(3, 5, dtype=torch.bool), torch.ones(3, 4).long()
    model.logits(source, valid, target).logsumexp(-1).sum().backward()


def test_ceiling_listed_products_have_the_operations_that_torch_counts():
    with Listed() as listed:
        _update()
    with FlopCounterMode(display=False) as counted:
        _update()
    assert sum(times * flops(product) for product, times in listed.products.items()) == counted.get_total_flops()


def test_ceiling_alone_they_are_the_same_products():
    with Listed() as listed:
        _update()
    with Listed() as again:
        alone(listed.products)()
    assert again.products == listed.products


def test_ceiling_rounds_are_timed_one_by_one():
    whole, bare, operations = share(_update, _update, 2)
    assert len(whole) == len(bare) == 2
    assert operations > 0
    assert all(seconds > 0 for seconds in (*whole, *bare))
