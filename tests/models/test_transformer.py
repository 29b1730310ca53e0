"""The Transformer compared with torch.nn.Transformer."""

from typing import get_args

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from s2s.errors import UserError
from s2s.models.base import count_parameters
from s2s.models.transformer import Positions, Settings, build


def _settings(**changes) -> Settings:
    small = {"width": 16, "heads": 2, "feedforward": 24, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
    return Settings(**(small | changes))


def _copy_attention(theirs: nn.MultiheadAttention, ours) -> None:
    projections = (ours.query, ours.key, ours.value)
    theirs.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
    theirs.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
    theirs.out_proj.load_state_dict(ours.output.state_dict())


def _copy_layer(theirs, ours, attentions: dict[str, str], norms: dict[str, str]) -> None:
    for their_name, our_name in attentions.items():
        _copy_attention(getattr(theirs, their_name), getattr(ours, our_name))
    for their_name, our_name in norms.items():
        getattr(theirs, their_name).load_state_dict(getattr(ours, our_name).norm.state_dict())
    theirs.linear1.load_state_dict(ours.feedforward.expand.state_dict())
    theirs.linear2.load_state_dict(ours.feedforward.contract.state_dict())


def _as_torch_transformer(model, settings: Settings) -> nn.Transformer:
    theirs = nn.Transformer(
        settings.width,
        settings.heads,
        settings.encoder_layers,
        settings.decoder_layers,
        settings.feedforward,
        dropout=0.0,
        activation=settings.activation,
        batch_first=True,
        norm_first=settings.norm == "pre",
    )
    with torch.no_grad():
        for layer, ours in zip(theirs.encoder.layers, model.encoder.layers, strict=True):
            _copy_layer(
                layer, ours, {"self_attn": "attention"}, {"norm1": "attention_block", "norm2": "feedforward_block"}
            )
        for layer, ours in zip(theirs.decoder.layers, model.decoder.layers, strict=True):
            attentions = {"self_attn": "self_attention", "multihead_attn": "cross_attention"}
            _copy_layer(
                layer, ours, attentions, {"norm1": "self_block", "norm2": "cross_block", "norm3": "feedforward_block"}
            )
        for part, ours in ((theirs.encoder, model.encoder), (theirs.decoder, model.decoder)):
            if settings.norm == "pre":
                part.norm.load_state_dict(ours.norm.state_dict())
            else:
                part.norm = None
    return theirs


def _shake(model: nn.Module) -> None:
    # biases start at zero and norms at one: equalities between unshaken models would miss them
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # torch's, about its own fast path
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_transformer_equals_torch_nn_transformer_with_copied_weights(norm, activation):
    torch.manual_seed(0)
    settings = _settings(norm=norm, activation=activation)
    model = build(settings, 30, 30)
    _shake(model)
    theirs = _as_torch_transformer(model, settings)
    source, target = torch.randint(4, 30, (3, 7)), torch.randint(4, 30, (3, 5))
    valid = torch.ones(3, 7, dtype=torch.bool)
    valid[1, 4:] = False
    expected = theirs(
        model.encoder.embedding(source),
        model.decoder.embedding(target),
        tgt_mask=torch.ones(5, 5, dtype=torch.bool).triu(1),
        src_key_padding_mask=~valid,
        memory_key_padding_mask=~valid,
    )
    torch.testing.assert_close(model(source, valid, target), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_transformer_fused_and_explicit_attention_give_the_same_model(norm):
    source, target, valid = torch.randint(4, 30, (3, 7)), torch.randint(4, 30, (3, 5)), torch.ones(3, 7).bool()
    valid[2, 3:] = False
    states = []
    for attention in ("fused", "explicit"):
        torch.manual_seed(0)
        states.append(build(_settings(norm=norm, attention=attention), 30, 30)(source, valid, target))
    torch.testing.assert_close(states[0], states[1], atol=1e-5, rtol=0)


@pytest.mark.parametrize(("tie", "tables"), [("all", 1), ("target", 2), ("none", 3)])
def test_transformer_tying_leaves_one_two_or_three_tables(tie, tables):
    model = build(_settings(tie=tie), 30, 30)
    rest = count_parameters(build(_settings(tie="all"), 30, 30)) - 30 * 16
    assert count_parameters(model) == rest + tables * 30 * 16


def test_transformer_tying_all_needs_one_vocabulary():
    with pytest.raises(UserError, match=r"30 pieces and the target 31(.|\n)*tokenizer.shared: true"):
        build(_settings(tie="all"), 30, 31)
    assert build(_settings(tie="target"), 30, 31).projection.out_features == 31


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_transformer_encoder_and_decoder_positions_are_separate_choices(positions):
    torch.manual_seed(0)
    model = build(_settings(encoder_positions="none", decoder_positions=positions), 30, 30).eval()
    source, valid, target = torch.tensor([[5, 6, 7]]), torch.ones(1, 3).bool(), torch.tensor([[1, 8, 9]])
    torch.testing.assert_close(model(source, valid, target), model(source.flip(1), valid, target))
    other = build(_settings(encoder_positions=positions, decoder_positions="none"), 30, 30).eval()
    assert not torch.allclose(other(source, valid, target), other(source.flip(1), valid, target))


@pytest.mark.parametrize("positions", get_args(Positions))
def test_transformer_every_kind_of_positions_but_none_depends_on_the_order(positions):
    torch.manual_seed(0)
    model = build(_settings(encoder_positions=positions, decoder_positions=positions), 20, 20).eval()
    source, order = torch.arange(4, 12)[None], torch.randperm(8)
    valid = torch.ones_like(source, dtype=torch.bool)
    states, reordered = (model.encoder(each, valid).states for each in (source, source[:, order]))
    assert torch.allclose(states[:, order], reordered, atol=1e-5) == (positions == "none")


@pytest.mark.parametrize("key", ["activation", "norm_kind", "attention"])
def test_transformer_every_choice_has_an_implementation(key):
    choices = get_args(Settings.model_fields[key].annotation)
    source, states = torch.tensor([[5, 6, 7]]), []
    for choice in choices:
        torch.manual_seed(0)
        states.append(build(_settings(**{key: choice}), 20, 20).eval().encoder(source, source > 0).states)
    alike = [torch.allclose(states[0], other, atol=1e-5) for other in states[1:]]
    assert all(alike) if key == "attention" else not any(alike)


def test_transformer_later_targets_never_reach_earlier_states():
    torch.manual_seed(0)
    model = build(_settings(), 30, 30).eval()
    source, valid, target = torch.randint(4, 30, (2, 6)), torch.ones(2, 6).bool(), torch.randint(4, 30, (2, 5))
    changed = target.clone()
    changed[:, 3:] = 29 - changed[:, 3:]
    before, after = model(source, valid, target), model(source, valid, changed)
    torch.testing.assert_close(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3:], after[:, 3:])


def test_transformer_initial_weights_have_the_published_spread():
    torch.manual_seed(0)
    model = build(_settings(width=128, feedforward=512), 2000, 2000)
    query = model.encoder.layers[0].attention.query.weight
    # Xavier: uniform within ±sqrt(6 / (in + out)); embeddings: normal with variance 1 / width
    assert query.abs().max().item() == pytest.approx((6 / 256) ** 0.5, rel=0.01)
    assert model.encoder.embedding.tokens.weight.std().item() == pytest.approx(128**-0.5, rel=0.01)


def test_transformer_encoder_shows_the_attention_it_computes_with(monkeypatch):
    from s2s.nn import attention

    used, softmax = [], attention.attention_weights
    monkeypatch.setattr(attention, "attention_weights", lambda *given: used.append(softmax(*given)) or used[-1])
    encoder = build(_settings(attention="explicit"), 30, 30).encoder
    _shake(encoder)
    source, valid = torch.randint(4, 30, (2, 6)), torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    encoder(source, valid)
    computed, used[:] = list(used), []
    assert len(computed) == len(encoder.layers)
    torch.testing.assert_close(encoder.self_attention_weights(source, valid), torch.stack(computed, dim=1))


def test_transformer_decoder_shows_the_attention_it_computes_with(monkeypatch):
    from s2s.nn import attention

    used, softmax = [], attention.attention_weights
    monkeypatch.setattr(attention, "attention_weights", lambda *given: used.append(softmax(*given)) or used[-1])
    model = build(_settings(attention="explicit"), 30, 30)
    _shake(model)
    source, valid = torch.randint(4, 30, (2, 6)), torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    target, memory = torch.randint(4, 30, (2, 5)), model.encoder(source, valid)
    used.clear()
    context, state = model.decoder.start(memory, 5)
    model.decoder(context, state, target)
    computed = list(used)
    # of each layer, first what looks back and then what looks across
    assert len(computed) == 2 * len(model.decoder.layers)
    found = model.decoder.self_attention_weights(memory, target)
    torch.testing.assert_close(found, torch.stack(computed[::2], dim=1))
    torch.testing.assert_close(
        model.decoder.cross_attention_weights(memory, target), torch.stack(computed[1::2], dim=1)
    )


class Largest(TorchDispatchMode):
    """Notes the number of elements of the largest tensor that is made."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for each in made if isinstance(made, tuple | list) else [made]:
            if isinstance(each, torch.Tensor):
                self.elements = max(self.elements, each.numel())
        return made


@pytest.mark.parametrize(("attention", "quadratic"), [("fused", False), ("explicit", True)])
def test_transformer_in_training_fused_attention_holds_no_matrix_of_all_pairs_of_positions(attention, quadratic):
    model, length = build(_settings(attention=attention), 11, 11), 600
    tokens = torch.randint(4, 11, (1, length))
    with Largest() as largest:
        model(tokens[:, :3], torch.ones(1, 3, dtype=torch.bool), tokens).sum().backward()
    assert (largest.elements >= length * length) == quadratic
