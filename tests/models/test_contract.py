"""Contract of every installed model: padding, batching, causality, saving."""

import numpy as np
import pytest
import torch

from s2s.decoding.beam_search import Beam, search
from s2s.decoding.constraints import Constraints
from s2s.recipe.installed import models
from s2s.tasks import source_use
from s2s.training.tensor_files import load_weights, save_weights


def test_there_are_models():
    assert "transformer" in models()


def test_model_token_by_token_is_teacher_forcing(model, batch):
    source, valid, target = batch
    whole = model(source, valid, target)
    context, state = model.decoder.start(model.encoder(source, valid), target.shape[1])
    steps = []
    for i in range(target.shape[1]):
        states, state = model.decoder(context, state, target[:, i : i + 1])
        steps.append(states)
    torch.testing.assert_close(torch.cat(steps, dim=1), whole)


def test_model_feeding_in_two_parts_is_feeding_at_once(model, batch):
    source, valid, target = batch
    context, state = model.decoder.start(model.encoder(source, valid), target.shape[1])
    first, state = model.decoder(context, state, target[:, :2])
    second, _ = model.decoder(context, state, target[:, 2:])
    torch.testing.assert_close(torch.cat((first, second), dim=1), model(source, valid, target))


def test_model_batch_is_its_rows_alone(model, batch):
    source, valid, target = batch
    together = model(source, valid, target)
    for i in range(len(source)):
        length = int(valid[i].sum())
        alone = model(source[i : i + 1, :length], valid[i : i + 1, :length], target[i : i + 1])
        torch.testing.assert_close(together[i : i + 1], alone)


def test_model_ignores_padding(model, batch):
    source, valid, target = batch
    memory = model.encoder(source, valid)
    other = torch.where(valid, source, 4 + (source + 3) % (model.projection.out_features - 4))
    torch.testing.assert_close(model(other, valid, target), model(source, valid, target))
    torch.testing.assert_close(model.encoder(other, valid).summary, memory.summary)


@pytest.mark.parametrize("learns", [True, False])
def test_model_selected_state_goes_on_as_the_selected_rows_would(model, batch, learns):
    source, valid, target = batch
    first, then = torch.tensor([2, 0, 0, 3, 1]), torch.tensor([4, 0, 1])
    with torch.set_grad_enabled(learns):
        whole = model(source, valid, target)
        context, before = model.decoder.start(model.encoder(source, valid), target.shape[1])
        _, before = model.decoder(context, before, target[:, :2])
        # chosen once, and chosen again among the chosen
        once, twice = before.select(first), before.select(first).select(then)
        for state, rows in ((once, first), (twice, first[then]), (before, torch.arange(len(source)))):
            own = context.select(rows)
            early, state = model.decoder(own, state, target[rows, 2:3])
            late, _ = model.decoder(own, state.select(torch.arange(len(rows))), target[rows, 3:])
            torch.testing.assert_close(torch.cat((early, late), dim=1), whole[rows, 2:])


def test_bf16_search_scores_are_close_to_fp32(fresh, batch):
    model, (source, valid, target) = fresh(0), batch
    limits = np.full(len(source), target.shape[1])
    found = search(model, source, valid, limits, Beam(size=3, nbest=3, precision=torch.bfloat16))
    again = source_use.rescore_hypotheses(model, source, valid, found)
    # eight bits of each of a few log probabilities of about 3
    torch.testing.assert_close(again.reported, again.again, atol=0.2, rtol=0)
    assert not torch.equal(again.reported, again.again)


@pytest.mark.parametrize("beam", [Beam(3, 3, groups=3), Beam(2, 2, constraints=Constraints(2, 1))])
def test_model_constrained_search_has_the_scores_of_teacher_forcing(model, batch, beam):
    source, valid, _ = batch
    limits = valid.sum(dim=1).numpy()
    found = search(model, source, valid, limits, beam, prefixes=[[7]] * len(source))
    again = source_use.rescore_hypotheses(model, source, valid, found)
    torch.testing.assert_close(again.reported, again.again, atol=1e-5, rtol=1e-5)
    for row, limit in zip(found, limits, strict=True):
        assert row
        assert all(h.tokens[0] == 7 and min(beam.constraints.min_length, limit) <= len(h.tokens) for h in row)


def test_model_feeding_does_not_change_the_state_it_was_given(model, batch):
    source, valid, target = batch
    context, state = model.decoder.start(model.encoder(source, valid), target.shape[1])
    _, state = model.decoder(context, state, target[:, :1])
    once, _ = model.decoder(context, state, target[:, 1:2])
    model.decoder(context, state, target[:, 2:3])
    again, _ = model.decoder(context, state, target[:, 1:2])
    torch.testing.assert_close(once, again)


def test_model_attention_rows_sum_to_one_over_real_tokens(model, batch):
    source, valid, target = batch
    weights = model.decoder.cross_attention_weights(model.encoder(source, valid), target)
    assert weights.shape[0] == 4
    assert weights.shape[3:] == (5, 6)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))
    assert weights.masked_select(~valid[:, None, None, None, :]).abs().sum() == 0


def test_model_self_attention_rows_of_decoders_sum_to_one_and_look_only_back(model, batch):
    source, valid, target = batch
    weights = model.decoder.self_attention_weights(model.encoder(source, valid), target)
    assert weights.shape[0] == 4
    assert weights.shape[3:] == (5, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))
    assert weights.triu(1).abs().sum() == 0


def test_model_gradients_reach_every_parameter(model, batch):
    source, valid, target = batch
    model.train()
    model.logits(source, valid, target).log_softmax(-1)[..., 5].sum().backward()
    unreached = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    # a softmax does not see what is added to all its scores: the key's bias has no gradient by nature
    assert [n for n in unreached if not n.endswith("key.bias")] == []


def test_model_gradient_is_the_slope_of_the_loss(model, batch):
    source, valid, target = batch
    parameters = list(model.parameters())

    def loss() -> torch.Tensor:
        return model.logits(source, valid, target).log_softmax(-1)[..., 5].sum()

    loss().backward()
    torch.manual_seed(2)
    direction = [torch.randn_like(p) for p in parameters]
    # of length one: a long step would cross the kinks of a ReLU
    length = torch.stack([d.norm() for d in direction]).norm()
    direction = [d / length for d in direction]
    slope = sum((p.grad * d).sum() for p, d in zip(parameters, direction, strict=True) if p.grad is not None)
    around, step = [], 1e-5
    with torch.no_grad():
        for distance in (step, -2 * step):
            for p, d in zip(parameters, direction, strict=True):
                p += distance * d
            around.append(loss())
    torch.testing.assert_close((around[0] - around[1]) / (2 * step), slope, rtol=1e-5, atol=1e-6)


def test_same_seed_builds_the_same_model(fresh):
    for a, b in zip(fresh(3).parameters(), fresh(3).parameters(), strict=True):
        assert torch.equal(a, b)


def test_model_weights_that_were_saved_are_those_that_are_loaded(fresh, batch, tmp_path):
    first, second = fresh(0), fresh(5)
    assert not torch.equal(first.logits(*batch), second.logits(*batch))
    save_weights(first, tmp_path / "model.safetensors")
    load_weights(second, tmp_path / "model.safetensors")
    assert torch.equal(first.logits(*batch), second.logits(*batch))


def test_model_encoder_reads_what_its_embedding_makes(model, batch):
    source, valid, _ = batch
    memory = model.encoder(source, valid)
    torch.testing.assert_close(model.encoder.read(model.encoder.embedding(source), valid).states, memory.states)


def test_model_attention_of_encoders_sums_to_one_over_real_positions(model, batch):
    source, valid, _ = batch
    weights = model.encoder.self_attention_weights(source, valid)
    assert weights.shape[0] == 4
    assert weights.shape[3:] == (6, 6)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))
    assert weights.masked_select(~valid[:, None, None, None, :]).abs().sum() == 0


def test_model_first_of_all_layers_is_the_embedding_and_the_last_the_memory(model, batch):
    source, valid, _ = batch
    vectors = model.encoder.embedding(source)
    layers = model.encoder.states_by_layer(vectors, valid)
    assert len(layers) >= 2
    torch.testing.assert_close(layers[0], vectors)
    torch.testing.assert_close(layers[-1], model.encoder(source, valid).states)
