"""Synthetic long-range tasks with exact answers: recall, copying, associative recall.

The distance between information and its use is a parameter. Examples are a pure function of (distance, count, seed,
split). Token ids below `FIRST` are the special tokens of every tokenizer; no example has them.
"""

import itertools
import math
import re
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

from s2s.data.phrasebook import Phrase, phrases
from s2s.data.phrasebook.german import SINGULAR, THEY, present, preterite
from s2s.data.phrasebook.lexicon import verbs
from s2s.data.tokenizers import SPECIAL_TOKENS, train_pair
from s2s.errors import UserError
from s2s.recipe.schema import TokenizerSettings

FIRST = len(SPECIAL_TOKENS)
Split = Literal["train", "held-out", "test"]
_SPLITS: tuple[Split, ...] = ("train", "held-out", "test")


@dataclass(frozen=True)
class Examples:
    """Sources and targets as token ids, without special tokens."""

    sources: list[list[int]]  # token ids of each source
    targets: list[list[int]]  # token ids of each target
    # for each target, a position in it and a token id that must be less probable there than the correct token; the
    # answer is scored by this token alone. None if the whole target must be correct.
    rivals: list[tuple[int, int]] | None = None

    def __len__(self) -> int:
        return len(self.sources)

    def pick(self, rows: list[int]) -> "Examples":
        """Return the examples of these rows, in that order."""
        rivals = None if self.rivals is None else [self.rivals[i] for i in rows]
        return Examples([self.sources[i] for i in rows], [self.targets[i] for i in rows], rivals)


def concatenate(parts: list[Examples]) -> Examples:
    """Concatenate examples; `rivals` is None if no part has any."""
    rivals = [rival for part in parts for rival in part.rivals or ()]
    sources = [row for part in parts for row in part.sources]
    return Examples(sources, [row for part in parts for row in part.targets], rivals or None)


def unseen(examples: Examples, seen: Examples) -> Examples:
    """Remove examples whose source occurs among seen examples.

    If fewer than half of the examples are new, all are returned: a task with few distinct sources, such as single
    symbols, has none to reserve for a test.
    """
    known = {tuple(row) for row in seen.sources}
    fresh = [i for i, row in enumerate(examples.sources) if tuple(row) not in known]
    return examples.pick(fresh) if len(fresh) >= len(examples) / 2 else examples


class Exercise(ABC):
    """Base class of a synthetic task, for every distance."""

    name: str  # name in lowercase letters, digits and hyphens
    title: str  # short description of the task
    unit: str  # unit of the distance
    vocabulary_size: int  # vocabulary size of both sides, including special tokens
    # number of tokens at the end of the source that are answered by one target token each, in order, so that a linear
    # head on the states there can answer; 0 if the task has no such tokens
    asking: int = 0

    @abstractmethod
    def examples(self, distance: int, count: int, seed: int, split: Split = "train") -> Examples:
        """Generate examples of one distance.

        Args:
            distance: Distance in `unit`.
            count: Number of examples.
            seed: Seed; splits and seeds are separate random streams.
            split: `train`, `held-out` or `test`.
        """

    @abstractmethod
    def baseline(self, distance: int) -> float:
        """Return the best accuracy, in [0, 1], without reading the source."""

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
    vocabulary_size = FIRST + keys + noise
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
    vocabulary_size = FIRST + symbols + 2

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
    vocabulary_size = FIRST + keys + values + noise
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


EXERCISES: tuple[Exercise, ...] = (Recall(), Copy(), Associative())


CLAUSE = 4  # German words per relative clause
_PARTS = {"train": "train", "held-out": "validation", "test": "test"}
_READ = ((0, 4_000), (1, 4_000), (2, 4_000))  # (depth, number of sentences) in which all words occur
_MOST_WORDS = 2_000
_COUNTED = 1_000


class Agreement(Exercise):
    """Subject-verb agreement across `distance` / 4 relative clauses, in translation.

    An answer is scored by the German verb alone, as in contrastive evaluation (Sennrich 2017; Tang et al. 2018): given
    the true translation before it, its form must be more probable than the one in the other number. The sentences are
    from the built-in corpus. Each word and each punctuation mark is a token, in lower case; the vocabulary does not
    depend on the seed.
    """

    name, title, unit = "agreement", "agreement across clauses, in translation", "words between subject and verb"

    def __init__(self) -> None:
        sentences = [phrase for depth, size in _READ for phrase in phrases("train", size, depth=depth)]
        settings = TokenizerSettings(kind="word", size=_MOST_WORDS, lowercase=True)
        # Both forms of each verb are added, so that the rival form always has a token.
        forms = [" ".join(pair) for pair in sorted(_numbers())]
        targets = [*(_spaced(phrase.target) for phrase in sentences), *forms]
        self.tokenizer = train_pair([_spaced(phrase.source) for phrase in sentences], targets, settings)[0]
        self.vocabulary_size = self.tokenizer.size

    def examples(self, distance: int, count: int, seed: int, split: Split = "train") -> Examples:
        """Draw sentence pairs `distance` German words apart; each sentence belongs to one split, whatever the seed.

        Returns:
            The pairs in token ids; the rival of each is its verb in the other number.

        Raises:
            UserError: `distance` is not a multiple of 4, or there are too few sentences.
        """
        sentences = _sentences(distance, count, seed, split)
        agreeing = [agreeing_verb(phrase) for phrase in sentences]
        rivals = self.tokenizer.encode_batch([other for _, _, other in agreeing])
        return Examples(
            self.tokenizer.encode_batch([_spaced(phrase.source) for phrase in sentences]),
            self.tokenizer.encode_batch([_spaced(phrase.target) for phrase in sentences]),
            [(place, rival[0]) for (place, _, _), rival in zip(agreeing, rivals, strict=True)],
        )

    def baseline(self, distance: int) -> float:
        """Return the share of the more frequent number in 1,000 training sentences."""
        return _majority(distance)


@cache
def _majority(distance: int) -> float:
    """Return the accuracy of always answering the number that is more frequent in 1,000 sentences."""
    many = (
        sum(agreeing_verb(phrase)[1] in _plurals() for phrase in _sentences(distance, _COUNTED, 1, "train")) / _COUNTED
    )
    return max(many, 1 - many)


@cache
def verbs_alike(distance: int) -> float:
    """Compute how often the agreeing verb has the number of the verb before it.

    The verb before it is that of the last relative clause. Without a clause, the subject itself precedes the verb and
    determines its number.
    """
    if not distance:
        return 1.0
    alike = 0
    for phrase in _sentences(distance, _COUNTED, 1, "train"):
        place, form, _ = agreeing_verb(phrase)
        # A comma is between the two verbs. Third-person plurals of these verbs end in n, or are "sind".
        before = _spaced(phrase.target).split()[place - 2]
        alike += (form in _plurals()) == before.endswith(("n", "sind"))
    return alike / _COUNTED


def agreeing_verb(phrase: Phrase) -> tuple[int, str, str]:
    """Find the verb that agrees with the subject of an `agreement` sentence.

    The verb is the finite verb of the main clause: the word after the last comma, or after the subject if there is no
    comma.

    Returns:
        Its position among the German words and punctuation marks, its form, and its form in the other number.
    """
    words = _spaced(phrase.target).split()
    commas = [place for place, word in enumerate(words) if word == ","]
    # Without a relative clause, article and noun precede the verb.
    place = commas[-1] + 1 if commas else 2
    return place, words[place], _swap_numbers()[words[place]]


@cache
def _swap_numbers() -> dict[str, str]:
    pairs = _numbers()
    return {one: many for one, many in pairs} | {many: one for one, many in pairs}


@cache
def _numbers() -> frozenset[tuple[str, str]]:
    """Return third persons, singular and plural, of all verbs that can agree."""
    forms = [verb.present for verb in verbs("intransitive")]
    forms += [present(auxiliary) for auxiliary in ("sein", "haben", "werden")] + [preterite("sein")]
    return frozenset((form[SINGULAR], form[THEY]) for form in forms)


@cache
def _plurals() -> frozenset[str]:
    return frozenset(many for _, many in _numbers())


def _sentences(distance: int, count: int, seed: int, split: Split) -> list[Phrase]:
    if distance % CLAUSE:
        what = f"no sentence has {distance} words between subject and verb"
        raise UserError(what, remedy=f"give a multiple of {CLAUSE}")
    return phrases(_PARTS[split], count, seed, depth=distance // CLAUSE)


def _spaced(text: str) -> str:
    """Separate punctuation from words, so that a verb is one token everywhere."""
    return re.sub(r"([,.!?])", r" \1", text)


@dataclass(frozen=True)
class Cheat:
    """A shortcut baseline."""

    how: str  # description: predicate of a sentence about the baseline
    # function from the distance to the accuracy, in [0, 1]; 1 if the shortcut suffices at that distance
    accuracy: Callable[[int], float]


@cache
def _associative(distance: int) -> float:
    """Return the accuracy of answering the most frequent pair of stored values.

    Averaged over all values that can be stored; the pair is at two different positions.
    """
    total = 0
    for values in itertools.product(range(Associative.values), repeat=Associative.pairs):
        asked = Counter(itertools.permutations(values, Associative.queries))
        total += max(asked.values())
    ways = math.perm(Associative.pairs, Associative.queries)
    return total / ways / Associative.values**Associative.pairs


CHEATS: dict[str, Cheat] = {
    "recall": Cheat("knows all but the first symbol", lambda distance: 1 / Recall.keys),
    # The correct symbols in a random order: each multiset contributes the probability of a single order.
    "copy": Cheat(
        "knows the symbols and their counts, but not their order",
        lambda distance: math.comb(Copy.symbols + Copy.length - 1, Copy.length) / Copy.symbols**Copy.length,
    ),
    "associative": Cheat("knows the stored values, but not their keys", _associative),
    # The better of two accuracies: the verb of a single relative clause has the number of the subject.
    "agreement": Cheat(
        "gives the verb the number of the previous verb",
        lambda distance: max(verbs_alike(distance), _majority(distance)),
    ),
}
"""Shortcut baselines by name of the exercise: the best accuracy of a strategy that does not do the exercise.

They use parts of the source, such as values without keys or symbols without order, so their accuracy is higher than
that of `Exercise.baseline`, which reads nothing. Each is computed exactly, for one distance."""
