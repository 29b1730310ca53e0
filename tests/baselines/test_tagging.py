"""The RNN tagger writes one output for each encoder state."""

import torch

from baselines.rnn_tagger import Settings, build


def test_tagging_output_at_each_step_is_read_off_the_state_at_that_step_whatever_was_written():
    torch.manual_seed(0)
    model = build(Settings(width=8), 11, 7).eval()
    source = torch.randint(11, (2, 5))
    valid = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    states = model.encoder(source, valid).states * valid.unsqueeze(2)
    expected = states @ model.projection.weight.T
    for tokens in (torch.zeros(2, 5, dtype=torch.long), torch.randint(7, (2, 5))):
        torch.testing.assert_close(model.logits(source, valid, tokens), expected)


def test_tagging_before_a_word_is_read_it_has_no_influence_unless_both_directions_are():
    for bidirectional in (False, True):
        torch.manual_seed(0)
        model = build(Settings(width=8, bidirectional=bidirectional), 11, 7).eval()
        source, valid, tokens = torch.randint(11, (1, 5)), torch.ones(1, 5, dtype=torch.bool), torch.zeros(1, 5).long()
        other = source.clone()
        other[0, 3] = (other[0, 3] + 1) % 11
        changed = (model.logits(other, valid, tokens) != model.logits(source, valid, tokens)).any(dim=2)[0]
        assert changed.tolist() == ([True] * 5 if bidirectional else [False] * 3 + [True] * 2)
