"""Sentence patterns of the built-in corpus; each draws one sentence pair."""

from collections.abc import Callable
from functools import cache

from s2s.data.phrasebook import clauses
from s2s.data.phrasebook.clauses import Clause, Nominal
from s2s.data.phrasebook.english import number_words
from s2s.data.phrasebook.german import ACCUSATIVE, DATIVE, NEUTER, NOMINATIVE, THEY, number_word
from s2s.data.phrasebook.lexicon import Adverb, Pair, Verb, adjectives, menu, nouns, pairs, verbs
from s2s.data.phrasebook.scenes import (
    Chooser,
    Draft,
    any_clause,
    chain,
    done_by,
    people,
    statement,
    time_kinds,
    with_relative,
)

Pattern = Callable[[Chooser], Draft]

_COUNTED = frozenset({"buy", "sell", "see", "find", "need", "order"})


def _of_persons(clause: Clause) -> bool:
    return clause.verb.subjects[0].kind == "person"


def of_verbs(*tables: str) -> Pattern:
    """Return the pattern of plain statements with verbs of these tables, or of any."""
    return lambda choose: statement(any_clause(choose, choose.even(tables) if tables else ""))


def in_tense(*tenses: str) -> Pattern:
    """Return the pattern of plain statements in one of these tenses."""
    return lambda choose: statement(any_clause(choose, tense=choose.even(tenses), time=0.45))


def fronted(choose: Chooser) -> Draft:
    """Draw a statement with a fronted adverbial: Today the man buys a car.

    In German, the adverbial takes the place of the subject before the verb.
    """
    clause = choose.until(lambda c: not c.verb.state and time_kinds(c.tense), lambda: any_clause(choose, time=0))
    return statement(clause, choose.time(*time_kinds(clause.tense)))


def subordinate(choose: Chooser) -> Draft:
    """Draw a subordinate clause, in German with the verb last.

    Example sentence: The man smiles because she has bought the car.
    """
    english, german = choose.even(pairs("conjunctions"))
    if choose.chance(0.12) and english in {"because", "although", "if", "when"}:
        source, side = choose.even(pairs("weather"))
        source, target, distance, tense = f"{english} {source}", f"{german} {side}", 0, "present"
    else:
        tense = "present" if english in {"if", "while"} else choose.even(("present", "past"))
        tense = "past" if english == "after" else tense
        clause = any_clause(choose, tense="pluperfect" if english == "after" else tense, time=0.1)
        german = "als" if english == "when" and tense == "past" else german
        target, distance = clauses.german_clause(clause, "final", front=german)
        source = f"{english} {clauses.english_clause(clause)}"
    main = any_clause(choose, tense=choose.even(("present", "future")) if english == "if" else tense, time=0)
    first = choose.chance(0.35)
    rest, other = clauses.german_clause(main, "inverted" if first else "statement")
    if first:
        return f"{source}, {clauses.english_clause(main)}", f"{target}, {rest}", max(distance, other)
    return f"{clauses.english_clause(main)} {source}", f"{rest}, {target}", max(distance, other)


def reported(choose: Chooser) -> Draft:
    """Draw reported speech (says that …, asks whether …, does not know whether …)."""
    verb = choose.pick(verbs("report"))
    clause = any_clause(choose, denied=0.1, time=0.2)
    refused = verb.english[0] == "know" and choose.chance(0.4)
    whether = verb.english[0] == "ask" or refused
    tense = "present" if refused else choose.even(("present", "past"))
    main = Clause(choose.subject(verb.subjects, refused), verb, tense, negated=refused)
    first, _ = clauses.german_clause(main)
    second, distance = clauses.german_clause(clause, "final", front="ob" if whether else "dass")
    link = "whether" if whether else "that"
    return f"{clauses.english_clause(main)} {link} {clauses.english_clause(clause)}", f"{first}, {second}", distance


def relative(choose: Chooser) -> Draft:
    """Draw a relative clause (The man who … sees the dog whose …).

    Relative pronouns occur in all cases.
    """
    table = choose.even(("transitive", "transitive", "intransitive", "oblique"))
    clause = any_clause(choose, table, denied=0, time=0.15)
    if clause.accusative is not None and choose.chance(0.5):
        choose.unseen(clause.accusative)
        clause.accusative = with_relative(choose, choose.pick(clause.verb.objects))
    else:
        choose.unseen(clause.subject)
        clause.subject = with_relative(choose, choose.pick(clause.verb.subjects))
    return statement(clause)


def agreement(choose: Chooser, depth: int = -1) -> Draft:
    """Draw long-distance agreement: The boys who see the dog … sleep. `depth` clauses, −1: a few."""
    if depth < 0:
        depth = choose.even((0, 1, 1, 1, 1, 2, 2, 3))
    noun = choose.pick(nouns("being"))
    head = clauses.noun_phrase(noun, choose.even(menu("heads")), None, choose.chance(0.5))
    subject = chain(choose, noun, head, depth)
    if choose.chance(0.3):
        adjective = choose.pick(adjectives(noun.kind))
        clause = Clause(subject, verbs("be")[0], choose.even(("present", "past")))
        clause.predicate = adjective.english[0], adjective.predicate
    else:
        options = [verb for verb in done_by(noun, "intransitive") if not verb.reflexive]
        clause = Clause(subject, choose.pick(options), choose.even(("present", "present", "past", "future")))
    return clauses.english_clause(clause), clauses.german_clause(clause)[0], 4 * depth


@cache
def _separable_verbs() -> tuple[Verb, ...]:
    return tuple(verb for verb in verbs("transitive", "intransitive") if verb.prefix)


def separable(choose: Chooser) -> Draft:
    """Draw a separable verb: The man turns the lamp on (schaltet … ein)."""
    return statement(any_clause(choose, verb=choose.pick(_separable_verbs()), time=0.45))


def negation(choose: Chooser) -> Draft:
    """Draw a negation (nicht or kein): The man does not buy a car; no man buys a car."""
    if choose.chance(0.2):
        verb = choose.pick(verbs(choose.even(("transitive", "intransitive", "oblique"))))
        noun = choose.pick(verb.subjects)
        subject = clauses.noun_phrase(noun, "no", choose.adjective(noun, 0.3), choose.chance(0.3))
        return statement(any_clause(choose, verb=verb, denied=0, time=0, subject=subject))
    tense = choose.even(("present", "present", "past", "future", "can", "want"))
    return statement(any_clause(choose, tense=tense, denied=1))


def _asked(clause: Clause, source: str = "", target: str = "", skip: str = "") -> Draft:
    """Render a question."""
    german, distance = clauses.german_clause(clause, "inverted", front=target, skip=skip)
    return f"{source} {clauses.english_clause(clause, question=True, skip=skip)}?".lstrip(), f"{german}?", distance


def interrogative(choose: Chooser) -> Draft:
    """Draw a question with who, whom, which, when, where or why."""
    draw = choose.random()
    if draw < 0.3:
        return _asked_object(choose)
    if draw < 0.4:
        clause = any_clause(choose, "dative", denied=0, time=0.15)
        choose.unseen(clause.dative)
        return _asked(clause, "whom", "wem", "dat")
    if draw < 0.6:
        clause = any_clause(choose, denied=0)
        choose.unseen(clause.subject)
        clause.subject = Nominal("who", "", ("wer", "", "", ""))
        if all(noun.kind != "person" for noun in clause.verb.subjects):
            clause.subject = choose.noun_phrase(choose.pick(clause.verb.subjects), ("which",), 0)
        english, german, distance = statement(clause)
        return f"{english}?", f"{german}?", distance
    source, target = choose.even(pairs("questions"))
    clause = any_clause(choose, "intransitive" if source == "where" else "", denied=0, time=0)
    if source == "where":
        clause.place = None
    if source == "when" and clause.verb.state:
        source, target = "why", "warum"
    if source == "when" and clause.tense == "perfect":
        clause.tense = "future"
    return _asked(clause, source, target)


def _asked_object(choose: Chooser) -> Draft:
    clause = any_clause(choose, "transitive", denied=0, time=0.15)
    choose.unseen(clause.accusative)
    noun = choose.pick(clause.verb.objects)
    if noun.kind == "person" and choose.chance(0.6):
        return _asked(clause, "whom", "wen", "acc")
    countable = bool(noun.german[4])
    phrase = clauses.noun_phrase(noun, "which", None, countable and choose.chance(0.4))
    return _asked(clause, phrase.english, phrase.german[ACCUSATIVE], "acc")


def imperative(choose: Chooser) -> Draft:
    """Draw a command: Open the door!"""
    table = choose.even(menu("commands"))
    while True:
        clause = any_clause(choose, table, tense="present", denied=0.2, time=0, subject=clauses.pronoun("you"))
        if _of_persons(clause) and not clause.verb.state:
            return command(clause, choose.chance(0.4))
        table = "transitive"


def command(clause: Clause, polite: bool) -> Draft:
    """Render a clause with the subject "you" as a command."""
    statement, distance = clauses.german_clause(clause)
    rest = statement.split(" ", 2)[2:]
    target = " ".join([clause.verb.imperative, *rest])
    source = clauses.english_clause(clause, subject=False)
    return (f"please {source}.", f"bitte {target}.", distance) if polite else (f"{source}!", f"{target}!", distance)


def copula(choose: Chooser) -> Draft:
    """Draw a description: The house is very old."""
    noun = choose.pick(nouns(choose.even(menu("described"))))
    subject = choose.subject((noun,), True, 0.0)
    adjective = choose.pick(adjectives(noun.kind))
    clause = Clause(subject, verbs("be")[0], choose.even(("present", "present", "past", "future")))
    english, german = ("very ", "sehr ") if choose.chance(0.4) else ("", "")
    clause.predicate = english + adjective.english[0], german + adjective.predicate
    clause.negated = choose.chance(0.15)
    if choose.chance(0.3) and not clause.negated:
        clause.time = choose.time({"present": "mid", "past": "past", "future": "future"}[clause.tense])
    return statement(clause)


def comparison(choose: Chooser) -> Draft:
    """Draw a comparison: The dog is bigger than the cat, as old as the cat.

    For persons also a superlative with a place: the oldest woman in the village.
    """
    noun = choose.pick(nouns(choose.even(menu("described"))))
    adjective = choose.pick(adjectives(noun.kind, compared=True))
    subject = choose.subject((noun,), True, 0.0)
    clause = Clause(subject, verbs("be")[0], choose.even(("present", "present", "past")))
    draw = choose.random()
    if draw < 0.3 and noun.kind == "person" and adjective.superlative:
        clause.subject = choose.even(people())
        best = clauses.noun_phrase(noun, "the", adjective, False, 2)
        where = clauses.noun_phrase(choose.pick(nouns("place")), "the")
        source = f"{best.english} in {where.english}"
        clause.predicate = source, f"{best.german[NOMINATIVE]} {where.after('in', DATIVE)}"
        return statement(clause)
    rival = choose.pick(nouns(noun.kind))
    while rival is noun:
        rival = choose.even(nouns(noun.kind))
    other = choose.noun_phrase(rival, menu("heads"), 0.0)
    if draw < 0.7:
        english, german = f"{adjective.english[1]} than", f"{adjective.stems[1]} als"
    else:
        english, german = f"as {adjective.english[0]} as", f"so {adjective.predicate} wie"
    clause.predicate = f"{english} {other.english}", f"{german} {other.german[NOMINATIVE]}"
    return statement(clause)


def passive(choose: Chooser) -> Draft:
    """Draw a passive: The letter was written by the teacher."""
    verb = choose.until(lambda v: not v.state, lambda: choose.pick(verbs("transitive")))
    tense = choose.even(("present", "past", "past", "perfect", "future", "must", "can"))
    clause = Clause(choose.noun_phrase(choose.pick(verb.objects)), verb, tense, passive=True)
    # Without an agent, "eat" could be "essen" or "fressen".
    if verb.english[0] == "eat" or choose.chance(0.45):
        agent = choose.object(verb.subjects, clause.subject)
        clause.place = f"by {agent.english_object}", agent.after("von", DATIVE)
    if choose.chance(0.35) and time_kinds(tense):
        clause.time = choose.time(*time_kinds(tense))
    return statement(clause)


def infinitive(choose: Chooser) -> Draft:
    """Draw an infinitive (The man tries to open the door; he comes to open it)."""
    table = choose.even(("transitive", "transitive", "oblique", "ditransitive"))
    inner = choose.until(
        lambda c: _of_persons(c) and not c.verb.state,
        lambda: any_clause(choose, table, tense="present", denied=0, time=0),
    )
    purpose = choose.chance(0.35)
    outside = choose.even(("motion", "oblique")) if purpose else "control"
    outer = choose.until(_of_persons, lambda: any_clause(choose, outside, denied=0.05, time=0, subject=inner.subject))
    english, german = ("in order ", "um ") if purpose else ("", "")
    source, target, distance = statement(outer)
    to, zu = clauses.infinitive_clause(inner)
    return f"{source} {english}{to}", f"{target}, {german}{zu}", distance


def coordination(choose: Chooser) -> Draft:
    """Draw two clauses joined by "and" or "but": The man sings and the dog sleeps."""
    first = any_clause(choose, time=0.25)
    second = any_clause(choose, tense=first.tense if first.tense in {"present", "past"} else "", time=0.1)
    english, german = choose.even(((" and", " und"), (", but", ", aber")))
    one, eins, distance = statement(first)
    two, zwei, other = statement(second)
    return f"{one}{english} {two}", f"{eins}{german} {zwei}", max(distance, other)


def _timed(choose: Chooser, time: Adverb) -> Draft:
    clause = any_clause(choose, tense=choose.even(("present", "past", "past", "future")), denied=0, time=0)
    while clause.verb.state or clause.tense == "perfect":
        clause = any_clause(choose, tense="future", denied=0, time=0)
    if choose.chance(0.5):
        clause.time = time
        return statement(clause)
    return statement(clause, time)


def _amount(choose: Chooser, low: int, high: int) -> Pair:
    """Draw a number in words; large numbers are round half of the time."""
    number = choose.generator.randint(low, high)
    if number > 2000 and choose.chance(0.5):
        number -= number % 1000
    # Avoid a final 1, which would be inflected before a German noun ("hunderteins Euro" is wrong).
    number += number % 100 == 1
    return number_words(number), number_word(number)


def _counted(amount: Pair, things: str, dinge: str) -> Nominal:
    english, german = f"{amount[0]} {things}", f"{amount[1]} {dinge}"
    return Nominal(english, english, (german, german, "", ""), THEY)


def _price(choose: Chooser) -> Clause:
    low, high = choose.even(((12, 99), (12, 99), (100, 999), (100, 999), (1000, 99_999)))
    source, target = _amount(choose, low, high)
    verb = verbs("cost")[0]
    subject = choose.noun_phrase(choose.pick(verb.subjects), menu("heads")[1:])
    clause = Clause(subject, verb, "present" if choose.chance(0.7) else "future")
    clause.predicate = f"{source} euros", f"{target} Euro"
    return clause


def _inhabitants(choose: Chooser) -> Clause:
    low, high = 1000, 999_999
    if choose.chance(0.5):
        subject = clauses.name(*choose.even(pairs("cities")), NEUTER)
    else:
        noun = choose.even(nouns("city") + nouns("village"))
        subject = choose.noun_phrase(noun, ("the", "this", "our", "my"))
        low, high = (100, 9999) if noun is nouns("village")[0] else (low, high)
    million = high > 10_000 and choose.chance(0.05)
    amount = ("one million", "eine Million") if million else _amount(choose, low, high)
    tense = choose.even(("present", "past"))
    return Clause(subject, verbs("have")[0], tense, _counted(amount, "inhabitants", "Einwohner"))


def _goods(choose: Chooser) -> Clause:
    amount = _amount(choose, 12, 99 if choose.chance(0.5) else 999)
    verb = choose.pick([verb for verb in verbs("transitive") if verb.english[0] in _COUNTED])
    clause = any_clause(choose, verb=verb, denied=0, time=0.3, placed=False)
    choose.unseen(clause.accusative)
    noun = choose.pick([noun for noun in verb.objects if noun.german[4]])
    clause.accusative = _counted(amount, noun.english[1], noun.german[4])
    return clause


def _people(choose: Chooser) -> Clause:
    amount = _amount(choose, 12, 99 if choose.chance(0.5) else 999)
    verb = choose.even(verbs("live") + verbs("intransitive")[5:6])
    return Clause(_counted(amount, "people", "Menschen"), verb, place=choose.place())


def number(choose: Chooser) -> Draft:
    """Draw a statement with a number in words: prices, inhabitants, people, things."""
    return statement(choose.even((_price, _price, _inhabitants, _people, _goods))(choose))


PATTERNS: dict[str, tuple[int, Pattern]] = {
    "plain": (8, of_verbs()),
    "fronted": (8, fronted),
    "subordinate": (12, subordinate),
    "reported": (8, reported),
    "relative": (8, relative),
    "agreement": (5, agreement),
    "separable": (4, separable),
    "perfect": (4, in_tense("past", "past", "perfect")),
    "modal": (4, lambda choose: in_tense(*menu("modals"))(choose)),
    "future": (2, in_tense("future")),
    "negation": (4, negation),
    "dative": (3, of_verbs("dative")),
    "ditransitive": (4, of_verbs("ditransitive")),
    "place": (4, of_verbs("motion", "position", "putting")),
    "prepositional": (3, of_verbs("oblique")),
    "copula": (3, copula),
    "comparison": (3, comparison),
    "passive": (4, passive),
    "infinitive": (5, infinitive),
    "coordination": (7, coordination),
    "question": (4, lambda choose: _asked(any_clause(choose, denied=0))),
    "interrogative": (4, interrogative),
    "imperative": (3, imperative),
    "number": (10, number),
    "date": (3, lambda choose: _timed(choose, choose.date())),
    "clock": (3, lambda choose: _timed(choose, choose.clock())),
}
