"""Sentence patterns of the built-in corpus with numbers, dates and clock times."""

from s2s.data import phrasebook_words as tables
from s2s.data.phrasebook_choices import Chooser
from s2s.data.phrasebook_clauses import Clause, Nominal, name
from s2s.data.phrasebook_english import number_words
from s2s.data.phrasebook_german import NEUTER, THEY, number_word
from s2s.data.phrasebook_lexicon import Adverb, nouns, pairs, verbs
from s2s.data.phrasebook_scenes import Draft, any_clause, both, clause_around, with_front

_HEADS = ("the", "the", "this", "my", "our", "his", "her")
_COUNTED = frozenset({"buy", "sell", "see", "find", "need", "order"})


def _timed(choose: Chooser, time: Adverb) -> Draft:
    clause = any_clause(choose, tense=choose.even(("present", "past", "past", "future")), denied=0, time=0)
    while clause.verb.state or clause.tense == "perfect":
        clause = any_clause(choose, tense="future", denied=0, time=0)
    if choose.chance(0.5):
        clause.time = time
        return both(clause)
    return with_front(clause, time)


def date(choose: Chooser) -> Draft:
    """On the third of May the man will buy a car."""
    return _timed(choose, choose.date())


def clock(choose: Chooser) -> Draft:
    """At half past seven the man buys a car: um halb acht."""
    return _timed(choose, choose.clock())


def _amount(choose: Chooser, low: int, high: int) -> tuple[str, str]:
    """Draw a number in words; large ones are round half of the time."""
    number = choose.generator.randint(low, high)
    if number > 2000 and choose.chance(0.5):
        number -= number % 1000
    # A final 1 would be inflected before a German noun: no hunderteins Euro.
    number += number % 100 == 1
    return number_words(number), number_word(number)


def _price(choose: Chooser) -> Clause:
    low, high = choose.even(((12, 99), (12, 99), (100, 999), (100, 999), (1000, 99_999)))
    source, target = _amount(choose, low, high)
    verb = verbs(tables.COST)[0]
    subject = choose.noun_phrase(choose.pick(verb.subjects), _HEADS)
    clause = Clause(subject, verb, "present" if choose.chance(0.7) else "future")
    clause.predicate = f"{source} euros", f"{target} Euro"
    return clause


def _inhabitants(choose: Chooser) -> Clause:
    low, high = 1000, 999_999
    if choose.chance(0.5):
        subject = name(*choose.even(pairs(tables.CITIES)), NEUTER)
    else:
        noun = choose.even(nouns("city") + nouns("village"))
        subject = choose.noun_phrase(noun, ("the", "this", "our", "my"))
        low, high = (100, 9999) if noun is nouns("village")[0] else (low, high)
    source, target = (
        ("one million", "eine Million") if high > 10_000 and choose.chance(0.05) else _amount(choose, low, high)
    )
    clause = Clause(subject, verbs(tables.HAVE)[0], choose.even(("present", "past")))
    clause.accusative = _counted(source, "inhabitants", target, "Einwohner")
    return clause


def _goods(choose: Chooser) -> Clause:
    source, target = _amount(choose, 12, 99 if choose.chance(0.5) else 999)
    verb = choose.pick([verb for verb in verbs(tables.TRANSITIVE) if verb.english[0] in _COUNTED])
    clause = clause_around(choose, verb, "", denied=0, time=0.3)
    noun = choose.pick([noun for noun in verb.objects if noun.german[4]])
    clause.accusative = _counted(source, noun.english[1], target, noun.german[4])
    return clause


def _people(choose: Chooser) -> Clause:
    source, target = _amount(choose, 12, 99 if choose.chance(0.5) else 999)
    verb = choose.even(verbs(tables.LIVE) + verbs(tables.INTRANSITIVE)[5:6])
    return Clause(_counted(source, "people", target, "Menschen"), verb, place=choose.place())


def number(choose: Chooser) -> Draft:
    """Prices, inhabitants, people and things in words."""
    return both(choose.even((_price, _price, _inhabitants, _people, _goods))(choose))


def _counted(source: str, things: str, target: str, dinge: str) -> Nominal:
    words = f"{target} {dinge}"
    return Nominal(f"{source} {things}", f"{source} {things}", (words, words, "", ""), THEY)
