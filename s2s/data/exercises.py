"""Synthetic long-range tasks with exact answers: recall, copying, association.

The information to remember is a chosen distance from its use. Examples are a pure function of (distance, count, seed,
split). Token ids below `FIRST` are the special tokens of every tokenizer; no example has them.
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
    """Sources and targets as token ids, without special tokens.

    Attributes:
        sources: Token ids of each source.
        targets: Token ids of each target.
        rivals: For each target, a position in it and a token id that must be less probable there than the correct
            token; the answer is scored by this token alone. None if the whole target must be correct.
    """

    sources: list[list[int]]
    targets: list[list[int]]
    rivals: list[tuple[int, int]] | None = None

    def __len__(self) -> int:
        return len(self.sources)

    def pick(self, rows: list[int]) -> "Examples":
        """Return the examples of these rows, in that order.

        Args:
            rows: Rows of the examples.

        Returns:
            The chosen examples.
        """
        rivals = None if self.rivals is None else [self.rivals[i] for i in rows]
        return Examples([self.sources[i] for i in rows], [self.targets[i] for i in rows], rivals)


def concatenate(parts: list[Examples]) -> Examples:
    """Concatenate examples; `rivals` is None if no part has any.

    Args:
        parts: Examples in the order of the result.

    Returns:
        All examples.
    """
    rivals = [rival for part in parts for rival in part.rivals or ()]
    sources = [row for part in parts for row in part.sources]
    return Examples(sources, [row for part in parts for row in part.targets], rivals or None)


def unseen(examples: Examples, seen: Examples) -> Examples:
    """Remove examples whose source occurs among seen examples.

    A small space, such as that of a single symbol, has too few distinct sources to reserve some for a test. If fewer
    than half of the examples are new, all are returned.

    Args:
        examples: Examples to filter.
        seen: Examples whose sources are removed.

    Returns:
        The new examples, or all if fewer than half are new.
    """
    known = {tuple(row) for row in seen.sources}
    fresh = [i for i, row in enumerate(examples.sources) if tuple(row) not in known]
    return examples.pick(fresh) if len(fresh) >= len(examples) / 2 else examples


class Exercise(ABC):
    """Base class of a synthetic task, for every distance.

    Attributes:
        name: Name in lowercase letters, digits and hyphens.
        title: Short description of the task.
        unit: Unit of the distance.
        pieces: Vocabulary size of both sides, including special tokens.
        asking: Number of tokens at the end of the source that are answered by one target token each, in order, so that
            a linear head on the states there can answer; 0 if the task has no such tokens.
    """

    name: str
    title: str
    unit: str
    pieces: int
    asking: int = 0

    @abstractmethod
    def examples(self, distance: int, count: int, seed: int, split: Split = "train") -> Examples:
        """Generate examples of one distance.

        Args:
            distance: Distance in `unit`.
            count: Number of examples.
            seed: Seed; splits and seeds are separate random streams.
            split: `train`, `held-out` or `test`.

        Returns:
            The examples, as many as `count`.

        Raises:
            UserError: There is no example of this distance.
        """

    @abstractmethod
    def baseline(self, distance: int) -> float:
        """Return the best accuracy without reading the source.

        The answer depends on the task and the distance only.

        Args:
            distance: Distance in `unit`.

        Returns:
            Accuracy in [0, 1].
        """

    def _chance(self, distance: int, seed: int, split: Split) -> np.random.Generator:
        if distance < 1:
            raise UserError(f"{self.name} has no distance {distance}", remedy="give a distance of 1 or more")
        return np.random.default_rng([abs(seed), zlib.crc32(self.name.encode()), distance, _SPLITS.index(split)])


class Recall(Exercise):
    """First-token recall: a key followed by noise; the answer is the key.

    Keys and noise share no symbol. The number of keys decides how hard the task is for a recurrent network: of four
    small tanh networks trained with ten keys (and distances up to 32), two recalled them over every distance tested, up
    to 256; with 32 keys none of four did.

    Example:
        >>> examples = Recall().examples(distance=4, count=2, seed=1)
        >>> [len(source) for source in examples.sources], examples.targets == [s[:1] for s in examples.sources]
        ([5, 5], True)
    """

    name, title, unit = "recall", "first-token recall", "noise symbols after the key"
    keys, noise = 32, 32
    pieces = FIRST + keys + noise
    asking = 1

    def examples(self, distance: int, count: int, seed: int, split: Split = "train") -> Examples:
        """Generate keys, each followed by `distance` noise symbols."""
        chance = self._chance(distance, seed, split)
        key = FIRST + chance.integers(self.keys, size=(count, 1))
        noise = FIRST + self.keys + chance.integers(self.noise, size=(count, distance))
        return Examples(np.hstack((key, noise)).tolist(), key.tolist())

    def baseline(self, distance: int) -> float:
        return 1 / self.keys


class Copy(Exercise):
    """Copy memory task: symbols, blanks, a delimiter; the answer is the symbols.

    Source: Hochreiter & Schmidhuber 1997; as in Arjovsky et al. 2016.
    """

    name, title, unit = "copy", "copy memory", "blanks after the symbols"
    symbols, length = 8, 5
    blank, delimiter = FIRST + symbols, FIRST + symbols + 1
    pieces = FIRST + symbols + 2

    def examples(self, distance: int, count: int, seed: int, split: Split = "train") -> Examples:
        """Generate five symbols, `distance` blanks and the delimiter."""
        symbols = FIRST + self._chance(distance, seed, split).integers(self.symbols, size=(count, self.length))
        blanks = np.full((count, distance), self.blank)
        ends = np.full((count, 1), self.delimiter)
        return Examples(np.hstack((symbols, blanks, ends)).tolist(), symbols.tolist())

    def baseline(self, distance: int) -> float:
        return self.symbols**-self.length


class Associative(Exercise):
    """Multi-query associative recall (Arora et al. 2023).

    The source has keys with their values, noise, then some of the keys; the answer is the values of these keys.
    """

    name, title, unit = "associative", "multi-query associative recall", "noise symbols after the pairs"
    keys, values, noise = 12, 8, 4
    pairs, queries = 4, 2
    pieces = FIRST + keys + values + noise
    asking = queries

    def examples(self, distance: int, count: int, seed: int, split: Split = "train") -> Examples:
        """Generate four keys with a value each, `distance` noise symbols and two keys."""
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
        """Return the accuracy of guessing both values: 8⁻²."""
        return self.values**-self.queries


class Symbols(Exercise):
    """Copying of random symbols, to measure memory capacity.

    The distance is the number of symbols.
    """

    name, title, unit = "symbols", "copying random symbols", "symbols"
    bits = 4
    pieces = FIRST + 2**bits

    def examples(self, distance: int, count: int, seed: int, split: Split = "train") -> Examples:
        """Generate `distance` symbols of four bits each; the answer is the same symbols."""
        symbols = FIRST + self._chance(distance, seed, split).integers(2**self.bits, size=(count, distance))
        return Examples(symbols.tolist(), symbols.tolist())

    def baseline(self, distance: int) -> float:
        """Return the accuracy of guessing every symbol: 2 to the power of −4 · `distance`."""
        return 2.0 ** (-self.bits * distance)


EXERCISES: tuple[Exercise, ...] = (Recall(), Copy(), Associative())
