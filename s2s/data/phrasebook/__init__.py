"""The built-in parallel corpus: English and German sentences from one synchronous grammar.

Lexicon and grammar are our own. ``lexicon.toml`` has the words and how often each is drawn, ``english`` and ``german``
inflect them, ``clauses`` renders a structure in both languages, ``chooser`` and ``scenes`` draw structures, and
``patterns`` has a function for each kind of sentence.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import TypeVar

from s2s.data.phrasebook.acceptability import judged
from s2s.data.phrasebook.chooser import Chooser
from s2s.data.phrasebook.german import cases_of, unmarked
from s2s.data.phrasebook.patterns import PATTERNS, agreement
from s2s.data.phrasebook.plurals import singular_and_plural
from s2s.data.phrasebook.scenes import Draft
from s2s.errors import UserError

SPLITS = ("train", "validation", "test")
CONSTRUCTIONS: tuple[str, ...] = tuple(PATTERNS)
_HELD_OUT = 4  # per cent of all sentences in each of validation and test
_PATIENCE = 5_000  # fruitless draws in a row after which a depth counts as exhausted
_DEEPEST = 20  # relative clauses; already eighty words between subject and verb


@dataclass(frozen=True)
class Phrase:
    """A sentence and its translation.

    ``construction`` is one of ``CONSTRUCTIONS``. ``distance`` counts the German words between the two ends of the
    longest dependency: subject noun and agreeing verb, or finite verb and its prefix, participle or infinitive; 0
    where there is none. ``cases`` has a word for each German one: its case (``nom``, ``acc``, ``dat``, ``gen``) in the
    noun phrases, names and pronouns of those that take part in what happens; ``-`` elsewhere, so for verbs and
    conjunctions, but also in expressions of time, weather and quantity.
    """

    source: str
    target: str
    cases: str
    construction: str
    distance: int


@cache
def _constructions(numbers: bool) -> tuple[str, ...]:
    """Each as often as its weight says; without those of numbers, which German writes as one word each."""
    drawn = [name for name, (weight, _) in PATTERNS.items() for _ in range(weight)]
    return tuple(name for name in drawn if numbers or name != "number")


def split_of(source: str) -> str:
    """Give the split a sentence belongs to, for good: it depends on nothing but its letters."""
    bucket = int.from_bytes(blake2b(source.encode(), digest_size=8).digest(), "big") % 100
    return "validation" if bucket < _HELD_OUT else "test" if bucket < 2 * _HELD_OUT else "train"


def _finish(text: str) -> str:
    """Capitalise, end with a full stop unless something ends it already, and drop doubled commas."""
    for doubled, single in ((",,", ","), (",.", "."), (",!", "!"), (",?", "?")):
        text = text.replace(doubled, single)
    text = text.removesuffix(",")
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?" else ".")


def phrases(split: str, size: int, seed: int = 1, *, depth: int | None = None, words: float = 1.0) -> list[Phrase]:
    """Give the first distinct phrases of a split.

    A sentence belongs to one split whatever the seed and the size, and a larger size begins with the phrases of a
    smaller one.

    Args:
        split: ``"train"``, ``"validation"`` or ``"test"``.
        size: how many, 0 or more.
        seed: which stream of random sentences.
        depth: when given, only sentences of the construction ``"agreement"`` with exactly this many relative clauses
            between subject and verb, four German words each; 0 to 20.
        words: share of the nouns, verbs, adjectives and adverbs of each kind that occur, at least two of each; numbers
            in words, of which there are thousands, occur only with all of them.

    Raises:
        UserError: for an unknown split, a negative size, a depth out of range, or more phrases than there are.
    """
    if depth is not None and not 0 <= depth <= _DEEPEST:
        raise UserError(f"depth {depth} is out of range", remedy=f"give a depth from 0 to {_DEEPEST}")
    return list(draw_phrases(Chooser(random.Random(seed), words), split, size, depth))


def sentence(choose: Chooser, depth: int | None = None) -> tuple[str, Draft]:
    """Draw one sentence: its construction, and what is in `scenes.Draft`."""
    if depth is not None:
        return "agreement", agreement(choose, depth)
    construction = choose.even(_constructions(numbers=choose.words == 1))
    return construction, PATTERNS[construction][1](choose)


def draw_phrases(choose: Chooser, split: str, size: int, depth: int | None = None) -> Iterator[Phrase]:
    """Give distinct phrases of a split as they are drawn; see `phrases`. Before each draw, `choose.begin` is called."""

    def draw() -> tuple[str, Phrase]:
        """Give the English sentence, and what is made of it."""
        choose.begin()
        construction, (english, german, distance) = sentence(choose, depth)
        source, target = _finish(english), _finish(german)
        return source, Phrase(source, unmarked(target), cases_of(target), construction, distance)

    return distinct(draw, split, size, "phrases", "" if depth is None else f" at depth {depth}")


@dataclass(frozen=True)
class Numbered:
    """A German sentence about one, and the same about several."""

    singular: str
    plural: str


def numbered(split: str, size: int, seed: int = 1, *, words: float = 1.0) -> list[Numbered]:
    """Give the first distinct sentences about one, each with its plural; of the rest see `phrases`."""
    choose = Chooser(random.Random(seed), words)

    def draw() -> tuple[str, Numbered]:
        """Give the English sentence, and what is made of it."""
        one, several = singular_and_plural(choose)
        return _finish(one[0]), Numbered(*(unmarked(_finish(german)) for _, german, _ in (one, several)))

    return list(distinct(draw, split, size, "sentences about one"))


ACCEPTABILITY = ("acceptable", "unacceptable")


@dataclass(frozen=True)
class Judged:
    """A German sentence, whether it is `acceptable` or `unacceptable`, and which rule broke it, `""` for none."""

    sentence: str
    judgement: str
    rule: str


def judgements(split: str, size: int, seed: int = 1, *, words: float = 1.0) -> list[Judged]:
    """Give the first distinct sentences with their judgements; of the rest see `phrases`.

    A sentence and what a rule makes of it belong to the same split, and only one of them is there.
    """
    choose = Chooser(random.Random(seed), words)

    def draw() -> tuple[str, Judged]:
        """Give the English sentence, and what is made of it."""
        (english, german, _), rule = judged(choose)
        return _finish(english), Judged(unmarked(_finish(german)), ACCEPTABILITY[bool(rule)], rule)

    return list(distinct(draw, split, size, "judged sentences"))


Drawn = TypeVar("Drawn")


def distinct(
    draw: Callable[[], tuple[str, Drawn]], split: str, size: int, noun: str, where: str = ""
) -> Iterator[Drawn]:
    """Draw until there are so many with different English sentences, by which they belong to a split.

    Raises:
        UserError: for an unknown split, a negative size, or more than there are.
    """
    if split not in SPLITS:
        raise UserError(f"the built-in corpus has no split {split!r}", remedy=f"choose one of {', '.join(SPLITS)}")
    if size < 0:
        raise UserError(f"a corpus of {size} {noun} cannot be made", remedy="give a size of 0 or more")
    known: set[str] = set()
    fruitless = 0
    while len(known) < size:
        source, found = draw()
        if source not in known and split_of(source) == split:
            known.add(source)
            yield found
            fruitless = 0
        elif (fruitless := fruitless + 1) > _PATIENCE:
            raise UserError(
                f"the {split} split has no more than about {len(known):,} {noun}, {size:,} were asked for{where}",
                remedy="ask for fewer" + (" or for a larger depth" if where else ""),
            )
