"""Built-in parallel corpus: English and German from one synchronous grammar.

`phrases` generates sentence pairs, `numbered` singular/plural pairs, `judgements` sentences with acceptability labels.

Lexicon and grammar were written for s2s. `lexicon.toml` has the words and how often each is drawn, `english` and
`german` inflect them, `clauses` renders a structure in both languages, `scenes` draws structures, and
`patterns` has a function for each kind of sentence.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from hashlib import blake2b
from typing import TypeVar

from s2s.data.phrasebook.clauses import noun_phrase
from s2s.data.phrasebook.german import cases_of, unmarked
from s2s.data.phrasebook.lexicon import Noun, verbs
from s2s.data.phrasebook.patterns import PATTERNS, agreement
from s2s.data.phrasebook.scenes import Chooser, Draft, any_clause, statement, time_kinds
from s2s.errors import UserError

SPLITS = ("train", "validation", "test")
CONSTRUCTIONS: tuple[str, ...] = tuple(PATTERNS)
_HELD_OUT = 4  # Per cent of all sentences, for validation and for test.
_PATIENCE = 5_000  # Draws in a row without a new sentence after which a corpus counts as exhausted.
_CACHED = 2_000  # Phrases of the largest corpus that is cached in memory (about 1 MB).
_DEEPEST = 20  # Relative clauses; eighty words between subject and verb.


@dataclass(frozen=True)
class Phrase:
    """A sentence and its translation."""

    source: str  # English
    target: str  # German
    # case of each German word (`nom`, `acc`, `dat`, `gen`) in noun phrases, names and pronouns that are arguments of
    # the verb; `-` for all other words, such as verbs and conjunctions, but also in expressions of time, weather and
    # quantity
    cases: str
    construction: str  # one of `CONSTRUCTIONS`
    # number of German words between the two ends of the longest dependency (subject noun and agreeing verb, or finite
    # verb and its prefix, participle or infinitive); 0 if there is none
    distance: int


@cache
def _constructions(numbers: bool) -> tuple[str, ...]:
    """Return each construction as often as its weight.

    Number words are optional, because German writes each number as one word.
    """
    drawn = [name for name, (weight, _) in PATTERNS.items() for _ in range(weight)]
    return tuple(name for name in drawn if numbers or name != "number")


def split_of(source: str) -> str:
    """Return the split of a sentence, which depends on a hash of its letters only.

    Example:
        >>> split_of("The old man sleeps.")
        'train'
    """
    bucket = int.from_bytes(blake2b(source.encode(), digest_size=8).digest(), "big") % 100
    return "validation" if bucket < _HELD_OUT else "test" if bucket < 2 * _HELD_OUT else "train"


def _finish(text: str) -> str:
    """Capitalize, end with a full stop if there is no end mark, drop doubled commas."""
    for doubled, single in ((",,", ","), (",.", "."), (",!", "!"), (",?", "?")):
        text = text.replace(doubled, single)
    text = text.removesuffix(",")
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?" else ".")


def phrases(split: str, size: int, seed: int = 1, *, depth: int | None = None, words: float = 1.0) -> list[Phrase]:
    """Generate the first distinct sentence pairs of a split.

    A sentence belongs to one split whatever the seed and the size, and a larger size begins with the phrases of a
    smaller one.

    Args:
        split: `train`, `validation` or `test`.
        size: Number of phrases, 0 or more.
        seed: Seed of the stream of sentences.
        depth: Generate only sentences of the construction `agreement` with this number of relative clauses (0 to 20)
            between subject and verb, four German words each; None for all constructions.
        words: Share of the nouns, verbs, adjectives and adverbs of each kind that occur, at least two of each. Numbers
            in words, of which there are thousands, occur only if it is 1.

    Example:
        >>> phrase = phrases("train", 1, depth=2)[0]
        >>> phrase.construction, phrase.distance
        ('agreement', 8)
    """
    if depth is not None and not 0 <= depth <= _DEEPEST:
        raise UserError(f"depth {depth} is out of range", remedy=f"give a depth from 0 to {_DEEPEST}")
    if size > _CACHED:
        return list(draw_phrases(Chooser(random.Random(seed), words), split, size, depth))
    return list(_small_corpus(split, size, seed, depth, words))


# A validation set takes seconds, since one of 25 sentences belongs to it, and each run of a sweep reads the same one.
@lru_cache(maxsize=16)
def _small_corpus(split: str, size: int, seed: int, depth: int | None, words: float) -> tuple[Phrase, ...]:
    return tuple(draw_phrases(Chooser(random.Random(seed), words), split, size, depth))


def sentence(choose: Chooser, depth: int | None = None) -> tuple[str, Draft]:
    """Draw one sentence; return its construction and draft. `depth` as in `phrases`."""
    if depth is not None:
        return "agreement", agreement(choose, depth)
    construction = choose.even(_constructions(numbers=choose.words == 1))
    return construction, PATTERNS[construction][1](choose)


def draw_phrases(choose: Chooser, split: str, size: int, depth: int | None = None) -> Iterator[Phrase]:
    """Yield distinct phrases of a split as they are drawn; see `phrases`.

    `choose.begin` is called before each draw. For the arguments and errors see `phrases`.
    """

    def draw() -> tuple[str, Callable[[], Phrase]]:
        choose.begin()
        construction, (english, german, distance) = sentence(choose, depth)
        source = _finish(english)

        def phrase() -> Phrase:
            target = _finish(german)
            return Phrase(source, unmarked(target), cases_of(target), construction, distance)

        return source, phrase

    return distinct(draw, split, size, "phrases", "" if depth is None else f" at depth {depth}")


@dataclass(frozen=True)
class Numbered:
    """A German sentence with a singular subject, and the same in the plural."""

    singular: str  # sentence about one
    plural: str  # the same sentence about several


def numbered(split: str, size: int, seed: int = 1, *, words: float = 1.0) -> list[Numbered]:
    """Generate the first distinct singular/plural pairs of a split; see `phrases`.

    Example:
        >>> pair = numbered("train", 1)[0]
        >>> pair.singular != pair.plural
        True
    """
    choose = Chooser(random.Random(seed), words)

    def draw() -> tuple[str, Callable[[], Numbered]]:
        one, several = singular_and_plural(choose)
        return _finish(one[0]), lambda: Numbered(*(unmarked(_finish(german)) for _, german, _ in (one, several)))

    return list(distinct(draw, split, size, "sentences about one"))


ACCEPTABILITY = ("acceptable", "unacceptable")


@dataclass(frozen=True)
class Judged:
    """A German sentence with an acceptability label."""

    sentence: str
    judgement: str  # `acceptable` or `unacceptable`
    rule: str  # name of the rule that made it unacceptable; empty if it is acceptable


def judgements(split: str, size: int, seed: int = 1, *, words: float = 1.0) -> list[Judged]:
    """Generate the first distinct sentences with acceptability labels; see `phrases`.

    A sentence and its unacceptable version belong to the same split, and only one of them occurs.

    Example:
        >>> {judged.judgement for judged in judgements("train", 20)} == set(ACCEPTABILITY)
        True
    """
    from s2s.data.phrasebook.acceptability import judged

    choose = Chooser(random.Random(seed), words)

    def draw() -> tuple[str, Callable[[], Judged]]:
        (english, german, _), rule = judged(choose)
        return _finish(english), lambda: Judged(unmarked(_finish(german)), ACCEPTABILITY[bool(rule)], rule)

    return list(distinct(draw, split, size, "judged sentences"))


Item = TypeVar("Item")


def distinct(
    draw: Callable[[], tuple[str, Callable[[], Item]]], split: str, size: int, item_name: str, where: str = ""
) -> Iterator[Item]:
    """Draw until there are enough distinct sentences of a split.

    `draw` returns a sentence and a function that makes its item, which is called only if the sentence is yielded.
    """
    if split not in SPLITS:
        raise UserError(f"the built-in corpus has no split {split!r}", remedy=f"choose one of {', '.join(SPLITS)}")
    if size < 0:
        raise UserError(f"a corpus of {size} {item_name} cannot be made", remedy="give a size of 0 or more")
    known: set[str] = set()
    fruitless = 0
    while len(known) < size:
        source, make_item = draw()
        if source not in known and split_of(source) == split:
            known.add(source)
            yield make_item()
            fruitless = 0
        elif (fruitless := fruitless + 1) > _PATIENCE:
            what = (
                f"the {split} split has no more than about {len(known):,} {item_name}, {size:,} were asked for{where}"
            )
            raise UserError(what, remedy="ask for fewer" + (" or for a larger depth" if where else ""))


# Each has a single form in the singular, and a single one in the plural.
_DETERMINERS = ("the", "the", "a", "this", "my", "his", "our", "no")
_TABLES = ("transitive", "transitive", "intransitive", "dative", "oblique", "motion", "position")
_TENSES = ("present", "present", "past", "perfect", "future", "can", "must")


def _countable(nouns: tuple[Noun, ...]) -> tuple[Noun, ...]:
    """Return the nouns that have a plural in German."""
    return tuple(noun for noun in nouns if noun.german[4])


def singular_and_plural(choose: Chooser) -> tuple[Draft, Draft]:
    """Draw a sentence with a singular subject.

    Returns:
        The drafts of the sentence and of the same sentence in the plural.
    """
    verb = choose.pick([verb for verb in verbs(choose.even(_TABLES)) if _countable(verb.subjects)])
    noun = choose.pick(_countable(verb.subjects))
    word, adjective = choose.even(_DETERMINERS), choose.adjective(noun, 0.5)
    one, several = (noun_phrase(noun, word, adjective, plural) for plural in (False, True))
    denied = 0 if word == "no" else 0.1
    clause = any_clause(choose, verb=verb, tense=choose.even(_TENSES), denied=denied, time=0.3, subject=one)
    kinds = time_kinds(clause.tense)
    early = kinds and clause.time is None and not verb.state and choose.chance(0.4)
    front = choose.time(*kinds) if early else None
    return statement(clause, front), statement(replace(clause, subject=several), front)
