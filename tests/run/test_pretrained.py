"""A new model that begins with another run's encoder."""

import json

import pytest
import torch
from torch import nn

from s2s.errors import UserError
from s2s.models.base import Classifier
from s2s.models.masked_lm import MaskedLM
from s2s.recipe.installed import models, module_of
from s2s.run.init_from import LoadReport, freeze_loaded, load_encoder_weights

SIZE = 23


def _encoder(kind: str, seed: int, size: int = SIZE, **options):
    torch.manual_seed(seed)
    module = module_of(kind)
    return module.build_encoder(module.Settings(kind=kind, **({"width": 32} | options)), size)


def _masked(kind: str, **options) -> MaskedLM:
    encoder, width = _encoder(kind, 1, SIZE + 1, **options)
    return MaskedLM(encoder, width, SIZE).eval()


def _classifier(kind: str, **options) -> Classifier:
    encoder, width = _encoder(kind, 2, **options)
    return Classifier(encoder, width, 3).eval()


def _tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def _batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(3)
    valid = torch.ones(4, 6, dtype=torch.bool)
    valid[1, 4:] = False
    return torch.randint(4, SIZE, (4, 6)), valid


@pytest.mark.parametrize("kind", sorted(models()))
def test_load_encoder_weights_gives_equal_states_in_a_classifier(kind):
    source, model = _masked(kind), _classifier(kind)
    before = model.encoder(*_batch()).states
    load_encoder_weights(model, _tensors(source), "there")
    assert not torch.equal(model.encoder(*_batch()).states, before)
    torch.testing.assert_close(model.encoder(*_batch()).states, source.encoder(*_batch()).states)


@pytest.mark.parametrize("kind", sorted(models()))
def test_load_encoder_weights_gives_equal_states_in_a_translator(kind):
    source, module = _masked(kind), module_of(kind)
    torch.manual_seed(5)
    model = module.build(module.Settings(kind=kind, width=32), SIZE, SIZE).eval()
    load_encoder_weights(model, _tensors(source), "there")
    torch.testing.assert_close(model.encoder(*_batch()).states, source.encoder(*_batch()).states)


def test_load_encoder_weights_loads_exactly_the_reported_tensors():
    source, model = _masked("transformer"), _classifier("transformer", encoder_layers=4)
    with torch.no_grad():
        for p in source.parameters():
            # biases and norms, too, are then other numbers than in a new model
            p += torch.randn_like(p)
    there, before = _tensors(source), _tensors(model)
    found = load_encoder_weights(model, there, "there")
    after = _tensors(model)
    table = "encoder.embedding.tokens.weight"
    assert {n for n in after if torch.equal(after[n], before[n])} == set(found.new)
    assert all(torch.equal(after[n], there[n]) for n in found.loaded)
    assert list(found.partly) == [table]
    assert torch.equal(after[table], there[table][:SIZE])
    assert sorted([*found.loaded, *found.partly, *found.new]) == sorted(after)
    assert sorted([*found.loaded, *found.partly, *found.left_out]) == sorted(there)
    assert all(n.startswith("transform.") for n in found.left_out)
    assert all(n.startswith(("encoder.layers.3.", "head.")) for n in found.new)


def test_load_encoder_weights_copies_common_rows_of_the_output_bias():
    module, built = module_of("transformer"), []
    for size in (SIZE + 9, SIZE):
        torch.manual_seed(size)
        built.append(module.build(module.Settings(width=32, output_bias=True), size, size))
        nn.init.normal_(built[-1].projection.bias)
    there = _tensors(built[0])
    found = load_encoder_weights(built[1], there, "there", whole=True)
    assert found.partly["projection.bias"] == f"{SIZE} of {SIZE + 9} rows"
    assert torch.equal(built[1].projection.bias, there["projection.bias"][:SIZE])


def test_load_report_lists_loaded_skipped_and_new_tensors():
    found = load_encoder_weights(
        _classifier("transformer"), _tensors(_masked("transformer")), "runs/mlm, checkpoint 0000010"
    )
    text = str(found)
    assert text.startswith("from runs/mlm, checkpoint 0000010\n")
    assert f"encoder.embedding.tokens.weight ({SIZE} of {SIZE + 1} rows)" in text
    assert "encoder.layers.0 (" in text
    assert "left out    transform.0 (2 tensors), transform.2 (2 tensors)" in text
    assert "new         head" in text


def test_load_encoder_weights_keeps_new_rows_of_longer_positions():
    options = {"encoder_positions": "learned"}
    source = _masked("transformer", max_positions=8, **options)
    model = _classifier("transformer", max_positions=12, **options)
    before = _tensors(model)["encoder.embedding.positions.weight"]
    found = load_encoder_weights(model, _tensors(source), "there")
    after = _tensors(model)["encoder.embedding.positions.weight"]
    assert torch.equal(after[8:], before[8:])
    assert torch.equal(after[:8], _tensors(source)["encoder.embedding.positions.weight"])
    assert found.partly["encoder.embedding.positions.weight"] == "8 of 8 rows, 4 new"


def test_load_encoder_weights_refuses_another_width():
    with pytest.raises(UserError, match="24 × 32 there and 23 × 64 here"):
        load_encoder_weights(_classifier("transformer", width=64), _tensors(_masked("transformer")), "there")


def test_load_encoder_weights_refuses_another_kind_of_model():
    tensors = {n: t for n, t in _tensors(_masked("lstm")).items() if "embedding" not in n}
    with pytest.raises(UserError, match="no tensor"):
        load_encoder_weights(_classifier("transformer"), tensors, "there")


@pytest.mark.parametrize(
    ("which", "learning"), [("nothing", None), ("embeddings", "encoder.embedding"), ("all", "encoder.")]
)
def test_pretrained_frozen_parameters_do_not_learn(which, learning):
    model = _classifier("transformer")
    found = load_encoder_weights(model, _tensors(_masked("transformer")), "there")
    frozen = freeze_loaded(model, found.names(), which)
    assert frozen == [n for n in found.names() if learning and n.startswith(learning)]
    assert [n for n, p in model.named_parameters() if not p.requires_grad] == [
        n for n, _ in model.named_parameters() if n in frozen
    ]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"source": "x"}', "[" * 100_000, "lists"])
def test_pretrained_source_that_is_damaged_is_named(tmp_path, text):
    path = tmp_path / "init_from.json"
    kept = {"source": "x", "loaded": 5, "partly": {}, "left_out": [], "new": []}
    path.write_text(json.dumps(kept) if text == "lists" else text)
    with pytest.raises(UserError, match=r"init_from.json(:1)?: (.|\n)*restore it"):
        LoadReport.read(path)
    path.write_text(json.dumps(kept | {"loaded": ["encoder.a"]}))
    assert LoadReport.read(path).names() == ["encoder.a"]
