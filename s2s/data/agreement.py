"""Agreement across clauses, in translation: the German verb at the end must have the number of a far subject.

An answer counts by that verb alone, as in contrastive tests of translation (Sennrich 2017; Tang et al. 2018): given the
true translation before it, its form must be likelier than the same verb's form in the other number.
"""

import re
from functools import cache

from s2s.data.exercises import Examples, Exercise, Split
from s2s.data.phrasebook import Phrase, phrases
from s2s.data.phrasebook.german import SINGULAR, THEY, present, preterite
from s2s.data.phrasebook.lexicon import verbs
from s2s.data.tokenizers import train_pair
from s2s.errors import UserError
from s2s.recipe.schema import TokenizerSettings

CLAUSE = 4  # German words of a relative clause
_PARTS = {"train": "train", "held-out": "validation", "test": "test"}
_READ = ((0, 4_000), (1, 4_000), (2, 4_000))  # sentences by depth in which all words occur
_MOST_WORDS = 2_000
_COUNTED = 1_000


class Agreement(Exercise):
    """Sentences of the built-in corpus with `distance` / 4 relative clauses between subject and verb.

    Every word and every sign is a piece, in lower case; the same pieces whatever the seed.
    """

    name, title, unit = "agreement", "agreement across clauses, in translation", "words between subject and verb"

    def __init__(self) -> None:
        sentences = [phrase for depth, size in _READ for phrase in phrases("train", size, depth=depth)]
        settings = TokenizerSettings(kind="word", size=_MOST_WORDS, lowercase=True)
        # both forms of each verb, so that a rival always has a piece
        forms = [" ".join(pair) for pair in sorted(_numbers())]
        targets = [*(_spaced(phrase.target) for phrase in sentences), *forms]
        self.tokenizer = train_pair([_spaced(phrase.source) for phrase in sentences], targets, settings)[0]
        self.pieces = self.tokenizer.size

    def examples(self, distance: int, count: int, seed: int, split: Split = "train") -> Examples:
        """Sentence pairs; a sentence belongs to one split whatever the seed.

        Raises:
            UserError: `distance` is no multiple of 4, or there are too few sentences.
        """
        sentences = _sentences(distance, count, seed, split)
        agreeing = [agreeing_verb(phrase) for phrase in sentences]
        rivals = self.tokenizer.encode_batch([other for _, _, other in agreeing])
        return Examples(
            self.tokenizer.encode_batch([_spaced(phrase.source) for phrase in sentences]),
            self.tokenizer.encode_batch([_spaced(phrase.target) for phrase in sentences]),
            [(place, rival[0]) for (place, _, _), rival in zip(agreeing, rivals, strict=True)],
        )

    def baseline(self, distance: int) -> float:
        """The share of the more frequent number, in a thousand training sentences."""
        return baseline(distance)


@cache
def baseline(distance: int) -> float:
    """The share of the more frequent number, in a thousand training sentences."""
    many = sum(agreeing_verb(phrase)[1] in _plurals() for phrase in _some(distance)) / _COUNTED
    return max(many, 1 - many)


@cache
def verbs_alike(distance: int) -> float:
    """How often the agreeing verb has the number of the one written before it, in a thousand training sentences.

    That is the verb of the last clause; without a clause the subject itself stands there, and gives the number away.
    """
    if not distance:
        return 1.0
    alike = 0
    for phrase in _some(distance):
        place, form, _ = agreeing_verb(phrase)
        # the comma stands between the two; of all verbs the plural of the third person ends in n, or is sind
        before = _spaced(phrase.target).split()[place - 2]
        alike += (form in _plurals()) == before.endswith(("n", "sind"))
    return alike / _COUNTED


def agreeing_verb(phrase: Phrase) -> tuple[int, str, str]:
    """The verb that agrees with the subject of a sentence of the construction `agreement`.

    It is the finite verb of the main clause: what follows the last comma, or the subject where there is no comma.

    Returns:
        Its place among the German words and signs, its form, and its form in the other number.
    """
    words = _spaced(phrase.target).split()
    commas = [place for place, word in enumerate(words) if word == ","]
    # without a clause, article and noun stand before it
    place = commas[-1] + 1 if commas else 2
    return place, words[place], _other_numbers()[words[place]]


@cache
def _other_numbers() -> dict[str, str]:
    pairs = _numbers()
    return {one: many for one, many in pairs} | {many: one for one, many in pairs}


@cache
def _numbers() -> frozenset[tuple[str, str]]:
    """Third persons, singular and plural, of all verbs that can stand there."""
    forms = [verb.present for verb in verbs("intransitive")]
    forms += [present(auxiliary) for auxiliary in ("sein", "haben", "werden")] + [preterite("sein")]
    return frozenset((form[SINGULAR], form[THEY]) for form in forms)


@cache
def _plurals() -> frozenset[str]:
    return frozenset(many for _, many in _numbers())


def _some(distance: int) -> list[Phrase]:
    return _sentences(distance, _COUNTED, 1, "train")


def _sentences(distance: int, count: int, seed: int, split: Split) -> list[Phrase]:
    if distance % CLAUSE:
        raise UserError(
            f"no sentence has {distance} words between subject and verb", remedy=f"give a multiple of {CLAUSE}"
        )
    return phrases(_PARTS[split], count, seed, depth=distance // CLAUSE)


def _spaced(text: str) -> str:
    """Signs apart from words, so that a verb before a full stop is the verb that it is elsewhere."""
    return re.sub(r"([,.!?])", r" \1", text)
