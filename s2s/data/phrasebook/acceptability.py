"""Acceptability: German sentences, and the same with one grammatical error.

One rule breaks a sentence: the verb does not agree, a noun phrase is in the wrong case or has an article of the wrong
gender, or the finite verb is not in second position. A broken sentence must not be a valid sentence with the object in
front, which German allows although this grammar never generates it ("Den Mann sieht die Frau"): a rule that would
produce one is not applied.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from s2s.data.phrasebook.clauses import Clause, Nominal, german_clause, noun_phrase
from s2s.data.phrasebook.german import ACCUSATIVE, DATIVE, NOMINATIVE, SINGULAR, THEY, unmarked
from s2s.data.phrasebook.lexicon import Adjective, Adverb, Noun, adverbs, verbs
from s2s.data.phrasebook.scenes import Chooser, Draft, statement, time_kinds

_TABLES = ("transitive", "transitive", "intransitive", "dative")
_TENSES = ("present", "present", "past", "future", "can", "must")
_DETERMINERS = ("the", "the", "a", "this", "my", "his", "our")


@dataclass(frozen=True)
class _Phrase:
    """Parts of a noun phrase."""

    noun: Noun
    determiner: str
    adjective: Adjective | None
    plural: bool

    def nominal(self, gender: int | None = None) -> Nominal:
        """Return the phrase, with articles and endings of its gender or of another one."""
        noun = self.noun if gender is None else replace(self.noun, gender=gender)
        return noun_phrase(noun, self.determiner, self.adjective, self.plural)


@dataclass(frozen=True)
class _Scene:
    """A clause, its noun phrases, and the adverbial before it."""

    clause: Clause
    subject: _Phrase
    object: _Phrase | None
    front: Adverb | None

    @property
    def case(self) -> int:
        """Case that the verb governs."""
        return DATIVE if self.clause.verb.table == "dative" else ACCUSATIVE

    def with_object(self, nominal: Nominal) -> Clause:
        """Return the clause with another object."""
        return replace(self.clause, **{"dative" if self.case == DATIVE else "accusative": nominal})


def _phrase(choose: Chooser, noun: Noun) -> _Phrase:
    mass = not noun.german[4]
    plural = not mass and choose.chance(0.4)
    word = choose.even(("the", "this", "my") if mass else _DETERMINERS)
    return _Phrase(noun, word, choose.adjective(noun, 0.35), plural)


def _scene(choose: Chooser) -> _Scene:
    # "gehören" shares forms with "hören", which takes other objects.
    table = verbs(choose.even(_TABLES))
    verb = choose.pick([verb for verb in table if not verb.reflexive and verb.bare != "gehören"])
    subject = _phrase(choose, choose.pick(verb.subjects))
    thing = None
    if verb.objects:
        noun = choose.pick(verb.objects)
        while noun is subject.noun:
            noun = choose.even(verb.objects)
        thing = _phrase(choose, noun)
    tense = choose.even(_TENSES)
    tense = "perfect" if tense == "past" and verb.looks_present else tense
    clause = Clause(subject.nominal(), verb, tense)
    scene = _Scene(clause, subject, thing, None)
    clause = scene.with_object(thing.nominal()) if thing else clause
    kinds = () if verb.state else time_kinds(tense)
    front = choose.pick(adverbs(*kinds)) if kinds and choose.chance(0.5) else None
    if front and choose.chance(0.5):
        return replace(scene, clause=replace(clause, time=front))
    return replace(scene, clause=clause, front=front)


def _rendered(clause: Clause, front: Adverb | None) -> str:
    return statement(clause, front)[1]


def _same_cases(nominal: Nominal) -> bool:
    """Return True if a phrase could be both the subject and the direct object."""
    return _bare(nominal, NOMINATIVE) == _bare(nominal, ACCUSATIVE)


def _bare(nominal: Nominal, case: int) -> str:
    return unmarked(nominal.german[case])


def _in_case(phrase: _Phrase, place: int, case: int) -> Nominal | None:
    """Return the phrase with the form of one case replaced by that of another."""
    nominal, wrong = phrase.nominal(), _bare(phrase.nominal(), case)
    numbers = [nominal] + ([replace(phrase, plural=not phrase.plural).nominal()] if phrase.noun.german[4] else [])
    if wrong in {_bare(each, place) for each in numbers}:
        return None
    forms = list(nominal.german)
    forms[place] = forms[case]
    return replace(nominal, german=tuple(forms))


def _disagreeing(choose: Chooser, scene: _Scene) -> str | None:
    """Break the agreement (Der Mann schlafen)."""
    subject, other = scene.clause.subject, scene.clause.accusative
    if _same_cases(subject) and other is not None and _same_cases(other):
        return None
    form = THEY if subject.form == SINGULAR else SINGULAR
    return _rendered(replace(scene.clause, subject=replace(subject, form=form)), scene.front)


def _subject_in_another_case(choose: Chooser, scene: _Scene) -> str | None:
    """Break the case of the subject (Dem Mann schläft; Den Mann kauft den Hut)."""
    other, phrase = scene.clause.accusative, scene.subject
    subject = _in_case(phrase, NOMINATIVE, choose.even((DATIVE, ACCUSATIVE)))
    if subject and other is not None and _same_cases(other):
        # "Den Kollegen sehen die Männer": the object could be the subject, and this phrase (singular or plural) an
        # accusative.
        both = [replace(phrase, plural=plural).nominal() for plural in (False, True)]
        if _bare(subject, NOMINATIVE) in {_bare(each, ACCUSATIVE) for each in both}:
            return None
    return _rendered(replace(scene.clause, subject=subject), scene.front) if subject else None


def _object_in_another_case(choose: Chooser, scene: _Scene) -> str | None:
    """Break the case of the object (Der Mann kauft der Hut; Der Mann hilft den Hund)."""
    if scene.object is None:
        return None
    cases = [case for case in (NOMINATIVE, ACCUSATIVE, DATIVE) if case != scene.case]
    if scene.case == ACCUSATIVE and _same_cases(scene.clause.subject):
        cases.remove(NOMINATIVE)
    case = choose.even(cases)
    if case == DATIVE and scene.clause.verb.bare == "schreiben":
        # "Die Frau schreibt meiner Zeitung": the dative alone is right, too.
        if NOMINATIVE not in cases:
            return None
        case = NOMINATIVE
    wrong = _in_case(scene.object, scene.case, case)
    return _rendered(scene.with_object(wrong), scene.front) if wrong else None


def _of_another_gender(choose: Chooser, scene: _Scene) -> str | None:
    """Break the gender (Die Mann schläft)."""
    phrase = scene.object if scene.object and choose.chance(0.5) else scene.subject
    if phrase.plural or set(phrase.noun.german[:4]) & set(phrase.noun.german[4:]):
        # "die Lehrer", "die Jungen": with another gender, the singular would be a plural.
        return None
    gender = choose.even([gender for gender in range(3) if gender != phrase.noun.gender])
    wrong, right = phrase.nominal(gender), phrase.nominal()
    case = NOMINATIVE if phrase is scene.subject else scene.case
    if _bare(wrong, case) in {_bare(right, each) for each in range(4)}:
        # "der Frau" is another case, not another gender.
        return None
    clause = replace(scene.clause, subject=wrong) if phrase is scene.subject else scene.with_object(wrong)
    return _rendered(clause, scene.front)


def _verb_not_second(choose: Chooser, scene: _Scene) -> str | None:
    """Break the word order (Der Mann den Hut kauft; Heute der Mann schläft)."""
    order = "statement" if scene.front and choose.chance(0.5) else "final"
    return german_clause(scene.clause, order, front=scene.front.german if scene.front else "")[0]


Rule = Callable[[Chooser, _Scene], str | None]
RULES: dict[str, Rule] = {
    "agreement": _disagreeing,
    "subject": _subject_in_another_case,
    "object": _object_in_another_case,
    "gender": _of_another_gender,
    "order": _verb_not_second,
}


def judged(choose: Chooser) -> tuple[Draft, str]:
    """Draw a sentence, as often correct as broken, and the name of the rule that broke it."""
    wrong = choose.chance(0.5)
    while True:
        scene = _scene(choose)
        english, right, distance = statement(scene.clause, scene.front)
        if not wrong:
            return (english, right, distance), ""
        rule = choose.even(tuple(RULES))
        broken = RULES[rule](choose, scene)
        if broken is not None and unmarked(broken) != unmarked(right):
            return (english, broken, distance), rule
