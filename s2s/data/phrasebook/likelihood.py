"""How probable the built-in grammar's sentences are: what a model of them cannot do without.

A sentence is drawn by a sequence of choices whose probabilities are all known, so the probability of the sequence is
their product, and choices that nobody hears of are left out of it: which noun a name or a pronoun stands for, and
phrases that are replaced. That is an estimate of the sentence's own probability, and rather too low a one, so that its
−log is rather too many nats: other sequences may end in the same sentence (a plain statement may happen to be one in
the future), and what is drawn again because it did not suit is counted as if all had suited. That the sentences of a
corpus are different ones and belong to one split is no part of it: the grammar knows of neither.
"""

import math
import random
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from s2s.data.phrasebook import draw_phrases, sentence
from s2s.data.phrasebook.chooser import Chooser, Item
from s2s.data.phrasebook.clauses import Nominal
from s2s.data.phrasebook.lexicon import Noun


class _Number(float):
    """A number drawn evenly between 0 and 1, with the interval that all it was compared with puts it in."""

    low: float
    high: float

    def __new__(cls, value: float) -> "_Number":
        """The number, of which nobody knows anything yet."""
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
        """Whether it lies below a limit; that it equals one has no probability."""
        below = float(self) < limit
        if below:
            self.high = min(self.high, limit)
        else:
            self.low = max(self.low, limit)
        return below

    def __rmul__(self, parts: float) -> float:
        """One of so many equal parts of the interval: only `int(parts * number)` is made of it."""
        part = int(parts * float(self))
        self.low, self.high = part / parts, (part + 1) / parts
        return parts * float(self)

    __mul__ = None  # type: ignore[assignment]
    __hash__ = float.__hash__

    @property
    def nats(self) -> float:
        """−log of the probability that it lies where it is known to lie."""
        return -math.log(self.high - self.low)


class _Integers:
    """In the place of a chooser's generator: `randint` as it is, told to the chooser."""

    def __init__(self, generator: random.Random, tell: Callable[[float], None]) -> None:
        self._generator, self._tell = generator, tell

    def randint(self, low: int, high: int) -> int:
        """One of the numbers, both ends included, all equally often."""
        self._tell(math.log(high - low + 1))
        return self._generator.randint(low, high)


class LikelihoodChooser(Chooser):
    """Chooses as `Chooser` does by the same generator, and knows how probable the choices of a sentence were."""

    def __init__(self, generator: random.Random) -> None:
        super().__init__(generator)
        self._uniform = generator.random
        self._choices: list[float | _Number] = []
        self._latest: tuple[int, Sequence[Any], Sequence[float]] = (0, (), ())
        self._phrases: list[tuple[Nominal, int, int]] = []
        # what is compared knows its probability only when the sentence is complete
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
        """Keeps which choices made a phrase."""
        first = len(self._choices)
        made = draw()
        self._phrases.append((made, first, len(self._choices)))
        return made

    def until(self, suits: Callable[[Item], Any], draw: Callable[[], Item]) -> Item:
        """As elsewhere; of what did not suit nothing is counted."""
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
        """An item that stands several times in a list is as probable as all of its places together."""
        item = items[index]
        same = [other is item or (type(item) is str and other == item) for other in items]
        share = sum(each for each, equal in zip(shares, same, strict=True) if equal)
        self._latest = len(self._choices), items, shares
        self._choices.append(-math.log(share))
        return item


@cache
def _falling(count: int) -> tuple[float, ...]:
    """The probability of each of so many items in `Chooser.pick`: item i for count · d · (1 + d) / 2 in [i, i + 1)."""
    ends = [(math.sqrt(1 + 8 * i / count) - 1) / 2 for i in range(count + 1)]
    return tuple(after - before for before, after in pairwise(ends))


class _Marked(Chooser):
    """Keeps where its generator stood before the sentence, so that it can be drawn once more."""

    def begin(self) -> None:
        self.before = self.generator.getstate()


def grammar_nats(split: str, size: int, seed: int = 1) -> list[float]:
    """For each phrase of `phrases(split, size, seed)`, about how many nats the grammar needs for its English.

    Raises:
        UserError: see `phrases`.
    """
    choose, again, found = _Marked(random.Random(seed)), random.Random(), []
    for _ in draw_phrases(choose, split, size):
        again.setstate(choose.before)
        witness = LikelihoodChooser(again)
        sentence(witness)
        found.append(witness.nats)
    return found
