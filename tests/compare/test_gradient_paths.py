"""Exact gradients through time and through both paths to the source, against finite differences."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from s2s.comparison.questions.gradients.jacobian import Transition, flatten_state, spectral_norm, unflatten_state
from s2s.comparison.questions.gradients.paths import (
    Texts,
    cut_path,
    decoder_gradients,
    gradient_norms,
    long_texts,
    saliency,
)
from s2s.comparison.spec import NotForThisModel
from s2s.comparison.translation import has_cross_attention
from s2s.data.tokenized import TokenizedDataset
from s2s.data.tokenizers import BOS
from s2s.recipe.installed import module_of

SIZE = 17
KINDS = ["transformer", "rnn", "lstm", "lstm-attention", "mingru", "conv"]
STEP = 1e-5


def _model(kind, **options):
    torch.manual_seed(2)
    module = module_of(kind)
    own = {"width": 8, "encoder_layers": 1, "decoder_layers": 1, "heads": 2, "feedforward": 16, "kernel": 5} | options
    known = {key: value for key, value in own.items() if key in module.Settings.model_fields}
    return module.build(module.Settings(kind=kind, **known), SIZE, SIZE).double().eval()


def _text(rows=2, fed=6):
    generator = torch.Generator().manual_seed(5)
    source = torch.randint(4, SIZE, (rows, 5), generator=generator)
    valid = torch.ones(rows, 5, dtype=torch.bool)
    valid[-1, 3:] = False
    tokens = torch.randint(4, SIZE, (rows, fed), generator=generator)
    tokens[:, 0] = BOS
    return Texts(source, valid, tokens, torch.randint(4, SIZE, (rows,), generator=generator))


def _loss(model, text, states):
    return functional.cross_entropy(model.projection(states[:, -1]), text.answer, reduction="none")


def _moved_input(model, text, change):
    """The losses where the vectors of the target's tokens are moved; all tokens are fed at once."""
    with torch.no_grad():
        context, state = model.decoder.start(model.encoder(text.source, text.valid), text.tokens.shape[1])
        (embedding,) = (m for m in model.decoder.modules() if isinstance(m, nn.Embedding) and len(m.weight) == SIZE)
        hook = embedding.register_forward_hook(lambda _, __, found: found + change)
        try:
            return _loss(model, text, model.decoder(context, state, text.tokens)[0])
        finally:
            hook.remove()


@pytest.mark.parametrize("kind", KINDS)
def test_decoder_gradients_of_inputs_equal_finite_differences(kind):
    model, text = _model(kind), _text()
    found = decoder_gradients(model, text)[0]
    for t, i in ((t, i) for t in range(6) for i in range(8)):
        change = torch.zeros(2, 6, 8, dtype=torch.float64)
        change[:, t, i] = STEP
        slope = (_moved_input(model, text, change) - _moved_input(model, text, -change)) / (2 * STEP)
        assert found[:, t, i] == pytest.approx(slope, abs=1e-8), (t, i)


@pytest.mark.parametrize("kind", KINDS)
def test_decoder_gradients_of_states_equal_finite_differences(kind):
    model, text = _model(kind), _text()
    by_state = decoder_gradients(model, text)[1]
    for t in range(5):
        found = torch.cat([part.flatten(1) for part in by_state[t]], dim=1)
        with torch.no_grad():
            context, state = model.decoder.start(model.encoder(text.source, text.valid), 6)
            state = model.decoder(context, state, text.tokens[:, : t + 1])[1]

            def after(change, context=context, state=state, rest=text.tokens[:, t + 1 :]):
                moved = unflatten_state(state, flatten_state(state) + change)
                return _loss(model, text, model.decoder(context, moved, rest)[0])

            for i in range(0, found.shape[1], 3):
                change = torch.zeros_like(found)
                change[:, i] = STEP
                assert found[:, i] == pytest.approx((after(change) - after(-change)) / (2 * STEP), abs=1e-8), (t, i)


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_norms_are_ordered_by_distance_from_the_loss(kind):
    model, text = _model(kind), _text()
    by_input, by_state = decoder_gradients(model, text)
    found = gradient_norms(model, text, batch_size=2, seed=1)
    # five tokens after BOS, and states after all of them but the last
    assert found.inputs.shape == (2, 5)
    assert found.inputs[:, 0] == pytest.approx(by_input[:, -1].norm(dim=1))
    assert found.inputs[:, 4] == pytest.approx(by_input[:, 1].norm(dim=1))
    assert found.states is not None
    assert found.states.shape == (2, 4)
    for distance in (1, 4):
        parts = torch.cat([part.flatten(1) for part in by_state[-1 - distance]], dim=1)
        assert found.states[:, distance - 1] == pytest.approx(parts.norm(dim=1))


@pytest.mark.parametrize("kind", ["transformer", "lstm-attention"])
def test_gradient_norms_are_independent_of_the_batch_size(kind):
    model, text = _model(kind), _text(rows=3)
    together, alone = (
        gradient_norms(model, text, batch_size=3, seed=1),
        gradient_norms(model, text, batch_size=1, seed=1),
    )
    assert together.inputs == pytest.approx(alone.inputs)
    assert together.states == pytest.approx(alone.states)


def test_gradient_norms_of_the_source_begin_at_its_own_end():
    model, text = _model("rnn", bidirectional=False), _text()
    found = gradient_norms(model, text, batch_size=2, seed=1).source
    assert np.isnan(found[1]).tolist() == [False, False, False, True, True]
    short = Texts(text.source[1:, :3], text.valid[1:, :3], text.tokens[1:], text.answer[1:])
    assert found[1, :3] == pytest.approx(gradient_norms(model, short, batch_size=1, seed=1).source[0])
    # read from left to right, the last piece is the nearest to the summary
    assert found[0, 0] > found[0, 4]


def test_gradient_norms_grow_by_at_most_the_jacobians_norms():
    model, text = _model("rnn", decoder_layers=2), _text(fed=12)
    found = gradient_norms(model, text, batch_size=2, seed=1).states
    with torch.no_grad():
        context, state = model.decoder.start(model.encoder(text.source, text.valid), 12)
        state = model.decoder(context, state, text.tokens[:, :2])[1]
    bound = torch.ones(2, dtype=torch.float64)
    for t in range(2, 11):
        step = Transition(model.decoder, context, state, text.tokens[:, t : t + 1])
        bound *= spectral_norm(step, seed=1)
        state = unflatten_state(state, flatten_state(step.after).detach())
    # from the state after token 1 to the one after token 10: nine steps
    ratio = torch.from_numpy(found[:, 9] / found[:, 0])
    assert (ratio <= bound).all()
    assert (ratio > 1e-6 * bound).all()


@pytest.mark.parametrize("kind", ["lstm-attention", "transformer", "conv", "lstm"])
def test_saliency_is_the_sum_of_its_two_paths(kind):
    model = _model(kind)
    whole, attention, summary = (saliency(model, [4, 9, 7], [5, 6], path) for path in ("whole", "attention", "summary"))
    assert whole.shape == (3, 4, 8)
    assert whole == pytest.approx(attention + summary, abs=1e-12)
    # which of the two a decoder reads is what it is
    reads_summary, reads_states = kind.startswith("lstm"), kind != "lstm"
    assert (bool(summary.abs().sum() > 0), bool(attention.abs().sum() > 0)) == (reads_summary, reads_states)
    assert has_cross_attention(model) == reads_states


def test_saliency_equals_finite_differences():
    model, source, target = _model("lstm-attention", tie="none"), [4, 9, 7], [5, 6]
    found = saliency(model, source, target, "whole")
    embedding = next(m for m in model.encoder.modules() if isinstance(m, nn.Embedding))

    def scores(change):
        # source pieces differ, so each has a row of the table to itself
        with torch.no_grad():
            embedding.weight[9] += change
            pieces = torch.tensor([[*source, 2]])
            logits = model.logits(pieces, torch.ones(1, 4, dtype=torch.bool), torch.tensor([[BOS, *target]]))[0]
            embedding.weight[9] -= change
        return torch.stack([logits[0, 5], logits[1, 6]])

    change = torch.zeros(8, dtype=torch.float64)
    change[3] = STEP
    assert found[:2, 1, 3] == pytest.approx((scores(change) - scores(-change)) / (2 * STEP), abs=1e-8)


@pytest.mark.parametrize("kind", ["lstm-attention", "conv"])
def test_cut_path_changes_no_number(kind):
    model, text = _model(kind), _text()
    memory = model.encoder(text.source, text.valid)
    for path in ("whole", "attention", "summary"):
        found = cut_path(memory, path)
        assert type(found) is type(memory)
        assert torch.equal(found.states, memory.states)
        assert torch.equal(found.summary, memory.summary)
        assert (found.states.requires_grad, found.summary.requires_grad) == (path != "summary", path != "attention")


def test_long_texts_join_the_corpus_end_to_end():
    pairs = TokenizedDataset.from_rows([[10, 11], [12], [13, 14, 15]], [[4, 5], [6, 7, 8], [9]])
    text = long_texts(pairs, count=2, length=3)
    assert text.tokens.tolist() == [[BOS, 4, 5, 6], [BOS, 9, 4, 5]]
    assert text.answer.tolist() == [7, 6]
    assert text.source[:, :2].tolist() == [[10, 11], [13, 14]]
    assert text.valid.all()


class Blind(nn.Module):
    """Looks tokens up in a table that is no `nn.Embedding`."""

    def __init__(self, table):
        super().__init__()
        self.weight = nn.Parameter(table.weight.detach().clone())

    def forward(self, tokens):
        return functional.embedding(tokens, self.weight)


def test_gradient_norms_refuse_a_model_without_nn_embedding():
    model = _model("lstm")
    model.decoder.embedding = Blind(model.decoder.embedding.tokens)
    with pytest.raises(NotForThisModel, match=r"its decoder has no nn\.Embedding of its tokens"):
        gradient_norms(model, _text(), batch_size=2, seed=1)
