"""Inspection of queries, keys and values equals the model's own computation."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from s2s.errors import UserError
from s2s.inspection.inspection import InspectionRequest
from s2s.inspection.walk import Source, chosen_words, compute_walk, lookups, same_word
from s2s.inspection.words import Word
from s2s.models.transformer import Settings, build
from s2s.nn.attention import Attention

SIZE = 30


def _model(**options):
    torch.manual_seed(0)
    settings = {"width": 16, "heads": 4, "feedforward": 32, "encoder_layers": 3, "decoder_layers": 2, "dropout": 0.5}
    model = build(Settings(**settings | options), SIZE, SIZE).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return model


def _source(*ids: int) -> Source:
    names = [f"w{i}" for i in ids]
    words = [Word(name, (place,)) for place, name in enumerate(names)]
    return Source(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool), names, words)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_walk_ends_at_what_the_fused_kernel_read(norm):
    model, source = _model(norm=norm, attention="fused"), _source(5, 9, 7, 5, 22)
    weights = model.encoder.self_attention_weights(source.read, source.valid)
    for layer in range(3):
        for head in range(4):
            walk = source.walk(model.encoder, InspectionRequest(layer=layer, head=head), 2)
            assert (walk.layer, walk.head, walk.place, walk.word) == (layer, head, 2, "w7")
            assert walk.difference < 1e-5
            # each step by another way than the walk's own
            by_hand = [sum(q * k for q, k in zip(walk.query, key, strict=True)) for key in walk.keys]
            np.testing.assert_allclose(walk.dots, by_hand, atol=1e-12)
            np.testing.assert_allclose(walk.scaled, np.array(by_hand) / 2, atol=1e-12)
            powers = np.exp(walk.scaled)
            np.testing.assert_allclose(walk.weights, powers / powers.sum(), atol=1e-12)
            np.testing.assert_allclose(walk.read, (walk.weights[:, None] * walk.values).sum(axis=0), atol=1e-12)
            np.testing.assert_allclose(walk.weights, weights[0, layer, head, 2].detach(), atol=1e-5)


def test_vectors_of_the_walk_are_the_layers_own_projections():
    model, source = _model(), _source(5, 9, 7)
    layer = model.encoder.layers[0]
    read = layer.attention_block.branch_input(model.encoder.embedding(source.read))
    walk = source.walk(model.encoder, InspectionRequest(layer=0, head=3), 1)
    for name, linear in (("keys", layer.attention.key), ("values", layer.attention.value)):
        np.testing.assert_allclose(getattr(walk, name), linear(read)[0, :, 12:].detach(), atol=1e-5)
    np.testing.assert_allclose(walk.query, layer.attention.query(read)[0, 1, 12:].detach(), atol=1e-5)


def test_walk_that_read_something_else_says_so():
    model, source = _model(), _source(5, 9, 7)
    found = lookups(model.encoder, lambda: model.encoder(source.read, source.valid))
    wrong = type(found[0])(found[0].query, found[0].key, found[0].value, None, found[1].read)
    assert compute_walk(wrong, (0, 0), source.words[0], source.pieces).difference > 1e-3


def test_decoders_walk_looks_only_back():
    model, source = _model(attention="fused"), _source(5, 9, 7)
    target = torch.tensor([[1, 8, 6, 11]])
    found = lookups(model.decoder, lambda: model(source.read, source.valid, target))
    assert len(found) == 4
    for place in range(4):
        word = Word("w", (place,))
        back, across = (compute_walk(call, (0, 1), word, ["a"] * call.key.shape[2]) for call in found[:2])
        assert back.difference < 1e-5
        assert across.difference < 1e-5
        assert back.weights[place + 1 :].sum() == 0
        assert len(across.weights) == 3


def test_attention_walk_heads_that_share_keys_and_values_are_walked_with_them():
    attention = Attention(8, 4, 0.0, "explicit")
    query, key, value = torch.randn(1, 4, 3, 2), torch.randn(1, 2, 3, 2), torch.randn(1, 2, 3, 2)
    shared = [each.repeat_interleave(2, dim=1) for each in (key, value)]
    read = attention.attend(query, *shared, "causal")
    lookup = lookups(attention, lambda: attention.attend(query, *shared, "causal"))[0]
    grouped = type(lookup)(query, key, value, "causal", read)
    for head in range(4):
        assert compute_walk(grouped, (0, head), Word("w", (2,)), ["a", "b", "c"]).difference < 1e-5


def test_recording_changes_no_output_and_removes_its_hooks():
    model, source = _model(), _source(5, 9, 7)
    before = model.encoder(source.read, source.valid).states
    with pytest.raises(RuntimeError, match="in the middle"):
        lookups(model, lambda: (_ for _ in ()).throw(RuntimeError("in the middle")))
    assert all("read" not in module.__dict__ for module in model.modules() if isinstance(module, Attention))
    lookups(model, lambda: model.encoder(source.read, source.valid))
    assert torch.equal(model.encoder(source.read, source.valid).states, before)


def test_walk_refuses_an_unknown_head_or_layer():
    model, source = _model(), _source(5, 9)
    with pytest.raises(UserError, match=r"--layer: there is no layer 3(.|\n)*0 to 2"):
        source.walk(model.encoder, InspectionRequest(layer=3), 0)
    with pytest.raises(UserError, match=r"--head: there is no head 4(.|\n)*0 to 3"):
        source.walk(model.encoder, InspectionRequest(head=4), 0)


def test_walk_without_a_word_leaves_out_the_prefix_of_a_task():
    model, source = _model(encoder_positions="none"), _source(15, 9, 12)
    assert [word.text for word in source.words][:3] == ["w15", "w9", "w12"]
    found = [chosen_words(model.encoder, [replace(source, prefix_words=n)], None) for n in range(4)]
    assert found == [[0], [2], [2], [0]]
    other = replace(_source(15, 12, 9), prefix_words=1)
    assert chosen_words(model.encoder, [replace(source, prefix_words=1), other], None) in ([1, 2], [2, 1])


def test_attention_walk_one_word_in_two_sentences_begins_alike_and_is_taken_apart_by_its_neighbours():
    model = _model(encoder_positions="none")
    first, second = _source(5, 9, 7), _source(8, 9, 6)
    found = same_word(model.encoder, [first, second], [1, 1])
    assert found.layers == ["embedding", "layer 0", "layer 1", "layer 2", "last norm"]
    assert found.cosines[0] == pytest.approx(1)
    assert found.cosines[-1] < 0.999
    states = [model.encoder(s.read, s.valid).states[0, 1].detach() for s in (first, second)]
    expected = float(torch.dot(*states) / (states[0].norm() * states[1].norm()))
    assert found.cosines[-1] == pytest.approx(expected, abs=1e-5)
    weights = model.encoder.self_attention_weights(first.read, first.valid)[0, 1].mean(dim=0)[1].detach()
    assert dict(found.looked[0][1]) == pytest.approx(dict(zip(first.pieces, weights.tolist(), strict=True)), abs=1e-5)
    same = same_word(model.encoder, [first, first], [1, 1])
    assert same.cosines == pytest.approx([1.0] * 5)


def test_walk_of_two_sentences_shows_the_word_that_differs_most():
    model = _model(encoder_positions="none")
    first, second = _source(5, 9, 7, 4), _source(8, 4, 9, 6)
    chosen = chosen_words(model.encoder, [first, second], None)
    alike = {}
    for a, b in ((1, 2), (3, 1)):
        vectors = [s.vectors(model.encoder, w)[-1] for s, w in ((first, a), (second, b))]
        alike[a, b] = float(torch.nn.functional.cosine_similarity(*vectors, dim=0))
    assert tuple(chosen) == min(alike, key=alike.get)
    assert chosen_words(model.encoder, [first, second], "W9") == [1, 2]
    with pytest.raises(UserError, match="no common word"):
        chosen_words(model.encoder, [first, _source(20, 21)], None)
    with pytest.raises(UserError, match=r"--word: 'w8' is not among(.|\n)*w5, w9"):
        chosen_words(model.encoder, [first, second], "w8")


@pytest.mark.parametrize("positions", ["alibi", "relative", "rope", "none"])
def test_walk_equals_the_model_for_every_kind_of_positions(positions):
    model = _model(encoder_positions=positions, decoder_positions=positions, key_value_heads=2, attention="fused")
    source, target = _source(5, 9, 7, 5), torch.tensor([[1, 8, 6, 11]])
    memory = model.encoder(source.read, source.valid)
    found = lookups(model, lambda: model(source.read, source.valid, target))
    shown = model.decoder.self_attention_weights(memory, target)[0].detach()
    calls = [*enumerate(found[:3]), *((layer, found[3 + 2 * layer]) for layer in range(2))]
    for number, (layer, call) in enumerate(calls):
        expected = model.encoder.self_attention_weights(source.read, source.valid)[0].detach() if number < 3 else shown
        for place in range(4):
            walk = compute_walk(call, (layer, 3), Word("w", (place,)), ["a"] * 4)
            assert walk.difference < 1e-5
            np.testing.assert_allclose(walk.weights, expected[layer, 3, place], atol=1e-5)
