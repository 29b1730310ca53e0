"""benchmarks/ceiling.py counts the same matrix products as torch."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.ceiling import Listed, alone, flops, lstm_flops, share
from s2s.models.transformer import Settings, build
from s2s.recipe.installed import module_of


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
    assert listed.flops() == counted.get_total_flops()


def test_ceiling_alone_they_are_the_same_products():
    with Listed() as listed:
        _update()
    with Listed() as again:
        alone(listed)()
    assert again.products == listed.products


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch has no fused LSTM layer here")
def test_ceiling_lists_the_lstm_layers_of_an_update():
    module = module_of("lstm")
    one_direction = {"kind": "lstm", "width": 16, "encoder_layers": 1, "decoder_layers": 2, "bidirectional": False}
    model = module.build(module.Settings.model_validate(one_direction), 11, 11).train()
    source, valid, target = torch.randint(4, 11, (3, 5)), torch.ones(3, 5, dtype=torch.bool), torch.ones(3, 4).long()
    with Listed() as listed:
        model.logits(source, valid, target).logsumexp(-1).sum().backward()
    assert listed.lstm_calls == {((5, 3, 16), 16): 1, ((4, 3, 16), 16): 2}
    with Listed() as again:
        alone(listed)()
    assert (again.products, again.lstm_calls) == (listed.products, listed.lstm_calls)
    # forward: inputs and states of 16 to four gates of 16; the gradients of inputs and weights need as much each
    assert lstm_flops(((5, 3, 16), 16)) == 3 * 5 * 3 * 2 * 32 * 64


def test_ceiling_rounds_are_timed_one_by_one():
    whole, bare, operations = share(_update, _update, 2)
    assert len(whole) == len(bare) == 2
    assert operations > 0
    assert all(seconds > 0 for seconds in (*whole, *bare))
