"""Does a classifier get worse with the length of the text? What reads word by word must carry everything to the end."""

from collections.abc import Mapping

import numpy as np

from s2s.evaluation.inference import Draws, ratios
from s2s.experiments.classifiers import evaluation_of, texts_of, trained
from s2s.experiments.contest import Contest, Experiment, Measured, Task
from s2s.experiments.lengths import Fall, Measure, differences_table, fall, lines_of, verdict
from s2s.experiments.verdicts import BySeed, Row, by_model, ends, seeds_in_words
from s2s.results import Axis, Figure, Finding, Result, Table

_ROW = "accuracy of long texts"
_BUCKETS = 5

METHOD = """\
The models of the experiment "classification" name the classes of the test set; nothing is trained again. The texts \
are put in order of their length in words and cut into five buckets of equally many. Each bucket has its accuracy; \
with several seeds, the mean of theirs.

Texts of each bucket are drawn with replacement, 1,000 times, the same ones for all models: so come the intervals of \
the difference between the longest and the shortest texts, and those of how much one model loses more than another. \
The slope is that of the least-squares line of a text's own accuracy (the share of seeds that have it right) against \
its length, over all texts, with an interval by the same resampling."""

LIMITS = """\
Long texts differ from short ones in more than length: in their sources, their subjects, and how much of them the \
recipe's `batches.max_length` lets a model read. So what a model loses says less than what it loses more than another \
one, on the same texts. The intervals doubt the choice of texts, not that of the networks. A model that is no better \
than naming the commonest class has nothing to lose."""


class TextLength(Experiment):
    """Accuracy by the length of the text."""

    name = "text-length"
    question = "Does it get worse with the length of the text?"
    rows = (_ROW,)

    def tasks(self, contest: Contest) -> list[Task]:
        """One for each model and seed; the models in turn."""
        return [Task(model, seed=seed, seconds=1) for seed in contest.seeds for model in contest.models]

    def measure(self, contest: Contest, task: Task) -> Measured:
        """Which texts were named right, and their lengths.

        Raises:
            UserError: the training failed.
        """
        folder = trained(contest, task.model, task.seed or 0)
        found = evaluation_of(folder)
        return {
            "words": [len(text.split()) for text in texts_of(folder, found["split"])],
            "right": [int(a == b) for a, b in zip(found["truth"], found["predicted"], strict=True)],
            "commonest": round(100 * np.bincount(found["truth"]).max() / len(found["truth"]), 2),
        }

    def conclude(self, contest: Contest, measured: Mapping[Task, Measured]) -> Result:
        """What each model loses with length, and how much more than another."""
        runs = by_model(contest, measured)
        falls = {model: _fall(own) for model, own in runs.items()}
        measure = _measure(runs)
        return Result(
            experiment=self.name,
            question=self.question,
            method=METHOD,
            limits=LIMITS,
            models=contest.models,
            seeds=list(contest.seeds),
            findings=[_finding(model, falls, measure) for model in falls],
            figures=[_figure(falls)] if falls else [],
            tables=[_table(falls), differences_table(falls, measure)] if falls else [],
        )


def _measure(runs: Mapping[str, BySeed]) -> Measure:
    # all models are tested on the same texts
    guess = max((run["commonest"] for own in runs.values() for run in own.values()), default=0.0)
    return Measure("accuracy", "points", "accuracy", guess, "what only guesses cannot get worse")


def _fall(runs: BySeed) -> Fall:
    found = list(runs.values())
    right = 100 * np.mean([run["right"] for run in found], axis=0)

    def accuracy(part: np.ndarray, drawn: Draws) -> np.ndarray:
        """Of each draw of a bucket's texts, in percent."""
        return ratios(right[part], np.ones(len(part)), drawn)

    return fall(found[0]["words"], len(found), _BUCKETS, accuracy, right)


def _finding(model: str, falls: Mapping[str, Fall], measure: Measure) -> Finding:
    found = falls[model]
    runs = "" if found.seeds == 1 else f", mean of {seeds_in_words(found.seeds)}"
    return Finding(
        row=_ROW,
        model=model,
        value=found.difference.value,
        low=found.difference.low,
        high=found.difference.high,
        unit="points",
        quantity=f"accuracy on the longest texts minus that on the shortest, {len(found.rows)} equal parts{runs}",
        verdict=verdict(model, falls, measure),
        figure="accuracy",
    )


def _figure(falls: Mapping[str, Fall]) -> Figure:
    return Figure(
        name="accuracy",
        title="Accuracy against the length of the text",
        x=Axis(label="words of the text, mean of its bucket"),
        y=Axis(label="accuracy", unit="%"),
        series=lines_of(falls),
        caption="Buckets have equally many texts. Intervals (95 %): texts drawn with replacement.",
    )


def _table(falls: Mapping[str, Fall]) -> Table:
    rows: list[Row] = [
        [model, found.span(i), len(part), *ends(found.scores[i], 2)]
        for model, found in falls.items()
        for i, part in enumerate(found.rows)
    ]
    return Table(
        name="buckets",
        title="Accuracy by the length of the text",
        columns=["model", "words", "texts", "accuracy (%)", "low", "high"],
        rows=rows,
    )


EXPERIMENT = TextLength()
