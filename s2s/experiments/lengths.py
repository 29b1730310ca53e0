"""What length does to a score: buckets of equally many texts, and how much more one model loses than another."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from s2s.evaluation.inference import RESAMPLES, Draws, Estimate, draws, estimate, slopes
from s2s.experiments.verdicts import Row, ends, excludes_zero, in_words
from s2s.results import Series, Table

STEP = 10  # words, for slopes


@dataclass(frozen=True)
class Measure:
    """How a score that length may change is called.

    Attributes:
        score: as in "no change in accuracy".
        unit: as in "falls by 2.1 points".
        slope: what the slope is of.
        weak: below it, in all buckets, a model has nothing to lose.
        helpless: what is said of such a model.
    """

    score: str
    unit: str
    slope: str
    weak: float
    helpless: str


@dataclass(frozen=True)
class Fall:
    """What length does to a model's score.

    Attributes:
        seeds: how many runs.
        rows: texts of each bucket, the shortest first.
        words: length of each text.
        scores: of each bucket.
        difference: score of the longest bucket minus that of the shortest.
        differences: the same, resample by resample.
        slope: of each text's own score, per ten words.
        slopes: the same, resample by resample.
    """

    seeds: int
    rows: list[np.ndarray]
    words: np.ndarray
    scores: list[Estimate]
    difference: Estimate
    differences: np.ndarray
    slope: Estimate
    slopes: np.ndarray

    def mean_words(self, bucket: int) -> float:
        """Length of a bucket's texts."""
        return float(self.words[self.rows[bucket]].mean())

    def span(self, bucket: int) -> str:
        """`5–9`: a bucket's shortest and longest text."""
        words = self.words[self.rows[bucket]]
        return f"{words.min():.0f}–{words.max():.0f}"


def buckets(words: Sequence[int], count: int) -> list[np.ndarray]:
    """The texts in order of their length, cut into parts of equally many, or one fewer; the shortest first.

    Args:
        words: length of each text.
        count: of parts, at most.
    """
    order = np.argsort(np.asarray(words), kind="stable")
    return np.array_split(order, min(count, len(order)))


def fall(
    words: Sequence[int],
    seeds: int,
    count: int,
    score: Callable[[np.ndarray, Draws], np.ndarray],
    each: Float[np.ndarray, " texts"],
) -> Fall:
    """What length does to a score that is the mean of several runs'.

    Args:
        words: length of each text.
        seeds: how many runs.
        count: of buckets, at most.
        score: of the chosen texts, for each row of how often each of them is drawn.
        each: a score of every single text, for the slope.
    """
    rows, lengths = buckets(words, count), np.array(words, dtype=float)
    values, resampled = [], []
    for i, part in enumerate(rows):
        values.append(float(score(part, np.ones((1, len(part)), dtype=int))[0]))
        # buckets have nothing to do with each other, so each has draws of its own
        resampled.append(score(part, draws(len(part), stream=1 + i)))
    all_slopes = STEP * slopes(lengths, each, draws(len(lengths)))
    slope = STEP * float(slopes(lengths, each, np.ones((1, len(lengths)), dtype=int))[0])
    differences = resampled[-1] - resampled[0] if len(rows) > 1 else np.zeros(RESAMPLES)
    return Fall(
        seeds=seeds,
        rows=rows,
        words=lengths,
        scores=[estimate(value, found) for value, found in zip(values, resampled, strict=True)],
        difference=estimate(values[-1] - values[0], differences),
        differences=differences,
        slope=estimate(slope, all_slopes),
        slopes=all_slopes,
    )


def between(first: Fall, second: Fall) -> Estimate:
    """How much higher the second's difference between long and short is than the first's; texts are paired."""
    value = second.difference.value - first.difference.value
    return estimate(value, second.differences - first.differences)


def verdict(model: str, falls: Mapping[str, Fall], measure: Measure) -> str:
    """What length costs a model, and how much more than another one.

    Args:
        model: whose verdict it is.
        falls: of all models.
        measure: how the score is called.
    """
    return f"{_own(falls[model], measure)}; {_against(model, falls, measure)}"


def _own(found: Fall, measure: Measure) -> str:
    slope = f"{measure.slope} {found.slope.value:+.1f} per {STEP} words"
    if found.slope.low is not None and not excludes_zero(found.slope):
        slope = f"{measure.slope} about the same ({in_words(found.slope)} per {STEP} words)"
    if _weak(found, measure):
        return f"too weak to tell, below {measure.weak:.0f} {measure.unit} at all lengths; {slope}"
    where = f"from {found.mean_words(0):.0f} to {found.mean_words(-1):.0f} words"
    if not excludes_zero(found.difference):
        return f"no change in {measure.score} to be seen {where}: {in_words(found.difference)}; {slope}"
    way = "falls" if found.difference.value < 0 else "rises"
    by = f"{abs(found.difference.value):.1f} {measure.unit}"
    return f"{way} by {by} {where} (of {found.scores[0].value:.1f}); {slope}"


def _weak(found: Fall, measure: Measure) -> bool:
    return max(each.value for each in found.scores) < measure.weak


def _against(model: str, falls: Mapping[str, Fall], measure: Measure) -> str:
    """How much more or less the model loses than the other one that loses least."""
    if _weak(falls[model], measure):
        return measure.helpless
    others = [name for name in falls if name != model and len(falls[name].words) == len(falls[model].words)]
    if not others:
        return "no other model was measured"
    others = [name for name in others if not _weak(falls[name], measure)]
    if not others:
        return "no other model is good enough to lose"
    other = max(others, key=lambda name: falls[name].difference.value)
    more = between(falls[other], falls[model])
    if not excludes_zero(more):
        return f"no difference from {other} in {measure.score} lost: {in_words(more)}"
    return f"loses {abs(more.value):.1f} {measure.unit} {'more' if more.value < 0 else 'less'} than {other}"


def lines_of(falls: Mapping[str, Fall]) -> list[Series]:
    """Each model's score against the length of the texts."""
    return [
        Series(
            label=model,
            model=model,
            x=[found.mean_words(i) for i in range(len(found.rows))],
            y=[each.value for each in found.scores],
            low=[each.low for each in found.scores],
            high=[each.high for each in found.scores],
        )
        for model, found in falls.items()
    ]


def differences_table(falls: Mapping[str, Fall], measure: Measure) -> Table:
    """What each model loses, and what each loses more than the ones before it in the command."""
    rows: list[Row] = [[model, *ends(each.difference, 2), *ends(each.slope, 2)] for model, each in falls.items()]
    names = list(falls)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            if len(falls[a].words) == len(falls[b].words):
                slope = estimate(falls[b].slope.value - falls[a].slope.value, falls[b].slopes - falls[a].slopes)
                rows.append([f"{b} − {a}", *ends(between(falls[a], falls[b]), 2), *ends(slope, 2)])
    return Table(
        name="differences",
        title="What length costs, and how much more it costs one model than another",
        columns=[
            "models",
            f"{measure.score}, longest − shortest",
            "low",
            "high",
            f"{measure.slope} per {STEP} words",
            "low (slope)",
            "high (slope)",
        ],
        rows=rows,
    )
