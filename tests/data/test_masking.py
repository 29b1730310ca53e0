"""Masked-language modelling: published shares, randomness by seed and row, targets at masked positions only."""

import numpy as np
import pytest
import torch
from scipy import stats

from s2s.data.tokenizers import BOS, EOS, PAD
from s2s.models import transformer
from s2s.models.masked_lm import MaskedLM
from s2s.recipe.schema import DeviceSettings, OptimizationSettings, SeedSettings
from s2s.tasks.masked_lm.data import MaskedText, chosen_counts, collate_masked, mask, windows
from s2s.tasks.masked_lm.recipe import MaskingSettings, WindowSettings
from s2s.tasks.masked_lm.task import masked_loss
from s2s.training.device import derive_seed, select_device
from s2s.training.trainer import Trainer

SIZE = 104
SETTINGS = MaskingSettings()


class Texts:
    """Texts of given lengths; no two of their pieces side by side are the same."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = np.array(lengths)

    def rows(self, indices: np.ndarray) -> list[np.ndarray]:
        return [4 + (7 * i + np.arange(self.lengths[i])) % (SIZE - 4) for i in indices]


def _examples(lengths: list[int], tokens: int = 64, **masking) -> MaskedText:
    batches = WindowSettings(tokens=tokens, max_length=20)
    return MaskedText(Texts(lengths), SIZE, MaskingSettings(**masking), batches)


def test_masking_masks_random_pieces_and_kept_ones_have_the_published_shares():
    # piece 50 alone, so that a random piece differs from it unless it is drawn, one time in a hundred
    pieces = np.full(400, 50)
    fates = [mask(pieces, SIZE, SETTINGS, 3, row) for row in range(300)]
    chosen = np.concatenate([read[places] for read, places in fates])
    assert len(chosen) == 300 * 60
    kept_by_luck = 0.1 / (SIZE - 4)
    for count, share in (
        ((chosen == SIZE).sum(), 0.8),
        ((chosen == 50).sum(), 0.1 + kept_by_luck),
        (((chosen != SIZE) & (chosen != 50)).sum(), 0.1 - kept_by_luck),
    ):
        low, high = stats.binom.interval(0.9999, len(chosen), share)
        assert low <= count <= high


def test_masking_every_piece_but_the_special_ones_is_drawn_at_random():
    settings = MaskingSettings(masked=0.0, random=1.0, share=0.9)
    drawn = np.concatenate([mask(np.full(100, 4), 12, settings, 0, row)[0] for row in range(20)])
    assert set(drawn) == set(range(4, 12))


def test_masking_every_place_is_chosen_equally_often():
    pieces, counts = np.arange(4, 24), np.zeros(20)
    for row in range(4000):
        counts[mask(pieces, SIZE, SETTINGS, 1, row)[1]] += 1
    low, high = stats.binom.interval(1 - 1e-5, 4000, 3 / 20)
    assert ((low <= counts) & (counts <= high)).all()


def test_masking_leaves_other_positions_unchanged():
    pieces = np.arange(4, 54)
    read, chosen = mask(pieces, SIZE, SETTINGS, 1, 0)
    others = np.setdiff1d(np.arange(50), chosen)
    assert (read[others] == pieces[others]).all()
    assert (np.diff(chosen) > 0).all()
    assert (pieces == np.arange(4, 54)).all()


def test_masking_number_of_chosen_pieces_is_the_share_rounded_and_at_least_one():
    counts = chosen_counts(np.array([0, 1, 2, 6, 10, 17, 100]), 0.15)
    assert counts.tolist() == [0, 1, 1, 1, 2, 3, 15]
    for length in (1, 2, 6, 10, 17, 100):
        chosen = mask(np.full(length, 9), SIZE, SETTINGS, 5, 2)[1]
        assert len(chosen) == chosen_counts(np.array([length]), 0.15)[0]


def test_masking_masks_are_drawn_from_seed_and_row_alone():
    pieces = np.arange(4, 104)
    first = mask(pieces, SIZE, SETTINGS, 7, 3)
    assert all((a == b).all() for a, b in zip(first, mask(pieces, SIZE, SETTINGS, 7, 3), strict=True))
    for seed, row in ((8, 3), (7, 4)):
        assert (first[1] != mask(pieces, SIZE, SETTINGS, seed, row)[1]).any()


def test_masking_text_is_masked_alike_in_any_batch():
    examples = _examples([12, 19, 5, 8])
    together = examples.collate(np.array([3, 1, 0]), 11)
    for place, row in enumerate((3, 1, 0)):
        alone = examples.collate(np.array([row]), 11)
        length = alone.source.shape[1]
        assert torch.equal(together.source[place, :length], alone.source[0])
        assert (together.source[place, length:] == PAD).all()


def test_masking_trainer_masks_by_seed_epoch_and_row():
    examples, drawn = _examples([12, 19, 5, 8, 30, 7]), []
    collate = examples.collate
    examples.collate = lambda rows, seed: drawn.append((rows, seed)) or collate(rows, seed)
    torch.manual_seed(0)
    encoder, width = transformer.build_encoder(transformer.Settings(width=8, heads=1, encoder_layers=1), SIZE + 1)
    seeds = SeedSettings(data=5)
    options = OptimizationSettings(updates=9, warmup=1)
    trainer = Trainer(
        MaskedLM(encoder, width, SIZE), examples, masked_loss, options, seeds, select_device(DeviceSettings())
    )
    epochs = [update.epoch for update in trainer.updates(2 * len(trainer.groups))]
    assert [seed for _, seed in drawn] == [derive_seed(5, epoch) for epoch in epochs]
    assert set(epochs) == {0, 1}


@pytest.mark.parametrize("begin", [False, True])
def test_masking_targets_are_the_pieces_that_stood_at_the_chosen_places(begin):
    examples = _examples([12, 18, 5, 8], begin=begin)
    rows = np.array([0, 2, 3])
    batch = examples.collate(rows, 4)
    whole = batch.source.flatten().clone()
    whole[batch.chosen] = batch.targets
    special = 1 + begin
    expected = torch.full_like(batch.source, PAD)
    for place, text in enumerate(examples.window(rows)):
        line = [*[BOS] * begin, *text, EOS]
        expected[place, : len(line)] = torch.tensor(line)
    assert torch.equal(whole.view_as(batch.source), expected)
    assert torch.equal(batch.source_valid, expected != PAD)
    assert batch.count == len(batch.chosen) == sum(chosen_counts(np.array([12, 5, 8]), 0.15))
    assert batch.tokens == int(batch.source_valid.sum()) == 12 + 5 + 8 + 3 * special
    assert batch.real_share == batch.tokens / batch.source.numel()


def test_masking_windows_hold_every_piece_once_and_none_is_too_long():
    lengths = np.array([0, 1, 19, 20, 38, 39, 500])
    texts, first, counts = windows(lengths, 19)
    assert counts.max() <= 19
    for text, length in enumerate(lengths):
        mine = texts == text
        ends = first[mine] + counts[mine]
        assert counts[mine].sum() == length
        assert (first[mine][1:] == ends[:-1]).all()
        assert length == 0 or (first[mine][0] == 0 and ends[-1] == length)
        assert length == 0 or counts[mine].max() - counts[mine].min() <= 1


def test_masking_epoch_reads_every_window_once_under_the_budget():
    examples = _examples([3, 45, 20, 7, 19, 61])
    plan = examples.make_batches(1, 0)
    assert examples.accumulation_steps(plan) == 1
    assert sorted(np.concatenate(plan)) == list(range(len(examples)))
    assert all(len(rows) * examples.lengths[rows].max() <= 64 for rows in plan)
    pieces = np.concatenate([np.concatenate(examples.window(rows)) for rows in plan])
    assert len(pieces) == 3 + 45 + 20 + 7 + 19 + 61


def test_masking_no_text_gives_an_empty_batch():
    batch = collate_masked([], [], [], [], False)
    assert batch.count == batch.tokens == len(batch.chosen) == 0
