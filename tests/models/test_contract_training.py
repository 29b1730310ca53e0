"""Contract of every installed model in training and search."""

import numpy as np
import pytest
import torch

from s2s.data.tokenized import TokenizedDataset
from s2s.data.tokenizers import BOS, EOS
from s2s.decoding.beam_search import Beam, search
from s2s.models.base import Seq2Seq
from s2s.recipe.schema import DeviceSettings, SeedSettings
from s2s.tasks.seq2seq import translation_trainer
from s2s.tasks.translation.recipe import BatchSettings, TrainingSettings
from s2s.training.device import select_device
from s2s.training.trainer import Trainer


@pytest.fixture(scope="module")
def pairs() -> TokenizedDataset:
    generator = np.random.default_rng(0)
    return TokenizedDataset.from_rows(
        *([generator.integers(4, 23, generator.integers(1, 9)).tolist() for _ in range(40)] for _ in range(2))
    )


def _trainer(model: Seq2Seq, pairs: TokenizedDataset, precision: str = "fp32", rate: float = 0.001) -> Trainer:
    return translation_trainer(
        model,
        pairs,
        TrainingSettings(updates=20, warmup=2, learning_rate=rate, ema=0.9),
        BatchSettings(tokens=60),
        SeedSettings(),
        select_device(DeviceSettings(kind="cpu", precision=precision)),
    )


def _resumed(whole: Trainer, again: Trainer, until: int) -> tuple[list[float], list[float]]:
    """The losses of a trainer's further updates, and those of another one that goes on from its state."""
    tensors, place = whole.state()
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    losses = [update.loss for update in whole.updates(until)]
    again.load_state(tensors, place)
    return losses, [update.loss for update in again.updates(until)]


def _same(one: Trainer, other: Trainer) -> bool:
    pairs = zip(one.model.parameters(), other.model.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_young_model_learns_and_resuming_is_the_same_as_never_stopping(fresh, pairs):
    whole, again = _trainer(fresh(0), pairs, rate=0.003), _trainer(fresh(9), pairs, rate=0.003)
    losses = [update.loss for update in whole.updates(8)]
    further, resumed = _resumed(whole, again, 10)
    assert resumed == further
    assert _same(again, whole)
    losses += further
    assert sum(losses[-5:]) < sum(losses[:5])


@pytest.mark.slow
def test_model_training_resuming_in_bf16_is_the_same_as_never_stopping(fresh, pairs):
    whole, again = _trainer(fresh(0), pairs, "bf16"), _trainer(fresh(9), pairs, "bf16")
    list(whole.updates(2))
    further, resumed = _resumed(whole, again, 4)
    assert resumed == further
    assert _same(again, whole)


@pytest.mark.parametrize("size", [1, 3])
def test_model_training_reported_score_is_the_rescoring_of_that_very_sequence(model, batch, size):
    source, valid, _ = batch
    found = search(model, source, valid, np.array([6, 3, 5, 4]), Beam(size=size, nbest=size, length_penalty=0.7))
    for i, hypotheses in enumerate(found):
        for h in hypotheses:
            scores = model.logits(source[i : i + 1], valid[i : i + 1], torch.tensor([[BOS, *h.tokens]])).log_softmax(-1)
            again = sum(scores[0, step, piece].item() for step, piece in enumerate([*h.tokens, EOS]))
            assert h.log_probability == pytest.approx(again, abs=1e-5)
