"""Built-in captioned scenes: captions describe the pixels completely."""

import itertools

import numpy as np
import pytest
from scipy import ndimage

from s2s.tasks.captioning.scenes import (
    _PAINTS,
    GROUPS,
    PLACES,
    RADII,
    SPLITS,
    TURNED,
    Group,
    Scene,
    arranged,
    covered,
    described,
    facts,
    pictures,
    scenes,
    split_of,
)

ALL_KINDS = [Scene((GROUPS[0],), place) for place in PLACES]
ALL_KINDS += [Scene((GROUPS[0], GROUPS[-1]), relation) for relation in TURNED]


def drawn(split: str, count: int, seed: int = 1) -> list[Scene]:
    return list(itertools.islice(scenes(split, seed), count))


def test_caption_read_back_is_the_scene_that_it_was_written_of():
    found = drawn("train", 500)
    assert {len(scene.groups) for scene in found} == {1, 2}
    assert {scene.position for scene in found} == {*PLACES, *TURNED}
    for scene in found:
        captions = scene.captions()
        assert len(captions) == len(scene.groups)
        assert {described(caption) for caption in captions} == {scene, scene.turned()}
        assert scene.turned().turned() == scene
    # no two groups are told alike
    assert len({str(group) for group in GROUPS}) == len(GROUPS) == 3 * 2 * 6 * 4
    assert str(Scene((Group(2, "small", "red", "cross"), Group(1, "big", "blue", "square")), "left of")) == (
        "two small red crosses left of a big blue square"
    )
    for nonsense in ("", "a dog", "a big red circle", "a big red circle above", "two big red circle at the top"):
        assert described(nonsense) is None


def test_scenes_no_description_is_in_two_splits():
    told = {split: {c for scene in drawn(split, 3000) for c in scene.captions()} for split in SPLITS}
    assert not told["train"] & told["test"]
    assert not told["train"] & told["validation"]
    assert not told["validation"] & told["test"]
    assert all(split_of(scene.turned()) == split_of(scene) for scene in drawn("test", 100))
    assert drawn("train", 20) == drawn("train", 20) != drawn("train", 20, seed=2)


def test_scenes_facts_are_counted_for_the_group_that_they_are_of():
    scene = described("two small red circles above a big blue square")
    for caption, wrong in (
        ("two small red circles above a big blue square", {}),
        ("a big blue square below two small red circles", {}),
        ("a big blue square above two small red circles", {"position": 1}),
        ("three small red circles above a big blue square", {"number": 1}),
        ("a small blue square below two small red crosses", {"size": 1, "shape": 1}),
        ("two small green circles left of a big green square", {"colour": 2, "position": 1}),
        ("two small red circles at the top", {"number": 1, "size": 1, "colour": 1, "shape": 1, "position": 1}),
        ("what is this", {"number": 2, "size": 2, "colour": 2, "shape": 2, "position": 1}),
    ):
        told = facts(scene, caption)
        missed = {
            name: np.sum(~np.array(getattr(told, name))) for name in ("number", "size", "colour", "shape", "position")
        }
        assert missed == dict.fromkeys(missed, 0) | wrong, caption
    alone = described("two small red circles at the top")
    assert facts(alone, "two small red circles above a big blue square").right() == 4


def _seen(image: np.ndarray) -> list[tuple[str, str, str, np.ndarray]]:
    """Size, colour, shape and middle of all that stands in a picture: found by its pixels alone."""
    side = image.shape[1]
    ground = np.median(image.reshape(3, -1), axis=1)[:, None, None]
    stands_out = np.abs(image - ground).max(axis=0)
    labels, count = ndimage.label(stands_out > 60)
    found = []
    for part in range(1, count + 1):
        # what is covered by half or more
        its = np.where(labels == part, stands_out, 0)
        rows, columns = np.nonzero(its > its.max() / 2)
        # a faint pixel of a triangle's edge
        if len(rows) < 6:
            continue
        colour = image[:, rows, columns].mean(axis=1)
        paint = min(_PAINTS, key=lambda name: np.abs(0.925 * np.array(_PAINTS[name]) - colour).sum())
        width, height = np.ptp(columns) + 1, np.ptp(rows) + 1
        share = len(rows) / (width * height)
        sinks = (rows.mean() - (rows.min() + rows.max()) / 2) / height
        shape = "square" if share > 0.9 else "circle" if share > 0.7 else "triangle" if sinks > 0.06 else "cross"
        size = "big" if width / side > RADII["small"] + RADII["big"] else "small"
        found.append((size, paint, shape, np.array((columns.mean(), rows.mean())) / side))
    return found


def test_scene_captions_describe_the_pixels():
    found = drawn("train", 100, seed=3)
    for scene, image in zip(found, pictures(found, 192, 3, (3,)).astype(float), strict=True):
        seen = _seen(image)
        middles = []
        for group in scene.groups:
            its = [middle for *kind, middle in seen if kind == [group.size, group.colour, group.shape]]
            assert len(its) == group.number, str(scene)
            middles.append(np.mean(its, axis=0))
        assert len(seen) == sum(group.number for group in scene.groups)
        right, down = middles[0] - (middles[1] if len(middles) == 2 else 0.5)
        if scene.position == "in the middle":
            assert max(abs(right), abs(down)) < 0.15
            continue
        ways = {"above": -down, "below": down, "left of": -right, "right of": right}
        ways |= {"at the top": -down, "at the bottom": down, "on the left": -right, "on the right": right}
        # the way that is told is far longer than the one across it
        assert ways[scene.position] > 0.15
        assert ways[scene.position] > 1.2 * min(abs(right), abs(down))
        assert ways[scene.position] == max(abs(right), abs(down))


def test_scenes_shape_covers_what_a_finer_grid_says_that_it_covers():
    shape = arranged(described("a big red circle in the middle"), np.random.default_rng(1))[0]
    rows, columns, cover = covered(shape, 32)
    fine = (np.arange(320) + 0.5) / 320
    inside = np.hypot(fine[:, None] - shape.y, fine[None, :] - shape.x) <= RADII["big"]
    coarse = inside.reshape(32, 10, 32, 10).mean(axis=(1, 3))
    whole = np.zeros((32, 32))
    whole[rows, columns] = cover
    np.testing.assert_allclose(whole, coarse, atol=0.12)
    assert whole.sum() == pytest.approx(np.pi * (32 * RADII["big"]) ** 2, rel=0.02)


@pytest.mark.parametrize("scene", ALL_KINDS, ids=str)
def test_scenes_shapes_stand_within_the_picture_and_apart(scene):
    chance = np.random.default_rng(1)
    for group in (Group(3, "big", "red", "square"), Group(1, "small", "blue", "circle")):
        groups = (group, *scene.groups[1:])
        for _ in range(50):
            shapes = arranged(Scene(groups, scene.position), chance)
            assert len(shapes) == sum(group.number for group in groups)
            for shape in shapes:
                radius = RADII[shape.group.size]
                assert radius <= min(shape.x, shape.y)
                assert max(shape.x, shape.y) <= 1 - radius
            for one, other in itertools.combinations(shapes, 2):
                room = RADII[one.group.size] + RADII[other.group.size]
                assert max(abs(one.x - other.x), abs(one.y - other.y)) > room


def test_scenes_pictures_are_the_same_for_the_same_seed_and_grey_ones_are_theirs():
    found = drawn("train", 5)
    one = pictures(found, 32, 3, (1, 0))
    assert (one == pictures(found, 32, 3, (1, 0))).all()
    assert (one != pictures(found, 32, 3, (1, 1))).any()
    grey = pictures(found, 32, 1, (1, 0))
    assert grey.shape == (5, 1, 32, 32)
    np.testing.assert_allclose(grey[:, 0], np.tensordot(one, (0.299, 0.587, 0.114), axes=(1, 0)), atol=1.1)
