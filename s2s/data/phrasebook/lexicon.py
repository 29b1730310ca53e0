"""Lexicon of the built-in corpus: records read from `lexicon.toml` on first use."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import s2s.data.phrasebook.english as english
import s2s.data.phrasebook.german as german

# (English, German)
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    """A noun in both languages: its forms (see `german.noun_forms`), gender and semantic class."""

    english: tuple[str, str]
    german: tuple[str, ...]
    gender: int
    kind: str


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    """An adjective in both languages."""

    english: tuple[str, str, str]  # positive, comparative, superlative
    predicate: str  # German predicative form
    stems: tuple[str, str, str]  # German stems of the three degrees
    kinds: frozenset[str]  # semantic classes of nouns that it fits
    compared: bool  # whether it has a comparative
    superlative: bool  # whether it has a superlative


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    """A verb in both languages, with its valency."""

    table: str  # table of the lexicon that has the verb; decides which objects it takes
    english: tuple[str, ...]  # base form, third person, past, participle and -ing form
    particle: str  # English particle or preposition
    prefix: str  # separable German prefix
    bare: str  # German infinitive without prefix
    present: tuple[str, ...]  # the five German present forms without prefix
    imperative: str  # German imperative
    participle: str  # German participle, with prefix
    auxiliary: str  # German auxiliary of the perfect, "haben" or "sein"
    reflexive: bool  # whether the German verb is reflexive
    state: bool  # whether the verb describes a state
    subjects: tuple[Noun, ...]  # nouns that may be its subject
    objects: tuple[Noun, ...]  # nouns that may be its object
    preposition: tuple[str, str, int] = ("", "", 0)  # preposition of the object: English, German, and the German case

    @property
    def infinitive(self) -> str:
        """German infinitive with prefix."""
        return self.prefix + self.bare

    @property
    def looks_present(self) -> bool:
        """True if the English past equals the base form: they read, they put."""
        return self.english[0] == self.english[2]


@dataclass(frozen=True, slots=True)
class Adverb:
    """An adverbial of time; its kind (any, past, future, habit, mid) decides the tenses that it fits."""

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
    """Return a table of the lexicon as written, for small closed classes of words."""
    return _words()[table]


@cache
def menu(name: str) -> tuple[str, ...]:
    """Return the items of a menu, each repeated by its weight."""
    return tuple(_spelt(_words()["menus"][name]))


@cache
def pairs(*tables: str) -> tuple[Pair, ...]:
    """Return tables of single words in both languages, such as `"months"`."""
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
    """Return the nouns of a semantic class or a group of classes, or one noun by its English singular."""
    words = _words()
    if kind in words["groups"]:
        return tuple(noun for part in words["groups"][kind].split() for noun in nouns(part))
    if kind in words["nouns"]:
        return tuple(_noun(entry, kind) for entry in words["nouns"][kind].split(","))
    return (next(noun for noun in all_nouns() if noun.english[0] == kind),)


def all_nouns() -> Iterator[Noun]:
    """Iterate over all nouns."""
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
    """Return all adjectives."""
    return tuple(_adjective(entry) for entry in _entries(_words()["adjectives"]))


@cache
def adjectives(kind: str, compared: bool = False) -> tuple[Adjective, ...]:
    """Return the adjectives that fit a class of nouns."""
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
    # The subject of a ditransitive verb is a person.
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
    """Return the verbs of tables, such as `"transitive"`."""
    if len(tables) == 1:
        return tuple(_verb(entry, tables[0]) for entry in _entries(_words()["verbs"][tables[0]]))
    return tuple(verb for table in tables for verb in verbs(table))


@cache
def adverbs(*when: str) -> tuple[Adverb, ...]:
    """Return the adverbials of time of some kinds (any, past, future, habit, mid)."""
    read = (Adverb(*entry.split("|")) for entry in _entries(_words()["adverbs"]))
    return tuple(adverb for adverb in read if adverb.when in when)
