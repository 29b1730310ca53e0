"""Training on a device equals training on the CPU, without synchronization."""

import math
import threading

import numpy as np
import pytest
import torch
from torch import nn

from s2s.data import dataset
from s2s.data.tokenized import TokenizedDataset
from s2s.errors import UserError
from s2s.recipe.installed import module_of
from s2s.recipe.schema import SeedSettings
from s2s.tasks.seq2seq import mean_loss, translation_trainer
from s2s.tasks.translation.recipe import BatchSettings, TrainingSettings
from s2s.training.device import DeviceContext
from s2s.training.optimization import OptimizerWrapper
from s2s.training.trainer import Trainer

SIZE = 20
PROCESSOR = DeviceContext(torch.device("cpu"), torch.float32)


@pytest.fixture(scope="module")
def pairs() -> TokenizedDataset:
    generator = np.random.default_rng(0)
    sides = [[list(generator.integers(4, SIZE, generator.integers(1, 9))) for _ in range(24)] for _ in range(2)]
    return TokenizedDataset.from_rows(*sides)


def _trainer(pairs: TokenizedDataset, device_context: DeviceContext, kind: str = "transformer", **training) -> Trainer:
    torch.manual_seed(0)
    settings = {"kind": kind, "width": 16, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0}
    if kind == "transformer":
        settings |= {"heads": 2, "feedforward": 32}
    module = module_of(kind)
    return translation_trainer(
        module.build(module.Settings.model_validate(settings), SIZE, SIZE).to(device_context.device),
        pairs,
        TrainingSettings(**({"updates": 100, "warmup": 5, "learning_rate": 0.01, "schedule": "constant"} | training)),
        BatchSettings(tokens=30),
        SeedSettings(),
        device_context,
    )


@pytest.mark.parametrize("kind", ["transformer", pytest.param("mingru", marks=pytest.mark.slow)])
def test_training_device_learns_what_a_processor_learns(pairs, pretend, kind):
    options = {"tokens_per_update": 45, "ema": 0.9, "clip": 0.05, "kind": kind}
    here, there = (_trainer(pairs, device_context, **options) for device_context in (PROCESSOR, pretend))
    updates = len(here.groups) + 1
    ours, theirs = list(here.updates(updates)), list(there.updates(updates))
    for name in ("update", "epoch", "count", "tokens", "learning_rate", "real_share", "clipped"):
        assert [getattr(u, name) for u in ours] == [getattr(u, name) for u in theirs]
    assert {u.clipped for u in ours} == {True}
    assert [u.loss for u in theirs] == pytest.approx([u.loss for u in ours], rel=1e-4)
    assert [u.gradient_norm for u in theirs] == pytest.approx([u.gradient_norm for u in ours], rel=1e-3)
    assert theirs[-1].layer_norms == pytest.approx(ours[-1].layer_norms, rel=1e-3)
    raw = mean_loss(there.model, pairs, BatchSettings(), pretend)
    with here.optimization.use_ema_weights(), there.optimization.use_ema_weights():
        ours, theirs = (mean_loss(t.model, pairs, BatchSettings(), t.device_context) for t in (here, there))
    assert theirs == pytest.approx(ours, rel=1e-4) != raw


def test_training_update_asks_the_device_for_nothing_but_the_places_of_real_tokens(pairs, pretend, counts):
    trainer = _trainer(pairs, pretend, tokens_per_update=30, ema=0.9)
    updates, batches = trainer.updates(6), sum(len(group) for group in trainer.groups[1:4])
    assert len(trainer.groups) >= 4
    assert batches > 3
    next(updates)
    counts.clear()
    told = [next(updates) for _ in range(3)]
    # the loss asks once a batch; of each update but the newest, all numbers are read in one
    assert counts["aten.nonzero.default"] == batches
    assert counts["asked"] - batches <= len(told)
    # five tensors a batch, and no more: neither norms nor seeds nor rates go there
    assert counts["sent"] == 5 * batches
    asked = counts["asked"]
    assert all(math.isfinite(value) for u in told[:-1] for value in (u.loss, u.gradient_norm, *u.layer_norms.values()))
    assert counts["asked"] == asked


def test_training_update_that_fails_moves_nothing_and_the_next_one_tells(pairs, pretend):
    trainer = _trainer(pairs, pretend, tokens_per_update=45)
    list(trainer.updates(2))
    with torch.no_grad():
        trainer.model.decoder.layers[0].feedforward.expand.weight[0, 0] = float("nan")
    before = [p.detach().cpu().clone() for p in trainer.model.parameters()]
    updates = trainer.updates(9)
    failed = next(updates)
    assert not failed.is_available
    with pytest.raises(UserError) as caught:
        next(updates)
    message = str(caught.value)
    assert "update 3" in message
    assert "decoder.layers.0.feedforward.expand" in message
    assert f"training pairs {int(trainer.groups[2][0][0])}" in message
    for a, p in zip(before, trainer.model.parameters(), strict=True):
        assert torch.equal(a.nan_to_num(), p.detach().cpu().nan_to_num())
    assert trainer.update == 2


@pytest.mark.parametrize("ask", [lambda t: t.state(), lambda t: list(t.updates(1))])
def test_nonfinite_step_is_raised_before_saving_and_at_the_end(pairs, pretend, ask):
    trainer = _trainer(pairs, pretend)
    trainer.model.encoder.layers[0].attention.query.weight.register_hook(lambda gradient: gradient * float("inf"))
    next(trainer.updates(1))
    with pytest.raises(UserError, match=r"gradient of encoder.layers.0.attention.query.weight is not finite"):
        ask(trainer)


def test_training_failure_across_the_end_of_an_epoch_names_its_own_batch(pairs, pretend):
    trainer = _trainer(pairs, pretend)
    last, groups = len(trainer.groups), trainer.groups
    list(trainer.updates(last - 1))
    with torch.no_grad():
        trainer.model.projection.weight[5, 0] = float("inf")
    next(trainer.updates(last))
    with pytest.raises(UserError, match=rf"(?s)update {last}\b.*training pairs {int(groups[-1][0][0])}\b"):
        next(trainer.updates(last + 1))
    assert (trainer.update, trainer.epoch, trainer.position) == (last - 1, 0, last - 1)


@pytest.mark.parametrize("where", ["processor", "pretend"])
def test_training_weights_that_a_step_made_infinite_are_not_saved(pairs, where, request):
    device_context = PROCESSOR if where == "processor" else request.getfixturevalue("pretend")
    trainer = _trainer(pairs, device_context)
    next(trainer.updates(1))
    trainer.state()
    with torch.no_grad():
        trainer.model.projection.weight[5, 0] = float("inf")
    with pytest.raises(UserError, match=r"update 1: .*not finite after the step"):
        trainer.state()


@pytest.mark.slow
def test_training_resuming_on_a_device_is_the_same_as_never_stopping(pairs, pretend):
    straight, stopped, fresh = (_trainer(pairs, pretend, ema=0.9) for _ in range(3))
    until = len(straight.groups) + 1
    losses = [u.loss for u in straight.updates(until)]
    list(stopped.updates(until - 3))
    tensors, place = stopped.state()
    fresh.load_state({name: tensor.cpu() for name, tensor in tensors.items()}, place)
    assert [u.loss for u in fresh.updates(until)] == losses[-3:]
    for a, b in zip(fresh.model.parameters(), straight.model.parameters(), strict=True):
        assert torch.equal(a.cpu(), b.cpu())


def test_training_next_batches_are_made_by_a_thread_and_are_the_same(pairs, pretend, monkeypatch):
    made = []
    collate = type(_trainer(pairs, PROCESSOR).examples).collate

    def watched(self, rows, seed):
        made.append((threading.current_thread() is threading.main_thread(), rows.tolist(), seed))
        return collate(self, rows, seed)

    monkeypatch.setattr(type(_trainer(pairs, PROCESSOR).examples), "collate", watched)
    seen = []
    for device_context in (PROCESSOR, pretend):
        made.clear()
        trainer = _trainer(pairs, device_context, tokens_per_update=45)
        list(trainer.updates(2 * len(trainer.groups)))
        seen.append(sorted(made))
        # the first of an epoch has nothing before it
        assert sum(main for main, _, _ in made) == (
            len(made) if device_context is PROCESSOR else 2 * len(trainer.groups[0])
        )
    assert sorted(batch[1:] for batch in seen[0]) == sorted(batch[1:] for batch in seen[1])


def test_error_in_the_prefetch_thread_is_raised(pairs, pretend, monkeypatch):
    trainer = _trainer(pairs, pretend)
    fetching = dataset.Prefetcher(trainer.examples, pretend.device)
    first, second = trainer.groups[:2]
    fetching.batches(first, 0, second)
    wrong = [np.array([10**6])]
    fetching.batches(second, 0, wrong)
    with pytest.raises(IndexError):
        fetching.batches(wrong, 0)


def test_training_averaged_weights_of_recurrent_layers_are_brought_into_one_piece(monkeypatch):
    model = nn.Sequential(nn.Embedding(5, 4), nn.LSTM(4, 3), nn.GRU(3, 3))
    optimization = OptimizerWrapper(model, TrainingSettings(updates=9, ema=0.5))
    for a in optimization.average:
        a.zero_()
    flattened = []

    def flatten(layer: nn.RNNBase) -> None:
        flattened.append(sum(w.detach().abs().sum().item() for w in layer.parameters()))

    monkeypatch.setattr(nn.RNNBase, "flatten_parameters", flatten)
    with optimization.use_ema_weights():
        assert flattened == [0.0, 0.0]
    assert len(flattened) == 4
    assert all(size > 0 for size in flattened[2:])
