"""Solutions of the lab on training and comparing translators (docs/labs/translation.ipynb)."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import scipy.stats

from s2s.labs.exercise import Exercise

Steps = Mapping[str, Mapping[str, float]]
"""Probabilities of the next word by the words so far, such as `{"": {"a": 0.6, "b": 0.4}, "a": …}`."""
TREE: Steps = {
    "": {"the": 0.6, "a": 0.4},
    "the": {"dog": 0.4, "cat": 0.3, "man": 0.3},
    "a": {"dog": 0.9, "cat": 0.1},
}
"""A language of two words for the exercise on beam search: greedy search misses its best sentence."""
_OURS, _THEIRS = [96.9, 96.9, 96.8, 97.2, 96.5], [96.1, 96.3, 96.4, 96.2, 96.6]


def perplexity(loss: float) -> float:
    """Perplexity of a loss in nats per token."""
    return math.exp(loss)


def clipped_precision(output: str, reference: str) -> float:
    """Share of the output's words that the reference has, each counted at most as often as there (BLEU, n = 1)."""
    words, wanted = Counter(output.split()), Counter(reference.split())
    return sum((words & wanted).values()) / sum(words.values())


def brevity_penalty(output: int, reference: int) -> float:
    """Factor of BLEU for outputs that are shorter than their references, by their numbers of words."""
    return 1.0 if output >= reference else math.exp(1 - reference / output)


def beam_search(steps: Steps, beam: int) -> str:
    """Most probable sentence of two words that a beam of this size finds."""
    first = sorted(steps[""], key=lambda word: -steps[""][word])[:beam]
    sentences = {f"{one} {two}": steps[""][one] * p for one in first for two, p in steps[one].items()}
    return max(sentences, key=lambda sentence: sentences[sentence])


def interval(scores: Sequence[float]) -> tuple[float, float, float]:
    """Mean of the scores of several seeds, and the ends of Student's 95 % interval."""
    mean, error = float(np.mean(scores)), float(np.std(scores, ddof=1)) / math.sqrt(len(scores))
    width = float(scipy.stats.t.ppf(0.975, len(scores) - 1)) * error
    return mean, mean - width, mean + width


def paired_p(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """P-value of the paired t-test of two models with the same seeds."""
    return float(scipy.stats.ttest_rel(ours, theirs).pvalue)


def holm(ps: Sequence[float]) -> list[float]:
    """P-values of several tests, corrected after Holm (1979), in the same order."""
    corrected, largest = [0.0] * len(ps), 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=lambda place: ps[place])):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[place]))
        corrected[place] = largest
    return corrected


def claims_that_hold(verdicts: Mapping[int, str]) -> list[int]:
    """Numbers of the claims whose verdict is yes."""
    return [number for number, verdict in verdicts.items() if verdict == "yes"]


EXERCISES = (
    Exercise(perplexity, "the loss is the mean of −log p, with the natural logarithm.", [(0.0,), (2.3,)]),
    Exercise(
        clipped_precision,
        "Counter(a) & Counter(b) keeps the smaller count of each word.",
        [("the the the", "the cat"), ("a dog runs", "a dog runs")],
    ),
    Exercise(brevity_penalty, "exp(1 − reference/output), but only for short outputs.", [(9, 10), (12, 10)]),
    Exercise(
        beam_search, "keep the `beam` best first words, and then the best of their sentences.", [(TREE, 1), (TREE, 2)]
    ),
    Exercise(interval, "np.std with ddof=1, and scipy.stats.t.ppf(0.975, n − 1).", [(_OURS,)]),
    Exercise(paired_p, "scipy.stats.ttest_rel has the p-value.", [(_OURS, _THEIRS)]),
    Exercise(
        holm,
        "the smallest p times n, the next times n − 1, …, and never less than the one before.",
        [([0.03, 0.01, 0.04],)],
    ),
    Exercise(
        claims_that_hold, "verdicts.items() has pairs of number and verdict.", [({1: "yes", 2: "undecided", 5: "yes"},)]
    ),
)
