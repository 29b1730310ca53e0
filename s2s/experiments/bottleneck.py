"""Does quality fall with the length of the source? Where all of it must pass through one vector, it should."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from s2s.evaluation.inference import Draws
from s2s.experiments.contest import Contest, Experiment, Measured, Scale, Task
from s2s.experiments.lengths import Fall, Measure, differences_table, fall, lines_of, verdict
from s2s.experiments.resampling import counts_of, resampled_scores, sentence_scores
from s2s.experiments.translation import evaluation_of, trained
from s2s.experiments.verdicts import BySeed, Row, by_model, ends, seeds_in_words
from s2s.results import Axis, Figure, Finding, Result, Series, Table

_ROW = "fixed-size bottleneck"
# below five BLEU there is nothing to fall from
MEASURE = Measure("BLEU", "BLEU", "chrF2++", 5, "what cannot translate cannot get worse")

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
        exact = {model: _exact(runs[model], found) for model, found in falls.items()}
        return Result(
            experiment=self.name,
            question=self.question,
            method=METHOD,
            limits=LIMITS,
            models=contest.models,
            seeds=list(contest.seeds),
            findings=[_finding(model, falls) for model in falls],
            figures=_figures(falls, exact) if falls else [],
            tables=[_table(falls, exact), differences_table(falls, MEASURE)] if falls else [],
        )


def _fall(runs: BySeed, count: int) -> Fall:
    found = list(runs.values())

    def bleu(part: np.ndarray, drawn: Draws) -> np.ndarray:
        """Mean over the runs."""
        counts = [np.array(run["counts"])[part] for run in found]
        return np.mean([resampled_scores("bleu", each, drawn) for each in counts], axis=0)

    return fall(found[0]["words"], len(found), count, bleu, np.mean([run["chrf"] for run in found], axis=0))


def _exact(runs: BySeed, found: Fall) -> list[float]:
    """Share of each bucket's translations that are the reference, in percent."""
    exact = np.mean([run["exact"] for run in runs.values()], axis=0)
    return [100 * float(exact[part].mean()) for part in found.rows]


def _finding(model: str, falls: Mapping[str, Fall]) -> Finding:
    found = falls[model]
    runs = "" if found.seeds == 1 else f", mean of {seeds_in_words(found.seeds)}"
    return Finding(
        row=_ROW,
        model=model,
        value=found.difference.value,
        low=found.difference.low,
        high=found.difference.high,
        unit="BLEU",
        quantity=f"BLEU of the longest sources minus that of the shortest, {len(found.rows)} equal parts{runs}",
        verdict=verdict(model, falls, MEASURE),
        figure="bleu",
    )


def _figures(falls: Mapping[str, Fall], exact: Mapping[str, list[float]]) -> list[Figure]:
    length = Axis(label="words of the source, mean of its bucket")
    bleu = lines_of(falls)
    return [
        Figure(
            name="bleu",
            title="BLEU against the length of the source",
            x=length,
            y=Axis(label="BLEU", unit="%"),
            series=bleu,
            caption="Buckets have equally many sentences. Intervals (95 %): sentences drawn with replacement.",
        ),
        Figure(
            name="exact",
            title="Translations that are the reference, against the length of the source",
            x=length,
            y=Axis(label="exact translations", unit="%"),
            series=[Series(label=each.label, model=each.model, x=each.x, y=[*exact[each.model]]) for each in bleu],
        ),
    ]


def _table(falls: Mapping[str, Fall], exact: Mapping[str, list[float]]) -> Table:
    rows: list[Row] = []
    for model, found in falls.items():
        for i, part in enumerate(found.rows):
            rows.append([model, found.span(i), len(part), *ends(found.scores[i], 2), round(exact[model][i], 1)])
    return Table(
        name="buckets",
        title="Scores by the length of the source",
        columns=["model", "words", "sentences", "BLEU", "low", "high", "exact (%)"],
        rows=rows,
    )


EXPERIMENT = Bottleneck()
