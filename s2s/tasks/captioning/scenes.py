"""Built-in images with captions: scenes of colored shapes, their facts and their pictures."""

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from jaxtyping import Float, UInt8

NUMBERS = ("a", "two", "three")
SIZES = ("small", "big")
COLOURS = ("red", "green", "blue", "yellow", "purple", "white")
SHAPES = ("circle", "square", "triangle", "cross")
PLACES = ("at the top", "at the bottom", "on the left", "on the right", "in the middle")
TURNED = {"above": "below", "below": "above", "left of": "right of", "right of": "left of"}
"""Position of a group relative to another, and the inverse position."""
SPLITS = ("train", "validation", "test")

_PLURALS = {shape: "crosses" if shape == "cross" else f"{shape}s" for shape in SHAPES}
_ALONE = 0.3
# Percentage of all descriptions in each of validation and test.
_HELD_OUT = 5


@dataclass(frozen=True)
class Group:
    """One to three equal shapes."""

    number: int
    size: str
    colour: str
    shape: str

    def __str__(self) -> str:
        name = self.shape if self.number == 1 else _PLURALS[self.shape]
        return f"{NUMBERS[self.number - 1]} {self.size} {self.colour} {name}"


@dataclass(frozen=True)
class Scene:
    """One group and its place, or two groups and the position of the first relative to the second.

    Example:
        >>> scene = described("two big blue squares above a small red circle")
        >>> print(scene.turned())
        a small red circle below two big blue squares
    """

    groups: tuple[Group, ...]
    position: str

    def __str__(self) -> str:
        first, *second = map(str, self.groups)
        return " ".join((first, self.position, *second))

    def turned(self) -> "Scene":
        """Return the same scene, described from its other group."""
        if len(self.groups) == 1:
            return self
        return Scene(self.groups[::-1], TURNED[self.position])

    def captions(self) -> tuple[str, ...]:
        """Return all correct captions: one, or two for two groups."""
        return tuple(dict.fromkeys((str(self), str(self.turned()))))


GROUPS = tuple(Group(*each) for each in itertools.product((1, 2, 3), SIZES, COLOURS, SHAPES))
_READ = {str(group): group for group in GROUPS}


def described(caption: str) -> Scene | None:
    """Parse a caption to its scene; None if the caption is not in the grammar of the corpus."""
    words = caption.split()
    first, rest = _READ.get(" ".join(words[:4])), words[4:]
    if first is None:
        return None
    if (place := " ".join(rest)) in PLACES:
        return Scene((first,), place)
    second, relation = _READ.get(" ".join(rest[-4:])), " ".join(rest[:-4])
    return Scene((first, second), relation) if second and relation in TURNED else None


@dataclass(frozen=True)
class Facts:
    """Correctness of each fact in a caption: of each group's attributes, and of the position."""

    number: tuple[bool, ...]
    size: tuple[bool, ...]
    colour: tuple[bool, ...]
    shape: tuple[bool, ...]
    position: tuple[bool]

    def right(self) -> int:
        """Return the number of correct facts."""
        return sum(map(sum, (self.number, self.size, self.colour, self.shape, self.position)))


def facts(scene: Scene, caption: str) -> Facts:
    """Check the facts of a caption against a scene.

    The scene is described from the group that gives more correct facts; ties use the first group. A group that the
    caption lacks has no correct facts, and a caption outside of the grammar has none at all.

    Example:
        >>> scene = described("two big blue squares above a small red circle")
        >>> facts(scene, "two big blue squares above a small red cross").right()
        8
    """
    found, candidates = described(caption), []
    for right in (scene, scene.turned()):
        groups = found.groups if found else ()
        pairs = list(itertools.zip_longest(right.groups, groups[: len(right.groups)]))
        number, size, colour, shape = (
            tuple(other is not None and getattr(group, name) == getattr(other, name) for group, other in pairs)
            for name in ("number", "size", "colour", "shape")
        )
        candidates.append(Facts(number, size, colour, shape, (found is not None and right.position == found.position,)))
    return max(candidates, key=Facts.right)


def split_of(scene: Scene) -> str:
    """Return the split (`train`, `validation` or `test`) that a scene belongs to, by a hash of its captions.

    No description of the validation or test set is in the training set.
    """
    told = min(scene.captions()).encode()
    bucket = int.from_bytes(blake2b(told, digest_size=8).digest(), "big") % 100
    return "validation" if bucket < _HELD_OUT else "test" if bucket < 2 * _HELD_OUT else "train"


def scenes(split: str, seed: int) -> Iterator[Scene]:
    """Yield random scenes of a split, without end; scenes may repeat.

    Example:
        >>> print(next(scenes("train", 1)))
        three small green triangles at the top
    """
    chance = random.Random(f"{split} {seed}")
    while True:
        scene = _drawn(chance)
        if split_of(scene) == split:
            yield scene


def _drawn(chance: random.Random) -> Scene:
    first = chance.choice(GROUPS)
    if chance.random() < _ALONE:
        return Scene((first,), chance.choice(PLACES))
    second = chance.choice(GROUPS)
    # With two groups of equal shapes and colors, the groups could not be told apart.
    while (second.shape, second.colour) == (first.shape, first.colour):
        second = chance.choice(GROUPS)
    return Scene((first, second), chance.choice(tuple(TURNED)))


RADII = {"small": 0.075, "big": 0.13}
"""Half of a shape's width."""
_PAINTS = {
    "red": (225, 40, 40),
    "green": (40, 190, 60),
    "blue": (50, 80, 235),
    "yellow": (240, 220, 40),
    "purple": (160, 50, 190),
    "white": (245, 245, 245),
}
# Weights of red, green and blue for grey, as in Pillow (ITU-R 601-2).
_GREY = (0.299, 0.587, 0.114)
_MARGIN, _GAP = 0.02, 0.03
# Deviation of a group's shapes from its line, and of facing groups from the middle.
_WOBBLE, _ASIDE = 0.02, 0.1
_GROUND, _NOISE = (15, 85), 6.0
# Images drawn at once: enough for speed, few enough for memory.
_AT_ONCE = 500


@dataclass(frozen=True)
class Drawn:
    """A shape in an image, with its center: `x` to the right, `y` downward."""

    x: float
    y: float
    group: Group


def arranged(scene: Scene, chance: np.random.Generator) -> list[Drawn]:
    """Place the shapes of a scene at random.

    The shapes of a group form a row if the scene's position is vertical (above, below), and a column if it is
    horizontal. The described direction always dominates: groups above each other differ less from left to right, and
    the reverse.
    """
    if len(scene.groups) == 1:
        upright = scene.position in ("on the left", "on the right")
        lines = {"at the top": 0.2, "on the left": 0.2, "in the middle": 0.5}
        return _line(scene.groups[0], lines.get(scene.position, 0.8), upright, chance)
    upright = scene.position in ("left of", "right of")
    first, second = (0.25, 0.75) if scene.position in ("above", "left of") else (0.75, 0.25)
    return [
        shape
        for group, line in zip(scene.groups, (first, second), strict=True)
        for shape in _line(group, line, upright, chance)
    ]


def _line(group: Group, line: float, upright: bool, chance: np.random.Generator) -> list[Drawn]:
    """Place the shapes of a group along a line, near the middle of the image."""
    radius = RADII[group.size]
    room = 1 - 2 * _MARGIN - group.number * 2 * radius - (group.number - 1) * _GAP
    spread = np.sort(chance.uniform(0, room, group.number))
    along = _MARGIN + radius + np.arange(group.number) * (2 * radius + _GAP) + spread
    middle = float(along.mean())
    along += chance.uniform(0.5 - _ASIDE, 0.5 + _ASIDE) - middle
    # If a shape is outside of the image, its group moves back.
    along += max(0.0, _MARGIN + radius - along[0]) - max(0.0, along[-1] - (1 - _MARGIN - radius))
    across = line + chance.uniform(-0.05, 0.05) + chance.uniform(-_WOBBLE, _WOBBLE, group.number)
    return [
        Drawn(float(b), float(a), group) if upright else Drawn(float(a), float(b), group)
        for a, b in zip(along, across, strict=True)
    ]


def pictures(
    scenes: Sequence[Scene], size: int, channels: int, seed: tuple[int, ...]
) -> UInt8[np.ndarray, "scenes channels size size"]:
    """Draw an image of each scene.

    Shapes of the same kind differ in brightness and position; the background is grey, with noise.

    Args:
        channels: 1 for grey, 3 for RGB.
        seed: Seed of positions, brightness and noise.
    """
    chance = np.random.default_rng(seed)
    found = np.empty((len(scenes), channels, size, size), dtype=np.uint8)
    for first in range(0, len(scenes), _AT_ONCE):
        part = [arranged(scene, chance) for scene in scenes[first : first + _AT_ONCE]]
        painted = _painted(part, size, chance)
        painted += _NOISE * chance.standard_normal(painted.shape, dtype=np.float32)
        if channels == 1:
            painted = np.tensordot(painted, np.array(_GREY, dtype=np.float32), axes=(1, 0))[:, None]
        found[first : first + len(part)] = painted.round().clip(0, 255)
    return found


def _painted(
    arrangements: Sequence[Sequence[Drawn]], size: int, chance: np.random.Generator
) -> Float[np.ndarray, "scenes 3 size size"]:
    ground = chance.uniform(*_GROUND, len(arrangements)).astype(np.float32)
    canvas = np.repeat(ground, 3 * size * size).reshape(-1, 3, size, size)
    for picture, shapes in enumerate(arrangements):
        for shape in shapes:
            rows, columns, cover = covered(shape, size)
            paint = np.array(_PAINTS[shape.group.colour]) * chance.uniform(0.85, 1.0)
            place = canvas[picture, :, rows, columns]
            place += cover * (paint[:, None, None] - place)
    return canvas


def covered(shape: Drawn, size: int) -> tuple[slice, slice, Float[np.ndarray, "rows columns"]]:
    """Compute the coverage of pixels by a shape.

    The edge is taken as straight within a pixel: a pixel is half covered if the edge passes through its center.
    """
    radius = RADII[shape.group.size]
    rows, columns = (
        slice(max(0, math.floor((c - radius) * size) - 1), min(size, math.ceil((c + radius) * size) + 1))
        for c in (shape.y, shape.x)
    )
    y = (np.arange(rows.start, rows.stop) + 0.5)[:, None] / size - shape.y
    x = (np.arange(columns.start, columns.stop) + 0.5)[None, :] / size - shape.x
    return rows, columns, np.clip(0.5 - size * _signed_distance(shape.group.shape, x, y, radius), 0, 1)


def _signed_distance(
    shape: str, x: Float[np.ndarray, "1 columns"], y: Float[np.ndarray, "rows 1"], radius: float
) -> Float[np.ndarray, "rows columns"]:
    """Return the signed distance from a shape at (0, 0); negative inside."""
    if shape == "circle":
        return np.hypot(x, y) - radius
    if shape == "square":
        return np.maximum(np.abs(x), np.abs(y)) - 0.9 * radius
    if shape == "cross":
        long, short = radius, 0.3 * radius
        upright = np.maximum(np.abs(x) - short, np.abs(y) - long)
        return np.minimum(upright, np.maximum(np.abs(x) - long, np.abs(y) - short))
    # A triangle that points upward: below its two slanting sides, and above its base.
    slanting = (2 * np.abs(x) - (y + radius)) / math.sqrt(5)
    return np.maximum(slanting, y - radius)
