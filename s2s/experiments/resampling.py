"""Sentences drawn with replacement, a thousand times: intervals of scores and of their differences (Koehn 2004)."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int, Shaped
from sacrebleu.metrics.base import Metric

from s2s.evaluation.metrics import metrics
from s2s.experiments.statistics import Estimate

RESAMPLES = 1000
# sacreBLEU's own: with it, p-values are those of its paired bootstrap
_SEED = 12345

Counts = Int[np.ndarray, "sentences counts"]
Draws = Int[np.ndarray, "resamples sentences"]


def counts_of(metric: str, translations: Sequence[str], references: Sequence[str]) -> list[list[int]]:
    """What sacreBLEU counts in each sentence; a corpus' score is computed from the sums.

    Args:
        metric: `bleu` or `chrf`.
        translations: what a system wrote.
        references: raw.
    """
    found = metrics()[metric]._extract_corpus_statistics(list(translations), [list(references)])
    return [[int(number) for number in sentence] for sentence in found]


def draws(sentences: int, stream: int = 0) -> Draws:
    """How often each sentence is drawn, resample by resample; always the same, so that differences are paired.

    Args:
        sentences: how many there are.
        stream: another one for sentences that have nothing to do with these; 0 draws as sacreBLEU does.
    """
    generator = np.random.default_rng([_SEED, stream] if stream else _SEED)
    drawn = generator.choice(sentences, size=(RESAMPLES, sentences), replace=True)
    return np.stack([np.bincount(row, minlength=sentences) for row in drawn])


def corpus_score(metric: str, counts: Counts) -> float:
    """The corpus' score from its sentences' counts, in percent."""
    return _from_sums(metrics()[metric], counts.sum(axis=0))


def sentence_scores(metric: str, counts: Counts) -> Float[np.ndarray, " sentences"]:
    """Each sentence's own score, in percent."""
    found = metrics()[metric]
    return np.array([_from_sums(found, sentence) for sentence in counts])


def resampled_scores(metric: str, counts: Counts, drawn: Draws) -> Float[np.ndarray, " resamples"]:
    """The corpus' score in each resample."""
    found = metrics()[metric]
    return np.array([_from_sums(found, sums) for sums in drawn @ counts])


def _from_sums(metric: Metric, sums: np.ndarray) -> float:
    return metric._aggregate_and_compute([sums.tolist()]).score


def ratios(
    parts: Shaped[np.ndarray, " sentences"], wholes: Shaped[np.ndarray, " sentences"], drawn: Draws
) -> np.ndarray:
    """Sums of parts over sums of wholes in each resample, e.g. the loss per token."""
    return (drawn @ parts) / (drawn @ wholes)


def slopes(x: Float[np.ndarray, " sentences"], y: Float[np.ndarray, " sentences"], drawn: Draws) -> np.ndarray:
    """The slope of the least-squares line through the sentences of each resample; 0 where all x are the same."""
    # centred before they are multiplied, so that nothing large cancels
    x, y, total = x - x.mean(), y - y.mean(), drawn.sum(axis=1)
    mean_x, mean_y = (drawn @ x) / total, (drawn @ y) / total
    spread = (drawn @ x**2) / total - mean_x**2
    joint = (drawn @ (x * y)) / total - mean_x * mean_y
    flat = spread <= 1e-12
    return np.where(flat, 0.0, joint / np.where(flat, 1.0, spread))


def estimate(value: float, resampled: np.ndarray) -> Estimate:
    """A value with the 2.5th and the 97.5th percentile of its resamples."""
    low, high = np.quantile(resampled, [0.025, 0.975])
    return Estimate(value, float(low), float(high))


def chance(difference: float, resampled: np.ndarray) -> float:
    """The p-value of a difference by sacreBLEU's paired bootstrap: how often chance alone makes one as large.

    Args:
        difference: between two systems, on all sentences.
        resampled: the same difference in each resample.
    """
    if not resampled.any():
        # systems that never differ cannot differ more; sacreBLEU's formula would call that significant
        return 1.0
    sizes = np.abs(resampled)
    return (int((sizes - sizes.mean() > abs(difference)).sum()) + 1) / (len(resampled) + 1)
