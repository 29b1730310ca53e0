"""Random phrases for the built-in corpus: who, what, when and where, and how often each is said."""

import random
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TypeVar

from s2s.data import phrasebook_words as tables
from s2s.data.phrasebook_clauses import Nominal, coordinate, name, noun_phrase, owned, possessed, pronoun
from s2s.data.phrasebook_english import number_words
from s2s.data.phrasebook_english import ordinal as english_ordinal
from s2s.data.phrasebook_german import ACCUSATIVE, DATIVE, FIRST, MASCULINE, WE, number_word, ordinal
from s2s.data.phrasebook_lexicon import Adjective, Adverb, Noun, Verb, adjectives, adverbs, nouns, pairs

Item = TypeVar("Item")


def menu(weights: Mapping[Item, int]) -> tuple[Item, ...]:
    """Repeat each item as often as its weight says, for even draws."""
    return tuple(item for item, weight in weights.items() for _ in range(weight))


_OWN = {"my": 2, "his": 2, "her": 2, "our": 2, "your": 1, "their": 2}
_SINGULAR = menu({"the": 12, "a": 8, "this": 3, "every": 2, **_OWN})
_COUNTS = {
    "all": 1,
    "many": 2,
    "some": 2,
    "several": 1,
    "both": 1,
    "two": 2,
    "three": 2,
    "four": 1,
    "five": 1,
    "ten": 1,
}
_PLURAL = menu({"the": 9, "a": 3, "this": 3, **_COUNTS, **_OWN})
DEFINITE = menu({"the": 10, "this": 2, **_OWN})
_DENIED = menu({"not a": 8, "the": 10, "this": 2, **_OWN})
PLACED = ("the", "the", "the", "the", "a", "this", "our")
_OBJECT_PRONOUNS = ("I", "you", "he", "he", "she", "she", "we", "they")
_SUBJECT_PRONOUNS = menu({"I": 4, "he": 3, "she": 3, "we": 3, "they": 3})
_MASS = frozenset({"drink", "mass"})
_ONE_EACH = frozenset({"mother", "father"})  # my fathers would be too many
_GIFTS = frozenset({"animal", "text", "clothes", "vehicle", "standing", "lying", "idea"})  # nouns with an owner

# English preposition, German preposition, case, class of the noun
_DIRECTIONS = {
    "into": ("into", "in", ACCUSATIVE, "place"),
    "to": ("to", "zu", DATIVE, "spot"),
    "out": ("out of", "aus", DATIVE, "place"),
    "through": ("through", "durch", ACCUSATIVE, "place"),
    "onto": ("onto", "auf", ACCUSATIVE, "surface"),
    "jumped": ("over", "über", ACCUSATIVE, "surface"),
    "flown": ("over", "über", ACCUSATIVE, "place"),
}
_ROADS = {
    "go": ("into", "into", "to", "to", "out"),
    "run": ("into", "to", "out", "through"),
    "drive": ("to", "through"),
    "walk": ("through",),
    "jump": ("onto", "jumped"),
    "climb": ("onto",),
    "fly": ("flown",),
}
_OPEN_AIR = ("park", "forest", "garden", "city", "village")
_RELATIONS = {
    ("on", "auf"): 3, ("under", "unter"): 1, ("next to", "neben"): 2, ("behind", "hinter"): 1, ("in front of", "vor"): 1
}  # fmt: skip


@cache
def people() -> tuple[Nominal, ...]:
    """Give the names of persons."""
    return tuple(name(word, word, MASCULINE) for word in tables.NAMES.split())


class Chooser:
    """Draws words and phrases at random; whatever it gives is grammatical and makes sense.

    Args:
        generator: the source of randomness.
    """

    def __init__(self, generator: random.Random) -> None:
        self.generator = generator
        self.random = generator.random

    def pick(self, items: Sequence[Item]) -> Item:
        """Give one of the items, the first about three times as often as the last."""
        draw = self.random()
        return items[int(len(items) * draw * (0.5 + 0.5 * draw))]

    def even(self, items: Sequence[Item]) -> Item:
        """Give one of the items, all equally often."""
        return items[int(len(items) * self.random())]

    def chance(self, probability: float) -> bool:
        """Give True with the given probability."""
        return self.random() < probability

    def adjective(self, noun: Noun, probability: float) -> Adjective | None:
        """Give an adjective that goes with a noun, or none."""
        options = adjectives(noun.kind)
        return self.pick(options) if options and self.chance(probability) else None

    def noun_phrase(self, noun: Noun, determiners: Sequence[str] = (), adjective: float = 0.45) -> Nominal:
        """Give a phrase around a noun.

        Args:
            noun: the head.
            determiners: the articles to choose from; any when empty.
            adjective: probability of an attribute.
        """
        chosen = self.adjective(noun, adjective)
        if noun.kind in _MASS:
            return noun_phrase(noun, self.even(("the", "my", "this") if determiners else ("", "", "the", "my")), chosen)
        plural = self.chance(0.35)
        word = self.even(determiners or (_PLURAL if plural else _SINGULAR))
        if noun.english[0] in _ONE_EACH and word in _OWN:
            plural = False
        if chosen and chosen.superlative and not determiners and not plural and word == "the" and self.chance(0.2):
            return noun_phrase(noun, "the", chosen, plural, 2)
        return noun_phrase(noun, word, chosen, plural)

    def thing(self, noun: Noun, denied: bool = False) -> Nominal:
        """Give what a verb is done to: now and then owned by somebody or a pair; with kein where it is denied."""
        if denied and noun.kind in _MASS:
            return noun_phrase(noun, self.even(("not any", "the", "my")), self.adjective(noun, 0.3))
        if denied:
            return self.noun_phrase(noun, _DENIED)
        draw = self.random()
        if draw < 0.06 and noun.kind in _GIFTS:
            return self.owned(noun)
        if draw < 0.12 and noun.kind in _GIFTS:
            return possessed(self.even(people()), noun, self.chance(0.3))
        if draw < 0.17:
            other = self.pick(nouns(noun.kind))
            if other is not noun:
                return coordinate(self.noun_phrase(noun, DEFINITE, 0.2), self.noun_phrase(other, DEFINITE, 0.2))
        return self.noun_phrase(noun)

    def owned(self, noun: Noun) -> Nominal:
        """Give a noun with an owner in the genitive: the dog of my neighbour."""
        owner = self.pick(nouns("person"))
        while owner is noun:
            owner = self.pick(nouns("person"))
        return owned(self.noun_phrase(noun, ("the",), 0.25), self.noun_phrase(owner, DEFINITE, 0.2))

    def subject(self, options: Sequence[Noun], definite: bool = False, adjective: float = 0.45) -> Nominal:
        """Give a subject: a noun phrase, for persons also a name, a pronoun or a pair."""
        noun = self.pick(options)
        draw = self.random()
        if noun.kind == "person":
            if draw < 0.18:
                return self.even(people())
            if draw < 0.34:
                return pronoun(self.even(_SUBJECT_PRONOUNS))
            if draw < 0.38:
                return coordinate(self.even(people()), self.noun_phrase(noun, DEFINITE, 0.0))
        if draw > 0.95 and noun.english[0] not in _ONE_EACH:
            return possessed(self.even(people()), noun, self.chance(0.3))
        if draw > 0.92:
            return self.owned(noun)
        return self.noun_phrase(noun, DEFINITE if definite else (), adjective)

    def object(self, options: Sequence[Noun], subject: Nominal, denied: bool = False) -> Nominal:
        """Give an object that is neither the subject nor, for I, we and you, part of it."""
        noun = self.pick(options)
        while noun.english[0] in subject.english and len(options) > 1:
            noun = self.even(options)
        draw = self.random()
        if noun.kind == "person" and draw < 0.28:
            if draw < 0.12:
                return self.even([person for person in people() if person.english not in subject.english])
            other = pronoun(self.even(_OBJECT_PRONOUNS))
            if other.form != subject.form and not {other.form, subject.form} <= {FIRST, WE}:
                return other
        thing = self.thing(noun, denied)
        # Anna does not lose Anna's key.
        return self.noun_phrase(noun) if thing.english.startswith(f"{subject.english}'s") else thing

    def time(self, *when: str) -> Adverb:
        """Give an adverbial of time of the given kinds; clock times and dates are of the kind any."""
        if "any" not in when or self.chance(0.55):
            return self.pick(adverbs(*when))
        draw = self.random()
        if draw < 0.3:
            return self.clock()
        if draw < 0.5:
            return self.date()
        if draw < 0.75:
            table, english, german = tables.WEEKDAYS, "on", "am"
        else:
            table, english, german = (tables.MONTHS if draw < 0.9 else tables.SEASONS), "in", "im"
        source, target = self.even(pairs(table))
        return Adverb(f"{english} {source}", f"{german} {target}", "any")

    def clock(self) -> Adverb:
        """Give a clock time: at half past seven, um halb acht."""
        hour = self.generator.randint(1, 12)
        following = hour % 12 + 1
        minutes = self.even((5, 10, 20))
        source, after, few = number_words(hour), number_words(following), number_words(minutes)
        target, later, some = number_word(hour), number_word(following), number_word(minutes)
        options = (
            (f"{source} o'clock", f"{'ein' if hour == 1 else target} Uhr"),
            (f"half past {source}", f"halb {later}"),
            (f"quarter past {source}", f"Viertel nach {target}"),
            (f"quarter to {after}", f"Viertel vor {later}"),
            (f"{few} past {source}", f"{some} nach {target}"),
            (f"{few} to {after}", f"{some} vor {later}"),
        )
        english, german = self.even(options)
        return Adverb(f"at {english}", f"um {german}", "any")

    def date(self) -> Adverb:
        """Give a date that every year has: on the third of May, am dritten Mai."""
        index = int(12 * self.random())
        day = self.generator.randint(1, 28 if index == 1 else 30)
        english, german = pairs(tables.MONTHS)[index]
        return Adverb(f"on the {english_ordinal(day)} of {english}", f"am {ordinal(day)}en {german}", "any")

    def place(self, indoors: bool = True) -> tuple[str, str]:
        """Give where something happens: in the garden, in Berlin, at the lake."""
        draw = self.random() if indoors else self.even((0.1, 0.9))
        if draw < 0.3:
            source, target = self.even(pairs(tables.CITIES if draw < 0.2 else tables.COUNTRIES))
            return f"in {source}", f"in {target}"
        kind, english, german = ("place", "in", "in") if draw < 0.85 else ("spot", "at", "an")
        where = self.noun_phrase(self.pick(nouns(kind)), PLACED, 0.25)
        return f"{english} {where.english}", where.after(german, DATIVE)

    def direction(self, verb: Verb) -> tuple[str, str]:
        """Give where a verb of motion leads."""
        base = verb.english[0]
        if base in {"go", "drive"} and self.chance(0.35):
            source, target = self.even(pairs(f"{tables.CITIES} {tables.COUNTRIES}"))
            return f"to {source}", f"nach {target}"
        english, german, case, kind = _DIRECTIONS[self.even(_ROADS[base])]
        options = nouns(kind)
        if english == "through":
            options = tuple(noun for noun in options if noun.english[0] in _OPEN_AIR)
        where = self.noun_phrase(self.pick(options), PLACED, 0.25)
        return f"{english} {where.english}", where.after(german, case)

    def relation(self, verb: Verb, case: int) -> tuple[str, str]:
        """Give where something stands (dative) or is put (accusative)."""
        if verb.english[0] == "hang":
            where = noun_phrase(nouns("wall")[0], self.even(("the", "this", "a")))
            return f"on {where.english}", where.after("an", case)
        english, german = self.even(menu(_RELATIONS))
        if verb.english[0] == "stand" and english == "on":
            english, german = "next to", "neben"
        where = self.noun_phrase(self.pick(nouns("surface")), PLACED, 0.25)
        return f"{english} {where.english}", where.after(german, case)
