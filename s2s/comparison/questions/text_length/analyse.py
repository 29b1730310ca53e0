"""Analyse the accuracy of classifiers by text length, in buckets of equally many texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from operator import itemgetter

import numpy as np
from jaxtyping import Float, Int

from s2s.comparison.paired_tests import seeds_in_words
from s2s.comparison.reporting import Interval, axis, figure, first_run, series, table, verdict
from s2s.comparison.results import Verdict
from s2s.comparison.spec import Analysis, Comparison, Trial, by_model
from s2s.evaluation.differences import Difference, Pairwise, over_seeds_and_sentences, welch
from s2s.evaluation.gates import Assessment
from s2s.evaluation.inference import RESAMPLES, Draws, Estimate, draws, estimate, ratios, slopes

_BUCKETS = 5
# words, for slopes
_STEP = 10


@dataclass(frozen=True)
class TextLengthRun:
    """Measurement of a trained classifier; lists have one item for each text of the test set."""

    words: list[int]  # length
    right: list[int]  # 1 for a correct label
    commonest: float  # share of the most frequent class, in percent


@dataclass(frozen=True)
class Fall:
    """Accuracy by text length, in percent, with bootstrap resamples of the texts."""

    right: list[Float[np.ndarray, " texts"]]  # of each run: 1 for a correct label
    words: Float[np.ndarray, " texts"]
    rows: list[Int[np.ndarray, " bucket"]]  # texts of each bucket, the shortest first
    scores: list[Estimate]  # accuracy in each bucket
    difference: Estimate  # accuracy in the longest bucket minus that in the shortest
    differences: Float[np.ndarray, " resamples"]
    slope: Estimate  # of each text's mean accuracy, per ten words
    slopes: Float[np.ndarray, " resamples"]


def analyse(comparison: Comparison, measured: Mapping[Trial, TextLengthRun]) -> Analysis:
    """Compare the loss of accuracy with length."""
    runs = by_model(comparison, measured)
    if not runs:
        return Analysis()
    # all models are tested on the same texts
    chance = max(run.commonest for own in runs.values() for run in own.values())
    falls = {model: _fall(own) for model, own in runs.items()}
    lines, rows = [], []
    for model, fall in falls.items():
        words = [fall.words[bucket] for bucket in fall.rows]
        lines.append(series(model, model, [float(own.mean()) for own in words], fall.scores))
        spans = [f"{own.min():.0f}–{own.max():.0f}" for own in words]
        rows += [(model, *row) for row in zip(spans, map(len, words), fall.scores, strict=True)]
    shown = figure(
        "accuracy",
        "Accuracy against text length",
        (axis("text length, mean of the bucket", "words"), axis("accuracy", "%")),
        lines,
        "Buckets have equally many texts. Intervals (95 %): bootstrap over texts.",
    )
    differences = [(model, each.difference, each.slope) for model, each in falls.items()]
    for (a, first), (b, second) in combinations(falls.items(), 2):
        if len(first.words) == len(second.words):
            difference = second.difference.value - first.difference.value
            slope = second.slope.value - first.slope.value
            differences.append(
                (
                    f"{b} − {a}",
                    estimate(difference, second.differences - first.differences),
                    estimate(slope, second.slopes - first.slopes),
                )
            )
    columns = (
        "models",
        Interval("accuracy, longest − shortest", itemgetter(1), 2),
        Interval(f"accuracy per {_STEP} words", itemgetter(2), 2, "slope"),
    )
    heads = ("model", "words", "texts", Interval("accuracy (%)", itemgetter(3), 2))
    title = "Accuracy on the longest texts minus that on the shortest: models and differences"
    return Analysis(
        findings=[_verdict(model, falls, chance) for model in falls],
        figures=[shown],
        tables=[
            table("buckets", "Accuracy by text length", heads, rows),
            table("differences", title, columns, differences),
        ],
    )


def buckets(words: Sequence[float] | np.ndarray, count: int) -> list[np.ndarray]:
    """Split texts by length into at most `count` buckets of equally many texts, or one fewer.

    Returns:
        Rows of each bucket, the shortest texts first.
    """
    order = np.argsort(np.asarray(words), kind="stable")
    return np.array_split(order, min(count, len(order)))


def _fall(runs: Mapping[int, TextLengthRun]) -> Fall:
    right = 100 * np.mean([run.right for run in runs.values()], axis=0)
    words = np.array(first_run(runs).words, dtype=float)

    def _accuracy(bucket: np.ndarray, drawn: Draws) -> np.ndarray:
        return ratios(right[bucket], np.ones(len(bucket)), drawn)

    rows, values, resampled = buckets(words, _BUCKETS), [], []
    for i, bucket in enumerate(rows):
        values.append(float(_accuracy(bucket, np.ones((1, len(bucket)), dtype=int))[0]))
        # buckets are independent, so each has its own draws
        resampled.append(_accuracy(bucket, draws(len(bucket), stream=1 + i)))
    all_slopes = _STEP * slopes(words, right, draws(len(words)))
    slope = _STEP * float(slopes(words, right, np.ones((1, len(words)), dtype=int))[0])
    differences = resampled[-1] - resampled[0] if len(rows) > 1 else np.zeros(RESAMPLES)
    return Fall(
        right=[np.array(run.right, dtype=float) for run in runs.values()],
        words=words,
        rows=rows,
        scores=[estimate(*each) for each in zip(values, resampled, strict=True)],
        difference=estimate(values[-1] - values[0], differences),
        differences=differences,
        slope=estimate(slope, all_slopes),
        slopes=all_slopes,
    )


def _compare(first: Fall, second: Fall) -> Difference | None:
    """Test the difference of two falls (second minus first) over texts and, if there are several, over seeds.

    None for different texts, and for a single text in each bucket.
    """
    if len(first.words) != len(second.words):
        return None
    ends = first.rows[-1], first.rows[0]
    chosen, sizes = np.concatenate(ends), [len(each) for each in ends]
    # resampled within each bucket: a draw from all texts could miss a bucket
    drawn = np.hstack([draws(size, stream) for size, stream in zip(sizes, (len(first.rows), 1), strict=True)])
    sides = np.repeat(np.eye(2), sizes, axis=1)
    counts = [[np.stack([*(right[chosen] * sides), *sides], axis=1) for right in own.right] for own in (first, second)]

    def _difference(sums: np.ndarray) -> np.ndarray:
        """Accuracy on the longest texts minus that on the shortest, from numbers of correct and of all texts."""
        return 100 * (sums[:, 0] / sums[:, 2] - sums[:, 1] / sums[:, 3])

    if found := over_seeds_and_sentences(counts[0], counts[1], _difference, drawn):
        return found
    more = np.mean(second.right, axis=0) - np.mean(first.right, axis=0)
    return welch(100 * more[ends[1]], 100 * more[ends[0]])


def _verdict(model: str, falls: Mapping[str, Fall], chance: float) -> Verdict:
    own = falls[model]
    seeds = len(own.right)
    runs = "" if seeds == 1 else f", mean of {seeds_in_words(seeds)}"
    quantity = f"accuracy on the longest texts minus that on the shortest, {len(own.rows)} equal buckets{runs}"
    facts: dict[str, float | str] = {
        "accuracy on the shortest (%)": round(own.scores[0].value, 1),
        f"accuracy per {_STEP} words (points)": round(own.slope.value, 1),
    }
    found = replace(_assess(model, falls, chance), facts=facts)
    return verdict("accuracy of long texts", model, own.difference, "points", quantity, found, "accuracy")


def _assess(model: str, falls: Mapping[str, Fall], chance: float) -> Assessment:
    """Compare a candidate with the one of the others that loses least accuracy."""
    # models that are worse than the most frequent class in all buckets
    guessing = [name for name, each in falls.items() if max(score.value for score in each.scores) < chance]
    if model in guessing:
        return Assessment(
            "", reasons=(f"its accuracy is below that of the most frequent class, {chance:.0f} %, at all lengths",)
        )
    same = [name for name in falls if name not in guessing and len(falls[name].words) == len(falls[model].words)]
    others = [name for name in same if name != model]
    if not others:
        return Assessment("", reasons=("no other model is better than the most frequent class",))
    other = max(others, key=lambda name: falls[name].difference.value)
    more, p = Pairwise.of(same, lambda a, b: _compare(falls[a], falls[b])).compare(model, other)
    if more is None or p is None:
        return Assessment("", other, reasons=("too few texts for a test",))
    return Assessment("", other, more.estimate(), "points", p, "t-test over seeds and texts, Holm")
