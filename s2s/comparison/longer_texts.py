"""Translations of texts of several sentences, which may be longer than all training sources."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped
from scipy.linalg import block_diag

from s2s.comparison.reporting import first_run
from s2s.comparison.translation import corpus_score, counts_of, first_pairs, greedy, joined_texts
from s2s.data.scripts import is_unspaced, sentence_separator, split_words
from s2s.evaluation.inference import draws
from s2s.evaluation.metrics import metrics, scores_of
from s2s.models.base import Seq2Seq
from s2s.tasks.translation.prepared import PreparedTranslation
from s2s.tasks.translation.recipe import Recipe

# fewest texts of a kind, where texts of the same number of sentences are split by length
_LEAST = 100


@dataclass(frozen=True, kw_only=True)
class TextScores:
    """Scores of texts of a number of sentences; each list has one item for each text."""

    words: list[int]  # length of the source
    counts: list[list[int]]  # sacreBLEU's statistics
    exact: list[int]  # 1 for a translation that equals the reference
    unread: int  # number of texts that are too long for the model


@dataclass(frozen=True, kw_only=True)
class Translations(TextScores):
    """Translations of texts of a number of sentences, with their scores."""

    rows: list[list[int]]  # sentences of the test set that a text consists of
    translations: list[str]


@dataclass(frozen=True)
class Kind:
    """Texts of a number of sentences, either all longer than the longest training source or none."""

    sentences: int
    beyond: bool  # True if longer
    words: Shaped[np.ndarray, " texts"]
    counts: Shaped[np.ndarray, "texts counts"]
    exact: list[int]
    unread: int

    @property
    def bleu(self) -> float:
        """BLEU of the texts."""
        return corpus_score("bleu", self.counts)


Kinds = Mapping[int, list[Kind]]
"""Kinds of texts of each seed, from the shortest texts to the longest; the first one are single sentences."""


def words_of_longest(data: PreparedTranslation) -> int:
    """Return the number of words of the longest training source."""
    sources = data.corpus.train["source"]
    unspaced = is_unspaced(sources)
    return max(len(split_words(source, unspaced)) for source in sources)


def translate_joined(
    model: Seq2Seq, data: PreparedTranslation, recipe: Recipe[Any], texts: int, words: int
) -> list[Translations]:
    """Translate texts of one test sentence, of two, and so on, with greedy search.

    Args:
        texts: Least number of texts of each number of sentences.
        words: Largest mean length of the longest texts.
    """
    sources, references = first_pairs(data, len(data.corpus.test or data.corpus.validation))
    unspaced = is_unspaced(sources)
    separators = sentence_separator(sources), sentence_separator(references)
    mean = float(np.mean([len(split_words(source, unspaced)) for source in sources]))
    longest = model.encoder.max_positions
    parts = []
    for sentences in range(1, max(1, min(round(words / mean), len(sources))) + 1):
        rows = joined_texts(len(sources), sentences, texts)
        joined, wanted = (
            [separator.join(side[row] for row in text) for text in rows]
            for separator, side in zip(separators, (sources, references), strict=True)
        )
        # texts that are too long for the model stay untranslated
        tokens = data.source_tokenizer.encode_batch(joined)
        read = [i for i, row in enumerate(tokens) if longest is None or len(row) < longest]
        written = [""] * len(joined)
        for i, text in zip(read, greedy(model, data, recipe, [joined[i] for i in read]), strict=True):
            written[i] = text
        parts.append(
            Translations(
                rows=rows,
                words=[len(split_words(text, unspaced)) for text in joined],
                translations=written,
                counts=counts_of("bleu", written, wanted, data.target_tokenizer.writes_lowercase),
                exact=[int(a.strip() == b.strip()) for a, b in zip(written, wanted, strict=True)],
                unread=len(joined) - len(read),
            )
        )
    return parts


def split_by_length(parts: Sequence[TextScores], learned: int) -> list[Kind]:
    """Split texts of the same number of sentences into those longer than all training sources, and the others.

    A side with fewer than 100 texts is left out.

    Args:
        parts: Texts of one sentence, of two, and so on.
        learned: Words of the longest training source.
    """
    kinds = []
    for sentences, part in enumerate(parts, start=1):
        words, counts, exact = np.array(part.words), np.array(part.counts), np.array(part.exact)
        longer: Bool[np.ndarray, " texts"] = words > learned
        sides = {False: ~longer, True: longer}
        if min(side.sum() for side in sides.values()) < _LEAST:
            most = max(sides, key=lambda beyond: sides[beyond].sum())
            sides = {most: sides[most]}
        for beyond, side in sides.items():
            # no model has fewer positions than its training needed
            unread = part.unread if beyond else 0
            kinds.append(Kind(sentences, beyond, words[side], counts[side], exact[side].tolist(), unread))
    return kinds


def longer_kinds(kinds: Mapping[str, Kinds]) -> list[int]:
    """Return the places of the kinds that all models translated and that are longer than all training sources."""
    first = first_run(next(iter(kinds.values())))
    count = min(len(own) for runs in kinds.values() for own in runs.values())
    return [i for i in range(1, count) if first[i].beyond]


def kept_share(sums: Shaped[np.ndarray, "rows counts"], kinds: int) -> Shaped[np.ndarray, " rows"]:
    """Return the BLEU of longer texts in percent of that of single sentences: the mean over kinds of texts.

    Args:
        sums: Sums of the counts of single sentences, and beside them those of each kind of longer texts.
        kinds: Number of kinds of longer texts.
    """
    single, *longer = (scores_of(metrics()["bleu"], part) for part in np.split(sums, 1 + kinds, axis=1))
    return np.mean([100 * each / np.maximum(single, 1e-9) for each in longer], axis=0)


def block_counts(kinds: Sequence[Kind], places: Sequence[int]) -> Shaped[np.ndarray, "texts counts"]:
    """Return the block-diagonal matrix of the counts of single sentences and of each longer kind."""
    # whole numbers are exact in floats, and their products are much faster
    return np.asarray(block_diag(*(kinds[i].counts.astype(float) for i in (0, *places))))


def drawn_texts(kinds: Sequence[Kind], places: Sequence[int]) -> np.ndarray:
    """Return how often each text of `block_counts` is in each bootstrap resample."""
    return np.hstack([draws(len(kinds[i].counts), stream=1 + i) for i in (0, *places)])


def retained_bleu(kinds: Sequence[Kind], places: Sequence[int]) -> float:
    """Return the BLEU of the kinds at these places in percent of that of single sentences, mean over them."""
    return float(kept_share(block_counts(kinds, places).sum(axis=0)[None], len(places))[0])
