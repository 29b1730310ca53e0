"""Augmented images compared with loops over pixels; randomness depends on seed and row only."""

import numpy as np
import pytest

from s2s.tasks.images.recipe import AugmentationSettings
from s2s.tasks.images.task import augment, uniform

ROWS = np.arange(40)


@pytest.fixture
def pixels() -> np.ndarray:
    return np.random.default_rng(1).integers(1, 256, (40, 3, 5, 5), dtype=np.uint8)


def _moved(image: np.ndarray, down: int, right: int) -> np.ndarray:
    found = np.zeros_like(image)
    for y in range(5):
        for x in range(5):
            if 0 <= y + down < 5 and 0 <= x + right < 5:
                found[:, y, x] = image[:, y + down, x + right]
    return found


def test_augmentation_shifted_images_are_moved_by_whole_pixels_and_all_moves_occur(pixels):
    found = augment(pixels, ROWS, AugmentationSettings(shift=1), seed=3)
    moves = set()
    for image, new in zip(pixels, found, strict=True):
        fits = [(y, x) for y in (-1, 0, 1) for x in (-1, 0, 1) if (_moved(image, y, x) == new).all()]
        assert len(fits) == 1
        moves |= set(fits)
    assert len(moves) == 9


def test_augmentation_half_of_the_images_are_turned(pixels):
    found = augment(pixels, ROWS, AugmentationSettings(flip=True), seed=3)
    turned = [(new == image[:, :, ::-1]).all() for image, new in zip(pixels, found, strict=True)]
    assert all(t or (new == image).all() for t, image, new in zip(turned, pixels, found, strict=True))
    assert 10 < sum(turned) < 30


def test_augmentation_cut_out_window_is_scaled_back_bilinearly(pixels):
    found = augment(pixels, ROWS, AugmentationSettings(crop=0.5), seed=3)
    _, _, side, top, left, _ = uniform(3, ROWS, 6).T
    for i in (0, 7, 39):
        share = 0.5 + 0.5 * side[i]
        for y in range(5):
            for x in range(5):
                at = [
                    min(4.0, max(0.0, start * (1 - share) * 5 + (place + 0.5) * share - 0.5))
                    for start, place in ((top[i], y), (left[i], x))
                ]
                (y0, x0), (dy, dx) = (int(at[0]), int(at[1])), (at[0] % 1, at[1] % 1)
                y1, x1 = min(4, y0 + 1), min(4, x0 + 1)
                image = pixels[i].astype(float)
                upper = (1 - dx) * image[:, y0, x0] + dx * image[:, y0, x1]
                lower = (1 - dx) * image[:, y1, x0] + dx * image[:, y1, x1]
                assert found[i, :, y, x] == pytest.approx((1 - dy) * upper + dy * lower, abs=0.51)


def test_augmentation_even_image_stays_even_when_cut_and_nothing_is_done_by_default(pixels):
    even = np.full_like(pixels, 200)
    assert (augment(even, ROWS, AugmentationSettings(crop=0.3, flip=True), seed=1) == 200).all()
    assert augment(pixels, ROWS, AugmentationSettings(), seed=1) is pixels


def test_augmentation_depends_on_seed_and_row_only(pixels):
    settings = AugmentationSettings(shift=2, crop=0.6, flip=True)
    whole = augment(pixels, ROWS, settings, seed=5)
    chosen = np.array([31, 2, 17])
    assert (augment(pixels[chosen], chosen, settings, seed=5) == whole[chosen]).all()
    assert (augment(pixels, ROWS, settings, seed=6) != whole).any(axis=(1, 2, 3)).mean() > 0.9
    assert (augment(pixels, ROWS + 40, settings, seed=5) != whole).any(axis=(1, 2, 3)).mean() > 0.9


def test_augmentation_chance_is_even_and_no_draw_tells_of_another():
    drawn = uniform(2**63 + 1, np.arange(20_000), 4)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    counts = np.stack([np.histogram(column, bins=10, range=(0, 1))[0] for column in drawn.T])
    # six standard deviations
    assert np.abs(counts - 2000).max() < 6 * np.sqrt(2000 * 0.9)
    others = np.column_stack([drawn, uniform(0, np.arange(20_000), 2), drawn[np.r_[1:20_000, 0]]])
    assert np.abs(np.corrcoef(others.T) - np.eye(10)).max() < 6 / np.sqrt(20_000)
