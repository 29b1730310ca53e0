"""Analyse the accuracy of classifiers by text length, in buckets of equally many texts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from operator import itemgetter

import numpy as np

from s2s.comparison.paired_tests import seeds_in_words
from s2s.comparison.reporting import Interval, axis, figure, series, table, verdict
from s2s.comparison.results import Verdict
from s2s.comparison.spec import Analysis, BySeed, Comparison, Trials, by_model
from s2s.evaluation.differences import Difference, Pairwise, over_seeds_and_sentences, welch
from s2s.evaluation.gates import Assessment
from s2s.evaluation.inference import RESAMPLES, Draws, Estimate, draws, estimate, ratios, slopes

_BUCKETS = 5
_STEP = 10  # words, for slopes


@dataclass(frozen=True)
class Fall:
    """Accuracy by text length, in percent."""

    right: list[np.ndarray]  # of each run, whether each text was classified rightly
    rows: list[np.ndarray]  # texts of each bucket, the shortest first
    words: np.ndarray  # length of each text
    scores: list[Estimate]  # of each bucket
    difference: Estimate  # accuracy in the longest bucket minus that in the shortest
    differences: np.ndarray  # the same, resample by resample
    slope: Estimate  # of each text's own share of right answers, per ten words
    slopes: np.ndarray  # the same, resample by resample

    @property
    def seeds(self) -> int:
        """Number of runs."""
        return len(self.right)

    @property
    def lengths(self) -> list[float]:
        """Mean length of each bucket's texts."""
        return [float(self.words[part].mean()) for part in self.rows]

    def span(self, bucket: int) -> str:
        """`5–9`: a bucket's shortest and longest text."""
        words = self.words[self.rows[bucket]]
        return f"{words.min():.0f}–{words.max():.0f}"

    def weak(self, chance: float) -> bool:
        """True if accuracy is below chance in all buckets."""
        return max(each.value for each in self.scores) < chance


def analyse(comparison: Comparison, measured: Trials) -> Analysis:
    """Compare the loss of accuracy with length."""
    runs = by_model(comparison, measured)
    if not runs:
        return Analysis()
    # all models are tested on the same texts
    chance = max(run["commonest"] for own in runs.values() for run in own.values())
    falls = {model: fall(own) for model, own in runs.items()}
    shown = figure(
        "accuracy",
        "Accuracy against the length of the text",
        (axis("words of the text, mean of its bucket"), axis("accuracy", "%")),
        [series(model, model, each.lengths, each.scores) for model, each in falls.items()],
        "Buckets have equally many texts. Intervals (95 %): texts drawn with replacement.",
    )
    rows = [
        (model, each.span(i), len(part), each.scores[i])
        for model, each in falls.items()
        for i, part in enumerate(each.rows)
    ]
    heads = ("model", "words", "texts", Interval("accuracy (%)", itemgetter(3), 2))
    columns = (
        "models",
        Interval("accuracy, longest − shortest", itemgetter(1), 2),
        Interval(f"accuracy per {_STEP} words", itemgetter(2), 2, "slope"),
    )
    title = "What length costs, and how much more it costs one model than another"
    return Analysis(
        findings=[_verdict(model, falls, chance) for model in falls],
        figures=[shown],
        tables=[
            table("buckets", "Accuracy by the length of the text", heads, rows),
            table("differences", title, columns, _differences(falls)),
        ],
    )


def buckets(words: Sequence[float] | np.ndarray, count: int) -> list[np.ndarray]:
    """The texts in order of their length, cut into so many parts, at most, of equally many, or one fewer."""
    order = np.argsort(np.asarray(words), kind="stable")
    return np.array_split(order, min(count, len(order)))


def fall(runs: BySeed) -> Fall:
    """Fall of the mean accuracy of runs on the same texts."""
    right = 100 * np.mean([run["right"] for run in runs.values()], axis=0)
    lengths = np.array(next(iter(runs.values()))["words"], dtype=float)

    def accuracy(part: np.ndarray, drawn: Draws) -> np.ndarray:
        """Accuracy on texts, for each resample."""
        return ratios(right[part], np.ones(len(part)), drawn)

    rows, values, resampled = buckets(lengths, _BUCKETS), [], []
    for i, part in enumerate(rows):
        values.append(float(accuracy(part, np.ones((1, len(part)), dtype=int))[0]))
        # buckets have nothing to do with each other, so each has draws of its own
        resampled.append(accuracy(part, draws(len(part), stream=1 + i)))
    all_slopes = _STEP * slopes(lengths, right, draws(len(lengths)))
    slope = _STEP * float(slopes(lengths, right, np.ones((1, len(lengths)), dtype=int))[0])
    differences = resampled[-1] - resampled[0] if len(rows) > 1 else np.zeros(RESAMPLES)
    return Fall(
        right=[np.array(run["right"], dtype=float) for run in runs.values()],
        rows=rows,
        words=lengths,
        scores=[estimate(*each) for each in zip(values, resampled, strict=True)],
        difference=estimate(values[-1] - values[0], differences),
        differences=differences,
        slope=estimate(slope, all_slopes),
        slopes=all_slopes,
    )


def between(first: Fall, second: Fall) -> Estimate:
    """Difference of two falls (second minus first); texts are paired."""
    value = second.difference.value - first.difference.value
    return estimate(value, second.differences - first.differences)


def compared(first: Fall, second: Fall) -> Difference | None:
    """The same with its test, in doubt about texts and, where both have several, about seeds.

    None of other texts, and of a single text a bucket.
    """
    if len(first.words) != len(second.words):
        return None
    ends = first.rows[-1], first.rows[0]
    chosen, sizes = np.concatenate(ends), [len(each) for each in ends]
    # drawn within its bucket, as above: of all texts, a draw may have none of one
    drawn = np.hstack([draws(size, stream) for size, stream in zip(sizes, (len(first.rows), 1), strict=True)])
    sides = np.repeat(np.eye(2), sizes, axis=1)
    counts = [[np.stack([*(right[chosen] * sides), *sides], axis=1) for right in own.right] for own in (first, second)]
    if found := over_seeds_and_sentences(counts[0], counts[1], _loss, drawn):
        return found
    more = np.mean(second.right, axis=0) - np.mean(first.right, axis=0)
    return welch(100 * more[ends[1]], 100 * more[ends[0]])


def _loss(sums: np.ndarray) -> np.ndarray:
    """Accuracy on the longest texts minus that on the shortest, in percent, of sums: right of both, all of both."""
    return 100 * (sums[:, 0] / sums[:, 2] - sums[:, 1] / sums[:, 3])


def _verdict(model: str, falls: Mapping[str, Fall], chance: float) -> Verdict:
    own = falls[model]
    runs = "" if own.seeds == 1 else f", mean of {seeds_in_words(own.seeds)}"
    quantity = f"accuracy on the longest texts minus that on the shortest, {len(own.rows)} equal parts{runs}"
    facts: dict[str, float | str] = {
        "accuracy on the shortest (%)": round(own.scores[0].value, 1),
        f"accuracy per {_STEP} words (points)": round(own.slope.value, 1),
    }
    found = replace(_assess(model, falls, chance), facts=facts)
    return verdict("accuracy of long texts", model, own.difference, "points", quantity, found, "accuracy")


def _assess(model: str, falls: Mapping[str, Fall], chance: float) -> Assessment:
    """Compare a candidate's fall with the smallest of the others."""
    if falls[model].weak(chance):
        return Assessment(
            "", reasons=(f"its accuracy is below that of the commonest class, {chance:.0f} %, at all lengths",)
        )
    others = [name for name in falls if name != model and len(falls[name].words) == len(falls[model].words)]
    others = [name for name in others if not falls[name].weak(chance)]
    if not others:
        return Assessment("", reasons=("no other model was measured that is better than the commonest class",))
    other = max(others, key=lambda name: falls[name].difference.value)
    judged = [name for name in falls if name == model or name in others]
    more, p = Pairwise.of(judged, lambda a, b: compared(falls[a], falls[b])).beside(model, other)
    if more is None or p is None:
        return Assessment("", other, reasons=("too few texts for a test",))
    return Assessment("", other, more.estimate(), "points lost less", p, "t-test over seeds and texts, Holm")


def _differences(falls: Mapping[str, Fall]) -> Iterator[tuple[str, Estimate, Estimate]]:
    """Table of falls and their differences."""
    yield from ((model, each.difference, each.slope) for model, each in falls.items())
    for (a, first), (b, second) in combinations(falls.items(), 2):
        if len(first.words) == len(second.words):
            slope = estimate(second.slope.value - first.slope.value, second.slopes - first.slopes)
            yield f"{b} − {a}", between(first, second), slope
