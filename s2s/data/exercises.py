"""Long-range exercises with exact answers, as numbers: what must be remembered stands a chosen distance from its use.

Examples are a pure function of (distance, count, seed, split). Pieces below `FIRST` are the special ones of every
tokenizer, and no example has them.
"""

import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np

from s2s.data.tokenizers import SPECIAL_TOKENS
from s2s.errors import UserError

FIRST = len(SPECIAL_TOKENS)
Split = Literal["train", "held-out", "test"]
_SPLITS: tuple[Split, ...] = ("train", "held-out", "test")


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


def concatenate(parts: list[Examples]) -> Examples:
    """All examples of the parts, one part behind the other."""
    rivals = [rival for part in parts for rival in part.rivals or ()]
    sources = [row for part in parts for row in part.sources]
    return Examples(sources, [row for part in parts for row in part.targets], rivals or None)


def unseen(examples: Examples, seen: Examples) -> Examples:
    """Those examples whose sources are not among the seen ones; all, where fewer than half are new.

    A small space, such as one symbol, has too few sources to keep some for a test.
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
        asking: so many pieces at the source's end are each answered by one piece of the target, in their order, so that
            a linear head over the states there can answer; 0 where nothing of the kind is so.
    """

    name: str
    title: str
    unit: str
    pieces: int
    asking: int = 0

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
    asking = 1

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


class Associative(Exercise):
    """Multi-query associative recall (Arora et al. 2023): keys with their values, noise, then some of the keys."""

    name, title, unit = "associative", "multi-query associative recall", "noise symbols after the pairs"
    keys, values, noise = 12, 8, 4
    pairs, queries = 4, 2
    pieces = FIRST + keys + values + noise
    asking = queries

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


class Symbols(Exercise):
    """Random symbols to be written again: how many of them a memory holds. A distance is a number of symbols."""

    name, title, unit = "symbols", "copying random symbols", "symbols"
    bits = 4
    pieces = FIRST + 2**bits

    def examples(self, distance: int, count: int, seed: int, split: Split = "train") -> Examples:
        """`distance` symbols of four bits each; the answer is the same."""
        symbols = FIRST + self._chance(distance, seed, split).integers(2**self.bits, size=(count, distance))
        return Examples(symbols.tolist(), symbols.tolist())

    def baseline(self, distance: int) -> float:
        """Every symbol guessed: 2 to the power of −4 `distance`."""
        return 2.0 ** (-self.bits * distance)


EXERCISES: tuple[Exercise, ...] = (Recall(), Copy(), Associative())
