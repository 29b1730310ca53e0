"""German singular/plural pairs: Der alte Mann schläft. Die alten Männer schlafen.

Only the subject and the finite verb change; "ein" has no counterpart in the plural. Each singular has exactly one
plural, so that an answer is right or wrong.
"""

from dataclasses import replace

from s2s.data.phrasebook.chooser import Chooser
from s2s.data.phrasebook.clauses import noun_phrase
from s2s.data.phrasebook.lexicon import Noun, verbs
from s2s.data.phrasebook.scenes import Draft, any_clause, statement, time_kinds

# Each has a single form in the singular, and a single one in the plural.
_DETERMINERS = ("the", "the", "a", "this", "my", "his", "our", "no")
_TABLES = ("transitive", "transitive", "intransitive", "dative", "oblique", "motion", "position")
_TENSES = ("present", "present", "past", "perfect", "future", "can", "must")


def _countable(nouns: tuple[Noun, ...]) -> tuple[Noun, ...]:
    """Return the nouns that have a plural in German."""
    return tuple(noun for noun in nouns if noun.german[4])


def singular_and_plural(choose: Chooser) -> tuple[Draft, Draft]:
    """Draw a sentence with a singular subject.

    Returns:
        The drafts of the sentence and of the same sentence in the plural.
    """
    verb = choose.pick([verb for verb in verbs(choose.even(_TABLES)) if _countable(verb.subjects)])
    noun = choose.pick(_countable(verb.subjects))
    word, adjective = choose.even(_DETERMINERS), choose.adjective(noun, 0.5)
    one, several = (noun_phrase(noun, word, adjective, plural) for plural in (False, True))
    denied = 0 if word == "no" else 0.1
    clause = any_clause(choose, verb=verb, tense=choose.even(_TENSES), denied=denied, time=0.3, subject=one)
    kinds = time_kinds(clause.tense)
    early = kinds and clause.time is None and not verb.state and choose.chance(0.4)
    front = choose.time(*kinds) if early else None
    return statement(clause, front), statement(replace(clause, subject=several), front)
