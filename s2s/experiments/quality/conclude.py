"""What whole runs on translation say: scores over seeds, tests between models, curves and costs."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from s2s.evaluation.inference import Estimate, draws, estimate, paired_p
from s2s.evaluation.metrics import metrics, scores_of
from s2s.experiments.contest import BySeed, Cells, Conclusion, Contest, Measured, by_model
from s2s.experiments.presenting import (
    Column,
    Interval,
    Runs,
    SeedMean,
    axis,
    curves,
    each_pair,
    every_model,
    every_run,
    finding,
    first_runs,
    score_bars,
    table,
)
from s2s.experiments.translating import corpus_score, resampled_scores
from s2s.experiments.verdicts import Evidence, against, difference, percent
from s2s.results import Figure, Finding, Table

_NAMES = {"bleu": "BLEU", "chrf": "chrF2++"}


@dataclass(frozen=True)
class Pair:
    """How the second of two models differs from the first."""

    evidence: Evidence  # the tests that decide about BLEU: over seeds, and of the sentences of one seed
    bleu: Estimate  # the difference on these sentences, with its bootstrap interval
    chrf: Estimate  # likewise
    chrf_p: float  # the p-value of paired randomisation


def conclude(contest: Contest, measured: Cells) -> Conclusion:
    """Scores over seeds, tests for each pair of models, curves and costs."""
    runs = by_model(contest, measured)
    if not runs:
        return Conclusion()
    pairs = each_pair(runs, compared)
    return Conclusion(
        findings=[_finding(model, runs, pairs) for model in runs],
        figures=_figures(runs),
        tables=[_summary(runs), _pairs(pairs), _every_run(runs), _examples(runs)],
    )


def compared(first: BySeed, second: BySeed) -> Pair | None:
    """By how much the second model is better, and whether that is more than chance; None without a seed in common."""
    bleus = ({seed: run["scores"]["bleu"]["value"] for seed, run in runs.items()} for runs in (first, second))
    evidence = difference(*bleus)
    if evidence is None:
        return None
    seed = next(seed for seed in first if seed in second)
    (bleu, bleu_p), (chrf, chrf_p) = (_over_sentences(metric, first[seed], second[seed]) for metric in _NAMES)
    return Pair(replace(evidence, test="randomisation", test_p=bleu_p, seed=seed), bleu, chrf, chrf_p)


def _over_sentences(metric: str, first: Measured, second: Measured) -> tuple[Estimate, float]:
    counts = [np.array(run["counts"][metric]) for run in (first, second)]
    drawn = draws(len(counts[0]))
    resampled = resampled_scores(metric, counts[1], drawn) - resampled_scores(metric, counts[0], drawn)
    difference = corpus_score(metric, counts[1]) - corpus_score(metric, counts[0])
    return estimate(difference, resampled), paired_p(counts[0], counts[1], partial(scores_of, metrics()[metric]))


def _score(metric: str, runs: BySeed) -> Estimate:
    """The mean score over seeds; the bootstrap's interval where there is one seed. `exact` has none then."""
    if metric == "exact":
        return percent([run["exact"] for run in runs.values()])
    scores = [run["scores"][metric] for run in runs.values()]
    if len(scores) == 1:
        return Estimate(scores[0]["value"], scores[0]["low"], scores[0]["high"])
    return percent([score["value"] for score in scores])


def _finding(model: str, runs: Runs, pairs: dict[tuple[str, str], Pair]) -> Finding:
    seeds = len(runs[model])
    interval = "one seed; interval over sentences" if seeds == 1 else f"mean of {seeds} seeds"
    values = {name: _score("bleu", own).value for name, own in runs.items()}
    verdict = against(model, values, {models: pair.evidence for models, pair in pairs.items()}, "BLEU")
    quantity = f"BLEU on the test set ({interval})"
    return finding("translation quality", model, _score("bleu", runs[model]), "BLEU", quantity, verdict, "scores")


def _figures(runs: Runs) -> list[Figure]:
    tokens = ("tokens", "tokens", axis("target tokens learned from"))
    seconds = ("seconds", "wall-clock", axis("time of training", "s"))
    loss = ("losses", axis("validation loss", "nats per token"))
    bleu = ("bleus", axis("validation BLEU, greedy", "%"))
    scores = {name: partial(_score, metric) for metric, name in (*_NAMES.items(), ("exact", "exact"))}
    return [
        score_bars(scores, runs, "Intervals (95 %): Student's over seeds; over sentences where there is one seed."),
        *(curves(runs, "loss", "Learning curves", x, loss) for x in (tokens, seconds)),
        *(curves(runs, "bleu", "Translations", x, bleu) for x in (tokens, seconds)),
    ]


def _summary(runs: Runs) -> Table:
    columns = [
        *map(Column, ("model", "seeds")),
        Interval("BLEU", lambda row: _score("bleu", row["runs"]), 2),
        Interval("chrF2++", lambda row: _score("chrf", row["runs"]), 2, "chrF2++"),
        SeedMean("exact (%)", "exact", 1),
        SeedMean("validation loss (nats per token)", lambda run: min(run["losses"]), 4),
        Column("parameters"),
        Column("Mflop per target token", lambda row: row["flops"] / 1e6, 3),
        SeedMean("training (s)", lambda run: run["seconds"][-1], 1),
        SeedMean("whole run (CPU s)", "cpu_seconds", 1),
    ]
    return table("scores", "Scores, sizes and costs: means over seeds", columns, every_model(runs))


def _pairs(pairs: dict[tuple[str, str], Pair]) -> Table:
    columns = [
        Column("models"),
        Column("seed resampled", "seed"),
        Interval("BLEU", "bleu", 2),
        Column("p (randomisation)", "test_p", 4),
        Column("chrF2++", lambda pair: pair["chrf"].value, 2),
        Column("p (randomisation, chrF2++)", "chrf_p", 4),
        Column("seeds"),
        Interval("BLEU over seeds", "over_seeds", 2, "seeds"),
        Column("p (t-test)", "p", 4),
    ]
    rows = [{"models": f"{b} − {a}", **vars(pair), **vars(pair.evidence)} for (a, b), pair in pairs.items()]
    title = "Differences between models: randomisation of sentences, and paired t-test over seeds"
    return table("pairs", title, columns, rows)


def _every_run(runs: Runs) -> Table:
    scores = (*_NAMES.items(), ("ter", "TER"))
    columns = [
        *map(Column, ("model", "seed", "split", "beam")),
        *(Column(name, lambda run, metric=metric: run["scores"][metric]["value"], 2) for metric, name in scores),
        Column("exact (%)", "exact", 1),
        Column("updates", lambda run: run["updates"][-1]),
        Column("target tokens", lambda run: run["tokens"][-1]),
        Column("training (s)", lambda run: run["seconds"][-1]),
        Column("whole run (s)", "run_seconds", 1),
        Column("whole run (CPU s)", "cpu_seconds", 1),
        Column("signature", lambda run: run["scores"]["bleu"]["signature"]),
    ]
    return table("runs", "Every run", columns, every_run(runs))


def _examples(runs: Runs) -> Table:
    """Some sentences, as each model translates them."""
    firsts = first_runs(runs)
    shown = zip(*(run["examples"] for run in firsts.values()), strict=True)
    rows = [(*each[0][:2], *(translation for _, _, translation in each)) for each in shown]
    title = "Some sentences of the test set, as each model's first seed translates them"
    return table("examples", title, ("source", "reference", *firsts), rows)
