"""German sentences about one, and the same about several: Der alte Mann schläft. Die alten Männer schlafen.

The subject and the finite verb change, and nothing else; where the singular has `ein`, the plural has no article. Each
singular has one plural only, so that an answer is right or wrong.
"""

from dataclasses import replace

from s2s.data.phrasebook.chooser import Chooser
from s2s.data.phrasebook.clauses import noun_phrase
from s2s.data.phrasebook.lexicon import Noun, verbs
from s2s.data.phrasebook.scenes import Draft, any_clause, statement, time_kinds

# each has one form only for one, and one for several
_DETERMINERS = ("the", "the", "a", "this", "my", "his", "our", "no")
_TABLES = ("transitive", "transitive", "intransitive", "dative", "oblique", "motion", "position")
_TENSES = ("present", "present", "past", "perfect", "future", "can", "must")


def _countable(nouns: tuple[Noun, ...]) -> tuple[Noun, ...]:
    """Give the nouns that have a plural in German."""
    return tuple(noun for noun in nouns if noun.german[4])


def singular_and_plural(choose: Chooser) -> tuple[Draft, Draft]:
    """Draw a sentence about one, and give it with the same about several."""
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
