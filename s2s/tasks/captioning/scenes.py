"""Scenes of the built-in corpus: contents, correct captions and their parsing.

A scene has one or two groups of equal shapes. The caption of one group says where it is; the caption of two groups says
where the first is relative to the second:

    three small red circles at the top
    two big blue squares above a small red circle

The second is equivalent to "a small red circle below two big blue squares": a scene of two groups has two captions,
both correct. `described` parses a caption, so that a generated caption is compared fact by fact.
"""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

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
    """Equal shapes.

    Attributes:
        number: Number of shapes, 1 to 3.
        size: One of `SIZES`.
        colour: One of `COLOURS`.
        shape: One of `SHAPES`.
    """

    number: int
    size: str
    colour: str
    shape: str

    def __str__(self) -> str:
        name = self.shape if self.number == 1 else _PLURALS[self.shape]
        return f"{NUMBERS[self.number - 1]} {self.size} {self.colour} {name}"


@dataclass(frozen=True)
class Scene:
    """One group and its place, or two groups and their relative position.

    Attributes:
        groups: One group or two.
        position: Place of the group, or position of the first relative to the second.

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
    """Parse a caption.

    Args:
        caption: Caption in the grammar of the corpus.

    Returns:
        The scene; None if the caption is not in the grammar.
    """
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
    """Correctness of each fact in a caption.

    Attributes:
        number: True for each group of the scene whose number is correct.
        size: True for each group whose size is correct.
        colour: True for each group whose color is correct.
        shape: True for each group whose shape is correct.
        position: True if the position is correct.
    """

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
    said = described(caption)
    return max((_compared(told, said) for told in (scene, scene.turned())), key=Facts.right)


def _compared(scene: Scene, said: Scene | None) -> Facts:
    there = said.groups if said else ()
    pairs = list(itertools.zip_longest(scene.groups, there[: len(scene.groups)]))

    def right(name: str) -> tuple[bool, ...]:
        """Compare an attribute of each group."""
        return tuple(told is not None and getattr(group, name) == getattr(told, name) for group, told in pairs)

    position = said is not None and scene.position == said.position
    return Facts(right("number"), right("size"), right("colour"), right("shape"), (position,))


def split_of(scene: Scene) -> str:
    """Return the split that a scene belongs to, by a hash of its captions.

    No description of the validation or test set is in the training set.

    Returns:
        `train`, `validation` or `test`.
    """
    told = min(scene.captions()).encode()
    bucket = int.from_bytes(blake2b(told, digest_size=8).digest(), "big") % 100
    return "validation" if bucket < _HELD_OUT else "test" if bucket < 2 * _HELD_OUT else "train"


def scenes(split: str, seed: int) -> Iterator[Scene]:
    """Yield random scenes of a split, without end; scenes may repeat.

    Yields:
        Scenes.

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
