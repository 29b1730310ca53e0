"""What the runs of `quality` say: scores over seeds, tests between models, curves and costs."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np

from s2s.evaluation.inference import Estimate, draws, estimate, paired_difference, paired_p
from s2s.evaluation.metrics import metrics, scores_of
from s2s.experiments.contest import Contest, Experiment, Measured, Task
from s2s.experiments.resampling import corpus_score, resampled_scores
from s2s.experiments.run_figures import curves, score_bars
from s2s.experiments.verdicts import (
    BySeed,
    Evidence,
    Row,
    against,
    by_model,
    ends,
    mean_known,
    percent,
    rounded,
)
from s2s.results import Axis, Figure, Finding, Result, Table

_ROW = "translation quality"
_NAMES = {"bleu": "BLEU", "chrf": "chrF2++"}
_SCORED = (*_NAMES.values(), "exact")

METHOD = """\
Every model is trained on the same pairs, cut by the same tokenizer, in the same order, for the recipe's number of \
updates (or, where the comparison is matched by time, for as many as fit), with its own learning rate, once for each \
seed. The checkpoint with the best validation is tested. BLEU and chrF2++ are sacreBLEU's, of plain text against \
untouched references; their signatures are in the table of runs. "Exact" is the share of translations that are the \
reference, letter by letter.

Over seeds: the mean with Student's 95 % interval, cut off where a score ends (0 and 100). With one seed, the interval \
is that of sentences drawn with replacement. Between two models: paired approximate randomisation of the \
sentences of the first seed that both have (Riezler & Maxwell 2005; 5,000 exchanges; the interval of the difference is \
that of sentences drawn with replacement, Koehn 2004), and a paired t-test over seeds, from three seeds on. In words, \
the p-values of each test are corrected for the number of pairs of models (Holm 1979); in the table of pairs they are \
not.

Floating-point operations are those of the matrix products, forward and backward, for one target token of a batch of \
the training data, counted on the form of the model in which no kernel hides its steps. Training time is the sum of \
the updates'. CPU seconds are those of the whole run on all processor threads: training, validations and test; the \
data, the same for all, are prepared before. They stand in for energy."""

LIMITS = """\
Randomisation doubts the choice of sentences, not that of the network: it says whether these trained networks differ. \
Whether their architectures do, only seeds can tell. Training \
is short: a model that learns faster is ahead, and would not be if all were trained until they learn no more. \
Operations that are no matrix products (a scan's, a softmax's) are not counted. CPU seconds are not measured in \
joules, know nothing of a GPU, and are not given for a run that was interrupted."""


@dataclass(frozen=True)
class Pair:
    """How the second of two models differs from the first.

    Attributes:
        seed: of the two runs whose sentences were resampled.
        bleu: difference with its bootstrap interval.
        bleu_p: the p-value of paired randomisation.
        chrf: as `bleu`.
        chrf_p: likewise.
        seeds: how many both had.
        over_seeds: difference in BLEU.
        p: the paired t-test's p-value; None below three seeds.
    """

    seed: int
    bleu: Estimate
    bleu_p: float
    chrf: Estimate
    chrf_p: float
    seeds: int
    over_seeds: Estimate
    p: float | None

    def evidence(self) -> Evidence:
        """The tests that decide about BLEU."""
        return Evidence(self.seeds, self.over_seeds, self.p, "randomisation", self.bleu_p, self.seed)


def conclude(experiment: Experiment, contest: Contest, measured: Mapping[Task, Measured]) -> Result:
    """The result of what was measured; what is missing is left out.

    Args:
        experiment: whose result it is.
        contest: gives the models and the seeds.
        measured: by `Quality.measure`.
    """
    runs = by_model(contest, measured)
    pairs = {(a, b): pair for a, b in combinations(runs, 2) if (pair := compared(runs[a], runs[b]))}
    return Result(
        experiment=experiment.name,
        question=experiment.question,
        method=METHOD,
        limits=LIMITS,
        models=contest.models,
        seeds=list(contest.seeds),
        findings=[_finding(model, runs, pairs) for model in runs],
        figures=_figures(runs) if runs else [],
        tables=[_summary(runs), _pairs(pairs), _runs(runs), _examples(runs)] if runs else [],
    )


def compared(first: BySeed, second: BySeed) -> Pair | None:
    """By how much the second model is better, and whether that is more than chance; None without a seed in common."""
    both = [seed for seed in first if seed in second]
    if not both:
        return None
    one, two = first[both[0]], second[both[0]]
    (bleu, bleu_p), (chrf, chrf_p) = (_over_sentences(metric, one, two) for metric in _NAMES)
    scores = [[runs[seed]["scores"]["bleu"]["value"] for seed in both] for runs in (first, second)]
    over_seeds, p = paired_difference(scores[0], scores[1])
    return Pair(both[0], bleu, bleu_p, chrf, chrf_p, len(both), over_seeds, p)


def _over_sentences(metric: str, first: Measured, second: Measured) -> tuple[Estimate, float]:
    counts = [np.array(run["counts"][metric]) for run in (first, second)]
    drawn = draws(len(counts[0]))
    resampled = resampled_scores(metric, counts[1], drawn) - resampled_scores(metric, counts[0], drawn)
    difference = corpus_score(metric, counts[1]) - corpus_score(metric, counts[0])
    return estimate(difference, resampled), paired_p(counts[0], counts[1], partial(scores_of, metrics()[metric]))


def score_of(runs: BySeed, metric: str) -> Estimate:
    """The mean score over seeds; the bootstrap's interval where there is one seed. `exact` has none then."""
    if metric == "exact":
        return percent([run["exact"] for run in runs.values()])
    found = [run["scores"][metric] for run in runs.values()]
    if len(found) == 1:
        return Estimate(found[0]["value"], found[0]["low"], found[0]["high"])
    return percent([score["value"] for score in found])


def _finding(model: str, runs: dict[str, BySeed], pairs: dict[tuple[str, str], Pair]) -> Finding:
    score, seeds = score_of(runs[model], "bleu"), len(runs[model])
    interval = "one seed; interval over sentences" if seeds == 1 else f"mean of {seeds} seeds"
    return Finding(
        row=_ROW,
        model=model,
        value=score.value,
        low=score.low,
        high=score.high,
        unit="BLEU",
        quantity=f"BLEU on the test set ({interval})",
        verdict=against(
            model,
            {name: score_of(own, "bleu").value for name, own in runs.items()},
            {models: pair.evidence() for models, pair in pairs.items()},
            "BLEU",
        ),
        figure="scores",
    )


def _figures(runs: dict[str, BySeed]) -> list[Figure]:
    tokens, seconds = Axis(label="target tokens learned from"), Axis(label="time of training", unit="s")
    loss, bleu = Axis(label="validation loss", unit="nats per token"), Axis(label="validation BLEU, greedy", unit="%")
    return [
        score_bars(
            "Scores on the test set",
            _SCORED,
            {model: [score_of(own, metric) for metric in (*_NAMES, "exact")] for model, own in runs.items()},
            "Intervals (95 %): Student's over seeds; over sentences where there is one seed.",
        ),
        curves(runs, "loss-tokens", "Learning curves against tokens", ("tokens", tokens), ("losses", loss)),
        curves(runs, "loss-seconds", "Learning curves against wall-clock", ("seconds", seconds), ("losses", loss)),
        curves(runs, "bleu-tokens", "Translations against tokens", ("tokens", tokens), ("bleus", bleu)),
        curves(runs, "bleu-seconds", "Translations against wall-clock", ("seconds", seconds), ("bleus", bleu)),
    ]


def _summary(runs: dict[str, BySeed]) -> Table:
    rows: list[Row] = []
    for model, own in runs.items():
        bleu, chrf, exact = (score_of(own, metric) for metric in (*_NAMES, "exact"))
        any_run = next(iter(own.values()))
        rows.append(
            [
                model,
                len(own),
                *ends(bleu, 2),
                *ends(chrf, 2),
                rounded(exact.value, 1),
                rounded(statistics.mean(min(run["losses"]) for run in own.values()), 4),
                any_run["parameters"],
                rounded(any_run["flops"] / 1e6, 3),
                rounded(statistics.mean(run["seconds"][-1] for run in own.values()), 1),
                rounded(mean_known(run["cpu_seconds"] for run in own.values()), 1),
            ]
        )
    return Table(
        name="scores",
        title="Scores, sizes and costs: means over seeds",
        columns=[
            "model",
            "seeds",
            "BLEU",
            "low",
            "high",
            "chrF2++",
            "low (chrF2++)",
            "high (chrF2++)",
            "exact (%)",
            "validation loss (nats per token)",
            "parameters",
            "Mflop per target token",
            "training (s)",
            "whole run (CPU s)",
        ],
        rows=rows,
    )


def _pairs(pairs: dict[tuple[str, str], Pair]) -> Table:
    rows: list[Row] = [
        [
            f"{b} − {a}",
            pair.seed,
            *ends(pair.bleu, 2),
            rounded(pair.bleu_p, 4),
            rounded(pair.chrf.value, 2),
            rounded(pair.chrf_p, 4),
            pair.seeds,
            *ends(pair.over_seeds, 2),
            rounded(pair.p, 4),
        ]
        for (a, b), pair in pairs.items()
    ]
    return Table(
        name="pairs",
        title="Differences between models: randomisation of sentences, and paired t-test over seeds",
        columns=[
            "models",
            "seed resampled",
            "BLEU",
            "low",
            "high",
            "p (randomisation)",
            "chrF2++",
            "p (randomisation, chrF2++)",
            "seeds",
            "BLEU over seeds",
            "low (seeds)",
            "high (seeds)",
            "p (t-test)",
        ],
        rows=rows,
    )


def _runs(runs: dict[str, BySeed]) -> Table:
    rows: list[Row] = []
    for model, own in runs.items():
        for seed, run in own.items():
            scores = run["scores"]
            rows.append(
                [
                    model,
                    seed,
                    run["split"],
                    run["beam"],
                    *(rounded(scores[metric]["value"], 2) for metric in (*_NAMES, "ter")),
                    rounded(run["exact"], 1),
                    run["updates"][-1],
                    run["tokens"][-1],
                    run["seconds"][-1],
                    rounded(run["run_seconds"], 1),
                    rounded(run["cpu_seconds"], 1),
                    scores["bleu"]["signature"],
                ]
            )
    return Table(
        name="runs",
        title="Every run",
        columns=[
            "model",
            "seed",
            "split",
            "beam",
            "BLEU",
            "chrF2++",
            "TER",
            "exact (%)",
            "updates",
            "target tokens",
            "training (s)",
            "whole run (s)",
            "whole run (CPU s)",
            "signature",
        ],
        rows=rows,
    )


def _examples(runs: dict[str, BySeed]) -> Table:
    """Some sentences, as each model translates them."""
    first = {model: next(iter(own.values())) for model, own in runs.items()}
    shown = next(iter(first.values()))["examples"]
    rows: list[Row] = [
        [source, reference, *(run["examples"][i][2] for run in first.values())]
        for i, (source, reference, _) in enumerate(shown)
    ]
    return Table(
        name="examples",
        title="Some sentences of the test set, as each model's first seed translates them",
        columns=["source", "reference", *first],
        rows=rows,
    )
