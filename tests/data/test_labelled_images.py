"""Batches of labelled images."""

import numpy as np
import pytest
import torch

from s2s.data.dataset import group_into_steps
from s2s.errors import UserError
from s2s.tasks.images.data import Images
from s2s.tasks.images.recipe import AugmentationSettings
from s2s.tasks.images.task import LabelledImages, augment


@pytest.fixture
def images() -> Images:
    generator = np.random.default_rng(1)
    return Images(
        generator.integers(0, 256, (23, 1, 4, 4), dtype=np.uint8), generator.integers(0, 3, 23), ("a", "b", "c")
    )


def test_epoch_has_every_image_once_in_an_order_of_its_own(images):
    examples = LabelledImages(images, positions=5, batch=10)
    plans = [examples.make_batches(1, epoch) for epoch in (0, 1)]
    for plan in plans:
        assert [len(rows) for rows in plan] == [10, 10, 3]
        assert sorted(np.concatenate(plan)) == list(range(23))
    assert not np.array_equal(plans[0][0], plans[1][0])
    assert np.array_equal(plans[0][0], LabelledImages(images, 5, 10).make_batches(1, 0)[0])
    assert not np.array_equal(plans[0][0], examples.make_batches(2, 0)[0])


def test_balanced_epochs_have_equally_many_images_of_each_class(images):
    images.labels[:] = np.repeat([0, 1, 2], [20, 2, 1])
    examples = LabelledImages(images, 5, 10, balanced=True)
    rows = np.concatenate(examples.make_batches(1, 0)) % 23
    assert np.bincount(images.labels[rows]).tolist() == [8, 8, 7]
    assert np.bincount(rows, minlength=23)[20:].tolist() == [4, 4, 7]


def test_labelled_images_repeats_in_a_balanced_epoch_are_augmented_differently(images):
    images.labels[:] = np.repeat([0, 1, 2], [20, 2, 1])
    examples = LabelledImages(images, 5, 10, AugmentationSettings(shift=1, crop=0.5), balanced=True)
    rows = np.concatenate(examples.make_batches(1, 0))
    last = np.sort(rows[rows % 23 == 22])
    assert last.tolist() == [22 + 23 * repeat for repeat in range(7)]
    batch = examples.collate(last, seed=8)
    assert len({image.tobytes() for image in batch.source.numpy()}) == 7
    assert (batch.indices.tolist(), batch.labels.tolist()) == ([22] * 7, [2] * 7)


def test_batches_hold_the_images_of_their_rows(images):
    rows = np.array([22, 3, 7])
    batch = LabelledImages(images, positions=5, batch=10).collate(rows, seed=1)
    assert torch.equal(batch.source, torch.from_numpy(images.pixels[rows]))
    assert batch.labels.tolist() == images.labels[rows].tolist()
    assert batch.source_valid.all()
    assert (batch.source_valid.shape, batch.count, batch.tokens) == ((3, 5), 3, 15)


def test_labelled_images_varied_batches_are_those_of_augmentation_and_differ_by_epoch_alone(images):
    settings = AugmentationSettings(shift=1, flip=True)
    examples = LabelledImages(images, 5, 10, settings)
    rows = np.array([22, 3, 7])
    first = examples.collate(rows, seed=8)
    assert torch.equal(first.source, torch.from_numpy(augment(images.pixels[rows], rows, settings, 8)))
    assert torch.equal(first.source[1:2], examples.collate(rows[1:2], seed=8).source)
    assert not torch.equal(first.source, examples.collate(rows, seed=9).source)


def test_updates_have_as_many_images_as_wanted(images):
    examples = LabelledImages(images, 5, 4, examples_per_update=9)
    batches = examples.make_batches(1, 0)
    together = examples.accumulation_steps(batches)
    assert together == 2
    groups = group_into_steps(batches, together)
    assert [sum(len(rows) for rows in group) for group in groups] == [8, 8, 7]
    with pytest.raises(UserError, match=r"(?s)3 images is less than a batch of 10.*batches.images=3"):
        LabelledImages(images, 5, 10, examples_per_update=3).accumulation_steps([])
