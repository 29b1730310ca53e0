"""The recurrent encoder compared with torch.nn's packed sequences."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from baselines.encoder import RecurrentEncoder, reverse_sequences
from s2s.recipe.installed import models, module_of

WIDTH = 6
LENGTHS = torch.tensor([5, 2, 4])


def _encoder(kind: str, tokens: nn.Embedding, layers=1, bidirectional=False, reverse=False, residual=False):
    return RecurrentEncoder(
        kind,
        tokens,
        layers=layers,
        bidirectional=bidirectional,
        reverse=reverse,
        residual=residual,
        dropout=0.2,
        scaled=True,
    ).eval()


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("kind", "theirs"), [("rnn", nn.RNN), ("gru", nn.GRU), ("lstm", nn.LSTM)])
def test_encoder_layers_and_summary_are_those_of_torch_with_packed_rows(kind, theirs, bidirectional):
    torch.manual_seed(0)
    ours = _encoder(kind, nn.Embedding(9, WIDTH), layers=3, bidirectional=bidirectional)
    hidden = WIDTH // (1 + bidirectional)
    packed = theirs(WIDTH, hidden, num_layers=3, batch_first=True, bidirectional=bidirectional)
    for i, layer in enumerate(ours.layers):
        for cell, end in zip(layer.cells, ("", "_reverse"), strict=False):
            for name, weight in next(cell.children()).named_parameters():
                weight.data.normal_()
                packed.get_parameter(f"{name.removesuffix('_l0')}_l{i}{end}").data.copy_(weight)
    source = torch.randint(9, (3, 5))
    valid = torch.arange(5) < LENGTHS.unsqueeze(1)
    memory = ours(source, valid)
    rows = pack_padded_sequence(ours.embedding(source), LENGTHS, batch_first=True, enforce_sorted=False)
    expected, last = packed(rows)
    states = pad_packed_sequence(expected, batch_first=True)[0]
    torch.testing.assert_close(memory.states * valid.unsqueeze(2), states)
    top = (last[0] if kind == "lstm" else last)[-1 - bidirectional :]
    torch.testing.assert_close(memory.summary, torch.cat(list(top), dim=1))


def test_encoder_rows_are_turned_round_within_their_lengths():
    x = torch.arange(15.0).reshape(3, 5, 1)
    turned = reverse_sequences(x, LENGTHS)
    for row, before, length in zip(turned, x, LENGTHS.tolist(), strict=True):
        torch.testing.assert_close(row[:length], before[:length].flip(0))
    torch.testing.assert_close(reverse_sequences(turned, LENGTHS), x)


@pytest.mark.parametrize("kind", sorted(models()))
def test_classifier_gets_the_encoder_and_the_width_of_its_summary(kind):
    module = module_of(kind)
    torch.manual_seed(0)
    encoder, width = module.build_encoder(module.Settings(kind=kind), 11)
    encoder.eval()
    source, valid = torch.randint(11, (3, 5)), torch.arange(5) < LENGTHS.unsqueeze(1)
    memory = encoder(source, valid)
    assert memory.summary.shape == (3, width)
    alone = encoder(source[1:2, :2], valid[1:2, :2])
    torch.testing.assert_close(alone.summary, memory.summary[1:2])


@pytest.mark.parametrize("kind", sorted(set(models()) - {"transformer", "conv"}))
def test_encoder_first_word_reaches_the_last_state_and_the_other_way_round_only_if_it_reads_both(kind):
    module = module_of(kind)
    for bidirectional in (False, True):
        torch.manual_seed(0)
        encoder, _ = module.build_encoder(module.Settings(kind=kind, bidirectional=bidirectional), 11)
        encoder.eval()
        source, valid = torch.randint(11, (1, 5)), torch.ones(1, 5, dtype=torch.bool)
        states = encoder(source, valid).states
        first, last = source.clone(), source.clone()
        first[0, 0], last[0, -1] = (source[0, 0] + 1) % 11, (source[0, -1] + 1) % 11
        assert not torch.equal(encoder(first, valid).states[0, -1], states[0, -1])
        assert torch.equal(encoder(last, valid).states[0, 0], states[0, 0]) != bidirectional


def test_turned_encoder_reads_each_row_from_its_end():
    torch.manual_seed(0)
    encoder = _encoder("gru", nn.Embedding(9, WIDTH), reverse=True)
    source = torch.randint(9, (3, 5))
    memory = encoder(source, torch.arange(5) < LENGTHS.unsqueeze(1))
    gru = encoder.layers[0].cells[0].gru
    for row, length in enumerate(LENGTHS.tolist()):
        states, last = gru(encoder.embedding(source[row : row + 1, :length]).flip(1))
        torch.testing.assert_close(memory.states[row, :length], states[0].flip(0))
        torch.testing.assert_close(memory.summary[row], last[0, 0])


def test_encoder_residual_layers_add_what_they_read():
    torch.manual_seed(0)
    plain = _encoder("gru", nn.Embedding(9, WIDTH), layers=2, bidirectional=True)
    tokens = plain.embedding.tokens
    residual = _encoder("gru", tokens, layers=2, bidirectional=True, residual=True)
    residual.load_state_dict(plain.state_dict())
    source, valid = torch.randint(9, (3, 5)), torch.arange(5) < LENGTHS.unsqueeze(1)
    first, ends = plain.layers[0](plain.embedding(source), LENGTHS)
    torch.testing.assert_close(residual(source, valid).states, plain(source, valid).states + first)
    torch.testing.assert_close(residual(source, valid).summary, plain(source, valid).summary + ends)
