"""German inflection of the built-in corpus: articles, endings, verbs, numbers."""

import re
import tomllib
from functools import cache
from importlib import resources
from typing import Any

NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = range(4)
MASCULINE, NEUTER, FEMININE, PLURAL = range(4)
FIRST, SECOND, SINGULAR, WE, THEY = range(5)  # verb forms: ich, du, er/sie/es, wir, sie
CASES = {"nom": NOMINATIVE, "acc": ACCUSATIVE, "dat": DATIVE, "gen": GENITIVE}

_WEAK_AFTER = {"der", "dies", "jed", "all", "welch", "beid"}
_EIN_WORDS = {"ein", "kein", "mein", "dein", "sein", "ihr", "unser"}

REFLEXIVE = ("mich", "dich", "sich", "uns", "sich")

# Private-use characters that mark the case of each word of a noun phrase until the sentence is finished.
_MARKS = {chr(0xE000 + case): name for name, case in CASES.items()}
_UNMARKED = str.maketrans("", "", "".join(_MARKS))


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(resources.files("s2s.data.phrasebook").joinpath("grammar.toml").read_text(encoding="utf-8"))


def _cell(table: str, case: int, gender: int) -> str:
    return _tables()[table][case].split()[gender]


def marked(words: str, case: int) -> str:
    """Mark each word with its case."""
    mark = chr(0xE000 + case)
    return words.replace(" ", mark + " ") + mark


def unmarked(text: str) -> str:
    """Remove the marks that `marked` added."""
    return text.translate(_UNMARKED)


def cases_of(text: str) -> str:
    """Return the case of each word of a marked text.

    Example:
        >>> cases_of(marked("der Mann", NOMINATIVE) + " schläft.")
        'nom nom -'
    """
    # Only punctuation may follow a mark.
    return " ".join(_MARKS.get(word.rstrip(",.!?")[-1], "-") for word in text.split(" "))


@cache
def determiner(word: str, case: int, gender: int) -> str:
    """Return the form of a determiner.

    Args:
        word: `"der"`, a stem such as `"dies"`, `"kein"`, `"viel"`, a number word, or `""` for none.
        case: Case, 0 to 3: nominative, accusative, dative, genitive.
        gender: Gender, 0 to 3: masculine, neuter, feminine, plural.

    Example:
        >>> determiner("kein", ACCUSATIVE, MASCULINE)
        'keinen'
    """
    if word == "der":
        return _cell("der", case, gender)
    if word in _EIN_WORDS:
        return word + _cell("ein", case, gender).strip("-")
    if word in {"dies", "jed", "all", "welch", "beid", "viel", "einig", "mehrer", "wenig"}:
        return word + _cell("strong_article", case, gender)
    return word


@cache
def adjective_ending(word: str, case: int, gender: int) -> str:
    """Return the ending of an adjective after a determiner (empty for none: strong endings)."""
    kind = "weak" if word in _WEAK_AFTER else "mixed" if word in _EIN_WORDS else "strong"
    return _cell(kind, case, gender)


def noun_forms(singular: str, plural: str, genitive: str, weak: bool) -> tuple[str, ...]:
    """Return the eight forms of a noun.

    Args:
        singular: Nominative singular.
        plural: Nominative plural; `""` for a mass noun.
        genitive: Ending of the genitive singular; `""` for feminine nouns.
        weak: Whether every form except the first equals the plural (der Junge, den Jungen).
    """
    dative_plural = plural if plural.endswith(("n", "s")) or not plural else plural + "n"
    plurals = (plural, plural, dative_plural, plural)
    if weak:
        return (singular, plural, plural, plural, *plurals)
    return (singular, singular, singular, singular + genitive, *plurals)


def contract(preposition: str, phrase: str) -> str:
    """Join a preposition and a phrase, with contraction of the article.

    Example:
        >>> contract("in", "dem Haus")
        'im Haus'
    """
    article, _, rest = phrase.partition(" ")
    bare = unmarked(article)
    melted = _tables()["contractions"].get(f"{preposition} {bare}")
    return f"{melted}{article[len(bare) :]} {rest}" if melted else f"{preposition} {phrase}"


def relative_pronoun(case: int, gender: int) -> str:
    """Return the relative pronoun (der, den, dem, dessen, …), marked with its case."""
    return marked(_cell("relative", case, gender), case)


def _stem(infinitive: str) -> str:
    return infinitive[:-2] if infinitive.endswith("en") else infinitive[:-1]


def _needs_e(stem: str) -> bool:
    return bool(re.search(r"([dt]|[^aeiouäöülrhmn][mn]|chn)$", stem))


def third_person(infinitive: str) -> str:
    """Return the regular third person singular of the present.

    Example:
        >>> third_person("machen"), third_person("öffnen")
        ('macht', 'öffnet')
    """
    stem = _stem(infinitive)
    return stem + ("et" if _needs_e(stem) else "t")


def participle(infinitive: str) -> str:
    """Return the regular past participle.

    Example:
        >>> participle("machen"), participle("besuchen"), participle("reparieren")
        ('gemacht', 'besucht', 'repariert')
    """
    stem = _stem(infinitive)
    bare = infinitive.endswith("ieren") or re.match(r"(be|ver|er|ent|zer|emp)", infinitive)
    return ("" if bare else "ge") + third_person(stem + infinitive[len(stem) :])


@cache
def present(infinitive: str, third: str = "") -> tuple[str, ...]:
    """Return the five present forms (ich, du, er, wir, sie) without separable prefix.

    Example:
        >>> present("lesen", "liest")
        ('lese', 'liest', 'liest', 'lesen', 'lesen')
    """
    if irregular := _tables()["present"].get(infinitive):
        return tuple(irregular.split())
    third = third or third_person(infinitive)
    stem = _stem(infinitive)
    first = stem[:-2] + "le" if infinitive.endswith("eln") else stem + "e"
    base = third[:-1]
    second = base + ("t" if base.endswith(("s", "ß", "z", "x")) else "st")
    return first, second, third, infinitive, infinitive


def preterite(infinitive: str) -> tuple[str, ...]:
    """Return the five simple past forms of an auxiliary or modal verb.

    "möchte" counts as a form of "mögen".
    """
    stem = _tables()["preterite"][infinitive]
    if stem == "war":
        return "war", "warst", "war", "waren", "waren"
    return stem + "e", stem + "est", stem + "e", stem + "en", stem + "en"


def imperative(infinitive: str, third: str = "") -> str:
    """Return the imperative (du) without prefix.

    Example:
        >>> imperative("kaufen"), imperative("öffnen"), imperative("lesen", "liest"), imperative("fahren", "fährt")
        ('kauf', 'öffne', 'lies', 'fahr')
    """
    stem = _stem(infinitive)
    third = third or third_person(infinitive)
    changed = third[:-1]
    if changed != stem and not _needs_e(stem) and not re.search("[äöü]", third):
        return changed
    if infinitive.endswith("eln"):
        return stem[:-2] + "le"
    return stem + ("e" if _needs_e(stem) or infinitive.endswith("ern") or stem.endswith(("ig", "ier")) else "")


_COUNTED = """null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn
siebzehn achtzehn neunzehn"""
_ONES = _COUNTED.split()
_TENS = ("zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig")


def _below_hundred(number: int) -> str:
    if number < 20:
        return _ONES[number]
    tens, ones = divmod(number, 10)
    return (f"{_ONES[ones]}und" if ones else "") + _TENS[tens - 2]


def _below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    return (f"{_ONES[hundreds]}hundert" if hundreds else "") + (_below_hundred(rest) if rest else "")


def number_word(number: int) -> str:
    """Spell a number from 0 to 1,000,000 in German, as one compound.

    Example:
        >>> number_word(325000)
        'dreihundertfünfundzwanzigtausend'
    """
    if number == 0:
        return _ONES[0]
    if number == 1_000_000:
        return "eine Million"
    thousands, rest = divmod(number, 1000)
    word = (f"{_below_thousand(thousands)}tausend" if thousands else "") + (_below_thousand(rest) if rest else "")
    return f"{word}s" if number % 100 == 1 else word


def ordinal(day: int) -> str:
    """Return the stem of an ordinal number from 1 to 31 (add -e or -en).

    Example:
        >>> ordinal(1), ordinal(2), ordinal(20)
        ('erst', 'zweit', 'zwanzigst')
    """
    irregular = {1: "erst", 3: "dritt", 7: "siebt", 8: "acht"}
    return irregular.get(day) or _below_hundred(day) + ("t" if day < 20 else "st")
