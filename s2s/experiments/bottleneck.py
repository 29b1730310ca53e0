"""Does quality fall with the length of the source? Where all of it must pass through one vector, it should."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from s2s.experiments.contest import Contest, Experiment, Measured, Scale, Task
from s2s.experiments.resampling import (
    RESAMPLES,
    corpus_score,
    counts_of,
    draws,
    estimate,
    resampled_scores,
    sentence_scores,
    slopes,
)
from s2s.experiments.statistics import Estimate
from s2s.experiments.translation import evaluation_of, trained
from s2s.experiments.verdicts import BySeed, Row, by_model, ends, excludes_zero, in_words, seeds_in_words
from s2s.results import Axis, Figure, Finding, Result, Series, Table

_ROW = "fixed-size bottleneck"
_STEP = 10  # words, for slopes
_WEAK = 5  # BLEU, below which there is nothing to fall from

METHOD = """\
The models of the experiment "quality" translate the test set; nothing is trained again. The sources are put in order \
of their length in words and cut into buckets of equally many. Each bucket has its BLEU and its share of translations \
that are the reference; with several seeds, their mean.

Sentences of each bucket are drawn with replacement, 1,000 times, the same ones for all models: so come the intervals \
of the difference between the longest and the shortest sources, and those of how much one model loses more than \
another. The slope is that of the least-squares line of a sentence's own chrF2++ against its length, over all \
sentences, with an interval by the same resampling."""

LIMITS = """\
Long sentences differ from short ones in more than length, and BLEU of either is not the same measure: what a model \
loses says less than what it loses more than another one, on the same sentences. The intervals doubt the choice of \
sentences, not that of the networks. A model that translates nothing well has nothing to lose."""


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        buckets: of sources, by length.
    """

    buckets: int


SIZES: dict[Scale, Sizes] = {"quick": Sizes(buckets=4), "standard": Sizes(buckets=5)}


class Bottleneck(Experiment):
    """Scores by the length of the source."""

    name = "bottleneck"
    question = "Does quality fall with the length of the source?"
    rows = (_ROW,)
    translates = True

    def tasks(self, contest: Contest) -> list[Task]:
        """One for each model and seed; the models in turn."""
        return [Task(model, seed=seed, seconds=1) for seed in contest.seeds for model in contest.models]

    def measure(self, contest: Contest, task: Task) -> Measured:
        """What sacreBLEU counts in each sentence, and its length.

        Raises:
            NotForThisModel: the model cannot translate.
            UserError: the training failed.
        """
        found = evaluation_of(trained(contest, task.model, task.seed or 0))
        translations, references = found["translations"], found["references"]
        chrf = sentence_scores("chrf", np.array(counts_of("chrf", translations, references)))
        pairs = zip(translations, references, strict=True)
        return {
            "words": [len(source.split()) for source in found["sources"]],
            "counts": counts_of("bleu", translations, references),
            "chrf": [round(float(score), 3) for score in chrf],
            "exact": [int(translation.strip() == reference.strip()) for translation, reference in pairs],
        }

    def conclude(self, contest: Contest, measured: Mapping[Task, Measured]) -> Result:
        """What each model loses with length, and how much more than another."""
        runs = by_model(contest, measured)
        falls = {model: _fall(own, contest.sizes(SIZES).buckets) for model, own in runs.items()}
        return Result(
            experiment=self.name,
            question=self.question,
            method=METHOD,
            limits=LIMITS,
            models=contest.models,
            seeds=list(contest.seeds),
            findings=[_finding(model, falls) for model in falls],
            figures=_figures(falls) if falls else [],
            tables=[_table(falls), _pairs(falls)] if falls else [],
        )


@dataclass(frozen=True)
class Fall:
    """What length does to a model's translations.

    Attributes:
        seeds: how many runs.
        rows: sentences of each bucket, the shortest first.
        words: length of each sentence.
        bleu: of each bucket.
        exact: of each bucket, in percent.
        difference: BLEU of the longest bucket minus that of the shortest.
        differences: the same, resample by resample.
        slope: chrF2++ per ten words.
        slopes: the same, resample by resample.
    """

    seeds: int
    rows: list[np.ndarray]
    words: np.ndarray
    bleu: list[Estimate]
    exact: list[float]
    difference: Estimate
    differences: np.ndarray
    slope: Estimate
    slopes: np.ndarray


def buckets(words: Sequence[int], count: int) -> list[np.ndarray]:
    """The sentences in order of their length, cut into parts of equally many, or one fewer; the shortest first.

    Args:
        words: length of each sentence.
        count: of parts, at most.
    """
    order = np.argsort(np.asarray(words), kind="stable")
    return np.array_split(order, min(count, len(order)))


def _fall(runs: BySeed, count: int) -> Fall:
    found = list(runs.values())
    words = np.array(found[0]["words"], dtype=float)
    rows = buckets(found[0]["words"], count)
    values, resampled = [], []
    for i, part in enumerate(rows):
        counts = [np.array(run["counts"])[part] for run in found]
        # buckets have nothing to do with each other, so each has draws of its own
        drawn = draws(len(part), stream=1 + i)
        values.append(float(np.mean([corpus_score("bleu", each) for each in counts])))
        resampled.append(np.mean([resampled_scores("bleu", each, drawn) for each in counts], axis=0))
    chrf = np.mean([run["chrf"] for run in found], axis=0)
    exact = np.mean([run["exact"] for run in found], axis=0)
    drawn, whole = draws(len(words)), np.ones((1, len(words)), dtype=int)
    all_slopes = _STEP * slopes(words, chrf, drawn)
    differences = resampled[-1] - resampled[0] if len(rows) > 1 else np.zeros(RESAMPLES)
    return Fall(
        seeds=len(found),
        rows=rows,
        words=words,
        bleu=[estimate(value, each) for value, each in zip(values, resampled, strict=True)],
        exact=[100 * float(exact[part].mean()) for part in rows],
        difference=estimate(values[-1] - values[0], differences),
        differences=differences,
        slope=estimate(_STEP * float(slopes(words, chrf, whole)[0]), all_slopes),
        slopes=all_slopes,
    )


def _finding(model: str, falls: Mapping[str, Fall]) -> Finding:
    fall = falls[model]
    runs = "" if fall.seeds == 1 else f", mean of {seeds_in_words(fall.seeds)}"
    return Finding(
        row=_ROW,
        model=model,
        value=fall.difference.value,
        low=fall.difference.low,
        high=fall.difference.high,
        unit="BLEU",
        quantity=f"BLEU of the longest sources minus that of the shortest, {len(fall.rows)} equal parts{runs}",
        verdict=f"{_own(fall)}; {_against(model, falls)}",
        figure="bleu",
    )


def _own(fall: Fall) -> str:
    slope = f"chrF2++ {fall.slope.value:+.1f} per {_STEP} words"
    if fall.slope.low is not None and not excludes_zero(fall.slope):
        slope = f"chrF2++ about the same ({in_words(fall.slope)} per {_STEP} words)"
    if _weak(fall):
        return f"too weak to tell, below {_WEAK} BLEU at all lengths; {slope}"
    where = f"from {_mean_words(fall, 0):.0f} to {_mean_words(fall, -1):.0f} words"
    if not excludes_zero(fall.difference):
        return f"no change in BLEU to be seen {where}: {in_words(fall.difference)}; {slope}"
    way = "falls" if fall.difference.value < 0 else "rises"
    return f"{way} by {abs(fall.difference.value):.1f} BLEU {where} (of {fall.bleu[0].value:.1f}); {slope}"


def _weak(fall: Fall) -> bool:
    return max(each.value for each in fall.bleu) < _WEAK


def _against(model: str, falls: Mapping[str, Fall]) -> str:
    """How much more or less the model loses than the other one that loses least."""
    if _weak(falls[model]):
        return "what cannot translate cannot get worse"
    others = [name for name in falls if name != model and len(falls[name].words) == len(falls[model].words)]
    if not others:
        return "no other model was measured"
    others = [name for name in others if not _weak(falls[name])]
    if not others:
        return "no other model is good enough to lose"
    other = max(others, key=lambda name: falls[name].difference.value)
    more = between(falls[other], falls[model])
    if not excludes_zero(more):
        return f"no difference from {other} in BLEU lost: {in_words(more)}"
    return f"loses {abs(more.value):.1f} BLEU {'more' if more.value < 0 else 'less'} than {other}"


def between(first: Fall, second: Fall) -> Estimate:
    """How much higher the second's difference between long and short is than the first's; sentences are paired."""
    value = second.difference.value - first.difference.value
    return estimate(value, second.differences - first.differences)


def _mean_words(fall: Fall, bucket: int) -> float:
    return float(fall.words[fall.rows[bucket]].mean())


def _figures(falls: Mapping[str, Fall]) -> list[Figure]:
    def series(model: str, fall: Fall, bleu: bool) -> Series:
        return Series(
            label=model,
            model=model,
            x=[_mean_words(fall, i) for i in range(len(fall.rows))],
            y=[each.value for each in fall.bleu] if bleu else list(fall.exact),
            low=[each.low for each in fall.bleu] if bleu else None,
            high=[each.high for each in fall.bleu] if bleu else None,
        )

    length = Axis(label="words of the source, mean of its bucket")
    return [
        Figure(
            name="bleu",
            title="BLEU against the length of the source",
            x=length,
            y=Axis(label="BLEU", unit="%"),
            series=[series(model, fall, True) for model, fall in falls.items()],
            caption="Buckets have equally many sentences. Intervals (95 %): sentences drawn with replacement.",
        ),
        Figure(
            name="exact",
            title="Translations that are the reference, against the length of the source",
            x=length,
            y=Axis(label="exact translations", unit="%"),
            series=[series(model, fall, False) for model, fall in falls.items()],
        ),
    ]


def _table(falls: Mapping[str, Fall]) -> Table:
    rows: list[Row] = []
    for model, fall in falls.items():
        for i, part in enumerate(fall.rows):
            words = fall.words[part]
            span = f"{words.min():.0f}–{words.max():.0f}"
            rows.append([model, span, len(part), *ends(fall.bleu[i], 2), round(fall.exact[i], 1)])
    return Table(
        name="buckets",
        title="Scores by the length of the source",
        columns=["model", "words", "sentences", "BLEU", "low", "high", "exact (%)"],
        rows=rows,
    )


def _pairs(falls: Mapping[str, Fall]) -> Table:
    """What each model loses, and what it loses more than the one before it in the command."""
    rows: list[Row] = [[model, *ends(fall.difference, 2), *ends(fall.slope, 2)] for model, fall in falls.items()]
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
            "BLEU, longest − shortest",
            "low",
            "high",
            f"chrF2++ per {_STEP} words",
            "low (slope)",
            "high (slope)",
        ],
        rows=rows,
    )


EXPERIMENT = Bottleneck()
