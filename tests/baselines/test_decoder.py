"""Recurrent decoders compared with their equations, step by step."""

import pytest
import torch
from torch import Tensor

from baselines.recurrent import AttentionFields, TranslatorFields, build
from s2s.models.base import EncoderOutput, Seq2Seq

WIDTH, SIZE = 6, 11


def _model(cell: str, settings: TranslatorFields) -> Seq2Seq:
    torch.manual_seed(0)
    model = build(cell, settings, SIZE, SIZE).double()
    for p in model.parameters():
        # zero biases would hide a wrong one
        p.data += 0.2 * torch.randn_like(p)
    return model.eval()


def _inputs() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    valid = torch.arange(4) < torch.tensor([4, 2, 3]).unsqueeze(1)
    return torch.randint(SIZE, (3, 4)), valid, torch.randint(SIZE, (3, 5))


def _first_state(model: Seq2Seq, memory: EncoderOutput) -> tuple[Tensor, ...]:
    bridge = model.decoder.bridge.linear
    return torch.tanh(memory.summary @ bridge.weight.T + bridge.bias).split(WIDTH, dim=1)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm", "mingru", "minlstm"])
def test_decoder_without_attention_the_summary_is_all_that_is_known(cell):
    model = _model(cell, TranslatorFields(width=WIDTH, encoder_layers=1, decoder_layers=1))
    source, valid, target = _inputs()
    memory = model.encoder(source, valid)
    (layer,), state = model.decoder.stack.layers, _first_state(model, memory)
    expected = []
    for token in target.T:
        output, state = layer(model.decoder.embedding.tokens.weight[token].unsqueeze(1), state)
        expected.append(output)
    torch.testing.assert_close(model(source, valid, target), torch.cat(expected, dim=1))


OPTIONS = [
    {"attention": kind, "input_feeding": feeding, "coverage": coverage}
    for kind in ("additive", "dot", "general", "concat")
    for feeding in (False, True)
    for coverage in (False, True)
    if kind == "additive" or not coverage
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_decoder_with_attention_each_step_is_its_equations(options):
    model = _model("gru", AttentionFields(width=WIDTH, encoder_layers=1, decoder_layers=1, **options))
    source, valid, target = _inputs()
    memory = model.encoder(source, valid)
    decoder = model.decoder
    (layer,), state = decoder.stack.layers, _first_state(model, memory)
    score, coverage = decoder.attention.score, torch.zeros(3, 4, dtype=torch.float64)
    fed = torch.zeros(3, WIDTH, dtype=torch.float64)
    outputs, weights = [], []
    for token in target.T:
        x = decoder.embedding.tokens.weight[token]
        hidden, state = layer(torch.cat((x, fed), dim=1 if options["input_feeding"] else 0)[:3].unsqueeze(1), state)
        if options["coverage"]:
            inside = score.query(hidden) + score.key(memory.states) + decoder.attention.coverage(coverage.unsqueeze(2))
            scores = score.score(torch.tanh(inside)).squeeze(2)
        else:
            scores = score(hidden, score.keys(memory.states)).squeeze(1)
        alpha = torch.where(valid, scores, -torch.inf).softmax(dim=1)
        context_vector = (alpha.unsqueeze(2) * memory.states).sum(dim=1)
        fed = torch.tanh(torch.cat((context_vector, hidden.squeeze(1)), dim=1) @ decoder.combine.weight.T)
        coverage = coverage + alpha
        outputs.append(fed)
        weights.append(alpha)
    torch.testing.assert_close(model(source, valid, target), torch.stack(outputs, dim=1))
    found = decoder.cross_attention_weights(memory, target)
    torch.testing.assert_close(found[:, 0, 0], torch.stack(weights, dim=1))


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_decoder_first_states_are_laid_out_as_cudnn_wants_them(cell):
    model = _model(cell, TranslatorFields(width=WIDTH, decoder_layers=3))
    source, valid, _ = _inputs()
    _, state = model.decoder.start(model.encoder(source, valid), 5)
    assert all(part.is_contiguous() for layer in state.layers for part in layer)


@pytest.mark.parametrize("settings", [TranslatorFields, AttentionFields])
def test_decoder_dropout_is_on_what_each_layer_reads_and_on_the_output_in_training_alone(settings):
    model = _model("lstm", settings(width=20, encoder_layers=2, decoder_layers=2, dropout=0.5)).float()
    source, valid, target = torch.randint(SIZE, (8, 4)), torch.ones(8, 4, dtype=torch.bool), torch.randint(SIZE, (8, 5))
    read: list[Tensor] = []
    layers = [*(cell for layer in model.encoder.layers for cell in layer.cells), *model.decoder.stack.layers]
    for layer in layers:
        layer.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    for training, share in ((True, 0.5), (False, 0.0)):
        read.clear()
        output = model.train(training)(source, valid, target)
        assert len(read) == len(layers) == 6
        for x in (*read, output):
            assert (x == 0).float().mean().item() == pytest.approx(share, abs=0.1)
