"""The words of the built-in corpus as records, read from the tables of ``phrasebook_words`` when first needed."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from s2s.data import phrasebook_english as english
from s2s.data import phrasebook_german as german
from s2s.data import phrasebook_words as words


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

    ``english`` is base, third person, past, participle and -ing form; ``present`` the five German forms without
    prefix; ``participle`` and ``infinitive`` have the prefix; ``preposition`` is English, German and the case.
    """

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


@dataclass(frozen=True, slots=True)
class Adverb:
    """An adverbial of time: when it fits (any, past, future, habit, mid) decides the tenses it goes with."""

    english: str
    german: str
    when: str


def _entries(table: str) -> Iterator[str]:
    for line in table.replace("\n", ";").split(";"):
        if line.strip():
            yield line.strip()


def pairs(table: str) -> tuple[tuple[str, str], ...]:
    """Read ``english/german`` words; a word without a slash is the same in both languages."""
    return tuple((word.partition("/")[0], word.rpartition("/")[2]) for word in table.split())


def _noun(entry: str, kind: str) -> Noun:
    source, gender, target = entry.split()
    singular, _, plural = source.partition("/")
    forms = [*target.split("/"), "", ""]
    weak = gender == "w"
    ending = forms[2] or ("" if gender in "fw" else "s")
    index = german.MASCULINE if weak else "mnf".index(gender)
    return Noun(
        (singular, plural or english.with_s(singular)),
        german.noun_forms(forms[0], forms[1], ending, weak),
        index,
        kind,
    )


@cache
def nouns(kind: str) -> tuple[Noun, ...]:
    """Give the nouns of a class, of a group of classes, or the one noun of that English name."""
    if kind in words.GROUPS:
        return tuple(noun for part in words.GROUPS[kind].split() for noun in nouns(part))
    if kind in words.NOUNS:
        return tuple(_noun(" ".join(entry.split()), kind) for entry in words.NOUNS[kind].split(","))
    return (next(noun for part in words.NOUNS for noun in nouns(part) if noun.english[0] == kind),)


def _adjective(entry: str) -> Adjective:
    source, target, *rest = entry.split()
    degrees = source.split("/")
    if len(degrees) == 1:
        degrees += english.degrees(source)
    forms = [*target.split("/"), "", ""]
    predicate = forms[0]
    stem = {"teuer": "teur", "dunkel": "dunkl"}.get(predicate, predicate.removesuffix("e"))
    comparative = forms[1] or stem + "er"
    longest = comparative[:-2] if forms[1] else predicate
    superlative = forms[2] or longest + ("est" if longest.endswith(("d", "t", "s", "ß", "z")) else "st")
    kinds = frozenset(part for kind in rest if kind not in {"c", "s"} for part in words.GROUPS.get(kind, kind).split())
    return Adjective(
        (degrees[0], degrees[1], degrees[2]),
        predicate,
        (stem, comparative, superlative),
        kinds,
        "c" in rest or "s" in rest,
        "s" in rest,
    )


@cache
def all_adjectives() -> tuple[Adjective, ...]:
    """Give every adjective."""
    return tuple(_adjective(entry) for entry in _entries(words.ADJECTIVES))


@cache
def adjectives(kind: str, compared: bool = False) -> tuple[Adjective, ...]:
    """Give the adjectives that go with a class of nouns, on request only those with a comparative."""
    return tuple(a for a in all_adjectives() if kind in a.kinds and (a.compared or not compared))


def _classes(names: str) -> tuple[Noun, ...]:
    return tuple(noun for name in names.split(",") if name for noun in nouns(name))


def _verb(entry: str, objects_only: bool, oblique: bool) -> Verb:
    source, *fields = entry.split()
    preposition = ("", "", 0)
    if oblique:
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
    reflexive = parts[0].startswith("sich_")
    head, _, tail = parts[0].removeprefix("sich_").rpartition("+")
    subjects, _, objects = (f"person:{classes}" if objects_only else classes).partition(":")
    return Verb(
        english=(base, third, past, done, english.progressive(base)),
        particle=particle.replace("_", " "),
        prefix=head,
        bare=tail,
        present=german.present(tail, parts[1]),
        imperative=german.imperative(tail, parts[1]),
        participle=head + (parts[2] or german.participle(tail)),
        auxiliary="sein" if target.endswith("*") else "haben",
        reflexive=reflexive,
        state="=" in flags,
        subjects=_classes(subjects),
        objects=_classes(objects),
        preposition=preposition,
    )


@cache
def verbs(table: str) -> tuple[Verb, ...]:
    """Read a table of verbs of this module, e.g. ``verbs(TRANSITIVE)``."""
    return tuple(_verb(entry, table is words.DITRANSITIVE, table is words.OBLIQUE) for entry in _entries(table))


@cache
def adverbs(*when: str) -> tuple[Adverb, ...]:
    """Give the adverbials of time of the given kinds (any, past, future, habit, mid)."""
    read = (Adverb(*entry.split("|")) for entry in _entries(words.ADVERBS))
    return tuple(adverb for adverb in read if adverb.when in when)


@cache
def manners() -> tuple[tuple[str, str], ...]:
    """Give the adverbs of manner, English and German."""
    return pairs(words.MANNER)
