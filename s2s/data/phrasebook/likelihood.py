"""Likelihood of built-in sentences under their own grammar, in nats.

A reference for the loss of a language model trained on them.

A sentence is drawn by a sequence of choices with known probabilities, and the probability of the sequence is their
product. Choices without effect on the sentence are excluded: the noun that a name or pronoun replaces, and phrases that
are replaced.

The product estimates the probability of the sentence, and is rather too low, so the nats are rather too many: other
sequences may give the same sentence (a plain statement may happen to be one in the future), and after a rejected draw
the final draw counts as if none were ever rejected. The selection of distinct sentences and of a split is not included,
because it is not part of the grammar.
"""

import math
import random
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from s2s.data.phrasebook import draw_phrases, sentence
from s2s.data.phrasebook.clauses import Nominal
from s2s.data.phrasebook.lexicon import Noun
from s2s.data.phrasebook.scenes import Chooser, Item


class _Number(float):
    """A uniform random number in [0, 1) that records the outcome of comparisons.

    `low` and `high` are the interval to which the comparisons confine it.
    """

    low: float
    high: float

    def __new__(cls, value: float) -> "_Number":
        made = super().__new__(cls, value)
        made.low, made.high = 0.0, 1.0
        return made

    def __lt__(self, other: float) -> bool:
        return self._observe(other)

    def __le__(self, other: float) -> bool:
        return self._observe(other)

    def __gt__(self, other: float) -> bool:
        return not self._observe(other)

    def __ge__(self, other: float) -> bool:
        return not self._observe(other)

    def _observe(self, limit: float) -> bool:
        """Return True if the number is below a limit; equality has probability 0."""
        below = float(self) < limit
        if below:
            self.high = min(self.high, limit)
        else:
            self.low = max(self.low, limit)
        return below

    def __rmul__(self, parts: float) -> float:
        """Record the part that contains the number (only used in `int(parts * number)`)."""
        part = int(parts * float(self))
        self.low, self.high = part / parts, (part + 1) / parts
        return parts * float(self)

    __mul__ = None  # type: ignore[assignment]
    __hash__ = float.__hash__

    @property
    def nats(self) -> float:
        """−log of the probability of the recorded interval."""
        return -math.log(self.high - self.low)


class _Integers:
    """Replacement of a chooser's generator that reports the nats of each `randint`."""

    def __init__(self, generator: random.Random, tell: Callable[[float], None]) -> None:
        self._generator, self._tell = generator, tell

    def randint(self, low: int, high: int) -> int:
        """Return a random integer, both ends included."""
        self._tell(math.log(high - low + 1))
        return self._generator.randint(low, high)


class LikelihoodChooser(Chooser):
    """A `Chooser` that computes the probability of its choices.

    With an equal generator, it draws the same sentences as `Chooser`.
    """

    def __init__(self, generator: random.Random) -> None:
        super().__init__(generator)
        self._uniform = generator.random
        self._choices: list[float | _Number] = []
        self._latest: tuple[int, Sequence[Any], Sequence[float]] = (0, (), ())
        self._phrases: list[tuple[Nominal, int, int]] = []
        # A number that is compared has its final probability only when the sentence is complete.
        self.random = self._number  # type: ignore[assignment]
        self.generator: Any = _Integers(generator, self._choices.append)

    @property
    def nats(self) -> float:
        """−log of the probability of all choices since the sentence began."""
        return math.fsum(choice.nats if isinstance(choice, _Number) else choice for choice in self._choices)

    def begin(self) -> None:
        self._choices.clear()
        self._phrases.clear()

    def seen_as(self, alike: Callable[[Any], object]) -> None:
        place, items, shares = self._latest
        self._choices[place] = -math.log(sum(s for s, item in zip(shares, items, strict=True) if alike(item)))

    def unseen(self, phrase: object) -> None:
        for made, first, last in reversed(self._phrases):
            if made is phrase:
                self._choices[first:last] = [0.0] * (last - first)
                return

    def subject(self, options: Sequence[Noun], definite: bool = False, adjective: float = 0.45) -> Nominal:
        return self._phrase(lambda: super(LikelihoodChooser, self).subject(options, definite, adjective))

    def object(self, options: Sequence[Noun], subject: Nominal, denied: bool = False) -> Nominal:
        return self._phrase(lambda: super(LikelihoodChooser, self).object(options, subject, denied))

    def _phrase(self, draw: Callable[[], Nominal]) -> Nominal:
        first = len(self._choices)
        made = draw()
        self._phrases.append((made, first, len(self._choices)))
        return made

    def until(self, suits: Callable[[Item], Any], draw: Callable[[], Item]) -> Item:
        """Draw until an item satisfies the condition; rejected draws do not count."""
        before = len(self._choices)
        while not suits(item := draw()):
            del self._choices[before:]
        return item

    def pick(self, items: Sequence[Item]) -> Item:
        draw, count = self._uniform(), self.known(len(items))
        return self._chosen(items[:count], int(count * draw * (0.5 + 0.5 * draw)), _falling(count))

    def even(self, items: Sequence[Item]) -> Item:
        return self._chosen(items, int(len(items) * self._uniform()), (1 / len(items),) * len(items))

    def chance(self, probability: float) -> bool:
        happens = self._uniform() < probability
        self._choices.append(-math.log(probability if happens else 1 - probability))
        return happens

    def _number(self) -> float:
        number = _Number(self._uniform())
        self._choices.append(number)
        return number

    def _chosen(self, items: Sequence[Item], index: int, shares: Sequence[float]) -> Item:
        """Record a choice; the probabilities of repeated items are summed."""
        item = items[index]
        same = [other is item or (type(item) is str and other == item) for other in items]
        share = sum(each for each, equal in zip(shares, same, strict=True) if equal)
        self._latest = len(self._choices), items, shares
        self._choices.append(-math.log(share))
        return item


@cache
def _falling(count: int) -> tuple[float, ...]:
    """Return the probability of each item in `Chooser.pick`.

    Item i is drawn if count · d · (1 + d) / 2 is in [i, i + 1), for a uniform d.
    """
    ends = [(math.sqrt(1 + 8 * i / count) - 1) / 2 for i in range(count + 1)]
    return tuple(after - before for before, after in pairwise(ends))


class _Marked(Chooser):
    """Chooser that records the generator state before a sentence, to draw it again."""

    def begin(self) -> None:
        self.before = self.generator.getstate()


def grammar_nats(split: str, size: int, seed: int = 1) -> list[float]:
    """Compute −log probability in nats of each phrase of `phrases(split, size, seed)`."""
    choose, again, found = _Marked(random.Random(seed)), random.Random(), []
    for _ in draw_phrases(choose, split, size):
        again.setstate(choose.before)
        witness = LikelihoodChooser(again)
        sentence(witness)
        found.append(witness.nats)
    return found
