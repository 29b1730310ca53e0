"""Long-distance agreement in translation: a German verb and its distant subject.

An answer is scored by the verb alone, as in contrastive evaluation of translation (Sennrich 2017; Tang et al. 2018):
given the true translation before the verb, its form must be more probable than the form in the other number.
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

CLAUSE = 4  # German words per relative clause
_PARTS = {"train": "train", "held-out": "validation", "test": "test"}
_READ = ((0, 4_000), (1, 4_000), (2, 4_000))  # (depth, number of sentences) in which all words occur
_MOST_WORDS = 2_000
_COUNTED = 1_000


class Agreement(Exercise):
    """Subject-verb agreement across `distance` / 4 relative clauses.

    The sentences are from the built-in corpus. Each word and each punctuation mark is a token, in lower case; the
    vocabulary does not depend on the seed.
    """

    name, title, unit = "agreement", "agreement across clauses, in translation", "words between subject and verb"

    def __init__(self) -> None:
        sentences = [phrase for depth, size in _READ for phrase in phrases("train", size, depth=depth)]
        settings = TokenizerSettings(kind="word", size=_MOST_WORDS, lowercase=True)
        # Both forms of each verb are added, so that the rival form always has a token.
        forms = [" ".join(pair) for pair in sorted(_numbers())]
        targets = [*(_spaced(phrase.target) for phrase in sentences), *forms]
        self.tokenizer = train_pair([_spaced(phrase.source) for phrase in sentences], targets, settings)[0]
        self.pieces = self.tokenizer.size

    def examples(self, distance: int, count: int, seed: int, split: Split = "train") -> Examples:
        """Draw sentence pairs; each sentence belongs to one split, whatever the seed.

        Args:
            distance: German words between subject and verb; a multiple of 4.
            count: Number of pairs.
            seed: Seed of the stream of sentences.
            split: Split.

        Returns:
            The pairs in token ids; the rival of each is its verb in the other number.

        Raises:
            UserError: `distance` is not a multiple of 4, or there are too few sentences.
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
        """Return the share of the more frequent number in 1,000 training sentences.

        Returns:
            Accuracy of always answering the more frequent number, in [0.5, 1].
        """
        return baseline(distance)


@cache
def baseline(distance: int) -> float:
    """Return the share of the more frequent number in 1,000 training sentences.

    Args:
        distance: German words between subject and verb.

    Returns:
        Accuracy of always answering the more frequent number, in [0.5, 1].
    """
    many = sum(agreeing_verb(phrase)[1] in _plurals() for phrase in _some(distance)) / _COUNTED
    return max(many, 1 - many)


@cache
def verbs_alike(distance: int) -> float:
    """Compute how often the agreeing verb has the number of the verb before it.

    The verb before it is that of the last relative clause. Without a clause, the subject itself precedes the verb and
    determines its number.

    Args:
        distance: German words between subject and verb.

    Returns:
        Share of 1,000 training sentences, in [0, 1]; 1 for distance 0.
    """
    if not distance:
        return 1.0
    alike = 0
    for phrase in _some(distance):
        place, form, _ = agreeing_verb(phrase)
        # A comma is between the two verbs. Third-person plurals of these verbs end in n, or are "sind".
        before = _spaced(phrase.target).split()[place - 2]
        alike += (form in _plurals()) == before.endswith(("n", "sind"))
    return alike / _COUNTED


def agreeing_verb(phrase: Phrase) -> tuple[int, str, str]:
    """Find the verb that agrees with the subject of an `agreement` sentence.

    The verb is the finite verb of the main clause: the word after the last comma, or after the subject if there is no
    comma.

    Args:
        phrase: A sentence of the construction `agreement`.

    Returns:
        Its position among the German words and punctuation marks, its form, and its form in the other number.
    """
    words = _spaced(phrase.target).split()
    commas = [place for place, word in enumerate(words) if word == ","]
    # Without a relative clause, article and noun precede the verb.
    place = commas[-1] + 1 if commas else 2
    return place, words[place], _other_numbers()[words[place]]


@cache
def _other_numbers() -> dict[str, str]:
    pairs = _numbers()
    return {one: many for one, many in pairs} | {many: one for one, many in pairs}


@cache
def _numbers() -> frozenset[tuple[str, str]]:
    """Return third persons, singular and plural, of all verbs that can agree."""
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
    """Separate punctuation from words, so that a verb is one token everywhere."""
    return re.sub(r"([,.!?])", r" \1", text)
