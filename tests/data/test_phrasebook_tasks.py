"""Built-in plural and acceptability tasks, compared with an independent recognizer."""

import itertools
import random
from functools import cache

import pytest

from s2s.data.phrasebook import ACCEPTABILITY, acceptability, judgements, numbered
from s2s.data.phrasebook.acceptability import RULES
from s2s.data.phrasebook.clauses import Clause, _german_verbs, noun_phrase
from s2s.data.phrasebook.german import ACCUSATIVE, DATIVE, NOMINATIVE, SINGULAR, THEY, unmarked
from s2s.data.phrasebook.lexicon import adjectives, adverbs, all_nouns, verbs
from s2s.data.phrasebook.scenes import Chooser

DETERMINERS = ("the", "a", "this", "my", "his", "our", "no", "")
ADVERBS = {adverb.german for adverb in adverbs("any", "past", "future", "habit", "mid")}
GOVERNED = {"intransitive": {None}, "transitive": {ACCUSATIVE}, "dative": {DATIVE}}


@cache
def forms():
    """For each form of a noun, the nouns and numbers that have it."""
    found = {}
    for noun in all_nouns():
        for number, form in itertools.product((False, True), range(4)):
            if word := noun.german[4 * number + form]:
                found.setdefault(word, set()).add((noun, number))
    return found


@cache
def readings(words: str) -> frozenset:
    """The cases and numbers that some words can be, as a noun phrase: `die Frau` is nominative or accusative."""
    *before, last = words.split()
    found = set()
    for noun, number in forms().get(last, ()) if len(before) < 3 else ():
        some = [a for a in adjectives(noun.kind) if before and before[-1].startswith(a.stems[0])]
        for determiner, adjective in itertools.product(DETERMINERS, (None, *some)):
            if determiner == "" and noun.kind not in ("drink", "mass"):
                continue
            phrase = noun_phrase(noun, determiner, adjective, number)
            found |= {(case, phrase.form) for case in range(4) if unmarked(phrase.german[case]) == words}
    return frozenset(found)


@cache
def groups():
    """For each finite verb and right bracket, the verbs and the forms that they are."""
    found = {}
    for verb in verbs("transitive", "intransitive", "dative"):
        for tense, form in itertools.product(("present", "past", "perfect", "future", "can", "must"), (SINGULAR, THEY)):
            clause = Clause(noun_phrase(next(all_nouns())), verb, tense)
            found.setdefault(_german_verbs(clause, form), set()).add((verb.table, form))
    return found


def constituents(words: list[str]):
    """Every way to cut words into noun phrases, as what they can be, and adverbials, as None."""
    if not words:
        yield ()
    for end in range(1, len(words) + 1):
        part = " ".join(words[:end])
        options = [None] if part in ADVERBS else [found] if (found := readings(part)) else []
        for option, rest in itertools.product(options, constituents(words[end:]) if options else ()):
            yield (option, *rest)


def acceptable(sentence: str) -> bool:
    """Whether a statement has a subject, a verb that agrees and is second, and what the verb governs, in any order."""
    words = sentence.removesuffix(".").split()
    for text in (words, [words[0][0].lower() + words[0][1:], *words[1:]]):
        for finite in range(1, len(text)):
            for bracket in range(4):
                head, tail = text[: len(text) - bracket], text[len(text) - bracket :]
                known = groups().get((text[finite], " ".join(tail)), set()) if finite < len(head) else set()
                if known and any(_fits(parts, known) for parts in _fields(head[:finite], head[finite + 1 :])):
                    return True
    return False


def _fields(front, middle):
    return ((*one, *rest) for one in constituents(front) if len(one) == 1 for rest in constituents(middle))


def _fits(parts, known) -> bool:
    phrases = [part for part in parts if part is not None]
    for table, form in known:
        (governed,) = GOVERNED[table]
        roles = [(NOMINATIVE, form)] + ([governed] if governed is not None else [])
        for order in itertools.permutations(phrases) if len(phrases) == len(roles) else ():
            subject, *others = order
            if roles[0] in subject and all(
                any(case == role for case, _ in o) for o, role in zip(others, roles[1:], strict=True)
            ):
                return True
    return False


def test_phrasebook_recogniser_knows_what_hands_have_judged():
    right = (
        "Der Mann schläft.|Heute sieht die Frau den alten Hund.|Den Hund sieht der Mann.|Die Kinder danken dem Vater."
    )
    wrong = (
        "Dem Mann schläft.|Heute die Frau den Hund sieht.|Der Mann sehen den Hund.|Die Mann ruht.|Er hilft den Hund."
    )
    assert [acceptable(sentence) for sentence in right.split("|")] == [True] * 4
    assert [acceptable(sentence) for sentence in wrong.split("|")] == [False] * 5


def test_acceptability_breaks_the_grammar_exactly_in_wrong_sentences():
    found = judgements("train", 800, seed=7)
    wrong = [one for one in found if acceptable(one.sentence) != (one.judgement == ACCEPTABILITY[0])]
    assert wrong == []
    assert {one.rule for one in found} == {"", *RULES}
    assert 0.44 < sum(one.rule == "" for one in found) / len(found) < 0.56


def test_acceptability_puts_no_dative_where_it_is_right_without_an_accusative(monkeypatch):
    # "Die Frau schreibt meiner Zeitung."
    (writing,) = [verb for verb in verbs("transitive") if verb.bare == "schreiben"]
    monkeypatch.setattr(acceptability, "verbs", lambda table: (writing,))
    asked = []
    monkeypatch.setattr(acceptability, "_in_case", lambda phrase, place, case: asked.append((place, case)))
    for seed in range(300):
        choose = Chooser(random.Random(seed))
        RULES["object"](choose, acceptability._scene(choose))
    assert set(asked) == {(ACCUSATIVE, NOMINATIVE)}


def test_phrasebook_plurals_change_the_subject_and_the_verb_alone():
    found = numbered("train", 1_000)
    answers = {}
    for one in found:
        assert answers.setdefault(one.singular, one.plural) == one.plural != one.singular
    endings = [[w for w in one.plural.split() if w not in one.singular.split()] for one in found]
    # article, adjective, noun and verb at most; one article has melted into nothing
    assert max(map(len, endings)) == 4
    # an accepted statement with a singular subject has an accepted one with a plural subject
    simple = [one for one in found if acceptable(one.singular)]
    assert len(simple) > 100
    assert all(acceptable(one.plural) for one in simple)


@pytest.mark.parametrize("make", [numbered, judgements])
def test_phrasebook_splits_are_apart_and_larger_sizes_begin_with_smaller_ones(make):
    train, test = make("train", 150), make("test", 50)
    first = [next(iter(vars(one).values())) for one in train]
    assert make("train", 50) == train[:50]
    assert not set(first) & {next(iter(vars(one).values())) for one in test}
    assert make("train", 50, seed=2) != train[:50]
