"""Random phrases and clauses of the built-in corpus: persons, things, times, places and verbs that fit."""

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import s2s.data.phrasebook.english as english
import s2s.data.phrasebook.german as german
from s2s.data.phrasebook import lexicon
from s2s.data.phrasebook.clauses import (
    Clause,
    Nominal,
    coordinate,
    english_clause,
    german_clause,
    name,
    noun_phrase,
    owned,
    possessed,
    pronoun,
)
from s2s.data.phrasebook.german import (
    ACCUSATIVE,
    DATIVE,
    FIRST,
    GENITIVE,
    MASCULINE,
    NOMINATIVE,
    SINGULAR,
    WE,
    relative_pronoun,
)
from s2s.data.phrasebook.lexicon import Adjective, Adverb, Noun, Pair, Verb, menu, nouns, pairs, verbs

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


# Kinds of adverbials of time that fit a tense (all other tenses: any, future).
_TIMES = {
    "present": ("any", "habit", "mid"), "past": ("any", "past", "mid"), "perfect": ("mid",), "progressive": (),
    "wanted": ("any", "past"), "had to": ("any", "past"), "could": ("any", "past"),
}  # fmt: skip
_WISHES = {"want", "wanted", "would like", "allowed"}  # Only persons and animals can be their subject.
_ONLY_TO = {"explain", "recommend"}  # "explain it to somebody", never "explain somebody it"
# With these, English "not" does not correspond to German "nicht".
_UNDENIABLE = {"progressive", "must", "had to", "allowed"}

# English, German, distance; not yet capitalized, and without a full stop.
Draft = tuple[str, str, int]


def statement(clause: Clause, front: Adverb | None = None) -> Draft:
    """Render a statement, optionally after an adverbial of time."""
    source = english_clause(clause)
    if front is None:
        return source, *german_clause(clause)
    return f"{front.english} {source}", *german_clause(clause, "inverted", front=front.german)


@cache
def done_by(noun: Noun, *tables: str) -> tuple[Verb, ...]:
    """Return the verbs of these tables that may have a noun as their subject."""
    return tuple(verb for verb in verbs(*tables) if noun in verb.subjects)


@cache
def _done_to(noun: Noun, table: str) -> tuple[Verb, ...]:
    return tuple(verb for verb in verbs(table) if noun in verb.objects)


@cache
def _chain_verbs(noun: Noun) -> tuple[tuple[Verb, tuple[Noun, ...]], ...]:
    """Return the verbs that connect one being to several others, with these others."""
    beings = [other for other in nouns("being") if other is not noun]
    led = [(verb, tuple(b for b in beings if b in verb.objects)) for verb in done_by(noun, "transitive", "dative")]
    return tuple((verb, others) for verb, others in led if len(others) > 1)


def time_kinds(tense: str) -> tuple[str, ...]:
    """Return the kinds of adverbials of time that may be fronted in a tense."""
    return tuple(kind for kind in _TIMES.get(tense, ("any", "future")) if kind != "mid")


def _tense(choose: Chooser, verb: Verb) -> str:
    draw = choose.random()
    for end, tense in ((0.36, "present"), (0.46, "progressive"), (0.7, "past"), (0.76, "perfect"), (0.86, "future")):
        if draw < end:
            return tense
    return "future" if verb.state else choose.even(menu("modals"))


def _suitable(tense: str, verb: Verb) -> str:
    """Return the tense, or the nearest one that fits the verb."""
    if tense == "past" and verb.looks_present:
        return "perfect"
    if tense == "progressive" and verb.state:
        return "present"
    if tense in _WISHES and verb.subjects[0].kind not in {"person", "animal"}:
        return "can"
    return tense


def any_clause(
    choose: Chooser,
    table: str = "",
    *,
    verb: Verb | None = None,
    tense: str = "",
    denied: float = 0.08,
    time: float = 0.4,
    subject: Nominal | None = None,
    placed: bool = True,
) -> Clause:
    """Draw a clause.

    Args:
        choose: Source of random choices.
        table: Table of the verb; empty for any.
        verb: Verb; None to draw one.
        tense: Tense or modal verb, replaced if it does not fit the verb; empty to draw one.
        denied: Probability of a negation.
        time: Probability of an adverbial of time.
        subject: Subject; None to draw one.
        placed: Whether the clause may have an adverbial of place.
    """
    if verb is None:
        verb = choose.pick(verbs(table or choose.even(menu("clauses"))))
        while tense == "past" and verb.looks_present:
            verb = choose.pick(verbs("transitive"))
    tense = _suitable(tense or _tense(choose, verb), verb)
    refused = tense not in _UNDENIABLE and choose.chance(denied)
    clause = Clause(subject or choose.subject(verb.subjects, refused), verb, tense, negated=refused)
    _add_objects(choose, clause)
    if placed:
        _locate(choose, clause)
    # A state lasts: it fits "often" and "never", hardly "half past seven".
    kinds = time_kinds(tense) if refused else _TIMES.get(tense, ("any", "future"))
    if verb.state:
        kinds = tuple(kind for kind in kinds if kind == "mid")
    if kinds and choose.chance(time):
        clause.time = choose.time(*kinds)
    return clause


def _add_objects(choose: Chooser, clause: Clause) -> None:
    verb, subject, refused = clause.verb, clause.subject, clause.negated
    if verb.table == "ditransitive":
        clause.dative = _recipient(choose, clause, nouns("person"))
        clause.accusative = choose.thing(choose.pick(verb.objects), refused)
        # "He sells her books" is ambiguous; the other order is not.
        last = clause.dative.english == "she" or verb.english[0] in _ONLY_TO
        clause.recipient_last = last or (not clause.dative.pronoun and choose.chance(0.4))
    elif verb.table == "dative":
        clause.dative = _recipient(choose, clause, verb.objects)
    elif verb.table == "oblique":
        english, german, case = verb.preposition
        target = choose.object(verb.objects, subject)
        clause.place = f"{english} {target.english_object}".strip(), target.after(german, case)
    elif verb.objects:
        clause.accusative = choose.object(verb.objects, subject, refused)


def _recipient(choose: Chooser, clause: Clause, options: tuple[Noun, ...]) -> Nominal:
    if clause.negated:
        return choose.noun_phrase(choose.pick(options), menu("definite"), 0.3)
    return choose.object(options, clause.subject)


def _locate(choose: Chooser, clause: Clause) -> None:
    verb = clause.verb
    if verb.table == "motion":
        clause.place = choose.direction(verb)
    elif verb.table in {"position", "putting"}:
        clause.place = choose.relation(verb, DATIVE if verb.table == "position" else ACCUSATIVE)
    elif verb.table == "intransitive" and not verb.reflexive:
        draw = choose.random()
        if draw < 0.35:
            clause.place = choose.place(indoors=verb.subjects[-1].kind != "vehicle")
        elif draw < 0.5 and verb.subjects[-1].kind == "person" and not verb.prefix:
            clause.manner = choose.even(pairs("manners"))
    elif verb.table == "transitive" and not verb.state and choose.chance(0.15):
        clause.place = choose.place()


def with_relative(choose: Chooser, noun: Noun) -> Nominal:
    """Draw a noun phrase with a relative clause, or without one if no verb fits."""
    head = choose.noun_phrase(noun, ("the", "the", "the", "my", "a", "this"), 0.15)
    draw = choose.random()
    person = noun.kind == "person"
    if person and draw < 0.15:
        return head.with_tail(*_whose(choose, head))
    if person and draw < 0.3:
        clause = any_clause(choose, verb=choose.even(_done_to(noun, "dative")), denied=0, time=0.15)
        choose.unseen(clause.dative)
        return head.with_tail(*_gap(clause, head, "whom", DATIVE, "dat"))
    if draw < 0.6 and (options := _done_to(noun, "transitive")):
        clause = any_clause(choose, verb=choose.pick(options), denied=0, time=0.2)
        choose.unseen(clause.accusative)
        return head.with_tail(*_gap(clause, head, "whom" if person else "that", ACCUSATIVE, "acc"))
    if options := done_by(noun, "transitive", "intransitive", "oblique"):
        clause = any_clause(choose, verb=choose.pick(options), denied=0.05, time=0.15, subject=head)
        return head.with_tail(*_gap(clause, head, "who" if person else "that", NOMINATIVE, ""))
    return head


def _gap(clause: Clause, head: Nominal, word: str, case: int, skip: str) -> Pair:
    """Render a relative clause; the subject is the gap if no object is skipped."""
    front = relative_pronoun(case, head.gender)
    target, _ = german_clause(clause, "final", front=front, skip=skip, subject=bool(skip))
    return f"{word} {english_clause(clause, skip=skip, subject=bool(skip))}", f", {target},"


def _whose(choose: Chooser, head: Nominal) -> Pair:
    noun = choose.pick(nouns("being"))
    kin = noun_phrase(noun, "", None, choose.chance(0.3))
    clause = any_clause(choose, verb=choose.pick(done_by(noun, "intransitive")), subject=kin, denied=0, time=0.2)
    target, _ = german_clause(clause, "final", front=relative_pronoun(GENITIVE, head.gender))
    return f"whose {english_clause(clause)}", f", {target},"


def chain(choose: Chooser, noun: Noun, head: Nominal, depth: int) -> Nominal:
    """Add a chain of relative clauses of four German words, each about the noun before it."""
    english, german = "", ""
    inner, phrase = noun, head
    for _ in range(depth):
        verb, others = choose.even(_chain_verbs(inner))
        other = choose.pick(others)
        following = noun_phrase(other, choose.even(menu("linked")), None, choose.chance(0.5))
        present = verb.english[1] if phrase.form == SINGULAR else verb.english[0]
        particle = f" {verb.particle}" if verb.particle else ""
        english += f" {'who' if inner.kind == 'person' else 'that'} {present}{particle} {following.english}"
        word = relative_pronoun(NOMINATIVE, phrase.gender)
        case = DATIVE if verb.table == "dative" else ACCUSATIVE
        german += f", {word} {following.german[case]} {verb.prefix}{verb.present[phrase.form]}"
        inner, phrase = other, following
    return head.with_tail(english.strip(), f"{german},") if depth else head
