"""A built-in parallel corpus of English homonyms that German distinguishes.

For example, "bank" is "Ufer" or "Bank". Each sentence has two clauses: one contains the homonym, the other a noun from
the semantic field of its meaning. All other words fit both meanings. So a model can translate the homonym only by
attending to that noun, which may come before or after.
"""

import random
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from s2s.data.phrasebook import distinct

_ARTICLES = {"m": ("der", "den", "dem"), "f": ("die", "die", "der"), "n": ("das", "das", "dem")}
_CONTRACTED = {"von dem": "vom"}


@dataclass(frozen=True)
class Homonym:
    """A sentence with a homonym, and its translation."""

    source: str  # English sentence
    target: str  # German sentence
    word: str  # the homonym
    sign: str  # the noun that determines its meaning


@dataclass(frozen=True)
class _Noun:
    english: str
    gender: str
    german: str
    oblique: str

    def phrase(self, case: int, adjective: str = "") -> str:
        """Return article, adjective and noun (case 0 nominative, 1 accusative, 2 dative).

        The adjective has the weak ending of the nominative, so it must be used with that case only.
        """
        noun = self.german if case == 0 else self.oblique
        return " ".join(word for word in (_ARTICLES[self.gender][case], adjective, noun) if word)


@dataclass(frozen=True)
class _Lexicon:
    persons: list[_Noun]
    of_persons: list[tuple[str, str]]
    of_things: list[tuple[str, str]]
    verbs: list[tuple[str, str]]
    verbs_of: list[tuple[str, str]]
    meanings: list[tuple[_Noun, list[_Noun]]]


def homonyms(split: str, size: int, seed: int = 1) -> list[Homonym]:
    """Generate the first distinct sentences of a split.

    The split of a sentence depends on its letters only.

    Returns:
        The sentences, in the order in which they are drawn.

    Raises:
        UserError: The split is unknown, or there are fewer sentences.

    Example:
        >>> first = homonyms("train", 1)[0]
        >>> first.word in first.source, first.sign in first.source
        (True, True)
    """
    chance = random.Random(seed)

    def draw() -> tuple[str, Callable[[], Homonym]]:
        made = _sentence(chance)
        return made.source, lambda: made

    return list(distinct(draw, split, size, "sentences with homonyms"))


def _sentence(draw: random.Random) -> Homonym:
    words = _lexicon()
    meaning, signs = draw.choice(words.meanings)
    sign, (is_english, is_german) = draw.choice(signs), draw.choice(words.of_things)
    english, german = _clause(draw, meaning)
    sign_clause = f"the {sign.english} is {is_english}", f"{sign.phrase(0)} ist {is_german}"
    order = draw.randrange(3)
    if order == 0:
        source, target = f"{sign_clause[0]}, and {english}", f"{sign_clause[1]}, und {german}"
    elif order == 1:
        source, target = f"{english}, and {sign_clause[0]}", f"{german}, und {sign_clause[1]}"
    else:
        source, target = f"{english} because {sign_clause[0]}", f"{german}, weil {sign.phrase(0)} {is_german} ist"
    source, target = (text[0].upper() + text[1:] + "." for text in (source, target))
    return Homonym(source, target, meaning.english, sign.english)


def _clause(draw: random.Random, meaning: _Noun) -> tuple[str, str]:
    """Return the clause with the homonym, in both languages; it fits all its meanings."""
    words = _lexicon()
    kind = draw.randrange(6)
    if kind == 0:
        english, german = draw.choice(words.of_things)
        return f"the {meaning.english} is {english}", f"{meaning.phrase(0)} ist {german}"
    person, (old, alt) = draw.choice(words.persons), draw.choice(words.of_persons)
    who = f"the {old} {person.english}", person.phrase(0, f"{alt}e")
    if kind == 1:
        english, german = draw.choice(words.verbs_of)
        what = f"von {meaning.phrase(2)}"
        for long, short in _CONTRACTED.items():
            what = what.replace(long, short)
        return f"{who[0]} {english} of the {meaning.english}", f"{who[1]} {german} {what}"
    english, german = draw.choice(words.verbs)
    return f"{who[0]} {english} the {meaning.english}", f"{who[1]} {german} {meaning.phrase(1)}"


@cache
def _lexicon() -> _Lexicon:
    table = tomllib.loads((Path(__file__).parent / "homonyms.toml").read_text(encoding="utf-8"))
    meanings = [
        (_noun(f"{word} {meaning}"), [_noun(sign) for sign in signs.split(", ")])
        for word, of_word in table["homonyms"].items()
        for meaning, signs in of_word.items()
    ]
    pairs = {
        key: [tuple(pair.split(" ")) for pair in table[key].split(", ")]
        for key in ("of_persons", "of_things", "verbs", "verbs_of")
    }
    return _Lexicon(persons=[_noun(noun) for noun in table["persons"].split(", ")], meanings=meanings, **pairs)


def _noun(text: str) -> _Noun:
    english, gender, german = text.split(" ")
    nominative, _, oblique = german.partition("/")
    return _Noun(english, gender, nominative, oblique or nominative)


def signs() -> dict[str, str]:
    """Return the German word that each disambiguating noun determines."""
    return {sign.english: meaning.german for meaning, nouns in _lexicon().meanings for sign in nouns}
