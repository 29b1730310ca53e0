"""What whole runs on translation say: scores over seeds, tests between models, curves and costs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np

from s2s.evaluation.inference import Estimate, draws, estimate, paired_difference, paired_p
from s2s.evaluation.metrics import metrics, scores_of
from s2s.experiments.contest import BySeed, Cells, Conclusion, Contest, Measured, by_model
from s2s.experiments.presenting import Column, Interval, axis, finding, table
from s2s.experiments.run_tables import Runs, curves, every_model, every_run, first_runs, over_seeds, score_bars
from s2s.experiments.translating import corpus_score, resampled_scores
from s2s.experiments.verdicts import Evidence, against, percent
from s2s.results import Figure, Finding, Table

_NAMES = {"bleu": "BLEU", "chrf": "chrF2++"}


@dataclass(frozen=True)
class Pair:
    """How the second of two models differs from the first."""

    evidence: Evidence  # the tests that decide about BLEU: over seeds, and of the sentences of one seed
    bleu: Estimate  # the difference on these sentences, with its bootstrap interval
    chrf: Estimate  # likewise
    chrf_p: float  # the p-value of paired randomisation


Pairs = dict[tuple[str, str], Pair]


def conclude(contest: Contest, measured: Cells) -> Conclusion:
    """Scores over seeds, tests for each pair of models, curves and costs."""
    runs = by_model(contest, measured)
    if not runs:
        return Conclusion()
    pairs = {(a, b): pair for a, b in combinations(runs, 2) if (pair := compared(runs[a], runs[b]))}
    return Conclusion(
        findings=[_finding(model, runs, pairs) for model in runs],
        figures=_figures(runs),
        tables=[_summary(runs), _pairs(pairs), _every_run(runs), _examples(runs)],
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
    return Pair(Evidence(len(both), over_seeds, p, "randomisation", bleu_p, both[0]), bleu, chrf, chrf_p)


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


def _finding(model: str, runs: Runs, pairs: Pairs) -> Finding:
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
    return [
        score_bars(
            "Scores on the test set",
            {name: partial(_score, metric) for metric, name in (*_NAMES.items(), ("exact", "exact"))},
            runs,
            "Intervals (95 %): Student's over seeds; over sentences where there is one seed.",
        ),
        *(curves(runs, "loss", "Learning curves", x, loss) for x in (tokens, seconds)),
        *(curves(runs, "bleu", "Translations", x, bleu) for x in (tokens, seconds)),
    ]


def _summary(runs: Runs) -> Table:
    def over(value: Callable[[Measured], float | None]) -> Callable[[Measured], float | None]:
        return over_seeds(runs, value)

    columns = [
        *map(Column, ("model", "seeds")),
        Interval("BLEU", lambda row: _score("bleu", runs[row["model"]]), 2),
        Interval("chrF2++", lambda row: _score("chrf", runs[row["model"]]), 2, "chrF2++"),
        Column("exact (%)", over(lambda run: run["exact"]), 1),
        Column("validation loss (nats per token)", over(lambda run: min(run["losses"])), 4),
        Column("parameters"),
        Column("Mflop per target token", lambda row: row["flops"] / 1e6, 3),
        Column("training (s)", over(lambda run: run["seconds"][-1]), 1),
        Column("whole run (CPU s)", over(lambda run: run["cpu_seconds"]), 1),
    ]
    return table("scores", "Scores, sizes and costs: means over seeds", columns, every_model(runs))


def _pairs(pairs: Pairs) -> Table:
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
    columns = [
        *map(Column, ("model", "seed", "split", "beam")),
        *(
            Column(name, lambda run, metric=metric: run["scores"][metric]["value"], 2)
            for metric, name in (*_NAMES.items(), ("ter", "TER"))
        ),
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
    first = first_runs(runs)
    shown = next(iter(first.values()))["examples"]
    columns = [
        Column("source", lambda i: shown[i][0]),
        Column("reference", lambda i: shown[i][1]),
        *(Column(model, lambda i, run=run: run["examples"][i][2]) for model, run in first.items()),
    ]
    return table(
        "examples",
        "Some sentences of the test set, as each model's first seed translates them",
        columns,
        range(len(shown)),
    )
