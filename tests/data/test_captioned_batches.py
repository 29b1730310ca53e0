"""Batches of captions hold every caption once an epoch, with its image."""

import datasets
import numpy as np
import pytest
import torch

from s2s.data.batches import collate
from s2s.data.tokenized import encode_texts
from s2s.data.tokenizers import train
from s2s.errors import UserError
from s2s.recipe.schema import PieceSettings
from s2s.tasks.captioning.data import Captioned, CaptionedImages

CAPTIONS = (("a dog", "a brown dog runs"), ("two cats",), ("a bird sits on a tree", "a bird", "one bird"))
OWNER = [0, 0, 1, 2, 2, 2]


@pytest.fixture
def part() -> Captioned:
    pixels = np.random.default_rng(1).integers(0, 256, (3, 3, 8, 8), dtype=np.uint8)
    return Captioned(pixels, CAPTIONS, ("one", "two", "three"))


@pytest.fixture
def examples(part) -> CaptionedImages:
    return _examples(part, 50)


def _examples(part: Captioned, max_length: int) -> CaptionedImages:
    tokenizer = train(part.texts(), PieceSettings(kind="word", size=40), "text")
    pieces = encode_texts(datasets.Dataset.from_dict({"text": list(part.texts())}), tokenizer)
    return CaptionedImages(part, pieces, positions=4, batch=4, max_length=max_length)


def test_captioned_batches_epoch_has_every_caption_once_in_an_order_of_its_own(examples):
    plans = [examples.make_batches(1, epoch) for epoch in range(3)]
    for plan in plans:
        assert [len(rows) for rows in plan] == [4, 2]
        assert sorted(np.concatenate(plan)) == list(range(6))
    assert len({tuple(np.concatenate(plan)) for plan in plans}) > 1
    assert np.array_equal(plans[0][0], examples.make_batches(1, 0)[0])


def test_captioned_batches_batch_holds_the_captions_of_its_rows_and_the_images_that_they_are_of(examples, part):
    rows = np.array([5, 0, 2])
    batch = examples.collate(rows, 0)
    assert torch.equal(batch.source, torch.from_numpy(part.pixels[[OWNER[row] for row in rows]]))
    assert batch.source_valid.all()
    assert batch.source_valid.shape == (3, 4)
    texts = collate([[]] * 3, examples.pieces.rows(rows), rows)
    assert torch.equal(batch.target_in, texts.target_in)
    assert torch.equal(batch.target_out, texts.target_out)
    # "one bird", "a dog" and "two cats", an end each
    assert (batch.count, batch.indices.tolist()) == (9, [5, 0, 2])
    assert batch.real_share == 1
    alone = examples.collate(rows[1:2], 0)
    assert torch.equal(alone.source, batch.source[1:2])


def test_captioned_batches_longer_captions_are_counted_and_left_out(part):
    examples = _examples(part, 4)
    # of 4 and 6 words, the end not counted
    assert examples.num_skipped == 2
    assert sorted(np.concatenate(examples.make_batches(1, 0))) == [0, 2, 4, 5]
    assert len(examples) == 6
    with pytest.raises(UserError, match="all 6 captions are longer than 2 tokens"):
        _examples(part, 2)


def test_captioned_batches_part_of_a_part_keeps_images_and_captions_together(part):
    chosen = part.select(np.array([2, 0]))
    assert (chosen.captions, chosen.names) == ((CAPTIONS[2], CAPTIONS[0]), ("three", "one"))
    assert (chosen.pixels == part.pixels[[2, 0]]).all()
    assert list(part.first(2).texts()) == ["a dog", "a brown dog runs", "two cats"]
    # captions that change places between images are other data
    moved = Captioned(part.pixels, (("a dog",), ("a brown dog runs", "two cats"), CAPTIONS[2]), part.names)
    assert list(moved.texts()) == list(part.texts())
    assert moved.digest() != part.digest()
