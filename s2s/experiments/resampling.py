"""Scores of a corpus from what sacreBLEU counts in each sentence, so that sentences can be drawn anew."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from s2s.evaluation.inference import Counts, Draws
from s2s.evaluation.metrics import metrics, scores_of


def counts_of(metric: str, translations: Sequence[str], references: Sequence[str]) -> list[list[int]]:
    """What sacreBLEU counts in each sentence; a corpus' score is computed from the sums.

    Args:
        metric: `bleu` or `chrf`.
        translations: what a system wrote.
        references: raw.
    """
    found = metrics()[metric]._extract_corpus_statistics(list(translations), [list(references)])
    return [[int(number) for number in sentence] for sentence in found]


def corpus_score(metric: str, counts: Counts) -> float:
    """The corpus' score from its sentences' counts, in percent."""
    return float(scores_of(metrics()[metric], counts.sum(axis=0)[None])[0])


def sentence_scores(metric: str, counts: Counts) -> Float[np.ndarray, " sentences"]:
    """Each sentence's own score, in percent."""
    return scores_of(metrics()[metric], counts)


def resampled_scores(metric: str, counts: Counts, drawn: Draws) -> Float[np.ndarray, " resamples"]:
    """The corpus' score in each resample."""
    return scores_of(metrics()[metric], drawn @ counts)
