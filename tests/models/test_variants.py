"""Variants of the Transformer: sizes, valid combinations, independence."""

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from s2s.models.base import Classifier, count_parameters
from s2s.models.transformer import EncoderSettings, Settings, build, build_encoder
from s2s.nn.attention import Attention

VARIANTS = [
    {"encoder_positions": "rope", "decoder_positions": "rope"},
    {"encoder_positions": "alibi", "decoder_positions": "alibi"},
    {"encoder_positions": "relative", "decoder_positions": "relative"},
    {"heads_kind": "wide"},
    {"key_value_heads": 2},
    {"activation": "swiglu"},
    {"norm_kind": "rms"},
    {"embedding_norm": True},
    {"norm_epsilon": 1e-12, "scale_embeddings": False},
]
SIZE = 30


def _settings(kind=Settings, **changes):
    small = {
        "width": 16,
        "heads": 4,
        "feedforward": 24,
        "encoder_layers": 2,
        "dropout": 0.0,
        "encoder_positions": "none",
    }
    small |= {"decoder_layers": 2, "decoder_positions": "none"} if kind is Settings else {}
    return kind(**(small | {key: value for key, value in changes.items() if key in kind.model_fields}))


def _shaken(model: torch.nn.Module) -> torch.nn.Module:
    """Norms begin at one and biases at zero: equalities between unshaken models would miss them."""
    torch.manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return model.double().eval()


def _batch() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(2)
    valid = torch.ones(3, 7, dtype=torch.bool)
    valid[2, 3:] = False
    return torch.randint(4, SIZE, (3, 7)), valid, torch.randint(4, SIZE, (3, 5))


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_variants_fused_and_explicit_attention_give_the_same_model(variant):
    states = []
    for attention in ("fused", "explicit"):
        torch.manual_seed(0)
        states.append(_shaken(build(_settings(**variant, attention=attention), SIZE, SIZE))(*_batch()))
    torch.testing.assert_close(*states, atol=1e-10, rtol=0)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_variants_each_switch_changes_what_comes_out(variant):
    outputs = []
    for changes in ({}, variant):
        torch.manual_seed(0)
        outputs.append(_shaken(build(_settings(**changes), SIZE, SIZE))(*_batch()))
    assert not torch.allclose(*outputs)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_variants_encoder_alone_reads_each_row_as_in_a_batch(variant):
    torch.manual_seed(0)
    encoder, width = build_encoder(_settings(EncoderSettings, **variant), SIZE)
    model, (source, valid, _) = _shaken(Classifier(encoder, width, 3, "mean")), _batch()
    together = model(source, valid)
    torch.testing.assert_close(together[2:], model(source[2:, :3], valid[2:, :3]))
    wider = torch.nn.functional.pad(source, (0, 3), value=9), torch.nn.functional.pad(valid, (0, 3))
    torch.testing.assert_close(model(*wider), together)


@pytest.mark.parametrize("kind", ["rope", "alibi", "relative"])
def test_variants_positions_in_the_attention_tell_the_order_on_their_own_side(kind):
    source, valid, target = torch.tensor([[5, 6, 7]]), torch.ones(1, 3).bool(), torch.tensor([[1, 8, 9]])
    torch.manual_seed(0)
    reading = _shaken(build(_settings(encoder_positions=kind), SIZE, SIZE))
    assert not torch.allclose(reading(source, valid, target), reading(source.flip(1), valid, target))
    # in the decoder alone: the encoder does not know the order, and attention to it has no distances
    writing = _shaken(build(_settings(decoder_positions=kind), SIZE, SIZE))
    torch.testing.assert_close(writing(source, valid, target), writing(source.flip(1), valid, target))
    plain = _shaken(build(_settings(), SIZE, SIZE))
    plain.load_state_dict(writing.state_dict(), strict=False)
    assert not torch.allclose(plain(source, valid, target), writing(source, valid, target))


@pytest.mark.parametrize("kind", ["rope", "alibi", "relative"])
def test_variants_long_sources_and_long_decoding_have_no_end(kind):
    torch.manual_seed(0)
    model = _shaken(build(_settings(encoder_positions=kind, decoder_positions=kind), SIZE, SIZE))
    assert model.encoder.max_positions is model.decoder.max_positions is None
    source, target = torch.randint(4, SIZE, (1, 300)), torch.randint(4, SIZE, (1, 270))
    valid = torch.ones_like(source, dtype=torch.bool)
    with torch.inference_mode():
        context, state = model.decoder.start(model.encoder(source, valid), 270)
        _, state = model.decoder(context, state, target[:, :260])
        last, _ = model.decoder(context, state, target[:, 260:])
    torch.testing.assert_close(last, model(source, valid, target)[:, 260:])


def test_variants_cache_of_grouped_heads_is_smaller():
    sizes = {}
    for groups in (None, 2, 1):
        model, (source, valid, target) = build(_settings(key_value_heads=groups), SIZE, SIZE), _batch()
        context, state = model.decoder.start(model.encoder(source, valid), 5)
        _, state = model.decoder(context, state, target)
        layers = (*context.layers, *state.layers)
        sizes[groups] = sum(each.keys.numel() + each.values.numel() for each in layers)
    assert (sizes[2], sizes[1]) == (sizes[None] / 2, sizes[None] / 4)


def _attentions(model: torch.nn.Module) -> int:
    return sum(isinstance(module, Attention) for module in model.modules())


def test_variants_have_their_number_of_parameters():
    k, h, inner, layers = 16, 4, 24, 4

    def added(**changes) -> int:
        return count_parameters(build(_settings(**changes), SIZE, SIZE)) - count_parameters(
            build(_settings(), SIZE, SIZE)
        )

    attentions = _attentions(build(_settings(), SIZE, SIZE))
    assert attentions == 6
    assert added(heads_kind="wide") == attentions * (4 * (h - 1) * k * k + 3 * (h - 1) * k)
    assert added(key_value_heads=1) == -attentions * 2 * (k * k + k) * (h - 1) // h
    assert added(activation="swiglu") == layers * (k * inner + inner)
    assert added(norm_kind="rms") == -k * (2 * 2 + 3 * 2 + 2)
    assert added(embedding_norm=True) == 2 * 2 * k
    assert added(embedding_norm=True, norm_kind="rms") == added(norm_kind="rms") + 2 * k
    for kind, cost in (("rope", 0), ("alibi", 0), ("relative", 32 * h)):
        assert added(encoder_positions=kind) == added(decoder_positions=kind) == cost


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 4, "key_value_heads": 3}, r"key_value_heads \(3\) must divide heads \(4\)"),
        ({"heads": 2, "key_value_heads": 4}, r"key_value_heads \(4\) must divide heads \(2\)"),
        ({"width": 12, "heads": 4, "decoder_positions": "rope"}, "a head of 3 numbers has no pairs to turn"),
        ({"width": 15, "heads": 4, "heads_kind": "wide", "encoder_positions": "rope"}, "a head of 15 numbers"),
        ({"width": 15, "heads": 4}, r"heads \(4\) must divide width \(15\)"),
    ],
)
def test_settings_that_exclude_each_other_are_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        _settings(**changes)
    # a wide head is as large as it likes
    assert _settings(width=15, heads=4, heads_kind="wide").head_size == 15
