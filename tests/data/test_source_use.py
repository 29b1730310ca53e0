"""Source use of translators, measured on one that copies and one that cannot see its source."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from s2s.data.tokenized import TokenizedDataset
from s2s.evaluation.gates import uses_its_source
from s2s.recipe.installed import module_of
from s2s.recipe.schema import DeviceSettings, SeedSettings
from s2s.tasks.seq2seq import translation_trainer
from s2s.tasks.source_use import exchanged_rows, source_use
from s2s.tasks.translation.recipe import BatchSettings, TrainingSettings
from s2s.training.device import select_device

COMPUTER = select_device(DeviceSettings(kind="cpu", precision="fp32"))
BATCHES = BatchSettings(tokens=512, max_length=16)
SEEDS = SeedSettings(initialization=1, data=1, dropout=1)
PIECES = 12


def _pairs(count, seed=1):
    """Three pieces in, one out: the first."""
    chance = np.random.default_rng(seed)
    rows = [chance.integers(4, PIECES, 3).tolist() for _ in range(count)]
    return TokenizedDataset.from_rows(rows, [row[:1] for row in rows])


class _Blind(torch.nn.Module):
    """An encoder that leaves the same behind whatever it reads."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder, self.embedding, self.max_positions = encoder, encoder.embedding, encoder.max_positions

    def forward(self, source, valid):
        memory = self.encoder(source, valid)
        return replace(memory, states=0 * memory.states, summary=0 * memory.summary)


def _model(blind):
    torch.manual_seed(1)
    module = module_of("transformer")
    small = {"width": 32, "heads": 2, "feedforward": 64, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0}
    model = module.build(module.Settings(**small), PIECES, PIECES)
    if blind:
        model.encoder = _Blind(model.encoder)
    return model


def _trained(blind):
    model = _model(blind)
    training = TrainingSettings(updates=100, learning_rate=0.005, warmup=10, tokens_per_update=256, label_smoothing=0.0)
    trainer = translation_trainer(model, _pairs(600), training, BATCHES, SEEDS, COMPUTER)
    for _ in trainer.updates(100):
        pass
    return model


@pytest.mark.slow
def test_trained_translator_uses_its_source_and_a_blind_one_does_not():
    held_out = _pairs(60, seed=2)
    reads, blind = (source_use(_trained(blind), held_out, BATCHES, COMPUTER) for blind in (False, True))
    assert uses_its_source(reads.right, reads.exchanged).passed
    assert reads.right < 0.2
    assert reads.exchanged > 1.5
    assert blind.exchanged == pytest.approx(blind.right, abs=1e-4)
    assert not uses_its_source(blind.right, blind.exchanged).passed
    assert 50 <= reads.pairs <= 60


@pytest.mark.parametrize("count", [2, 3, 4, 7, 100, 101])
def test_every_source_goes_to_another_sentence_of_its_length(count):
    lengths = np.random.default_rng(count).integers(1, 9, count)
    rows = exchanged_rows(lengths)
    assert sorted(rows.tolist()) == list(range(count))
    assert (rows != np.arange(count)).all()
    if count >= 100:
        assert np.abs(lengths[rows] - lengths).max() <= 1
    assert np.array_equal(rows, exchanged_rows(lengths))
    if count >= 7:
        assert not np.array_equal(rows, exchanged_rows(lengths, seed=2))


def test_source_exchanged_for_the_same_text_does_not_count():
    same = TokenizedDataset.from_rows([[5, 6]] * 4, [[5]] * 4)
    model = _model(blind=True)
    assert source_use(model, same, BATCHES, COMPUTER) is None
    assert source_use(model, _pairs(1), BATCHES, COMPUTER) is None


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_source_use_leaves_out_pairs_beyond_the_positions_of_the_model(side):
    module = module_of("transformer")
    small = {"width": 16, "heads": 2, "feedforward": 32, "encoder_layers": 1, "decoder_layers": 1, "max_positions": 4}
    torch.manual_seed(1)
    model = module.build(module.Settings(**small, **{f"{side}_positions": "learned"}), PIECES, PIECES)
    sources, targets = ([row.tolist() for row in rows] for rows in _pairs(20).rows(np.arange(20)))
    # 4 tokens with the end fit, 5 do not
    long = ([*sources, [4, 5, 6, 7]], [*targets, [8]]) if side == "encoder" else ([*sources, [4]], [*targets, [8] * 4])
    found = source_use(model, TokenizedDataset.from_rows(*long), BATCHES, COMPUTER)
    assert found == source_use(model, TokenizedDataset.from_rows(sources, targets), BATCHES, COMPUTER)
    assert source_use(model, TokenizedDataset.from_rows([[4] * 9] * 2, [[5] * 9] * 2), BATCHES, COMPUTER) is None
