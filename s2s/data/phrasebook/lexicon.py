"""The words of the built-in corpus as records, read from `lexicon.toml` when first needed."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import s2s.data.phrasebook.english as english
import s2s.data.phrasebook.german as german

# English, German
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    """A noun: English singular and plural, eight German forms, gender and class."""

    english: tuple[str, str]
    german: tuple[str, ...]
    gender: int
    kind: str


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    """An adjective: three English degrees; German predicate form and the stems of the three degrees."""

    english: tuple[str, str, str]
    predicate: str
    stems: tuple[str, str, str]
    kinds: frozenset[str]
    compared: bool
    superlative: bool


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """A verb of both languages with what it governs.

    ``table`` is the table it stands in, and decides which objects it takes; ``english`` is base, third person, past,
    participle and -ing form; ``present`` the five German forms without prefix; ``participle`` and ``infinitive`` have
    the prefix; ``preposition`` is English, German and the case.
    """

    table: str
    english: tuple[str, ...]
    particle: str
    prefix: str
    bare: str
    present: tuple[str, ...]
    imperative: str
    participle: str
    auxiliary: str
    reflexive: bool
    state: bool
    subjects: tuple[Noun, ...]
    objects: tuple[Noun, ...]
    preposition: tuple[str, str, int] = ("", "", 0)

    @property
    def infinitive(self) -> str:
        """The infinitive with its prefix."""
        return self.prefix + self.bare

    @property
    def looks_present(self) -> bool:
        """Whether the English past looks like the present: they read, they put."""
        return self.english[0] == self.english[2]


@dataclass(frozen=True, slots=True)
class Adverb:
    """An adverbial of time: when it fits (any, past, future, habit, mid) decides the tenses it goes with."""

    english: str
    german: str
    when: str


@cache
def _words() -> dict[str, Any]:
    return tomllib.loads(resources.files("s2s.data.phrasebook").joinpath("lexicon.toml").read_text(encoding="utf-8"))


def _entries(table: str) -> Iterator[str]:
    return (line.strip() for line in table.replace("\n", ";").split(";") if line.strip())


def _spelt(words: str) -> Iterator[str]:
    for word in words.split():
        spelling, _, often = word.partition("*")
        yield from [spelling.replace("_", " ")] * int(often or 1)


def closed(table: str) -> dict[str, list[Any]]:
    """Give words of which there are but a few, as they are written: determiners, pronouns, auxiliaries or roads."""
    return _words()[table]


@cache
def menu(name: str) -> tuple[str, ...]:
    """Give what there is to draw from, each as often as its weight says."""
    return tuple(_spelt(_words()["menus"][name]))


@cache
def pairs(*tables: str) -> tuple[Pair, ...]:
    """Read tables of single words of both languages, e.g. ``pairs("months")``."""
    words = [word for table in tables for word in _spelt(_words()["pairs"][table])]
    return tuple((word.partition("/")[0], word.rpartition("/")[2]) for word in words)


def _noun(entry: str, kind: str) -> Noun:
    source, gender, target = entry.split()
    singular, _, plural = source.partition("/")
    forms = [*target.split("/"), "", ""]
    weak = gender == "w"
    ending = forms[2] or ("" if gender in "fw" else "s")
    index = german.MASCULINE if weak else "mnf".index(gender)
    both = singular, plural or english.with_s(singular)
    return Noun(both, german.noun_forms(forms[0], forms[1], ending, weak), index, kind)


@cache
def nouns(kind: str) -> tuple[Noun, ...]:
    """Give the nouns of a class, of a group of classes, or the one noun of that English name."""
    words = _words()
    if kind in words["groups"]:
        return tuple(noun for part in words["groups"][kind].split() for noun in nouns(part))
    if kind in words["nouns"]:
        return tuple(_noun(entry, kind) for entry in words["nouns"][kind].split(","))
    return (next(noun for noun in all_nouns() if noun.english[0] == kind),)


def all_nouns() -> Iterator[Noun]:
    """Give every noun."""
    return (noun for kind in _words()["nouns"] for noun in nouns(kind))


def _adjective(entry: str) -> Adjective:
    source, target, *rest = entry.split()
    positive, *compared = source.split("/")
    more, most = compared or english.degrees(source)
    predicate, *irregular = target.split("/")
    stem = {"teuer": "teur", "dunkel": "dunkl"}.get(predicate, predicate.removesuffix("e"))
    comparative = irregular[0] if irregular else stem + "er"
    longest = comparative[:-2] if irregular else predicate
    ending = "est" if longest.endswith(("d", "t", "s", "ß", "z")) else "st"
    superlative = irregular[1] if len(irregular) > 1 else longest + ending
    groups = _words()["groups"]
    kinds = frozenset(part for kind in rest if kind not in {"c", "s"} for part in groups.get(kind, kind).split())
    stems = stem, comparative, superlative
    return Adjective((positive, more, most), predicate, stems, kinds, "c" in rest or "s" in rest, "s" in rest)


@cache
def all_adjectives() -> tuple[Adjective, ...]:
    """Give every adjective."""
    return tuple(_adjective(entry) for entry in _entries(_words()["adjectives"]))


@cache
def adjectives(kind: str, compared: bool = False) -> tuple[Adjective, ...]:
    """Give the adjectives that go with a class of nouns, on request only those with a comparative."""
    return tuple(a for a in all_adjectives() if kind in a.kinds and (a.compared or not compared))


def _classes(names: str) -> tuple[Noun, ...]:
    return tuple(noun for name in names.split(",") if name for noun in nouns(name))


def _verb(entry: str, table: str) -> Verb:
    source, *fields = entry.split()
    preposition = ("", "", 0)
    if table == "oblique":
        word, target, govern, classes, *flags = fields
        name, _, case = govern.partition("/")
        preposition = (word.replace("_", " ").strip("-"), name, german.CASES[case])
    else:
        target, classes, *flags = fields
    forms = source.split("/")
    base, _, particle = forms[0].partition("_")
    past = forms[1] if len(forms) > 1 else english.past(base)
    done = forms[2] if len(forms) > 2 else past
    third = {"have": "has", "be": "is"}.get(base) or english.with_s(base)
    parts = [*target.rstrip("*").split("/"), "", ""]
    head, _, tail = parts[0].removeprefix("sich_").rpartition("+")
    # whoever gives something to somebody is a person
    subjects, _, objects = (f"person:{classes}" if table == "ditransitive" else classes).partition(":")
    return Verb(
        table=table,
        english=(base, third, past, done, english.progressive(base)),
        particle=particle.replace("_", " "),
        prefix=head,
        bare=tail,
        present=german.present(tail, parts[1]),
        imperative=german.imperative(tail, parts[1]),
        participle=head + (parts[2] or german.participle(tail)),
        auxiliary="sein" if target.endswith("*") else "haben",
        reflexive=parts[0].startswith("sich_"),
        state="=" in flags,
        subjects=_classes(subjects),
        objects=_classes(objects),
        preposition=preposition,
    )


@cache
def verbs(*tables: str) -> tuple[Verb, ...]:
    """Read tables of verbs, e.g. ``verbs("transitive")``."""
    if len(tables) == 1:
        return tuple(_verb(entry, tables[0]) for entry in _entries(_words()["verbs"][tables[0]]))
    return tuple(verb for table in tables for verb in verbs(table))


@cache
def adverbs(*when: str) -> tuple[Adverb, ...]:
    """Give the adverbials of time of the given kinds (any, past, future, habit, mid)."""
    read = (Adverb(*entry.split("|")) for entry in _entries(_words()["adverbs"]))
    return tuple(adverb for adverb in read if adverb.when in when)
