"""Gated convolutions with attention compared with their equations."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from baselines import convolution
from baselines.conv import Settings, build

WIDTH, SIZE, HALF = 4, 9, math.sqrt(0.5)


def _model():
    torch.manual_seed(0)
    settings = Settings(width=WIDTH, encoder_layers=1, decoder_layers=1, kernel=3, max_positions=8)
    model = build(settings, SIZE, SIZE).double().eval()
    for p in model.parameters():
        p.data += 0.1 * torch.randn_like(p)
    return model


def _gated(layer, window: list[torch.Tensor]) -> torch.Tensor:
    a, b = layer.convolution(torch.cat(window)).chunk(2)
    return a * b.sigmoid()


def test_convolution_encoder_is_a_window_around_each_position():
    model, source = _model(), torch.tensor([[3, 1, 4, 1]])
    memory = model.encoder(source, torch.ones(1, 4, dtype=torch.bool))
    x, zero = model.encoder.embedding(source)[0], torch.zeros(WIDTH, dtype=torch.float64)
    padded = [zero, *x, zero]
    expected = torch.stack([(x[t] + _gated(model.encoder.layers[0], padded[t : t + 3])) * HALF for t in range(4)])
    torch.testing.assert_close(memory.states[0], expected)
    torch.testing.assert_close(memory.values[0], (expected + x) * HALF)


def test_convolution_decoder_is_a_window_that_ends_here_and_a_look_at_the_source():
    model, source, target = _model(), torch.tensor([[3, 1, 4, 0]]), torch.tensor([[5, 2, 6]])
    valid = torch.tensor([[True, True, True, False]])
    memory, decoder = model.encoder(source, valid), model.decoder
    x, zero = decoder.embedding(target)[0], torch.zeros(WIDTH, dtype=torch.float64)
    padded, states, values = [zero, zero, *x], memory.states[0, :3], memory.values[0, :3]
    for t, found in enumerate(model(source, valid, target)[0]):
        hidden = _gated(decoder.layers[0], padded[t : t + 3])
        asked = (decoder.queries[0](hidden) + x[t]) * HALF
        weights = (states @ asked / math.sqrt(WIDTH)).softmax(0)
        read = decoder.outputs[0]((weights.unsqueeze(1) * values).sum(0) * math.sqrt(3))
        torch.testing.assert_close(found, (x[t] + (hidden + read) * HALF) * HALF)
        torch.testing.assert_close(decoder.cross_attention_weights(memory, target)[0, 0, 0, t, :3], weights)


def test_conv_attention_is_the_same_with_and_without_weights(monkeypatch):
    model = _model()
    source, target = torch.randint(SIZE, (3, 6)), torch.randint(SIZE, (3, 5))
    valid = torch.arange(6) < torch.tensor([[6], [2], [4]])
    fused = model(source, valid, target)
    monkeypatch.setattr(convolution, "is_fused_faster", lambda query, sources: False)
    monkeypatch.setattr(functional, "scaled_dot_product_attention", None)
    torch.testing.assert_close(model(source, valid, target), fused)


def test_convolution_attention_looks_around_before_it_has_learned():
    torch.manual_seed(0)
    model = build(Settings(), 100, 100).eval()
    source, target = torch.randint(100, (4, 25)), torch.randint(100, (4, 20))
    weights = model.decoder.cross_attention_weights(model.encoder(source, torch.ones(4, 25, dtype=torch.bool)), target)
    assert weights.max(dim=-1).values.mean() < 0.3


def test_gated_convolution_keeps_the_variance():
    # by quadrature over both halves, which are independent
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    gates = 1 / (1 + np.exp(-math.sqrt(convolution._VARIANCE) * nodes))
    assert convolution._VARIANCE * (weights * gates**2).sum() / weights.sum() == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("layers", [2, 8])
def test_convolution_states_keep_their_variance_through_all_layers(layers):
    torch.manual_seed(0)
    model = build(Settings(width=128, encoder_layers=layers, decoder_layers=layers, dropout=0.0), 500, 500)
    source, target = torch.randint(500, (32, 30)), torch.randint(500, (32, 30))
    memory = model.encoder(source, torch.ones(32, 30, dtype=torch.bool))
    assert memory.states.var().item() == pytest.approx(1, rel=0.1)
    context, state = model.decoder.start(memory, 30)
    # beside the window attention adds its share
    assert model.decoder(context, state, target)[0].var().item() == pytest.approx(1, abs=0.4)
