"""Contract of every installed encoder as a classifier, with each pooling."""

from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest
import torch

from s2s.data.batches import collate_sources
from s2s.data.dataset import LabelledBatch
from s2s.models.base import Classifier
from s2s.nn.pooling import PoolingKind
from s2s.recipe.installed import encoder_settings, models, module_of
from s2s.recipe.schema import DeviceSettings, SeedSettings
from s2s.tasks.classification.data import LabelledTexts
from s2s.tasks.classification.recipe import ClassificationTraining, TextBatchSettings
from s2s.tasks.classification_base import class_probabilities, classification_loss
from s2s.training.device import select_device
from s2s.training.tensor_files import load_weights, save_weights
from s2s.training.trainer import Trainer, mean_loss

SIZE, CLASSES = 23, 3
KINDS = sorted(models())
POOLINGS = get_args(PoolingKind)
COMPUTER = select_device(DeviceSettings(kind="cpu", precision="fp32"))


class Rows:
    """Texts as pieces, in memory."""

    def __init__(self, rows: list[np.ndarray]) -> None:
        self._rows = rows
        self.lengths = np.array([len(row) for row in rows])

    def rows(self, indices: np.ndarray) -> list[np.ndarray]:
        return [self._rows[i] for i in indices]


def _build(kind: str, pooling: PoolingKind = "summary", seed: int = 0, dropout: float = 0.1) -> Classifier:
    torch.manual_seed(seed)
    settings = encoder_settings(kind)
    options = {"kind": kind, "dropout": dropout} | ({"width": 16} if "width" in settings.model_fields else {})
    known = {key: value for key, value in options.items() if key in settings.model_fields}
    encoder, width = module_of(kind).build_encoder(settings.model_validate(known), SIZE)
    return Classifier(encoder, width, CLASSES, pooling, dropout).eval()


def _separable(count: int = 60) -> LabelledTexts:
    """Texts of noise in which one piece, somewhere, says the class."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, CLASSES, count)
    rows = [generator.integers(4 + CLASSES, SIZE, generator.integers(2, 9)) for _ in labels]
    for row, label in zip(rows, labels, strict=True):
        row[generator.integers(len(row))] = 4 + label
    return LabelledTexts(Rows(rows), labels, TextBatchSettings(tokens=100, max_length=12))


def _trainer(model: Classifier, updates: int = 20, rate: float = 0.001) -> Trainer[Classifier, LabelledBatch]:
    training = ClassificationTraining(updates=updates, warmup=2, learning_rate=rate, ema=0.9, schedule="constant")
    return Trainer(model, _separable(), classification_loss(0.1), training, SeedSettings(), COMPUTER)


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = np.random.default_rng(1)
    return collate_sources([generator.integers(4, SIZE, length) for length in (6, 1, 4, 0)], begin=True)


@pytest.mark.parametrize("kind", KINDS)
def test_classifier_batch_is_its_rows_alone_and_padding_changes_no_prediction(kind, batch):
    source, valid = batch
    for pooling in POOLINGS:
        model = _build(kind, pooling).double()
        with torch.no_grad():
            together = model(source, valid)
            other = torch.where(valid, source, 4 + (source + 3) % (SIZE - 4))
            torch.testing.assert_close(model(other, valid), together)
            wider = torch.nn.functional.pad(source, (0, 3)), torch.nn.functional.pad(valid, (0, 3))
            torch.testing.assert_close(model(*wider), together)
            for i, length in enumerate(valid.sum(dim=1).tolist()):
                alone = model(source[i : i + 1, :length], valid[i : i + 1, :length])
                torch.testing.assert_close(alone, together[i : i + 1])


@pytest.mark.parametrize("kind", KINDS)
def test_classifier_gradients_reach_the_head_the_pooling_and_the_encoder(kind, batch):
    # of the first or last state, one direction of a recurrent network has read nothing before
    for pooling in set(POOLINGS) - {"first", "last", "pooler"}:
        model = _build(kind, pooling).double().train()
        model(*batch).log_softmax(dim=1)[:, 0].sum().backward()
        unreached = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
        # a softmax does not see what is added to all its scores
        assert [n for n in unreached if not n.endswith("key.bias")] == []


@pytest.mark.parametrize("kind", KINDS)
def test_classifier_that_was_saved_is_the_one_that_is_loaded(kind, batch, tmp_path):
    first, second = _build(kind, "attention"), _build(kind, "attention", seed=5)
    assert not torch.equal(first(*batch), second(*batch))
    save_weights(first, tmp_path / "model.safetensors")
    load_weights(second, tmp_path / "model.safetensors")
    assert torch.equal(first(*batch), second(*batch))


@pytest.mark.parametrize("kind", KINDS)
def test_resuming_a_classifier_is_the_same_as_never_stopping(kind):
    whole = _trainer(_build(kind))
    losses = [update.loss for update in whole.updates(9)]
    # in the middle of the second epoch
    assert whole.epoch == 1
    stopped = _trainer(_build(kind))
    for _ in stopped.updates(7):
        pass
    tensors, place = stopped.state()
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    again = _trainer(_build(kind, seed=9))
    again.load_state(tensors, place)
    assert [update.loss for update in again.updates(9)] == losses[7:]
    for a, b in zip(again.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_classifier_learns_separable_classes(kind):
    pooling = POOLINGS[KINDS.index(kind) % len(POOLINGS)] if kind in ("transformer", "conv") else "max"
    trainer = _trainer(_build(kind, pooling, dropout=0.0), updates=400, rate=0.01)
    texts = trainer.examples
    right = 0.0
    while right < 1 and trainer.update < 400:
        for _ in trainer.updates(trainer.update + 50):
            pass
        right = (class_probabilities(trainer.model, texts).argmax(axis=1) == texts.labels).mean()
    assert right == 1


def test_classifier_loss_is_the_mean_of_minus_the_logarithm_of_the_probability():
    model, texts = _build("transformer"), _separable()
    chosen = class_probabilities(model, texts)[np.arange(len(texts)), texts.labels]
    assert mean_loss(model, texts, classification_loss(0.0), COMPUTER) == pytest.approx(
        -np.log(chosen).mean(), rel=1e-5
    )
    batch = texts.collate(np.arange(10), 0)
    smoothed, plain = classification_loss(0.3)(model, batch)
    logs = model(batch.source, batch.source_valid).log_softmax(dim=1)
    wanted = torch.full_like(logs, 0.3 / CLASSES)
    wanted[torch.arange(10), batch.labels] += 0.7
    torch.testing.assert_close(smoothed, -(wanted * logs).sum())
    torch.testing.assert_close(plain, -logs[torch.arange(10), batch.labels].sum())


def test_classifier_weighted_and_focal_loss_are_their_formulas():
    model, texts = _build("transformer"), _separable()
    batch = texts.collate(np.arange(10), 0)
    weights, gamma = [0.5 + n for n in range(CLASSES)], 2.0
    logs = model(batch.source, batch.source_valid).log_softmax(dim=1).detach()
    found, plain = classification_loss(0.0, weights, gamma)(model, batch)
    wanted = sum(
        -weights[label] * (1 - np.exp(row[label])) ** gamma * row[label]
        for row, label in zip(logs.double().numpy(), batch.labels.tolist(), strict=True)
    )
    assert found.item() == pytest.approx(wanted, rel=1e-5)
    assert plain.item() == pytest.approx(-logs[torch.arange(10), batch.labels].sum().item(), rel=1e-5)
    # equal weights of 1 are the plain loss
    for smoothing in (0.0, 0.3):
        same, _ = classification_loss(smoothing, [1.0] * CLASSES)(model, batch)
        torch.testing.assert_close(same, classification_loss(smoothing)(model, batch)[0])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_classifier_focal_loss_of_a_certain_example_has_a_finite_gradient(gamma, smoothing):
    # In fp32 the probability of the first label is 1.
    scores = torch.tensor([[50.0, 0.0], [0.0, 1.0]], requires_grad=True)
    batch = SimpleNamespace(source=scores, source_valid=None, labels=torch.tensor([0, 1]))
    loss, _ = classification_loss(smoothing, gamma=gamma)(lambda source, valid: source, batch)
    loss.backward()
    assert scores.grad[0].tolist() == pytest.approx([0, 0], abs=1e-12)
    assert scores.grad[1].abs().min() > 0.01


def test_classifier_unequal_micro_batches_are_one_big_batch():
    texts = [_separable() for _ in range(2)]
    texts[0].settings = TextBatchSettings(tokens=60 * 12, max_length=12)
    texts[1].examples_per_step = 1000
    updates = []
    for examples in texts:
        training = ClassificationTraining(updates=20, warmup=2, clip=None)
        model = _build("transformer", dropout=0.0)
        trainer = Trainer(model, examples, classification_loss(0.0), training, SeedSettings(), COMPUTER)
        assert len(trainer.groups) == 1
        updates.append(next(trainer.updates(1)))
    one, many = updates
    assert len(texts[1].make_batches(1, 0)) > 1
    assert one.count == many.count == len(texts[0])
    assert many.loss == pytest.approx(one.loss, rel=1e-5)
    assert many.gradient_norm == pytest.approx(one.gradient_norm, rel=1e-4)


@pytest.mark.parametrize("wanted", [2, 6])
def test_classifier_update_has_as_many_batches_in_each_epoch_also_after_resuming(wanted):
    generator = np.random.default_rng(0)
    rows = [generator.integers(4, SIZE, int(n)) for n in np.minimum(generator.lognormal(2, 0.8, 60), 40)]
    # in any order, texts of such lengths make 15, 13 and 12 batches
    batches = TextBatchSettings(tokens=100, max_length=42, padding="batch")
    texts = LabelledTexts(Rows(rows), generator.integers(0, 3, 60), batches, examples_per_update=wanted)
    assert [len(texts.make_batches(1, epoch)) for epoch in range(3)] == [15, 13, 12]
    training = ClassificationTraining(updates=100, warmup=2, schedule="constant")
    whole, again = (
        Trainer(_build("transformer"), texts, classification_loss(0.0), training, SeedSettings(), COMPUTER)
        for _ in range(2)
    )
    first, seen = len(whole.groups), []
    for update in whole.updates(first + 5):
        seen.append((update.loss, len(update.parts)))
    assert whole.epoch == 1
    # two batches of about four texts are as near to six as one; the last update of an epoch has what remains
    assert {parts for number, (_, parts) in enumerate(seen) if number != first - 1} == {1 if wanted == 2 else 2}
    list(again.updates(first + 2))
    tensors, place = again.state()
    again = Trainer(_build("transformer"), texts, classification_loss(0.0), training, SeedSettings(), COMPUTER)
    again.load_state({name: tensor.clone() for name, tensor in tensors.items()}, place)
    assert [(update.loss, len(update.parts)) for update in again.updates(first + 5)] == seen[-3:]
