"""What length does to a score: buckets of equally many texts, and how much more one model loses than another."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from operator import itemgetter

import numpy as np
from jaxtyping import Float

from s2s.evaluation.inference import RESAMPLES, Draws, Estimate, draws, estimate, slopes
from s2s.experiments.contest import BySeed, Conclusion
from s2s.experiments.presenting import Column, Interval, axis, figure, finding, series, table
from s2s.experiments.verdicts import excludes_zero, in_words, seeds_in_words
from s2s.results import Axis, Finding, Table

STEP = 10  # words, for slopes


@dataclass(frozen=True)
class Score:
    """How a score that length may change is called."""

    row: str  # of the table that it fills
    key: str  # of its figure
    read: str  # what has the length, as in "words of the source"
    texts: str  # how these are called together, as in "sentences drawn with replacement"
    name: str  # as in "no change in accuracy"
    unit: str  # as in "falls by 2.1 points"
    slope: str  # what the slope is of
    difference: str  # what the cell of the table holds
    weak: float  # below it, in all buckets, a model has nothing to lose
    helpless: str  # what is said of such a model


@dataclass(frozen=True)
class Fall:
    """What length does to a model's score."""

    seeds: int  # how many runs
    rows: list[np.ndarray]  # texts of each bucket, the shortest first
    words: np.ndarray  # length of each text
    scores: list[Estimate]  # of each bucket
    difference: Estimate  # score of the longest bucket minus that of the shortest
    differences: np.ndarray  # the same, resample by resample
    slope: Estimate  # of each text's own score, per ten words
    slopes: np.ndarray  # the same, resample by resample

    @property
    def lengths(self) -> list[float]:
        """Mean length of each bucket's texts."""
        return [float(self.words[part].mean()) for part in self.rows]

    def span(self, bucket: int) -> str:
        """`5–9`: a bucket's shortest and longest text."""
        words = self.words[self.rows[bucket]]
        return f"{words.min():.0f}–{words.max():.0f}"


def buckets(words: Sequence[float] | np.ndarray, count: int) -> list[np.ndarray]:
    """The texts in order of their length, cut into so many parts, at most, of equally many, or one fewer."""
    order = np.argsort(np.asarray(words), kind="stable")
    return np.array_split(order, min(count, len(order)))


def fall(
    runs: BySeed,
    count: int,
    score: Callable[[np.ndarray, Draws], np.ndarray],
    each: Float[np.ndarray, " texts"],
) -> Fall:
    """What length does to a score that is the mean of several runs'.

    Args:
        runs: of the same texts, whose lengths they have under `words`.
        count: of buckets, at most.
        score: of the chosen texts, for each row of how often each of them is drawn.
        each: a score of every single text, for the slope.
    """
    lengths = np.array(next(iter(runs.values()))["words"], dtype=float)
    rows, values, resampled = buckets(lengths, count), [], []
    for i, part in enumerate(rows):
        values.append(float(score(part, np.ones((1, len(part)), dtype=int))[0]))
        # buckets have nothing to do with each other, so each has draws of its own
        resampled.append(score(part, draws(len(part), stream=1 + i)))
    all_slopes = STEP * slopes(lengths, each, draws(len(lengths)))
    slope = STEP * float(slopes(lengths, each, np.ones((1, len(lengths)), dtype=int))[0])
    differences = resampled[-1] - resampled[0] if len(rows) > 1 else np.zeros(RESAMPLES)
    return Fall(
        seeds=len(runs),
        rows=rows,
        words=lengths,
        scores=[estimate(*each) for each in zip(values, resampled, strict=True)],
        difference=estimate(values[-1] - values[0], differences),
        differences=differences,
        slope=estimate(slope, all_slopes),
        slopes=all_slopes,
    )


def between(first: Fall, second: Fall) -> Estimate:
    """How much higher the second's difference between long and short is than the first's; texts are paired."""
    value = second.difference.value - first.difference.value
    return estimate(value, second.differences - first.differences)


def _own(own: Fall, score: Score) -> str:
    slope = f"{score.slope} {own.slope.value:+.1f} per {STEP} words"
    if own.slope.low is not None and not excludes_zero(own.slope):
        slope = f"{score.slope} about the same ({in_words(own.slope)} per {STEP} words)"
    if _weak(own, score):
        return f"too weak to tell, below {score.weak:.0f} {score.unit} at all lengths; {slope}"
    where = f"from {own.lengths[0]:.0f} to {own.lengths[-1]:.0f} words"
    if not excludes_zero(own.difference):
        return f"no change in {score.name} to be seen {where}: {in_words(own.difference)}; {slope}"
    way = "falls" if own.difference.value < 0 else "rises"
    by = f"{abs(own.difference.value):.1f} {score.unit}"
    return f"{way} by {by} {where} (of {own.scores[0].value:.1f}); {slope}"


def _weak(own: Fall, score: Score) -> bool:
    return max(each.value for each in own.scores) < score.weak


def _against(model: str, falls: Mapping[str, Fall], score: Score) -> str:
    """How much more or less the model loses than the other one that loses least."""
    if _weak(falls[model], score):
        return score.helpless
    others = [name for name in falls if name != model and len(falls[name].words) == len(falls[model].words)]
    if not others:
        return "no other model was measured"
    others = [name for name in others if not _weak(falls[name], score)]
    if not others:
        return "no other model is good enough to lose"
    other = max(others, key=lambda name: falls[name].difference.value)
    more = between(falls[other], falls[model])
    if not excludes_zero(more):
        return f"no difference from {other} in {score.name} lost: {in_words(more)}"
    return f"loses {abs(more.value):.1f} {score.unit} {'more' if more.value < 0 else 'less'} than {other}"


def conclusion(falls: Mapping[str, Fall], score: Score, title: str, columns: Sequence[Column]) -> Conclusion:
    """What each model loses with length, and how much more than another.

    The table of the buckets has this title, and behind their span of words and how many texts they hold these columns,
    which may ask for the `model`, the `place` among the buckets and the `score`.
    """
    rows = [
        {"model": model, "place": i, "words": each.span(i), score.texts: len(part), "score": each.scores[i]}
        for model, each in falls.items()
        for i, part in enumerate(each.rows)
    ]
    shown = figure(
        score.key,
        f"{score.name[0].upper()}{score.name[1:]} against the length of the {score.read}",
        (length_axis(score), axis(score.name, "%")),
        [series(model, model, each.lengths, each.scores) for model, each in falls.items()],
        f"Buckets have equally many {score.texts}. Intervals (95 %): {score.texts} drawn with replacement.",
    )
    buckets = table("buckets", title, [*map(Column, ("model", "words", score.texts)), *columns], rows)
    return Conclusion(
        [_finding(model, falls, score) for model in falls], [shown], [buckets, _differences(falls, score)]
    )


def length_axis(score: Score) -> Axis:
    """Against which a bucket's score is drawn."""
    return axis(f"words of the {score.read}, mean of its bucket")


def _finding(model: str, falls: Mapping[str, Fall], score: Score) -> Finding:
    own = falls[model]
    runs = "" if own.seeds == 1 else f", mean of {seeds_in_words(own.seeds)}"
    quantity = f"{score.difference}, {len(own.rows)} equal parts{runs}"
    verdict = f"{_own(own, score)}; {_against(model, falls, score)}"
    return finding(score.row, model, own.difference, score.unit, quantity, verdict, score.key)


def _differences(falls: Mapping[str, Fall], score: Score) -> Table:
    """What each model loses, and what each loses more than the ones before it in the command."""
    rows = [(model, each.difference, each.slope) for model, each in falls.items()]
    for (a, first), (b, second) in combinations(falls.items(), 2):
        if len(first.words) == len(second.words):
            slope = estimate(second.slope.value - first.slope.value, second.slopes - first.slopes)
            rows.append((f"{b} − {a}", between(first, second), slope))
    columns = [
        "models",
        Interval(f"{score.name}, longest − shortest", itemgetter(1), 2),
        Interval(f"{score.slope} per {STEP} words", itemgetter(2), 2, "slope"),
    ]
    title = "What length costs, and how much more it costs one model than another"
    return table("differences", title, columns, rows)
