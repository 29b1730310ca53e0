"""Phrases and clauses of the built-in corpus, rendered in English and in German from one structure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from s2s.data import phrasebook_german as german
from s2s.data.phrasebook_english import indefinite
from s2s.data.phrasebook_german import (
    ACCUSATIVE,
    DATIVE,
    FIRST,
    GENITIVE,
    NOMINATIVE,
    PLURAL,
    SECOND,
    SINGULAR,
    THEY,
    WE,
)
from s2s.data.phrasebook_lexicon import Adjective, Adverb, Noun, Verb


@dataclass(frozen=True, slots=True)
class Nominal:
    """A noun phrase, a name or a pronoun in both languages.

    ``german`` has the four cases, each word marked (see ``phrasebook_german.marked``); ``form`` chooses the verb form
    (``FIRST`` to ``THEY``), ``gender`` the relative pronoun; ``tail`` counts the German words that follow the head
    noun.
    """

    english: str
    english_object: str
    german: tuple[str, str, str, str]
    form: int = SINGULAR
    gender: int = 0
    pronoun: bool = False
    tail: int = 0

    def after(self, preposition: str, case: int) -> str:
        """Give the German prepositional phrase; an article melts into the preposition unless a clause follows."""
        if "," in self.german[case]:
            return f"{preposition} {self.german[case]}"
        return german.contract(preposition, self.german[case])

    def with_tail(self, english: str, target: str) -> "Nominal":
        """Add what follows the head noun, such as a relative clause."""
        cases = self.german
        return replace(
            self,
            english=f"{self.english} {english}",
            english_object=f"{self.english_object} {english}",
            german=(cases[0] + target, cases[1] + target, cases[2] + target, cases[3] + target),
            tail=self.tail + target.count(" "),
        )


_PRONOUNS = {
    "I": Nominal("I", "me", ("ich", "mich", "mir", ""), FIRST, 0, True),
    "you": Nominal("you", "you", ("du", "dich", "dir", ""), SECOND, 0, True),
    "he": Nominal("he", "him", ("er", "ihn", "ihm", ""), SINGULAR, 0, True),
    "she": Nominal("she", "her", ("sie", "sie", "ihr", ""), SINGULAR, 2, True),
    "we": Nominal("we", "us", ("wir", "uns", "uns", ""), WE, PLURAL, True),
    "they": Nominal("they", "them", ("sie", "sie", "ihnen", ""), THEY, PLURAL, True),
}

# English singular, English plural, German word; "" where the number is not used ("-": no word at all).
DETERMINERS = {
    "the": ("the", "the", "der"), "a": ("a", "-", "ein"), "this": ("this", "these", "dies"),
    "my": ("my", "my", "mein"), "your": ("your", "your", "dein"), "his": ("his", "his", "sein"),
    "her": ("her", "her", "ihr"), "our": ("our", "our", "unser"), "their": ("their", "their", "ihr"),
    "every": ("every", "", "jed"), "no": ("no", "no", "kein"), "not any": ("any", "any", "kein"),
    "not a": ("a", "any", "kein"), "all": ("", "all", "all"), "many": ("", "many", "viel"),
    "some": ("", "some", "einig"), "several": ("", "several", "mehrer"), "both": ("", "both", "beid"),
    "two": ("", "two", "zwei"), "three": ("", "three", "drei"), "four": ("", "four", "vier"),
    "five": ("", "five", "fünf"), "six": ("", "six", "sechs"), "ten": ("", "ten", "zehn"),
    "which": ("which", "which", "welch"), "": ("-", "-", ""),
}  # fmt: skip


def _marked(cases: Sequence[str]) -> tuple[str, str, str, str]:
    nominative, accusative, dative, genitive = (german.marked(cases[case], case) for case in range(4))
    return nominative, accusative, dative, genitive


def pronoun(word: str) -> Nominal:
    """Give a personal pronoun by its English subject form."""
    found = _PRONOUNS[word]
    return replace(found, german=_marked(found.german))


def name(english: str, target: str, gender: int) -> Nominal:
    """Give the name of a person or place, the same in every case but the genitive."""
    return Nominal(english, english, _marked((target, target, target, f"{target}s")), SINGULAR, gender)


def noun_phrase(
    noun: Noun,
    determiner: str = "the",
    adjective: Adjective | None = None,
    plural: bool = False,
    degree: int = 0,
) -> Nominal:
    """Build determiner, adjective and noun.

    Args:
        noun: the head.
        determiner: a key of ``DETERMINERS``; ``"a"`` has no word in the plural, ``""`` never has one.
        adjective: an attribute, if any.
        plural: the number.
        degree: 0 positive, 1 comparative, 2 superlative.
    """
    singular_word, plural_word, article = DETERMINERS[determiner]
    gender = PLURAL if plural else noun.gender
    if plural and determiner == "a":
        article = ""
    word = plural_word if plural else singular_word
    english = noun.english[plural]
    offset = 4 if plural else 0
    if adjective is None:
        core = [noun.german[offset + case] for case in range(4)]
    else:
        english = f"{adjective.english[degree]} {english}"
        stem = adjective.stems[degree]
        core = [
            f"{stem}{german.adjective_ending(article, case, gender)} {noun.german[offset + case]}" for case in range(4)
        ]
    if article:
        core = [f"{german.determiner(article, case, gender)} {core[case]}" for case in range(4)]
    if word == "a":
        english = indefinite(english)
    elif word != "-":
        english = f"{word} {english}"
    return Nominal(english, english, _marked(core), THEY if plural else SINGULAR, gender)


def possessed(owner: Nominal, noun: Noun, plural: bool = False) -> Nominal:
    """Build a name in the genitive and a noun: Anna's dog, Annas Hund."""
    english = f"{owner.english}'s {noun.english[plural]}"
    form, gender = (THEY, PLURAL) if plural else (SINGULAR, noun.gender)
    nominative, accusative, dative, genitive = _marked(noun.german[4 * plural : 4 * plural + 4])
    name = owner.german[GENITIVE]
    core = f"{name} {nominative}", f"{name} {accusative}", f"{name} {dative}", f"{name} {genitive}"
    return Nominal(english, english, core, form, gender)


def owned(thing: Nominal, owner: Nominal) -> Nominal:
    """Add an owner in the genitive: the dog of my neighbour, der Hund meines Nachbarn."""
    return thing.with_tail(f"of {owner.english}", f" {owner.german[GENITIVE]}")


def coordinate(first: Nominal, second: Nominal) -> Nominal:
    """Join two phrases by and: a plural."""
    cases = [f"{one} und {two}" for one, two in zip(first.german, second.german, strict=True)]
    return Nominal(
        f"{first.english} and {second.english}",
        f"{first.english_object} and {second.english_object}",
        (cases[0], cases[1], cases[2], cases[3]),
        THEY,
        PLURAL,
        tail=0,
    )


@dataclass(slots=True)
class Clause:
    """A subject, a verb and what goes with it, in no language yet.

    ``place`` is a prepositional phrase, English and German, and also carries the prepositional object;
    ``predicate`` is what follows to be; ``recipient_last`` chooses the English order with to.
    """

    subject: Nominal
    verb: Verb
    tense: str = "present"
    accusative: Nominal | None = None
    dative: Nominal | None = None
    place: tuple[str, str] | None = None
    predicate: tuple[str, str] | None = None
    manner: tuple[str, str] | None = None
    time: Adverb | None = None
    negated: bool = False
    passive: bool = False
    recipient_last: bool = False


# name: English forms for I, you, he, we, they; the word before the infinitive; does it need do; German verb, preterite?
_MODALS = {
    "can": ("can can can can can", "", "", "können", False),
    "must": ("must must must must must", "", "", "müssen", False),
    "should": ("should should should should should", "", "", "sollen", True),
    "want": ("want want wants want want", "to", "want", "wollen", False),
    "would like": ("would would would would would", "like to", "", "mögen", True),
    "allowed": ("am are is are are", "allowed to", "", "dürfen", False),
    "could": ("could could could could could", "", "", "können", True),
    "wanted": ("wanted wanted wanted wanted wanted", "to", "want", "wollen", True),
    "had to": ("had had had had had", "to", "have", "müssen", True),
}
MODALS = tuple(_MODALS)
_BE = ("am", "are", "is", "are", "are")
_WAS = ("was", "were", "was", "were", "were")
_HAVE = ("have", "have", "has", "have", "have")
_DO = ("do", "do", "does", "do", "do")
_PAST_TENSES = ("past", "wanted", "had to")
_IS_SIMPLE = {"be", "have"}  # German keeps their simple past where other verbs take the perfect


def _english_verbs(clause: Clause, form: int, support: bool) -> tuple[str, str]:
    """Give the finite word and the rest of the English verb group; ``support``: do is needed (question, not)."""
    base, third, past, participle, progressive = clause.verb.english
    tense = clause.tense
    if tense in _MODALS:
        finite, link, plain, _, _ = _MODALS[tense]
        tail = f"be {participle}" if clause.passive else base
        rest = f"{link} {tail}" if link else tail
        if support and plain:
            return ("did" if tense in _PAST_TENSES else _DO[form]), f"{plain} {rest}"
        return finite.split()[form], rest
    if tense == "future":
        return "will", f"be {participle}" if clause.passive else base
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


def _german_verbs(clause: Clause, form: int) -> tuple[str, str, str]:
    """Give finite verb and right bracket of a main clause, and the whole group of a subordinate one."""
    verb, tense = clause.verb, clause.tense
    infinitive = f"{verb.participle} werden" if clause.passive else verb.infinitive
    if tense in _MODALS:
        _, _, _, modal, preterite = _MODALS[tense]
        finite = (german.preterite(modal) if preterite else german.present(modal))[form]
        return finite, infinitive, f"{infinitive} {finite}"
    if tense == "future":
        finite = german.present("werden")[form]
        return finite, infinitive, f"{infinitive} {finite}"
    simple = verb.english[0] in _IS_SIMPLE
    if clause.passive and tense in {"present", "past"}:
        finite = (german.preterite("werden") if tense == "past" else german.present("werden"))[form]
        return finite, verb.participle, f"{verb.participle} {finite}"
    if tense == "past" and simple:
        finite = german.preterite(verb.bare)[form]
        return finite, "", finite
    if tense in {"past", "perfect", "pluperfect"}:
        auxiliary = "sein" if clause.passive else verb.auxiliary
        done = f"{verb.participle} worden" if clause.passive else verb.participle
        finite = (german.preterite(auxiliary) if tense == "pluperfect" else german.present(auxiliary))[form]
        return finite, done, f"{done} {finite}"
    return verb.present[form], verb.prefix, verb.prefix + verb.present[form]


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _complements(clause: Clause, skip: str = "") -> str:
    """Give the English words after the verb group; ``skip`` leaves out the object asked for or relativised."""
    accusative = "" if clause.accusative is None or skip == "acc" else clause.accusative.english_object
    dative = "" if clause.dative is None or skip == "dat" else clause.dative.english_object
    particle = clause.verb.particle
    if accusative and clause.accusative is not None and clause.accusative.pronoun and not _is_preposition(particle):
        accusative, particle = _join(accusative, particle), ""
    objects = (accusative, f"to {dative}") if dative and clause.recipient_last else (dative, accusative)
    predicate = clause.predicate[0] if clause.predicate else ""
    manner = clause.manner[0] if clause.manner else ""
    place = clause.place[0] if clause.place else ""
    time = clause.time.english if clause.time and clause.time.when != "mid" else ""
    return _join(particle, *objects, predicate, manner, place, time)


def _is_preposition(particle: str) -> bool:
    return particle in {"for", "at", "to"}


def english_clause(clause: Clause, *, question: bool = False, skip: str = "", subject: bool = True) -> str:
    """Render the English clause.

    Args:
        clause: what to say.
        question: put the finite verb before the subject.
        skip: ``"acc"`` or ``"dat"`` leaves that object out (questions and relative clauses).
        subject: whether the subject is said; without it the clause follows a relative or interrogative subject.
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
    """Give the German middle field after the subject, in the order that never sounds wrong."""
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
    # What is denied is known and comes early: verkauft das Auto heute nicht, but verkauft heute ein Auto.
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
        clause: what to say.
        order: ``"statement"`` (subject first), ``"inverted"`` (finite verb, then subject: after a fronted word and
            in questions) or ``"final"`` (finite verb last: subordinate clauses).
        front: the word or conjunction before it, if any.
        skip: ``"acc"`` or ``"dat"`` leaves that object out.
        subject: whether the subject is said.

    Returns:
        The clause and the number of words between the two ends of its longest dependency.
    """
    person = clause.subject
    finite, bracket, group = _german_verbs(clause, person.form)
    who = person.german[NOMINATIVE] if subject else ""
    middle = _middle(clause, skip)
    reflexive = german.REFLEXIVE[person.form] if clause.verb.reflexive else ""
    if order == "final":
        text = _join(front, who, reflexive, *middle, group)
        return text, person.tail + _count([reflexive, *middle, group]) - 1
    if order == "statement":
        text = _join(front, who, finite, reflexive, *middle, bracket)
        between = _count([reflexive, *middle])
        return text, max(person.tail, between if bracket else 0)
    # A noun follows the reflexive pronoun, a pronoun precedes it: freut sich der Mann, freut er sich.
    subjects = (who, reflexive) if person.pronoun else (reflexive, who)
    text = _join(front, finite, *subjects, *middle, bracket)
    return text, _count([*subjects, *middle]) if bracket else 0


def _count(parts: list[str]) -> int:
    return sum(part.count(" ") + 1 for part in parts if part)


def german_infinitive(clause: Clause) -> str:
    """Render the German infinitive with zu, without subject: das Buch zu lesen, die Tür aufzumachen."""
    verb = clause.verb
    reflexive = german.REFLEXIVE[clause.subject.form] if verb.reflexive else ""
    with_zu = f"{verb.prefix}zu{verb.bare}" if verb.prefix else f"zu {verb.bare}"
    return _join(reflexive, *_middle(clause), with_zu)


def english_infinitive(clause: Clause) -> str:
    """Render the English infinitive with to, without subject."""
    return _join("to", clause.verb.english[0], _complements(clause))
