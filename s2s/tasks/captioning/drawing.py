"""Drawing of built-in scenes: positions of shapes, and anti-aliased pixels.

Lengths are relative to the side of the image, and positions are measured from the upper left corner, so that a scene
looks the same in any size.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, UInt8

from s2s.tasks.captioning.scenes import Group, Scene

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
    """A shape in an image.

    Attributes:
        x: Center, to the right.
        y: Center, downward.
        group: Group of the shape.
    """

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
        size: Height and width in pixels.
        channels: 1 for grey, 3 for RGB.
        seed: Seed of positions, brightness and noise.

    Returns:
        Pixels (scenes, channels, size, size), uint8.
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

    Args:
        size: Height and width of the image in pixels.

    Returns:
        Rows and columns around the shape, and the covered share of each pixel there, in [0, 1].
    """
    radius = RADII[shape.group.size]
    rows, columns = (_window(centre, radius, size) for centre in (shape.y, shape.x))
    y = (np.arange(rows.start, rows.stop) + 0.5)[:, None] / size - shape.y
    x = (np.arange(columns.start, columns.stop) + 0.5)[None, :] / size - shape.x
    return rows, columns, np.clip(0.5 - size * _outside(shape.group.shape, x, y, radius), 0, 1)


def _window(centre: float, radius: float, size: int) -> slice:
    first, last = math.floor((centre - radius) * size) - 1, math.ceil((centre + radius) * size) + 1
    return slice(max(0, first), min(size, last))


def _outside(
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
