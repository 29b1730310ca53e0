"""Random clauses of the built-in corpus: verbs with fitting subjects and objects."""

from functools import cache

from s2s.data.phrasebook.chooser import Chooser
from s2s.data.phrasebook.clauses import Clause, Nominal, english_clause, german_clause, noun_phrase
from s2s.data.phrasebook.german import ACCUSATIVE, DATIVE, GENITIVE, NOMINATIVE, SINGULAR, relative_pronoun
from s2s.data.phrasebook.lexicon import Adverb, Noun, Pair, Verb, menu, nouns, pairs, verbs

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
