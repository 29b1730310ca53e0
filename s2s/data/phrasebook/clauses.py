"""Phrases and clauses of the built-in corpus, rendered in English and German.

Both languages are rendered from the same structure (`Nominal`, `Clause`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import s2s.data.phrasebook.german as german
from s2s.data.phrasebook.german import ACCUSATIVE, DATIVE, GENITIVE, NOMINATIVE, PLURAL, SINGULAR, THEY
from s2s.data.phrasebook.lexicon import Adjective, Adverb, Noun, Pair, Verb, closed


@dataclass(frozen=True, slots=True)
class Nominal:
    """A noun phrase, a name or a pronoun in both languages."""

    english: str
    english_object: str  # English form as an object
    german: tuple[str, ...]  # the four German cases, each word marked (see `german.marked`)
    form: int = SINGULAR  # verb form of the subject, `FIRST` to `THEY`
    gender: int = 0  # gender, which selects the relative pronoun
    pronoun: bool = False
    tail: int = 0  # number of German words after the head noun

    def after(self, preposition: str, case: int) -> str:
        """Return the German prepositional phrase, contracted unless a relative clause follows."""
        if "," in self.german[case]:
            return f"{preposition} {self.german[case]}"
        return german.contract(preposition, self.german[case])

    def with_tail(self, english: str, target: str) -> "Nominal":
        """Add words after the head noun, such as a relative clause."""
        return replace(
            self,
            english=f"{self.english} {english}",
            english_object=f"{self.english_object} {english}",
            german=tuple(case + target for case in self.german),
            tail=self.tail + target.count(" "),
        )


def _marked(cases: Sequence[str]) -> tuple[str, ...]:
    return tuple(german.marked(words, case) for case, words in enumerate(cases))


def pronoun(word: str) -> Nominal:
    """Build a personal pronoun from its English subject form."""
    english_object, cases, form, gender = closed("pronouns")[word]
    return Nominal(word, english_object, _marked([*cases.split(), ""]), form, gender, True)


def name(english: str, target: str, gender: int) -> Nominal:
    """Build the name of a person or place; only its genitive differs."""
    return Nominal(english, english, _marked((target, target, target, f"{target}s")), SINGULAR, gender)


def noun_phrase(
    noun: Noun, determiner: str = "the", adjective: Adjective | None = None, plural: bool = False, degree: int = 0
) -> Nominal:
    """Build a noun phrase from determiner, adjective and noun.

    Args:
        noun: Head noun.
        determiner: A determiner of `lexicon.toml`; `"a"` has no word in the plural, `""` never has one.
        adjective: Adjective, if any.
        plural: Whether the phrase is in the plural.
        degree: Degree of the adjective: 0 positive, 1 comparative, 2 superlative.
    """
    *words, article = closed("determiners")[determiner]
    word = words[plural]
    gender = PLURAL if plural else noun.gender
    english = noun.english[plural]
    core = noun.german[4 * plural : 4 * plural + 4]
    if plural and determiner == "a":
        article = ""
    if adjective is not None:
        english = f"{adjective.english[degree]} {english}"
        endings = [german.adjective_ending(article, case, gender) for case in range(4)]
        core = [f"{adjective.stems[degree]}{ending} {form}" for ending, form in zip(endings, core, strict=True)]
    if article:
        core = [f"{german.determiner(article, case, gender)} {form}" for case, form in enumerate(core)]
    if word == "a":
        begins_with_vowel = english[0] in "aeiou" and not re.match("uni|use|eu|one", english)
        english = f"{'an' if begins_with_vowel else 'a'} {english}"
    elif word != "-":
        english = f"{word} {english}"
    return Nominal(english, english, _marked(core), THEY if plural else SINGULAR, gender)


def possessed(owner: Nominal, noun: Noun, plural: bool = False) -> Nominal:
    """Build a noun phrase with a name in the genitive: Anna's dog, Annas Hund."""
    english = f"{owner.english}'s {noun.english[plural]}"
    form, gender = (THEY, PLURAL) if plural else (SINGULAR, noun.gender)
    core = _marked(noun.german[4 * plural : 4 * plural + 4])
    return Nominal(english, english, tuple(f"{owner.german[GENITIVE]} {words}" for words in core), form, gender)


def owned(thing: Nominal, owner: Nominal) -> Nominal:
    """Add an owner in the genitive: the dog of my neighbour, der Hund meines Nachbarn."""
    return thing.with_tail(f"of {owner.english}", f" {owner.german[GENITIVE]}")


def coordinate(first: Nominal, second: Nominal) -> Nominal:
    """Join two phrases with "and"; the result is a plural."""
    return Nominal(
        f"{first.english} and {second.english}",
        f"{first.english_object} and {second.english_object}",
        tuple(f"{one} und {two}" for one, two in zip(first.german, second.german, strict=True)),
        THEY,
        PLURAL,
    )


@dataclass(slots=True)
class Clause:
    """A subject, a verb and its complements, independent of the language."""

    subject: Nominal
    verb: Verb
    tense: str = "present"  # tense or modal verb
    accusative: Nominal | None = None  # direct object
    dative: Nominal | None = None  # indirect object
    place: Pair | None = None  # prepositional phrase (English, German); also holds the prepositional object
    predicate: Pair | None = None  # predicate after "to be" (English, German)
    manner: Pair | None = None  # adverbial of manner (English, German)
    time: Adverb | None = None
    negated: bool = False
    passive: bool = False
    recipient_last: bool = False  # whether the English indirect object follows the direct one, with "to"


_BE = ("am", "are", "is", "are", "are")
_WAS = ("was", "were", "was", "were", "were")
_HAVE = ("have", "have", "has", "have", "have")
_DO = ("do", "do", "does", "do", "do")
_PAST_TENSES = ("past", "wanted", "had to")
# Prepositions of English verbs; other particles follow a pronoun: turn it on.
_PREPOSITIONS = {"for", "at", "to"}
_IS_SIMPLE = {"be", "have"}  # German uses their simple past where other verbs take the perfect.


def _english_verbs(clause: Clause, form: int, support: bool) -> Pair:
    """Return the finite word and the rest of the English verb group.

    `support` requires "do", as in questions and negated clauses.
    """
    base, third, past, participle, progressive = clause.verb.english
    tense = clause.tense
    infinitive = f"be {participle}" if clause.passive else base
    if tense in closed("auxiliaries"):
        finite, link, plain, _, _ = closed("auxiliaries")[tense]
        if support and plain:
            return ("did" if tense in _PAST_TENSES else _DO[form]), _join(plain, link, infinitive)
        return finite.split()[form], _join(link, infinitive)
    if tense in {"perfect", "pluperfect"}:
        return ("had" if tense == "pluperfect" else _HAVE[form]), f"been {participle}" if clause.passive else participle
    if clause.passive:
        return (_WAS if tense == "past" else _BE)[form], participle
    if base == "be":
        return (_WAS if tense == "past" else _BE)[form], ""
    if tense == "progressive":
        return _BE[form], progressive
    if support:
        return ("did" if tense == "past" else _DO[form]), base
    if tense == "past":
        return past, ""
    return (third if form == SINGULAR else base), ""


def _german_verbs(clause: Clause, form: int) -> Pair:
    """Return the finite verb and the right bracket (prefix, participle or infinitive)."""
    verb, tense = clause.verb, clause.tense

    def finite(auxiliary: str, past: bool) -> str:
        return (german.preterite if past else german.present)(auxiliary)[form]

    if tense in closed("auxiliaries"):
        *_, auxiliary, preterite = closed("auxiliaries")[tense]
        return finite(auxiliary, preterite), f"{verb.participle} werden" if clause.passive else verb.infinitive
    if clause.passive and tense in {"present", "past"}:
        return finite("werden", tense == "past"), verb.participle
    if tense == "past" and verb.english[0] in _IS_SIMPLE:
        return finite(verb.bare, True), ""
    if tense in {"past", "perfect", "pluperfect"}:
        auxiliary = "sein" if clause.passive else verb.auxiliary
        return finite(auxiliary, tense == "pluperfect"), f"{verb.participle}{' worden' if clause.passive else ''}"
    return verb.present[form], verb.prefix


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _complements(clause: Clause, skip: str = "") -> str:
    """Return the English words after the verb group, without the skipped object."""
    accusative = "" if clause.accusative is None or skip == "acc" else clause.accusative.english_object
    dative = "" if clause.dative is None or skip == "dat" else clause.dative.english_object
    particle = clause.verb.particle
    if accusative and clause.accusative and clause.accusative.pronoun and particle not in _PREPOSITIONS:
        accusative, particle = _join(accusative, particle), ""
    objects = (accusative, f"to {dative}") if dative and clause.recipient_last else (dative, accusative)
    others = [pair[0] for pair in (clause.predicate, clause.manner, clause.place) if pair]
    time = clause.time.english if clause.time and clause.time.when != "mid" else ""
    return _join(particle, *objects, *others, time)


def english_clause(clause: Clause, *, question: bool = False, skip: str = "", subject: bool = True) -> str:
    """Render the English clause.

    Args:
        clause: Clause to render.
        question: Whether the finite verb precedes the subject.
        skip: Object to leave out, `"acc"` or `"dat"` (questions and relative clauses); empty for none.
        subject: Whether to render the subject; without it, the clause follows a relative or interrogative pronoun.
    """
    finite, rest = _english_verbs(clause, clause.subject.form, question or clause.negated)
    middle = clause.time.english if clause.time and clause.time.when == "mid" else ""
    who = clause.subject.english if subject else ""
    complements = _complements(clause, skip)
    if question:
        return _join(finite, who, "not" if clause.negated else "", middle, rest, complements)
    if clause.negated:
        finite = "cannot" if finite == "can" else f"{finite} not"
    if rest or clause.verb.english[0] == "be":
        return _join(who, finite, middle, rest, complements)
    return _join(who, middle, finite, complements)


def _middle(clause: Clause, skip: str = "") -> list[str]:
    """Return the German middle field after the subject, in an acceptable order."""
    parts: list[str] = []
    known, new = "", ""
    accusative = clause.accusative if skip != "acc" else None
    dative = clause.dative if skip != "dat" else None
    if accusative and accusative.pronoun:
        parts.append(accusative.german[ACCUSATIVE])
    if dative and (dative.pronoun or clause.accusative):
        parts.append(dative.german[DATIVE])
        dative = None
    if dative or (accusative and not accusative.pronoun):
        words = dative.german[DATIVE] if dative else accusative.german[ACCUSATIVE] if accusative else ""
        known, new = (words, "") if clause.negated and not words.startswith("kein") else ("", words)
    time = clause.time.german if clause.time else "gerade" if clause.tense == "progressive" else ""
    # Negated objects are known information and come early: "verkauft das Auto heute nicht", but "verkauft heute ein
    # Auto".
    parts += [part for part in (known, time, new) if part]
    if clause.negated and not new:
        parts.append("nicht")
    parts += [pair[1] for pair in (clause.manner, clause.place, clause.predicate) if pair]
    return parts


def german_clause(
    clause: Clause, order: str = "statement", *, front: str = "", skip: str = "", subject: bool = True
) -> tuple[str, int]:
    """Render the German clause and measure its longest dependency.

    Args:
        clause: Clause to render.
        order: `"statement"` (subject first), `"inverted"` (finite verb, then subject: after a fronted word and in
            questions) or `"final"` (finite verb last: subordinate clauses).
        front: Word or conjunction before the clause, if any.
        skip: Object to leave out, `"acc"` or `"dat"`; empty for none.
        subject: Whether to render the subject.
    """
    person = clause.subject
    finite, bracket = _german_verbs(clause, person.form)
    who = person.german[NOMINATIVE] if subject else ""
    middle = _middle(clause, skip)
    reflexive = german.REFLEXIVE[person.form] if clause.verb.reflexive else ""
    if order == "final":
        group = f"{bracket}{finite}" if bracket == clause.verb.prefix else f"{bracket} {finite}"
        text = _join(front, who, reflexive, *middle, group)
        return text, person.tail + _count([reflexive, *middle, group]) - 1
    if order == "statement":
        text = _join(front, who, finite, reflexive, *middle, bracket)
        between = _count([reflexive, *middle])
        return text, max(person.tail, between if bracket else 0)
    # A noun follows the reflexive pronoun, a pronoun precedes it: "freut sich der Mann", "freut er sich".
    subjects = (who, reflexive) if person.pronoun else (reflexive, who)
    text = _join(front, finite, *subjects, *middle, bracket)
    return text, _count([*subjects, *middle]) if bracket else 0


def _count(parts: list[str]) -> int:
    return sum(part.count(" ") + 1 for part in parts if part)


def infinitive_clause(clause: Clause) -> Pair:
    """Render the infinitive without subject: to read the book, das Buch zu lesen.

    A separable verb has "zu" inside: "die Tür aufzumachen".
    """
    verb = clause.verb
    reflexive = german.REFLEXIVE[clause.subject.form] if verb.reflexive else ""
    with_zu = f"{verb.prefix}zu{verb.bare}" if verb.prefix else f"zu {verb.bare}"
    return _join("to", verb.english[0], _complements(clause)), _join(reflexive, *_middle(clause), with_zu)
