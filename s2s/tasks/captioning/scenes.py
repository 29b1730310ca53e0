"""The built-in corpus' scenes: what is in a picture, every caption that is true of it, and a caption read back.

A scene has one group of equal shapes, or two. Of one, the caption says where it is, and of two, where the first stands
seen from the second:

    three small red circles at the top
    two big blue squares above a small red circle

The second is as true as "a small red circle below two big blue squares": a scene of two groups has two captions, and
either is right. `described` reads a caption back, so that what a model writes is compared fact by fact.
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
"""Where a group stands seen from another one, and where that one stands seen from it."""
SPLITS = ("train", "validation", "test")

_PLURALS = {shape: "crosses" if shape == "cross" else f"{shape}s" for shape in SHAPES}
_ALONE = 0.3
# per cent of all descriptions in each of validation and test
_HELD_OUT = 5


@dataclass(frozen=True)
class Group:
    """Shapes that are all alike; the number counts them, from 1 to 3."""

    number: int
    size: str
    colour: str
    shape: str

    def __str__(self) -> str:
        name = self.shape if self.number == 1 else _PLURALS[self.shape]
        return f"{NUMBERS[self.number - 1]} {self.size} {self.colour} {name}"


@dataclass(frozen=True)
class Scene:
    """One group and its place, or two and where the first stands seen from the second."""

    groups: tuple[Group, ...]
    position: str

    def __str__(self) -> str:
        first, *second = map(str, self.groups)
        return " ".join((first, self.position, *second))

    def turned(self) -> "Scene":
        """The same scene, told from its other group."""
        if len(self.groups) == 1:
            return self
        return Scene(self.groups[::-1], TURNED[self.position])

    def captions(self) -> tuple[str, ...]:
        """All that are true of it: one, or two that tell it from either group."""
        return tuple(dict.fromkeys((str(self), str(self.turned()))))


GROUPS = tuple(Group(*each) for each in itertools.product((1, 2, 3), SIZES, COLOURS, SHAPES))
_READ = {str(group): group for group in GROUPS}


def described(caption: str) -> Scene | None:
    """The scene that a caption tells of; None where it is none of the grammar's."""
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
    """What of a scene a caption tells rightly: of each group of the scene its number, size, colour and shape, and the
    position.
    """

    number: tuple[bool, ...]
    size: tuple[bool, ...]
    colour: tuple[bool, ...]
    shape: tuple[bool, ...]
    position: tuple[bool]

    def right(self) -> int:
        """How many are right."""
        return sum(map(sum, (self.number, self.size, self.colour, self.shape, self.position)))


def facts(scene: Scene, caption: str) -> Facts:
    """What of a scene a caption tells rightly.

    The scene is told from that of its groups from which more is right; where both are as good, from the first. Nothing
    is right of a group that the caption does not tell of, and nothing at all where it is none of the grammar's.
    """
    said = described(caption)
    return max((_compared(told, said) for told in (scene, scene.turned())), key=Facts.right)


def _compared(scene: Scene, said: Scene | None) -> Facts:
    there = said.groups if said else ()
    pairs = list(itertools.zip_longest(scene.groups, there[: len(scene.groups)]))

    def right(name: str) -> tuple[bool, ...]:
        """Whether each group is told with its own number, size, colour or shape."""
        return tuple(told is not None and getattr(group, name) == getattr(told, name) for group, told in pairs)

    position = said is not None and scene.position == said.position
    return Facts(right("number"), right("size"), right("colour"), right("shape"), (position,))


def split_of(scene: Scene) -> str:
    """The split that a scene belongs to, for good: no description of validation or test is learned from."""
    told = min(scene.captions()).encode()
    bucket = int.from_bytes(blake2b(told, digest_size=8).digest(), "big") % 100
    return "validation" if bucket < _HELD_OUT else "test" if bucket < 2 * _HELD_OUT else "train"


def scenes(split: str, seed: int) -> Iterator[Scene]:
    """Scenes of a split, drawn without an end; some come more than once."""
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
    # of two groups of equal shapes and colours, nobody could say which shape belongs to which
    while (second.shape, second.colour) == (first.shape, first.colour):
        second = chance.choice(GROUPS)
    return Scene((first, second), chance.choice(tuple(TURNED)))
