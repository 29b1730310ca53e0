"""The sentence patterns of the built-in corpus: each draws one sentence in English and German."""

from collections.abc import Callable
from functools import cache

from s2s.data import phrasebook_words as tables
from s2s.data.phrasebook_choices import Chooser, menu, people
from s2s.data.phrasebook_clauses import (
    MODALS,
    Clause,
    Nominal,
    english_clause,
    english_infinitive,
    german_clause,
    german_infinitive,
    noun_phrase,
    pronoun,
)
from s2s.data.phrasebook_figures import clock, date, number
from s2s.data.phrasebook_german import ACCUSATIVE, DATIVE, NOMINATIVE
from s2s.data.phrasebook_lexicon import Verb, adjectives, nouns, verbs
from s2s.data.phrasebook_scenes import (
    Draft,
    any_clause,
    both,
    chain,
    clause_around,
    time_kinds,
    with_front,
    with_relative,
)

Pattern = Callable[[Chooser], Draft]

_HEADS = ("the", "the", "the", "this", "my", "our", "his", "her")
_DESCRIBED = (
    "person", "person", "animal", "text", "clothes", "vehicle", "place", "fruit", "idea", "standing"
)  # fmt: skip
_CONJUNCTIONS = menu({
    ("because", "weil"): 3, ("although", "obwohl"): 2, ("if", "wenn"): 1, ("when", "wenn"): 2, ("while", "während"): 1,
    ("before", "bevor"): 1, ("after", "nachdem"): 1, ("until", "bis"): 1,
})  # fmt: skip
_WEATHER = (("it is raining", "es regnet"), ("it is snowing", "es schneit"), ("it is late", "es spät ist"),
            ("the sun is shining", "die Sonne scheint"), ("it is getting dark", "es dunkel wird"))  # fmt: skip
_COMMANDS = (tables.TRANSITIVE, tables.TRANSITIVE, tables.TRANSITIVE, tables.DITRANSITIVE, tables.DATIVE_VERBS,
             tables.OBLIQUE, tables.PUTTING, tables.PUTTING)  # fmt: skip
_ADVERBIAL_QUESTIONS = (("when", "wann"), ("why", "warum"), ("where", "wo"))


def of_verbs(*chosen: str) -> Pattern:
    """Give the pattern of plain statements around verbs of these tables (of any, when there are none)."""
    return lambda choose: both(any_clause(choose, choose.even(chosen) if chosen else ""))


def in_tense(*tenses: str) -> Pattern:
    """Give the pattern of plain statements in one of these tenses."""
    return lambda choose: both(any_clause(choose, tense=choose.even(tenses), time=0.45))


def fronted(choose: Chooser) -> Draft:
    """Today the man buys a car: what is fronted takes the subject's place before the German verb."""
    clause = any_clause(choose, time=0)
    while clause.verb.state or not time_kinds(clause.tense):
        clause = any_clause(choose, time=0)
    return with_front(clause, choose.time(*time_kinds(clause.tense)))


def subordinate(choose: Chooser) -> Draft:
    """The man smiles because she has bought the car: the German verb comes last."""
    english, german = choose.even(_CONJUNCTIONS)
    if choose.chance(0.12) and english in {"because", "although", "if", "when"}:
        source, side = choose.even(_WEATHER)
        source, target, distance, tense = f"{english} {source}", f"{german} {side}", 0, "present"
    else:
        tense = "present" if english in {"if", "while"} else choose.even(("present", "past"))
        tense = "past" if english == "after" else tense
        clause = any_clause(choose, tense="pluperfect" if english == "after" else tense, time=0.1)
        german = "als" if english == "when" and tense == "past" else german
        target, distance = german_clause(clause, "final", front=german)
        source = f"{english} {english_clause(clause)}"
    main = any_clause(choose, tense=choose.even(("present", "future")) if english == "if" else tense, time=0)
    if choose.chance(0.35):
        rest, other = german_clause(main, "inverted")
        return f"{source}, {english_clause(main)}", f"{target}, {rest}", max(distance, other)
    rest, other = german_clause(main)
    return f"{english_clause(main)} {source}", f"{rest}, {target}", max(distance, other)


def reported(choose: Chooser) -> Draft:
    """The man says that ..., asks whether ..., does not know whether ..."""
    verb = choose.pick(verbs(tables.REPORT))
    clause = any_clause(choose, denied=0.1, time=0.2)
    refused = verb.english[0] == "know" and choose.chance(0.4)
    whether = verb.english[0] == "ask" or refused
    tense = "present" if refused else choose.even(("present", "past"))
    main = Clause(choose.subject(verb.subjects, refused), verb, tense, negated=refused)
    first, _ = german_clause(main)
    second, distance = german_clause(clause, "final", front="ob" if whether else "dass")
    link = "whether" if whether else "that"
    return f"{english_clause(main)} {link} {english_clause(clause)}", f"{first}, {second}", distance


def relative(choose: Chooser) -> Draft:
    """The man who ... sees the dog whose ...: relative pronouns in every case."""
    table = choose.even((tables.TRANSITIVE, tables.TRANSITIVE, tables.INTRANSITIVE, tables.OBLIQUE))
    clause = any_clause(choose, table, denied=0, time=0.15)
    if clause.accusative is not None and choose.chance(0.5):
        clause.accusative = with_relative(choose, choose.pick(clause.verb.objects))
    else:
        clause.subject = with_relative(choose, choose.pick(clause.verb.subjects))
    return both(clause)


def agreement(choose: Chooser, depth: int = -1) -> Draft:
    """The boys who see the dog that chases the cats sleep.

    Args:
        choose: the source of randomness.
        depth: relative clauses between the subject and the verb that agrees with it; a few when negative. Each has
            four German words, so the distance is four times the depth.
    """
    if depth < 0:
        depth = choose.even((0, 1, 1, 1, 1, 2, 2, 3))
    noun = choose.pick(nouns("being"))
    head = noun_phrase(noun, choose.even(_HEADS), None, choose.chance(0.5))
    subject = chain(choose, noun, head, depth)
    if choose.chance(0.3):
        adjective = choose.pick(adjectives(noun.kind))
        clause = Clause(subject, verbs(tables.BE)[0], choose.even(("present", "past")))
        clause.predicate = adjective.english[0], adjective.predicate
    else:
        options = [verb for verb in verbs(tables.INTRANSITIVE) if noun in verb.subjects and not verb.reflexive]
        clause = Clause(subject, choose.pick(options), choose.even(("present", "present", "past", "future")))
    return english_clause(clause), german_clause(clause)[0], 4 * depth


@cache
def _separable_verbs() -> tuple[tuple[Verb, str], ...]:
    both = (tables.TRANSITIVE, tables.INTRANSITIVE)
    return tuple((verb, table) for table in both for verb in verbs(table) if verb.prefix)


def separable(choose: Chooser) -> Draft:
    """The man turns the lamp on: schaltet ... ein."""
    verb, table = choose.pick(_separable_verbs())
    return both(clause_around(choose, verb, table, time=0.45))


def negation(choose: Chooser) -> Draft:
    """The man does not buy a car; no man buys a car: nicht and kein."""
    if choose.chance(0.2):
        verb = choose.pick(verbs(choose.even((tables.TRANSITIVE, tables.INTRANSITIVE, tables.OBLIQUE))))
        noun = choose.pick(verb.subjects)
        subject = noun_phrase(noun, "no", choose.adjective(noun, 0.3), choose.chance(0.3))
        table = tables.OBLIQUE if verb.preposition[1] else tables.TRANSITIVE if verb.objects else tables.INTRANSITIVE
        return both(clause_around(choose, verb, table, denied=0, time=0, subject=subject))
    tense = choose.even(("present", "present", "past", "future", "can", "want"))
    return both(any_clause(choose, tense=tense, denied=1))


def question(choose: Chooser) -> Draft:
    """Does the man buy a car?"""
    clause = any_clause(choose, denied=0)
    target, distance = german_clause(clause, "inverted")
    return f"{english_clause(clause, question=True)}?", f"{target}?", distance


def interrogative(choose: Chooser) -> Draft:
    """Who, whom, which, when, where and why."""
    draw = choose.random()
    if draw < 0.3:
        return _asked_object(choose)
    if draw < 0.4:
        clause = any_clause(choose, tables.DATIVE_VERBS, denied=0, time=0.15)
        source, target, skip = "whom", "wem", "dat"
    elif draw < 0.6:
        clause = any_clause(choose, denied=0)
        clause.subject = Nominal("who", "", ("wer", "", "", ""))
        if all(noun.kind != "person" for noun in clause.verb.subjects):
            clause.subject = choose.noun_phrase(choose.pick(clause.verb.subjects), ("which",), 0)
        german, distance = german_clause(clause)
        return f"{english_clause(clause)}?", f"{german}?", distance
    else:
        source, target = choose.even(_ADVERBIAL_QUESTIONS)
        clause = any_clause(choose, tables.INTRANSITIVE if source == "where" else "", denied=0, time=0)
        if source == "where":
            clause.place = None
        if source == "when" and clause.verb.state:
            source, target = "why", "warum"
        if source == "when" and clause.tense == "perfect":
            clause.tense = "future"
        skip = ""
    german, distance = german_clause(clause, "inverted", front=target, skip=skip)
    return f"{source} {english_clause(clause, question=True, skip=skip)}?", f"{german}?", distance


def _asked_object(choose: Chooser) -> Draft:
    clause = any_clause(choose, tables.TRANSITIVE, denied=0, time=0.15)
    noun = choose.pick(clause.verb.objects)
    if noun.kind == "person" and choose.chance(0.6):
        source, target = "whom", "wen"
    else:
        countable = bool(noun.german[4])
        phrase = noun_phrase(noun, "which", None, countable and choose.chance(0.4))
        source, target = phrase.english, phrase.german[ACCUSATIVE]
    german, distance = german_clause(clause, "inverted", front=target, skip="acc")
    return f"{source} {english_clause(clause, question=True, skip='acc')}?", f"{german}?", distance


def imperative(choose: Chooser) -> Draft:
    """Open the door!"""
    clause = any_clause(choose, choose.even(_COMMANDS), tense="present", denied=0.2, time=0, subject=pronoun("you"))
    while clause.verb.state or clause.verb.subjects[0].kind != "person":
        clause = any_clause(choose, tables.TRANSITIVE, tense="present", denied=0.2, time=0, subject=pronoun("you"))
    return command(clause, choose.chance(0.4))


def command(clause: Clause, polite: bool) -> Draft:
    """Render a clause whose subject is you as a command; ``polite`` puts please before it."""
    statement, distance = german_clause(clause)
    rest = statement.split(" ", 2)[2:]
    target = " ".join([clause.verb.imperative, *rest])
    source = english_clause(clause, subject=False)
    return (f"please {source}.", f"bitte {target}.", distance) if polite else (f"{source}!", f"{target}!", distance)


def copula(choose: Chooser) -> Draft:
    """The house is very old."""
    noun = choose.pick(nouns(choose.even(_DESCRIBED)))
    subject = choose.subject((noun,), True, 0.0)
    adjective = choose.pick(adjectives(noun.kind))
    clause = Clause(subject, verbs(tables.BE)[0], choose.even(("present", "present", "past", "future")))
    english, german = ("very ", "sehr ") if choose.chance(0.4) else ("", "")
    clause.predicate = english + adjective.english[0], german + adjective.predicate
    clause.negated = choose.chance(0.15)
    if choose.chance(0.3) and not clause.negated:
        clause.time = choose.time({"present": "mid", "past": "past", "future": "future"}[clause.tense])
    return both(clause)


def comparison(choose: Chooser) -> Draft:
    """The dog is bigger than the cat, as old as the cat, the oldest dog in the village."""
    noun = choose.pick(nouns(choose.even(_DESCRIBED)))
    adjective = choose.pick(adjectives(noun.kind, compared=True))
    subject = choose.subject((noun,), True, 0.0)
    clause = Clause(subject, verbs(tables.BE)[0], choose.even(("present", "present", "past")))
    draw = choose.random()
    if draw < 0.3 and noun.kind == "person" and adjective.superlative:
        clause.subject = choose.even(people())
        best = noun_phrase(noun, "the", adjective, False, 2)
        where = noun_phrase(choose.pick(nouns("place")), "the")
        clause.predicate = (
            f"{best.english} in {where.english}", f"{best.german[NOMINATIVE]} {where.after('in', DATIVE)}"
        )  # fmt: skip
        return both(clause)
    rival = choose.pick(nouns(noun.kind))
    while rival is noun:
        rival = choose.even(nouns(noun.kind))
    other = choose.noun_phrase(rival, _HEADS, 0.0)
    if draw < 0.7:
        english, german = f"{adjective.english[1]} than", f"{adjective.stems[1]} als"
    else:
        english, german = f"as {adjective.english[0]} as", f"so {adjective.predicate} wie"
    clause.predicate = f"{english} {other.english}", f"{german} {other.german[NOMINATIVE]}"
    return both(clause)


def passive(choose: Chooser) -> Draft:
    """The letter was written by the teacher."""
    verb = choose.pick(verbs(tables.TRANSITIVE))
    while verb.state:
        verb = choose.pick(verbs(tables.TRANSITIVE))
    tense = choose.even(("present", "past", "past", "perfect", "future", "must", "can"))
    clause = Clause(choose.noun_phrase(choose.pick(verb.objects)), verb, tense, passive=True)
    # Without the eater nobody knows whether eat is essen or fressen.
    if verb.english[0] == "eat" or choose.chance(0.45):
        agent = choose.object(verb.subjects, clause.subject)
        clause.place = f"by {agent.english_object}", agent.after("von", DATIVE)
    if choose.chance(0.35) and time_kinds(tense):
        clause.time = choose.time(*time_kinds(tense))
    return both(clause)


def infinitive(choose: Chooser) -> Draft:
    """The man tries to open the door; he comes in order to open it."""
    table = choose.even((tables.TRANSITIVE, tables.TRANSITIVE, tables.OBLIQUE, tables.DITRANSITIVE))
    inner = any_clause(choose, table, tense="present", denied=0, time=0)
    while inner.verb.subjects[0].kind != "person" or inner.verb.state:
        inner = any_clause(choose, table, tense="present", denied=0, time=0)
    purpose = choose.chance(0.35)
    table = choose.even((tables.MOTION, tables.OBLIQUE)) if purpose else tables.CONTROL
    outer = any_clause(choose, table, denied=0.05, time=0, subject=inner.subject)
    while outer.verb.subjects[0].kind != "person":
        outer = any_clause(choose, table, denied=0.05, time=0, subject=inner.subject)
    english, german = ("in order ", "um ") if purpose else ("", "")
    first, distance = german_clause(outer)
    source = f"{english_clause(outer)} {english}{english_infinitive(inner)}"
    return source, f"{first}, {german}{german_infinitive(inner)}", distance


def coordination(choose: Chooser) -> Draft:
    """The man sings and the dog sleeps; the man sings, but the dog sleeps."""
    first = any_clause(choose, time=0.25)
    second = any_clause(choose, tense=first.tense if first.tense in {"present", "past"} else "", time=0.1)
    english, german = choose.even(((" and", " und"), (", but", ", aber")))
    one, distance = german_clause(first)
    two, other = german_clause(second)
    source = f"{english_clause(first)}{english} {english_clause(second)}"
    return source, f"{one}{german} {two}", max(distance, other)


PATTERNS: dict[str, tuple[int, Pattern]] = {
    "plain": (8, of_verbs()),
    "fronted": (8, fronted),
    "subordinate": (12, subordinate),
    "reported": (8, reported),
    "relative": (8, relative),
    "agreement": (5, agreement),
    "separable": (4, separable),
    "perfect": (4, in_tense("past", "past", "perfect")),
    "modal": (4, in_tense(*MODALS)),
    "future": (2, in_tense("future")),
    "negation": (4, negation),
    "dative": (3, of_verbs(tables.DATIVE_VERBS)),
    "ditransitive": (4, of_verbs(tables.DITRANSITIVE)),
    "place": (4, of_verbs(tables.MOTION, tables.POSITION, tables.PUTTING)),
    "prepositional": (3, of_verbs(tables.OBLIQUE)),
    "copula": (3, copula),
    "comparison": (3, comparison),
    "passive": (4, passive),
    "infinitive": (5, infinitive),
    "coordination": (7, coordination),
    "question": (4, question),
    "interrogative": (4, interrogative),
    "imperative": (3, imperative),
    "number": (10, number),
    "date": (3, date),
    "clock": (3, clock),
}
