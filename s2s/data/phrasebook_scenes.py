"""Random clauses for the built-in corpus: verbs with subjects, objects, tenses and circumstances that fit."""

from functools import cache

from s2s.data import phrasebook_words as tables
from s2s.data.phrasebook_choices import DEFINITE, Chooser, menu
from s2s.data.phrasebook_clauses import MODALS, Clause, Nominal, english_clause, german_clause, noun_phrase
from s2s.data.phrasebook_german import ACCUSATIVE, DATIVE, GENITIVE, NOMINATIVE, SINGULAR, relative_pronoun
from s2s.data.phrasebook_lexicon import Adverb, Noun, Verb, manners, nouns, verbs

_KINDS = menu({
    tables.TRANSITIVE: 22, tables.INTRANSITIVE: 7, tables.OBLIQUE: 7, tables.DATIVE_VERBS: 3,
    tables.DITRANSITIVE: 5, tables.MOTION: 3, tables.POSITION: 2, tables.PUTTING: 2, tables.HAVE: 2,
})  # fmt: skip
# Which adverbials of time go with a tense (with any other: any, future).
_TIMES = {
    "present": ("any", "habit", "mid"), "past": ("any", "past", "mid"), "perfect": ("mid",), "progressive": (),
    "wanted": ("any", "past"), "had to": ("any", "past"), "could": ("any", "past"),
}  # fmt: skip
_WISHES = {"want", "wanted", "would like", "allowed"}  # not of pillows
_ONLY_TO = {"explain", "recommend"}  # explain it to somebody, never explain somebody it
_UNDENIABLE = {
    "progressive",
    "must",
    "had to",
    "allowed",
}  # English not does not mean German nicht with these


Draft = tuple[str, str, int]  # English, German, distance; not yet capitalised, full stops still to come


def both(clause: Clause) -> Draft:
    """Render a clause as a statement."""
    target, distance = german_clause(clause)
    return english_clause(clause), target, distance


def with_front(clause: Clause, time: Adverb) -> Draft:
    """Render a clause after an adverbial of time: in German the verb comes before the subject."""
    target, distance = german_clause(clause, "inverted", front=time.german)
    return f"{time.english} {english_clause(clause)}", target, distance


@cache
def chain_verbs(noun: Noun) -> tuple[tuple[Verb, int, tuple[Noun, ...]], ...]:
    """Give the verbs that lead from one being to another: verb, German case, possible objects."""
    found = []
    for table, case in ((tables.TRANSITIVE, ACCUSATIVE), (tables.DATIVE_VERBS, DATIVE)):
        for verb in verbs(table):
            beings = tuple(other for other in nouns("being") if other in verb.objects and other is not noun)
            if noun in verb.subjects and len(beings) > 1:
                found.append((verb, case, beings))
    return tuple(found)


@cache
def _done_to(noun: Noun) -> tuple[Verb, ...]:
    return tuple(verb for verb in verbs(tables.TRANSITIVE) if noun in verb.objects)


@cache
def _done_by(noun: Noun) -> tuple[tuple[Verb, str], ...]:
    chosen = (tables.TRANSITIVE, tables.INTRANSITIVE, tables.OBLIQUE)
    return tuple((verb, table) for table in chosen for verb in verbs(table) if noun in verb.subjects)


def looks_present(verb: Verb) -> bool:
    """Tell whether the past of an English verb looks like its present: they read, they put."""
    return verb.english[0] == verb.english[2]


def time_kinds(tense: str) -> tuple[str, ...]:
    """Give the kinds of adverbials of time that may be fronted in a tense."""
    return tuple(kind for kind in _TIMES.get(tense, ("any", "future")) if kind != "mid")


def _tense(choose: Chooser, verb: Verb) -> str:
    draw = choose.random()
    if draw < 0.36:
        return "present"
    if draw < 0.46:
        return "progressive"
    if draw < 0.7:
        return "past"
    if draw < 0.76:
        return "perfect"
    return "future" if draw < 0.86 or verb.state else choose.even(MODALS)


def any_clause(
    choose: Chooser,
    table: str = "",
    *,
    tense: str = "",
    denied: float = 0.08,
    time: float = 0.4,
    subject: Nominal | None = None,
) -> Clause:
    """Draw a clause.

    Args:
        choose: the source of randomness.
        table: a table of verbs; any when empty.
        tense: a tense or modal; any that suits when empty.
        denied: probability of a negation.
        time: probability of an adverbial of time.
        subject: the subject, if it is given.
    """
    table = table or choose.even(_KINDS)
    verb = choose.pick(verbs(table))
    while tense == "past" and looks_present(verb):
        table = tables.TRANSITIVE
        verb = choose.pick(verbs(table))
    return clause_around(choose, verb, table, tense=tense, denied=denied, time=time, subject=subject)


def clause_around(
    choose: Chooser,
    verb: Verb,
    table: str,
    *,
    tense: str = "",
    denied: float = 0.08,
    time: float = 0.4,
    subject: Nominal | None = None,
) -> Clause:
    """Draw a clause around a verb of a table; the other arguments are those of ``any_clause``."""
    tense = tense or _tense(choose, verb)
    if tense == "past" and looks_present(verb):
        tense = "perfect"
    if tense == "progressive" and verb.state:
        tense = "present"
    if tense in _WISHES and verb.subjects[0].kind not in {"person", "animal"}:
        tense = "can"
    refused = tense not in _UNDENIABLE and choose.chance(denied)
    subject = subject or choose.subject(verb.subjects, refused)
    clause = Clause(subject, verb, tense, negated=refused)
    if table is tables.DITRANSITIVE:
        clause.dative = _recipient(choose, nouns("person"), subject, refused)
        clause.accusative = choose.thing(choose.pick(verb.objects), refused)
        # He sells her books: whose? In the other order there is no doubt.
        last = clause.dative.english == "she" or verb.english[0] in _ONLY_TO
        clause.recipient_last = last or (not clause.dative.pronoun and choose.chance(0.4))
    elif table is tables.DATIVE_VERBS:
        clause.dative = _recipient(choose, verb.objects, subject, refused)
    elif table is tables.OBLIQUE:
        english, german, case = verb.preposition
        target = choose.object(verb.objects, subject)
        clause.place = f"{english} {target.english_object}".strip(), target.after(german, case)
    elif verb.objects:
        clause.accusative = choose.object(verb.objects, subject, refused)
    _locate(choose, clause, table)
    # A state lasts: it goes with often and never, hardly with half past seven.
    kinds = time_kinds(tense) if refused else _TIMES.get(tense, ("any", "future"))
    if verb.state:
        kinds = tuple(kind for kind in kinds if kind == "mid")
    if kinds and choose.chance(time):
        clause.time = choose.time(*kinds)
    return clause


def _recipient(choose: Chooser, options: tuple[Noun, ...], subject: Nominal, refused: bool) -> Nominal:
    if refused:
        return choose.noun_phrase(choose.pick(options), DEFINITE, 0.3)
    return choose.object(options, subject)


def _locate(choose: Chooser, clause: Clause, table: str) -> None:
    verb = clause.verb
    if table is tables.MOTION:
        clause.place = choose.direction(verb)
    elif table is tables.POSITION:
        clause.place = choose.relation(verb, DATIVE)
    elif table is tables.PUTTING:
        clause.place = choose.relation(verb, ACCUSATIVE)
    elif table is tables.INTRANSITIVE and not verb.reflexive:
        draw = choose.random()
        if draw < 0.35:
            clause.place = choose.place(indoors=verb.subjects[-1].kind != "vehicle")
        elif draw < 0.5 and verb.subjects[-1].kind == "person" and not verb.prefix:
            clause.manner = choose.even(manners())
    elif table is tables.TRANSITIVE and not verb.state and choose.chance(0.15):
        clause.place = choose.place()


def with_relative(choose: Chooser, noun: Noun) -> Nominal:
    """Give a noun phrase with a relative clause in any case, or the phrase alone where no verb fits."""
    head = choose.noun_phrase(noun, ("the", "the", "the", "my", "a", "this"), 0.15)
    draw = choose.random()
    person = noun.kind == "person"
    if person and draw < 0.15:
        return head.with_tail(*_whose(choose, head))
    if person and draw < 0.3:
        verb = choose.even([verb for verb in verbs(tables.DATIVE_VERBS) if noun in verb.objects])
        clause = clause_around(choose, verb, tables.DATIVE_VERBS, denied=0, time=0.15)
        return head.with_tail(*_gap(clause, head, "whom", DATIVE, "dat"))
    if draw < 0.6 and (options := _done_to(noun)):
        clause = clause_around(choose, choose.pick(options), tables.TRANSITIVE, denied=0, time=0.2)
        return head.with_tail(*_gap(clause, head, "whom" if person else "that", ACCUSATIVE, "acc"))
    if does := _done_by(noun):
        verb, table = choose.pick(does)
        clause = clause_around(choose, verb, table, denied=0.05, time=0.15, subject=head)
        return head.with_tail(*_gap(clause, head, "who" if person else "that", NOMINATIVE, ""))
    return head


def _gap(clause: Clause, head: Nominal, word: str, case: int, skip: str) -> tuple[str, str]:
    """Render a relative clause: the subject is the gap when nothing is skipped."""
    front = relative_pronoun(case, head.gender)
    target, _ = german_clause(clause, "final", front=front, skip=skip, subject=bool(skip))
    return f"{word} {english_clause(clause, skip=skip, subject=bool(skip))}", f", {target},"


def _whose(choose: Chooser, head: Nominal) -> tuple[str, str]:
    noun = choose.pick(nouns("being"))
    kin = noun_phrase(noun, "", None, choose.chance(0.3))
    verb = choose.pick([verb for verb in verbs(tables.INTRANSITIVE) if noun in verb.subjects])
    clause = clause_around(choose, verb, tables.INTRANSITIVE, subject=kin, denied=0, time=0.2)
    target, _ = german_clause(clause, "final", front=relative_pronoun(GENITIVE, head.gender))
    return f"whose {english_clause(clause)}", f", {target},"


def chain(choose: Chooser, noun: Noun, head: Nominal, depth: int) -> Nominal:
    """Add relative clauses to a phrase, each about the noun before it, each of exactly four German words."""
    english, german = "", ""
    inner, phrase = noun, head
    for _ in range(depth):
        verb, case, others = choose.even(chain_verbs(inner))
        other = choose.pick(others)
        following = noun_phrase(other, choose.even(("the", "the", "this", "my", "our")), None, choose.chance(0.5))
        present = verb.english[1] if phrase.form == SINGULAR else verb.english[0]
        particle = f" {verb.particle}" if verb.particle else ""
        english += f" {'who' if inner.kind == 'person' else 'that'} {present}{particle} {following.english}"
        word = relative_pronoun(NOMINATIVE, phrase.gender)
        german += f", {word} {following.german[case]} {verb.prefix}{verb.present[phrase.form]}"
        inner, phrase = other, following
    return head.with_tail(english.strip(), f"{german},") if depth else head
