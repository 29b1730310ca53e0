"""Feature maps of images in place of an embedding table."""

import pytest
import torch

from s2s.errors import UserError
from s2s.models.feature_map import FeatureMap
from s2s.models.patches import ImageShape, read_vectors, width_of
from s2s.recipe.installed import module_of

SHAPE = ImageShape(3, 32, (0.4, 0.5, 0.6), (0.2, 0.3, 0.1))


@pytest.fixture
def images() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)


def _table(size: int, width: int = 16) -> FeatureMap:
    torch.manual_seed(0)
    return FeatureMap(SHAPE, size, width)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_feature_map_cells_are_a_grid_of_vectors_of_mean_0_and_variance_1(images, size):
    table = _table(size)
    vectors = table(images)
    assert vectors.shape == (4, table.length, 16) == (4, (32 // size) ** 2, 16)
    torch.testing.assert_close(vectors.mean(dim=2), torch.zeros(4, table.length), atol=1e-5, rtol=0)
    torch.testing.assert_close(vectors.var(dim=2, correction=0), torch.ones(4, table.length), atol=1e-2, rtol=0)


@pytest.mark.parametrize("size", [4, 8])
def test_feature_map_cell_sees_itself_and_less_than_two_cells_beyond_its_borders(images, size):
    table, across = _table(size).double(), 32 // size
    before = table(images[:1])
    down, right = across // 2, across // 2 - 1
    changed = images[:1].clone()
    changed[:, :, down * size : (down + 1) * size, right * size : (right + 1) * size] ^= 255
    moved = (table(changed) - before).abs().sum(dim=2).view(across, across) > 1e-9
    far = [(r, c) for r in range(across) for c in range(across) if max(abs(r - down), abs(c - right)) > 2]
    assert moved[down, right]
    assert not any(moved[place] for place in far)
    assert moved.sum() > 1


def test_feature_map_picture_that_moves_by_a_cell_moves_its_vectors_by_a_cell(images):
    table = _table(4).double()
    # a single bright spot on an even ground, away from the borders
    picture = torch.full((2, 3, 32, 32), 90, dtype=torch.uint8)
    picture[0, :, 14:18, 13:17] = 250
    picture[1, :, 14:18, 17:21] = 250
    one, other = table(picture).view(2, 8, 8, -1)
    torch.testing.assert_close(one[2:6, 2:5], other[2:6, 3:6])
    assert (one[3, 3] - other[3, 3]).abs().max() > 1e-3


def test_feature_map_batch_is_its_rows(images):
    table = _table(8).double()
    torch.testing.assert_close(table(images), torch.cat([table(image[None]) for image in images]))


def test_feature_map_sizes_that_do_not_fit_are_refused():
    with pytest.raises(UserError, match=r"(?s)cells of 5 pixels do not divide.*one of 1, 2, 4, 8, 16, 32"):
        FeatureMap(SHAPE, 5, 16)
    encoder = (
        module_of("transformer")
        .build(
            module_of("transformer").Settings(
                width=16, heads=2, feedforward=16, encoder_positions="learned", max_positions=15, tie="target"
            ),
            1,
            9,
        )
        .encoder
    )
    with pytest.raises(UserError, match=r"knows 15 positions, but an image has 16"):
        read_vectors(encoder, FeatureMap(SHAPE, 8, width_of(encoder)))
