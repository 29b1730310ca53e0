"""Long-range exercises with exact answers, as numbers: what must be remembered stands a chosen distance from its use.

Examples are a pure function of (distance, count, seed, split). Pieces below `FIRST` are the special ones of every
tokenizer, and no example has them.
"""

import itertools
import math
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

from s2s.data.tokenizers import SPECIALS
from s2s.errors import UserError

FIRST = len(SPECIALS)
Split = Literal["train", "held-out", "test"]
_SPLITS: tuple[Split, ...] = ("train", "held-out", "test")
DIGITS = 10


@dataclass(frozen=True)
class Examples:
    """Sources and targets in pieces, without special ones.

    Attributes:
        sources: what is read.
        targets: what should be written.
        rivals: where given, an answer counts by one piece alone: for each target, a place in it and the piece that
            must be less likely there than the right one. Where None, the whole target must be right.
    """

    sources: list[list[int]]
    targets: list[list[int]]
    rivals: list[tuple[int, int]] | None = None

    def __len__(self) -> int:
        return len(self.sources)

    def pick(self, rows: list[int]) -> "Examples":
        """The examples of these rows, in that order."""
        rivals = None if self.rivals is None else [self.rivals[i] for i in rows]
        return Examples([self.sources[i] for i in rows], [self.targets[i] for i in rows], rivals)


def joined(parts: list[Examples]) -> Examples:
    """All examples of the parts, one part behind the other."""
    rivals = [rival for part in parts for rival in part.rivals or ()]
    sources = [row for part in parts for row in part.sources]
    return Examples(sources, [row for part in parts for row in part.targets], rivals or None)


def unseen(examples: Examples, seen: Examples) -> Examples:
    """Those examples whose sources are not among the seen ones; all, where fewer than half are new.

    A small space, such as two nested brackets, has too few sources to keep some for a test.
    """
    known = {tuple(row) for row in seen.sources}
    fresh = [i for i, row in enumerate(examples.sources) if tuple(row) not in known]
    return examples.pick(fresh) if len(fresh) >= len(examples) / 2 else examples


class Exercise(ABC):
    """One kind of question, at every distance.

    Attributes:
        name: in lower-case letters, digits and hyphens.
        title: what is to be done, in a few words.
        unit: what its distance counts.
        pieces: size of the one vocabulary of both sides, special pieces counted.
    """

    name: str
    title: str
    unit: str
    pieces: int

    @abstractmethod
    def examples(self, distance: int, count: int, seed: int, split: Split = "train") -> Examples:
        """Examples of one distance; the splits and the seeds are separate streams of chance.

        Raises:
            UserError: there is no example of such a distance.
        """

    @abstractmethod
    def baseline(self, distance: int) -> float:
        """Accuracy of the best answer without memory: by one who knows the kind and the distance, and read nothing."""

    def _chance(self, distance: int, seed: int, split: Split) -> np.random.Generator:
        if distance < 1:
            raise UserError(f"{self.name} has no distance {distance}", remedy="give a distance of 1 or more")
        return np.random.default_rng([abs(seed), zlib.crc32(self.name.encode()), distance, _SPLITS.index(split)])


class Recall(Exercise):
    """First-token recall: a key, then noise; the answer is the key. Keys and noise share no symbol.

    The number of keys decides how hard it is for a recurrent network: of four small tanh networks trained with ten keys
    (and distances up to 32), two recalled them over every distance tested, up to 256; with 32 keys none of four did.
    """

    name, title, unit = "recall", "first-token recall", "noise symbols after the key"
    keys, noise = 32, 32
    pieces = FIRST + keys + noise

    def examples(self, distance: int, count: int, seed: int, split: Split = "train") -> Examples:
        """`distance` symbols of noise behind each key."""
        chance = self._chance(distance, seed, split)
        key = FIRST + chance.integers(self.keys, size=(count, 1))
        noise = FIRST + self.keys + chance.integers(self.noise, size=(count, distance))
        return Examples(np.hstack((key, noise)).tolist(), key.tolist())

    def baseline(self, distance: int) -> float:
        return 1 / self.keys


class Copy(Exercise):
    """Copy memory (Hochreiter & Schmidhuber 1997; as in Arjovsky et al. 2016): symbols, blanks, a delimiter."""

    name, title, unit = "copy", "copy memory", "blanks after the symbols"
    symbols, length = 8, 5
    blank, delimiter = FIRST + symbols, FIRST + symbols + 1
    pieces = FIRST + symbols + 2

    def examples(self, distance: int, count: int, seed: int, split: Split = "train") -> Examples:
        """Five symbols, `distance` blanks and the delimiter; the answer is the symbols."""
        symbols = FIRST + self._chance(distance, seed, split).integers(self.symbols, size=(count, self.length))
        blanks = np.full((count, distance), self.blank)
        ends = np.full((count, 1), self.delimiter)
        return Examples(np.hstack((symbols, blanks, ends)).tolist(), symbols.tolist())

    def baseline(self, distance: int) -> float:
        return self.symbols**-self.length


class Adding(Exercise):
    """The adding problem (Hochreiter & Schmidhuber 1997) with digits: the sum of the two marked ones, in decimal.

    The marks stand in different halves of the list, and exactly `distance` places apart, so a list has twice as many
    places. A marked digit is a symbol of its own.
    """

    name, title, unit = "adding", "adding problem", "places between the two marked digits"
    pieces = FIRST + 2 * DIGITS

    def examples(self, distance: int, count: int, seed: int, split: Split = "train") -> Examples:
        """Lists of `2 × distance` digits; the answer is one digit or two."""
        chance = self._chance(distance, seed, split)
        digits = chance.integers(DIGITS, size=(count, 2 * distance))
        rows, first = np.arange(count), chance.integers(distance, size=count)
        sums = digits[rows, first] + digits[rows, first + distance]
        digits[rows, first] += DIGITS
        digits[rows, first + distance] += DIGITS
        targets = [[FIRST + int(digit) for digit in str(total)] for total in sums.tolist()]
        return Examples((FIRST + digits).tolist(), targets)

    def baseline(self, distance: int) -> float:
        """Always nine: ten of a hundred pairs add up to it, and no number has more."""
        return 1 / DIGITS


class Associative(Exercise):
    """Multi-query associative recall (Arora et al. 2023): keys with their values, noise, then some of the keys."""

    name, title, unit = "associative", "multi-query associative recall", "noise symbols after the pairs"
    keys, values, noise = 12, 8, 4
    pairs, queries = 4, 2
    pieces = FIRST + keys + values + noise

    def examples(self, distance: int, count: int, seed: int, split: Split = "train") -> Examples:
        """Four different keys, each followed by its value, `distance` symbols of noise, and two of the keys."""
        chance = self._chance(distance, seed, split)
        everything = np.tile(np.arange(self.keys), (count, 1))
        keys = FIRST + chance.permuted(everything, axis=1)[:, : self.pairs]
        values = FIRST + self.keys + chance.integers(self.values, size=(count, self.pairs))
        stored = np.stack((keys, values), axis=2).reshape(count, -1)
        noise = FIRST + self.keys + self.values + chance.integers(self.noise, size=(count, distance))
        asked = chance.permuted(np.tile(np.arange(self.pairs), (count, 1)), axis=1)[:, : self.queries]
        queries = np.take_along_axis(keys, asked, axis=1)
        sources = np.hstack((stored, noise, queries))
        return Examples(sources.tolist(), np.take_along_axis(values, asked, axis=1).tolist())

    def baseline(self, distance: int) -> float:
        """Both values guessed: 8⁻²."""
        return self.values**-self.queries


class Dyck(Exercise):
    """Brackets of three kinds, some closed again and `distance` still open: the answer closes them, inmost first."""

    name, title, unit = "dyck", "closing nested brackets", "open brackets"
    kinds = 3
    pieces = FIRST + 2 * kinds

    def examples(self, distance: int, count: int, seed: int, split: Split = "train") -> Examples:
        """After each open bracket, a third of the time, stands a pair that is closed already."""
        chance = self._chance(distance, seed, split)
        opened = chance.integers(self.kinds, size=(count, distance))
        between = chance.integers(3 * self.kinds, size=(count, distance))
        sources = [
            [piece for kind, pair in zip(*rows, strict=True) for piece in self._stretch(kind, pair)]
            for rows in zip(opened.tolist(), between.tolist(), strict=True)
        ]
        return Examples(sources, (FIRST + self.kinds + opened[:, ::-1]).tolist())

    def _stretch(self, kind: int, pair: int) -> list[int]:
        closed = [FIRST + pair, FIRST + self.kinds + pair] if pair < self.kinds else []
        return [FIRST + kind, *closed]

    def baseline(self, distance: int) -> float:
        """Every kind guessed: 3 to the power of −`distance`."""
        return self.kinds**-distance


def _median(numbers: tuple[int, ...]) -> int:
    # of an even number of operands the mean of the middle two, rounded down, as ListOps has it
    ordered = sorted(numbers)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2


class ListOps(Exercise):
    """Nested operations on digits, as in ListOps (Nangia & Bowman 2018): maximum, minimum, median, sum modulo ten.

    An operation has two or three operands; one of them, at any place, is the next operation, `distance` deep.
    """

    name, title, unit = "listops", "nested list operations", "nested operations"
    operations: tuple[Callable[[tuple[int, ...]], int], ...] = (
        max,
        min,
        _median,
        lambda numbers: sum(numbers) % DIGITS,
    )
    arities = (2, 3)
    close = FIRST + DIGITS
    pieces = FIRST + DIGITS + 1 + len(operations)

    def examples(self, distance: int, count: int, seed: int, split: Split = "train") -> Examples:
        chance = self._chance(distance, seed, split)
        which = chance.integers(len(self.operations), size=(count, distance)).tolist()
        arity = chance.integers(self.arities[0], self.arities[-1] + 1, size=(count, distance)).tolist()
        place = chance.integers(math.factorial(self.arities[-1]), size=(count, distance)).tolist()
        digits = chance.integers(DIGITS, size=(count, distance, self.arities[-1])).tolist()
        nested = [self._nested(*row) for row in zip(which, arity, place, digits, strict=True)]
        return Examples([source for source, _ in nested], [[FIRST + value] for _, value in nested])

    def _nested(
        self, which: list[int], arity: list[int], place: list[int], digits: list[list[int]]
    ) -> tuple[list[int], int]:
        source: list[int] = []
        value = 0
        # from the inmost operation, which has digits alone, outwards
        for depth, (operation, size) in enumerate(zip(which, arity, strict=True)):
            numbers = digits[depth][:size]
            operands = [[FIRST + number] for number in numbers]
            if depth:
                numbers[place[depth] % size] = value
                operands[place[depth] % size] = source
            value = self.operations[operation](tuple(numbers))
            source = [self.close + 1 + operation, *itertools.chain(*operands), self.close]
        return source, value

    def baseline(self, distance: int) -> float:
        """The share of the most frequent answer, exactly."""
        return max(_answers(distance))


@cache
def _answers(depth: int) -> tuple[float, ...]:
    """How often each digit is the answer of operations so deep: from one depth to the next by counting all cases."""
    inner = _answers(depth - 1) if depth > 1 else (1 / DIGITS,) * DIGITS
    shares: Counter[int] = Counter()
    for operation, arity in itertools.product(ListOps.operations, ListOps.arities):
        weight = 1 / (len(ListOps.operations) * len(ListOps.arities) * DIGITS ** (arity - 1))
        # no operation minds the order of its operands
        for numbers in itertools.product(range(DIGITS), repeat=arity):
            shares[operation(numbers)] += weight * inner[numbers[0]]  # type: ignore[assignment]
    return tuple(shares[digit] for digit in range(DIGITS))


EXERCISES: tuple[Exercise, ...] = (Recall(), Copy(), Adding(), Associative(), Dyck(), ListOps())
