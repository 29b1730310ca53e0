"""Two ways of computing one thing, on the device that S2S_TEST_DEVICE names (`benchmarks/gpu.py` names a GPU).

With S2S_TEST_ALL=1 every installed model is asked, otherwise the Transformer alone.
"""

import itertools
import os

import numpy as np
import pytest
import torch
from torch.nn import functional

from s2s.data.tokenized import TokenizedDataset
from s2s.data.tokenizers import BOS, EOS, PAD
from s2s.decoding.beam_search import Beam, search
from s2s.errors import UserError
from s2s.models.base import Seq2Seq
from s2s.recipe.installed import models, module_of
from s2s.recipe.schema import SeedSettings
from s2s.tasks.seq2seq import translation_trainer
from s2s.tasks.translation.recipe import BatchSettings, TrainingSettings
from s2s.training import precision
from s2s.training.device import DeviceContext
from s2s.training.loss import cross_entropy
from s2s.training.trainer import Trainer

SIZE = 7
KINDS = sorted(models()) if os.environ.get("S2S_TEST_ALL") == "1" else ["transformer"]
WORDS = [piece for piece in range(SIZE) if piece not in (PAD, BOS, EOS)]


def _model(kind: str, device: torch.device, seed: int = 0, **options) -> Seq2Seq:
    torch.manual_seed(seed)
    module = module_of(kind)
    if "width" in module.Settings.model_fields:
        options = {"width": 32} | options
    return module.build(module.Settings(kind=kind, **options), SIZE, SIZE).to(device).eval()


def _wide(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64


@pytest.fixture
def batch(device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    valid = torch.ones(4, 6, dtype=torch.bool)
    valid[1, 4:] = valid[3, 1:] = False
    tensors = torch.randint(4, SIZE, (4, 6)), valid, torch.randint(4, SIZE, (4, 5))
    return tuple(tensor.to(device) for tensor in tensors)


@pytest.fixture(scope="module")
def pairs() -> TokenizedDataset:
    generator = np.random.default_rng(0)
    sides = [[list(generator.integers(4, SIZE, generator.integers(1, 9))) for _ in range(30)] for _ in range(2)]
    return TokenizedDataset.from_rows(*sides)


@pytest.mark.parametrize("kind", KINDS)
def test_device_token_by_token_is_teacher_forcing_and_a_batch_its_rows(kind, batch, device):
    model = _model(kind, device).to(_wide(device))
    source, valid, target = batch
    whole = model(source, valid, target)
    context, state = model.decoder.start(model.encoder(source, valid), target.shape[1])
    steps = []
    for token in target.split(1, dim=1):
        states, state = model.decoder(context, state, token)
        steps.append(states)
    torch.testing.assert_close(torch.cat(steps, dim=1), whole)
    for i, length in enumerate(valid.sum(dim=1).tolist()):
        alone = model(source[i : i + 1, :length], valid[i : i + 1, :length], target[i : i + 1])
        torch.testing.assert_close(whole[i : i + 1], alone)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_device_fast_attention_is_explicit_attention(precision, batch, device):
    fused, explicit = (_model("transformer", device, attention=kind, dropout=0.0) for kind in ("fused", "explicit"))
    found, weights = [], torch.randn(4, 5, 32).to(device)
    for model in (fused, explicit):
        with DeviceContext(device, precision).mixed_precision():
            states = model(*batch)
        (states.float() * weights).sum().backward()
        found.append((states.detach().float(), model.encoder.layers[0].attention.value.weight.grad))
    for ours, theirs in zip(*found, strict=True):
        assert float((ours - theirs).norm() / theirs.norm()) < (1e-4 if precision == torch.float32 else 0.05)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_device_fused_loss_is_the_plain_loss(smoothing, device):
    torch.manual_seed(0)
    wide = _wide(device)
    states = torch.randn(3, 5, 8).to(device, wide).requires_grad_()
    weight = torch.randn(11, 8).to(device, wide).requires_grad_()
    targets, valid = torch.randint(0, 11, (3, 5)).to(device), torch.ones(3, 5, dtype=torch.bool, device=device)
    valid[1, 2:] = False
    ours = cross_entropy(states, weight, targets, valid, smoothing)[0]
    scores = (states @ weight.T)[valid]
    theirs = functional.cross_entropy(scores, targets[valid], reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(
        torch.autograd.grad(ours, (states, weight)), torch.autograd.grad(theirs, (states, weight)), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("kind", KINDS)
def test_device_beam_as_wide_as_the_space_is_exhaustive_search(kind, batch, device):
    model, beam = _model(kind, device).to(_wide(device)), Beam(size=90, nbest=4, length_penalty=0.6)
    source, valid, limit = batch[0][:2], batch[1][:2], 2
    if model.decoder.is_one_to_one:
        pytest.skip("its targets are as long as their sources")
    found = search(model, source, valid, np.array([limit, limit]), beam)
    space = [tokens for n in range(limit + 1) for tokens in itertools.product(WORDS, repeat=n)]
    for i, hypotheses in enumerate(found):
        scored = {}
        for tokens in space:
            fed = torch.tensor([[BOS, *tokens]], device=device)
            with torch.no_grad():
                scores = model.logits(source[i : i + 1], valid[i : i + 1], fed).log_softmax(-1)[0]
            total = sum(float(scores[step, piece]) for step, piece in enumerate([*tokens, EOS]))
            scored[tokens] = total / beam.penalty(len(tokens) + 1)
        expected = sorted(scored.items(), key=lambda item: -item[1])[:4]
        assert [h.tokens for h in hypotheses] == [tokens for tokens, _ in expected]
        assert [h.score for h in hypotheses] == pytest.approx([score for _, score in expected], abs=1e-4)


def _trainer(kind: str, pairs: TokenizedDataset, device: torch.device, seed: int = 0) -> Trainer:
    options = TrainingSettings(updates=40, warmup=2, learning_rate=0.01, ema=0.9, tokens_per_update=60)
    device_context = DeviceContext(device, torch.float32)
    return translation_trainer(
        _model(kind, device, seed), pairs, options, BatchSettings(tokens=40), SeedSettings(), device_context
    )


@pytest.mark.parametrize("kind", KINDS)
def test_device_resuming_goes_on_as_if_it_had_never_stopped(kind, pairs, device):
    straight, stopped, fresh = (_trainer(kind, pairs, device, seed) for seed in (0, 0, 9))
    losses = [update.loss for update in straight.updates(8)]
    list(stopped.updates(5))
    tensors, place = stopped.state()
    fresh.load_state({name: tensor.cpu().clone() for name, tensor in tensors.items()}, place)
    # sums of many threads of a GPU come in any order: bits are the business of device.deterministic
    assert [update.loss for update in fresh.updates(8)] == pytest.approx(losses[5:], rel=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_device_model_learns_and_its_average_is_used_without_a_warning(kind, pairs, device):
    trainer = _trainer(kind, pairs, device)
    losses = [update.loss for update in trainer.updates(12)]
    assert sum(losses[-4:]) < sum(losses[:4])
    tensors, _ = trainer.state()
    raw = {name: tensor.clone() for name, tensor in tensors.items()}
    with trainer.optimization.use_ema_weights(), torch.no_grad():
        # cuDNN warns of weights that are not in one piece, and warnings are errors
        batch = trainer.examples.collate(trainer.groups[0][0], 0).to(device)
        trainer.model.eval()
        trainer.model(batch.source, batch.source_valid, batch.target_in)
        assert all(torch.equal(tensors[name], raw[name]) for name in raw)
        changed = [not torch.equal(p, raw[f"model.{name}"]) for name, p in trainer.model.named_parameters()]
        assert sum(changed) > len(changed) / 2


@pytest.mark.parametrize("kind", KINDS)
def test_nonfinite_step_is_raised_by_the_next_step(kind, pairs, device):
    trainer = _trainer(kind, pairs, device)
    list(trainer.updates(2))
    with torch.no_grad():
        trainer.model.projection.weight[5, 0] = float("nan")
    before = [p.detach().clone() for p in trainer.model.parameters()]
    with pytest.raises(UserError, match="update 3"):
        list(trainer.updates(4))
    for a, p in zip(before, trainer.model.parameters(), strict=True):
        assert torch.equal(a.nan_to_num(), p.detach().nan_to_num())


@pytest.mark.parametrize("kind", KINDS)
def test_device_to_measure_the_precision_changes_nothing(kind, pairs, device):
    plain, measured = (_trainer(kind, pairs, device) for _ in range(2))
    torch.manual_seed(3)
    expected = torch.rand(3, device=device)
    torch.manual_seed(3)
    found = precision.benchmark_precision(measured)
    assert torch.equal(torch.rand(3, device=device), expected)
    assert found.fp32 is not None
    assert found.faster == min((found.fp32, torch.float32), (found.bf16, torch.bfloat16))[1]
    losses = [[update.loss for update in trainer.updates(4)] for trainer in (plain, measured)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@pytest.mark.parametrize("why", ["more than its share", "more than there is"])
def test_device_bf16_is_taken_where_fp32_takes_too_much_memory(why, pairs, device, monkeypatch):
    if device.type != "cuda":
        pytest.skip("a processor's memory is not asked")
    trainer = _trainer("transformer", pairs, device)
    if why == "more than its share":
        monkeypatch.setattr(precision, "_SHARE", 0.0)
    else:
        loss, backward, forgotten = trainer.loss, torch.Tensor.backward, []

        def watched(model, batch):
            forgotten.append(all(p.grad is None for p in model.parameters()))
            return loss(model, batch)

        def hungry(wanted, *others):
            backward(wanted, *others)
            # every gradient is there when memory runs out
            if len(forgotten) == 1:
                torch.empty(2**50, device=device)

        monkeypatch.setattr(trainer, "loss", watched)
        monkeypatch.setattr(torch.Tensor, "backward", hungry)
    found = precision.benchmark_precision(trainer)
    assert (found.fp32, found.faster) == (None, torch.bfloat16)
    assert all(p.grad is None for p in trainer.model.parameters())
    if why == "more than there is":
        assert len(forgotten) > 1
        assert all(forgotten)
