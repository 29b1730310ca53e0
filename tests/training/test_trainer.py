"""Equalities of the trainer: micro-batches, padding, resuming, non-finite steps."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from s2s.data.tokenized import TokenizedDataset
from s2s.errors import UserError
from s2s.models.transformer import Settings, build
from s2s.recipe.schema import DeviceSettings, SeedSettings
from s2s.tasks.seq2seq import mean_loss, translation_trainer
from s2s.tasks.translation.recipe import BatchSettings, TrainingSettings
from s2s.training.checkpoint import Progress
from s2s.training.device import select_device
from s2s.training.distributed import Distributed
from s2s.training.step import estimate_noise
from s2s.training.trainer import Trainer, TrainingLoop
from s2s.training.validation import LOWER_IS_BETTER, Validation

SIZE = 20


@pytest.fixture
def pairs() -> TokenizedDataset:
    generator = np.random.default_rng(0)
    sides = [[list(generator.integers(4, SIZE, generator.integers(1, 9))) for _ in range(60)] for _ in range(2)]
    return _encoded(sides)


def _encoded(sides: list[list[list[int]]]) -> TokenizedDataset:
    return TokenizedDataset.from_rows(*sides)


def _trainer(
    pairs: TokenizedDataset, dropout: float = 0.0, tokens: int = 50, precision: str = "fp32", **training
) -> Trainer:
    torch.manual_seed(0)
    settings = Settings(width=16, heads=2, feedforward=32, encoder_layers=1, decoder_layers=1, dropout=dropout)
    return translation_trainer(
        build(settings, SIZE, SIZE),
        pairs,
        TrainingSettings(**({"updates": 100, "warmup": 5, "learning_rate": 0.01, "schedule": "constant"} | training)),
        BatchSettings(tokens=tokens),
        SeedSettings(),
        select_device(DeviceSettings(kind="cpu", precision=precision)),
    )


def _weights(trainer: Trainer) -> list[torch.Tensor]:
    return [p.detach().clone() for p in trainer.model.parameters()]


def test_trainer_unequal_micro_batches_are_one_big_batch(pairs):
    whole = _trainer(pairs, tokens=60 * 9, clip=None)
    parts = _trainer(pairs, tokens=50, tokens_per_update=10_000, clip=None)
    assert len(whole.groups[0]) == 1
    assert len(parts.groups) == 1
    assert len({len(rows) for rows in parts.groups[0]}) > 1
    one, many = next(whole.updates(1)), next(parts.updates(1))
    assert many.tokens == one.tokens == pairs.target_lengths.sum()
    assert many.loss == pytest.approx(one.loss, rel=1e-5)
    assert many.gradient_norm == pytest.approx(one.gradient_norm, rel=1e-4)


def test_trainer_reported_loss_is_the_mean_over_tokens_before_the_step(pairs):
    trainer = _trainer(pairs, tokens=60 * 9)
    expected = mean_loss(trainer.model, pairs, BatchSettings(), trainer.device_context)
    assert next(trainer.updates(1)).loss == pytest.approx(expected, rel=1e-5)
    assert mean_loss(trainer.model, pairs, BatchSettings(), trainer.device_context) < expected


def test_trainer_mean_loss_depends_neither_on_the_batches_nor_on_dropout(pairs):
    trainer = _trainer(pairs, dropout=0.5)
    trainer.model.train()
    losses = [mean_loss(trainer.model, pairs, BatchSettings(tokens=n), trainer.device_context) for n in (9, 40, 5000)]
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_trainer_resuming_mid_epoch_is_the_same_as_never_stopping(pairs, precision):
    straight = _trainer(pairs, dropout=0.3, precision=precision, ema=0.9)
    stopped = _trainer(pairs, dropout=0.3, precision=precision, ema=0.9)
    losses = [u.loss for u in straight.updates(len(straight.groups) + 7)]
    list(stopped.updates(len(straight.groups) + 3))
    tensors, place = stopped.state()
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    torch.manual_seed(999)
    fresh = _trainer(pairs, dropout=0.3, precision=precision, ema=0.9)
    fresh.load_state(tensors, place)
    assert [u.loss for u in fresh.updates(len(straight.groups) + 7)] == losses[-4:]
    for a, b in zip(
        _weights(fresh) + fresh.optimization.average, _weights(straight) + straight.optimization.average, strict=True
    ):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "sgd", "momentum": 0.9, "nesterov": True},
        {"freeze": ("encoder.layers", "*.self_attention"), "ema": 0.9},
        {"noise_scale": True, "tokens_per_update": 100, "l1": 0.01},
    ],
    ids=str,
)
def test_trainer_every_way_to_learn_resumes_to_the_same_bits(pairs, changes):
    whole = _trainer(pairs, dropout=0.3, **changes)
    losses = [update.loss for update in whole.updates(9)]
    stopped = _trainer(pairs, dropout=0.3, **changes)
    list(stopped.updates(4))
    tensors, place = stopped.state()
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    again = _trainer(pairs, dropout=0.3, **changes)
    again.load_state(tensors, place)
    assert [update.loss for update in again.updates(9)] == losses[4:]
    assert all(torch.equal(a, b) for a, b in zip(_weights(again), _weights(whole), strict=True))


def test_frozen_parameters_do_not_move_and_have_no_optimizer_state(pairs):
    trainer = _trainer(pairs, freeze=("decoder.layers.0.feedforward", "encoder.layers"), weight_decay=0.1, ema=0.5)
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    list(trainer.updates(5))
    same = {name for name, p in trainer.model.named_parameters() if torch.equal(p, before[name])}
    assert same == {n for n in before if n.startswith(("decoder.layers.0.feedforward.", "encoder.layers."))}
    kept = {name for name in trainer.state()[0] if not name.startswith("model.")}
    assert not [name for name in kept if any(name.endswith(f".{frozen}") for frozen in same)]


def test_trainer_state_of_one_optimiser_is_not_taken_for_that_of_another(pairs):
    adam, sgd = _trainer(pairs), _trainer(pairs, optimizer="sgd", momentum=0.5)
    for trainer, other in ((adam, sgd), (sgd, adam)):
        list(trainer.updates(1))
        with pytest.raises(UserError, match="do not fit the model"):
            other.load_state(*trainer.state())


def test_trainer_measuring_noise_changes_no_bit_and_is_what_the_micro_batches_give_apart(pairs):
    plain = _trainer(pairs, tokens_per_update=80)
    noisy = _trainer(pairs, tokens_per_update=80, noise_scale=True)
    for update, same in zip(noisy.updates(2), plain.updates(2), strict=True):
        assert same.noise is None
        assert (update.loss, update.gradient_norm) == (same.loss, same.gradient_norm)
    assert all(torch.equal(a, b) for a, b in zip(_weights(noisy), _weights(plain), strict=True))
    alone = _trainer(pairs, tokens_per_update=80)
    batches = [noisy.examples.collate(rows, 0) for rows in noisy.groups[2]]
    alone.model.load_state_dict(noisy.model.state_dict())
    squares = []
    for batch in batches:
        (alone.loss(alone.model, batch)[0] / batch.count).backward()
        squares.append(sum(float(p.grad.square().sum()) for p in alone.model.parameters() if p.grad is not None))
        alone.optimization.zero_grad()
    update = noisy.train_step()
    assert len(update.parts) == len(batches) > 1
    expected = estimate_noise(update.parts, squares, update.gradient_norm**2)
    assert update.noise.spread == pytest.approx(expected.spread, rel=1e-3)
    assert update.noise.square == pytest.approx(expected.square, rel=1e-3)


def test_trainer_noise_between_batches_needs_more_than_one(pairs):
    with pytest.raises(
        UserError, match=r"noise_scale: an optimizer step has only one micro-batch(.|\n)*tokens_per_update"
    ):
        _trainer(pairs, tokens=60 * 9, noise_scale=True)


def test_trainer_dropout_differs_between_updates_and_seeds(pairs):
    frozen = {"learning_rate": 1e-30, "clip": None}
    trainer = _trainer(pairs, dropout=0.5, tokens=60 * 9, **frozen)
    first, second = (u.loss for u in trainer.updates(2))
    assert first != second


def test_trainer_each_rank_has_its_own_dropout_seed_and_rank_0_that_of_one_process(pairs, monkeypatch):
    class Seeded(Exception):
        pass

    def seeded(seed, _device):
        raise Seeded(seed)

    monkeypatch.setattr("s2s.training.trainer.seed_generators", seeded)
    seeds = []
    for rank, size in ((0, 1), (0, 3), (1, 3), (2, 3)):
        trainer = _trainer(pairs, dropout=0.3)
        trainer.distributed = Distributed(rank, size)
        trainer.distributed.all_reduce_sum = lambda *numbers: list(numbers)
        with pytest.raises(Seeded) as found:
            trainer.train_step()
        seeds.append(found.value.args[0])
    assert seeds[0] == seeds[1]
    assert len(set(seeds)) == 3


def test_trainer_each_epoch_sees_every_pair_once_in_another_order(pairs):
    trainer = _trainer(pairs)
    seen = []
    for _ in range(2):
        groups = trainer.groups
        seen.append([int(i) for group in groups for rows in group for i in rows])
        list(trainer.updates(trainer.update + len(groups)))
        list(trainer.updates(trainer.update + 1))
    assert sorted(seen[0]) == sorted(seen[1]) == list(range(60))
    assert seen[0] != seen[1]


def test_trainer_pairs_that_are_too_long_are_counted_and_left_out(pairs):
    too_long = set(np.flatnonzero(np.maximum(pairs.source_lengths, pairs.target_lengths) > 8).tolist())
    assert 0 < len(too_long) < len(pairs)
    one = _trainer(pairs)
    short = BatchSettings(max_length=8)
    trainer = translation_trainer(one.model, pairs, one.settings, short, SeedSettings(), one.device_context)
    assert trainer.examples.num_skipped == len(too_long)
    trained = [int(i) for group in trainer.groups for rows in group for i in rows]
    assert sorted(trained) == sorted(set(range(len(pairs))) - too_long)


def test_trainer_loss_that_is_not_finite_stops_before_the_step_and_names_update_module_and_batch(pairs):
    trainer = _trainer(pairs)
    list(trainer.updates(2))
    with torch.no_grad():
        trainer.model.decoder.layers[0].feedforward.expand.weight[0, 0] = float("nan")
    before = _weights(trainer)
    with pytest.raises(UserError) as caught:
        next(trainer.updates(3))
    message = str(caught.value)
    assert "update 3" in message
    assert "decoder.layers.0.feedforward.expand" in message
    rows = trainer.groups[2][0]
    assert f"training pairs {int(rows[0])}" in message
    assert "training.learning_rate" in message
    for a, b in zip(before, _weights(trainer), strict=True):
        assert torch.equal(a.nan_to_num(), b.nan_to_num())


def test_nonfinite_diagnosis_replays_the_same_dropout(pairs):
    trainer = _trainer(pairs)
    drawn = []

    def unlucky(_module, _inputs, output):
        drawn.append(float(torch.rand(())))
        # as a dropout may be that strikes out all but what is too large
        return output * float("inf") if drawn[-1] == drawn[0] else output

    trainer.model.encoder.layers[0].feedforward.register_forward_hook(unlucky)
    with pytest.raises(UserError, match=r"the output of module encoder.layers.0.feedforward is not finite"):
        next(trainer.updates(1))
    assert drawn.count(drawn[0]) == 2


def test_trainer_gradient_that_is_not_finite_is_named(pairs):
    trainer = _trainer(pairs)
    parameter = trainer.model.encoder.layers[0].attention.query.weight
    parameter.register_hook(lambda gradient: gradient * float("inf"))
    with pytest.raises(UserError, match=r"gradient of encoder.layers.0.attention.query.weight is not finite"):
        next(trainer.updates(1))


def test_trainer_every_update_drops_other_numbers():
    # weights that hardly move, and pairs that are all alike: losses differ by dropout alone
    alike = _encoded([[[4, 5, 6]] * 20, [[7, 8]] * 20])
    still = {"learning_rate": 1e-12, "warmup": 0}
    losses = [update.loss for update in _trainer(alike, 0.3, 2000, **still).updates(3)]
    assert len({round(loss, 4) for loss in losses}) == 3
    without = [update.loss for update in _trainer(alike, 0.0, 2000, **still).updates(3)]
    assert max(without) - min(without) < 1e-5


@pytest.mark.parametrize(("metric", "said"), [("bleu", True), ("exact", True), ("cer", False), ("loss", False)])
def test_only_a_metric_whose_best_value_is_not_0_is_said_to_be_stuck_there(pairs, metric, said):
    trainer, messages = _trainer(pairs), []
    losses = iter((3.0, 2.0))
    loop = TrainingLoop(
        trainer,
        SimpleNamespace(every=1, patience=None),
        metric,
        lambda: Validation(1, 0.0, next(losses), metric in LOWER_IS_BETTER),
        SimpleNamespace(info=messages.append),
        SimpleNamespace(save=lambda *saved: None),
        Progress(0, 0, 0),
        10,
    )
    for _ in range(2):
        loop._save(validates=True)
    assert [f"validation.metric: {metric} is 0" in message for message in messages] == [True] * said


def test_trainer_place_beyond_the_epoch_and_tensors_of_another_model_are_refused(pairs):
    trainer = _trainer(pairs)
    list(trainer.updates(2))
    tensors, place = trainer.state()
    for position, wrong in ((len(trainer.groups), False), (len(trainer.groups) + 1, True)):
        with pytest.raises(UserError, match="an epoch has") if wrong else nullcontext():
            _trainer(pairs).load_state(tensors, place | {"position": position})
    name = next(iter(tensors))
    for others in (
        {},
        tensors | {"more": tensors[name]},
        tensors | {name: tensors[name].int()},
        tensors | {name: tensors[name][:1]},
        {n: tensor for n, tensor in tensors.items() if n != name},
        {n: tensor for n, tensor in tensors.items() if not n.startswith("adam.step.")},
    ):
        fresh = _trainer(pairs)
        before = _weights(fresh)
        with pytest.raises(UserError, match=r"there: .* tensors do not fit the model, first"):
            fresh.load_state(others, place, Path("there"))
        assert all(torch.equal(a, b) for a, b in zip(_weights(fresh), before, strict=True))
