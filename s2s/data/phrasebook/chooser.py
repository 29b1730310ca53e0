"""Random phrases of the built-in corpus: persons, things, times and places."""

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import s2s.data.phrasebook.english as english
import s2s.data.phrasebook.german as german
from s2s.data.phrasebook import lexicon
from s2s.data.phrasebook.clauses import Nominal, coordinate, name, noun_phrase, owned, possessed, pronoun
from s2s.data.phrasebook.german import DATIVE, FIRST, MASCULINE, WE
from s2s.data.phrasebook.lexicon import Adjective, Adverb, Noun, Pair, Verb

Item = TypeVar("Item")

_OWN = frozenset({"my", "his", "her", "our", "your", "their"})
_MASS = frozenset({"drink", "mass"})
_ONE_EACH = frozenset({"mother", "father"})  # A person has one of each, so "my fathers" does not occur.
# Kinds of nouns that may have an owner.
_GIFTS = frozenset({"animal", "text", "clothes", "vehicle", "standing", "lying", "idea"})


@cache
def people() -> tuple[Nominal, ...]:
    """Return the names of persons."""
    return tuple(name(*both, MASCULINE) for both in lexicon.pairs("names"))


def _at(source: str, target: str, case: int, where: Nominal) -> Pair:
    return f"{source} {where.english}", where.after(target, case)


class Chooser:
    """Random source of words and phrases that are grammatical and make sense.

    Methods that draw return noun phrases, adverbials and pairs in both languages.
    """

    def __init__(self, generator: random.Random, words: float = 1.0) -> None:
        self.generator = generator
        self.random = generator.random
        self.words = words

    def begin(self) -> None:
        """Start a sentence; called before each one is drawn."""

    def seen_as(self, alike: Callable[[Any], object]) -> None:
        """Report that all items like the last one would have given the same result.

        A hook for subclasses that track probabilities, such as `likelihood.LikelihoodChooser`.
        """

    def unseen(self, phrase: object) -> None:
        """Report that a subject or object is replaced or left out (hook for subclasses)."""

    def until(self, suits: Callable[[Item], object], draw: Callable[[], Item]) -> Item:
        """Draw until an item satisfies the condition."""
        while not suits(item := draw()):
            pass
        return item

    def pick(self, items: Sequence[Item]) -> Item:
        """Draw an item, the first about three times as often as the last."""
        draw = self.random()
        return items[int(self.known(len(items)) * draw * (0.5 + 0.5 * draw))]

    def known(self, items: int) -> int:
        """Return how many of a number of items are used, at least two if there are two.

        With a single word, a search for another one would not end.
        """
        return max(min(2, items), round(self.words * items))

    def even(self, items: Sequence[Item]) -> Item:
        """Draw an item with equal probabilities."""
        return items[int(len(items) * self.random())]

    def chance(self, probability: float) -> bool:
        """Return True with the given probability."""
        return self.random() < probability

    def adjective(self, noun: Noun, probability: float) -> Adjective | None:
        """Draw an adjective that fits a noun, or None."""
        options = lexicon.adjectives(noun.kind)
        return self.pick(options) if options and self.chance(probability) else None

    def noun_phrase(self, noun: Noun, determiners: Sequence[str] = (), adjective: float = 0.45) -> Nominal:
        """Draw a noun phrase with one of several determiners (empty: any)."""
        chosen = self.adjective(noun, adjective)
        if noun.kind in _MASS:
            return noun_phrase(noun, self.even(("the", "my", "this") if determiners else ("", "", "the", "my")), chosen)
        plural = self.chance(0.35)
        word = self.even(determiners or lexicon.menu("plural" if plural else "singular"))
        if noun.english[0] in _ONE_EACH and word in _OWN:
            plural = False
        if chosen and chosen.superlative and not determiners and not plural and word == "the" and self.chance(0.2):
            return noun_phrase(noun, "the", chosen, plural, 2)
        return noun_phrase(noun, word, chosen, plural)

    def thing(self, noun: Noun, denied: bool = False) -> Nominal:
        """Draw an object phrase, sometimes with an owner, or coordinated; `denied` needs "kein"."""
        if denied and noun.kind in _MASS:
            return noun_phrase(noun, self.even(("not any", "the", "my")), self.adjective(noun, 0.3))
        if denied:
            return self.noun_phrase(noun, lexicon.menu("denied"))
        draw = self.random()
        if draw < 0.06 and noun.kind in _GIFTS:
            return self.owned(noun)
        if draw < 0.12 and noun.kind in _GIFTS:
            return possessed(self.even(people()), noun, self.chance(0.3))
        if draw < 0.17:
            other = self.pick(lexicon.nouns(noun.kind))
            if other is not noun:
                return coordinate(
                    self.noun_phrase(noun, lexicon.menu("definite"), 0.2),
                    self.noun_phrase(other, lexicon.menu("definite"), 0.2),
                )
        return self.noun_phrase(noun)

    def owned(self, noun: Noun) -> Nominal:
        """Draw a noun phrase with an owner in the genitive: the dog of my neighbour."""
        owner = self.until(lambda one: one is not noun, lambda: self.pick(lexicon.nouns("person")))
        return owned(self.noun_phrase(noun, ("the",), 0.25), self.noun_phrase(owner, lexicon.menu("definite"), 0.2))

    def subject(self, options: Sequence[Noun], definite: bool = False, adjective: float = 0.45) -> Nominal:
        """Draw a subject: a noun phrase, or for persons a name, pronoun or coordination."""
        noun = self.pick(options)
        draw = self.random()
        if noun.kind == "person":
            if draw < 0.34:
                self.seen_as(lambda other: other.kind == "person")
            if draw < 0.18:
                return self.even(people())
            if draw < 0.34:
                return pronoun(self.even(lexicon.menu("subject_pronouns")))
            if draw < 0.38:
                return coordinate(self.even(people()), self.noun_phrase(noun, lexicon.menu("definite"), 0.0))
        if draw > 0.95 and noun.english[0] not in _ONE_EACH:
            return possessed(self.even(people()), noun, self.chance(0.3))
        if draw > 0.92:
            return self.owned(noun)
        return self.noun_phrase(noun, lexicon.menu("definite") if definite else (), adjective)

    def object(self, options: Sequence[Noun], subject: Nominal, denied: bool = False) -> Nominal:
        """Draw an object that differs from the subject, also in part for I, we and you."""
        noun = self.pick(options)
        while noun.english[0] in subject.english and len(options) > 1:
            noun = self.even(options)
        draw = self.random()
        if noun.kind == "person" and draw < 0.28:
            if draw < 0.12:
                self.seen_as(lambda other: other.kind == "person" and other.english[0] not in subject.english)
                return self.even([person for person in people() if person.english not in subject.english])
            other = pronoun(self.even(lexicon.menu("object_pronouns")))
            if other.form != subject.form and not {other.form, subject.form} <= {FIRST, WE}:
                return other
        thing = self.thing(noun, denied)
        # Avoid "Anna loses Anna's key".
        return self.noun_phrase(noun) if thing.english.startswith(f"{subject.english}'s") else thing

    def time(self, *when: str) -> Adverb:
        """Draw an adverbial of time of these kinds (any, past, future, habit, mid); clock times and dates are `any`."""
        if "any" not in when or self.chance(0.55):
            return self.pick(lexicon.adverbs(*when))
        draw = self.random()
        if draw < 0.3:
            return self.clock()
        if draw < 0.5:
            return self.date()
        on, am, table = ("on", "am", "weekdays") if draw < 0.75 else ("in", "im", "months" if draw < 0.9 else "seasons")
        source, target = self.even(lexicon.pairs(table))
        return Adverb(f"{on} {source}", f"{am} {target}", "any")

    def clock(self) -> Adverb:
        """Draw a clock time: at half past seven, um halb acht."""
        hour = self.generator.randint(1, 12)
        numbers = hour, hour % 12 + 1, self.even((5, 10, 20))
        source, after, few = map(english.number_words, numbers)
        target, later, some = map(german.number_word, numbers)
        options = (
            (f"{source} o'clock", f"{'ein' if hour == 1 else target} Uhr"),
            (f"half past {source}", f"halb {later}"),
            (f"quarter past {source}", f"Viertel nach {target}"),
            (f"quarter to {after}", f"Viertel vor {later}"),
            (f"{few} past {source}", f"{some} nach {target}"),
            (f"{few} to {after}", f"{some} vor {later}"),
        )
        at, um = self.even(options)
        return Adverb(f"at {at}", f"um {um}", "any")

    def date(self) -> Adverb:
        """Draw a date that every year has: on the third of May, am dritten Mai."""
        index = int(12 * self.random())
        day = self.generator.randint(1, 28 if index == 1 else 30)
        source, target = lexicon.pairs("months")[index]
        return Adverb(f"on the {english.ordinal(day)} of {source}", f"am {german.ordinal(day)}en {target}", "any")

    def place(self, indoors: bool = True) -> Pair:
        """Draw a place (in the garden, in Berlin, at the lake); vehicles are not indoors."""
        draw = self.random() if indoors else self.even((0.1, 0.9))
        if draw < 0.3:
            source, target = self.even(lexicon.pairs("cities" if draw < 0.2 else "countries"))
            return f"in {source}", f"in {target}"
        kind, at, an = ("place", "in", "in") if draw < 0.85 else ("spot", "at", "an")
        return _at(at, an, DATIVE, self._placed(lexicon.nouns(kind)))

    def direction(self, verb: Verb) -> Pair:
        """Draw the direction of a verb of motion: to the station."""
        base = verb.english[0]
        if base in {"go", "drive"} and self.chance(0.35):
            source, target = self.even(lexicon.pairs("cities", "countries"))
            return f"to {source}", f"nach {target}"
        to, zu, kind = self.even(lexicon.closed("roads")[base]).split()
        zu, _, case = zu.partition("/")
        return _at(to.replace("_", " "), zu, german.CASES[case], self._placed(lexicon.nouns(kind)))

    def relation(self, verb: Verb, case: int) -> Pair:
        """Draw a position (dative) or the goal of putting something (accusative)."""
        if verb.english[0] == "hang":
            return _at("on", "an", case, noun_phrase(lexicon.nouns("wall")[0], self.even(("the", "this", "a"))))
        on, auf = self.even(lexicon.pairs("relations"))
        if verb.english[0] == "stand" and on == "on":
            on, auf = "next to", "neben"
        return _at(on, auf, case, self._placed(lexicon.nouns("surface")))

    def _placed(self, options: Sequence[Noun]) -> Nominal:
        return self.noun_phrase(self.pick(options), lexicon.menu("placed"), 0.25)
