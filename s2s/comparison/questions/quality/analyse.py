"""Analyse translation runs: scores over seeds, tests between candidates, learning curves and costs."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from s2s.comparison.paired_tests import WITHOUT_A_SEED, gates_of_training, mean_curve, percent
from s2s.comparison.questions.quality.curves import budgets, cost_figures, costs, mean_loss, readings
from s2s.comparison.reporting import (
    Column,
    Interval,
    Runs,
    SeedMean,
    axis,
    curves,
    each_pair,
    every_model,
    every_run,
    filled,
    first_runs,
    gates_table,
    score_bars,
    table,
    verdict,
)
from s2s.comparison.results import Figure, Table, Verdict
from s2s.comparison.spec import Analysis, BySeed, Comparison, Measured, Trials, by_model
from s2s.comparison.translation import corpus_score, resampled_scores
from s2s.evaluation.differences import LEVEL, Difference, Pairwise, over_seeds_and_sentences
from s2s.evaluation.gates import TIE, Assessment, Gate, beside, slope_per_doubling, uses_its_source
from s2s.evaluation.inference import Estimate, draws, estimate, paired_p
from s2s.evaluation.metrics import metrics, scores_of

RUN = "run"
_EXAMPLES = 5
_NAMES = {"bleu": "BLEU", "chrf": "chrF2++"}


@dataclass(frozen=True)
class Pair:
    """Differences between two candidates: the second minus the first."""

    seeds: tuple[int, int]  # how many each has
    over_both: Difference | None  # of BLEU, in doubt about seeds and sentences: what decides; None below two seeds
    seed: int  # of the two runs whose sentences are tested alone
    bleu: Estimate  # the difference on these sentences, with its bootstrap interval
    bleu_p: float  # the p-value of paired randomisation
    chrf: Estimate  # likewise
    chrf_p: float


def analyse(comparison: Comparison, measured: Trials) -> Analysis:
    """Scores over seeds, tests for each pair of models, curves and costs."""
    runs = by_model(comparison, measured, RUN)
    if not runs:
        return Analysis()
    pairs = each_pair(runs, compared)
    return Analysis(
        findings=[_verdict(model, runs, pairs) for model in runs],
        figures=_figures(runs),
        tables=[
            *(
                _summary(runs),
                gates_table("a model before it is judged", {model: gates(own) for model, own in runs.items()}),
                _pairs(pairs),
                readings(runs),
            ),
            *filled(*costs(runs)),
            *(_every_run(runs), _examples(runs)),
        ],
    )


def compared(first: BySeed, second: BySeed) -> Pair | None:
    """Differences (second minus first) with their tests; None without a common seed."""
    seed = next((seed for seed in first if seed in second), None)
    if seed is None:
        return None
    counts = [[np.array(run["counts"]["bleu"]) for run in runs.values()] for runs in (first, second)]
    over_both = over_seeds_and_sentences(
        counts[0], counts[1], partial(scores_of, metrics()["bleu"]), draws(len(counts[0][0]))
    )
    (bleu, bleu_p), (chrf, chrf_p) = (_over_sentences(metric, first[seed], second[seed]) for metric in _NAMES)
    return Pair((len(first), len(second)), over_both, seed, bleu, bleu_p, chrf, chrf_p)


def gates(runs: BySeed) -> list[Gate]:
    """Validity checks of a candidate's runs."""
    ended, *inside = gates_of_training(runs)
    worth = [run["source_use"] for run in runs.values() if run.get("source_use")]
    # no sentence has another one's length in a small set: then nothing could be exchanged
    if not worth:
        return [ended, *inside]
    right, exchanged = (statistics.mean(each[key] for each in worth) for key in ("right", "exchanged"))
    return [ended, uses_its_source(right, exchanged), *inside]


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


def _verdict(model: str, runs: Runs, pairs: Mapping[tuple[str, str], Pair]) -> Verdict:
    seeds = len(runs[model])
    interval = "one seed; interval over sentences" if seeds == 1 else f"mean of {seeds} seeds"
    return verdict(
        "translation quality",
        model,
        _score("bleu", runs[model]),
        "BLEU",
        f"BLEU on the test set ({interval})",
        _assess(model, runs, pairs),
        "scores",
        statistics.mean(run["tokens"][-1] for run in runs[model].values()),
    )


def _assess(model: str, runs: Runs, pairs: Mapping[tuple[str, str], Pair]) -> Assessment:
    """Compare a model with the best of the others."""
    others = [name for name in runs if (name, model) in pairs or (model, name) in pairs]
    if not others:
        return Assessment("not measurable", reasons=("no other model was measured at the same seed",))
    other = max(others, key=lambda name: _score("bleu", runs[name]).value)
    apart = Pairwise({models: pair.over_both for models, pair in pairs.items() if pair.over_both})
    checks = {name: gates(own) for name, own in runs.items()}
    found = beside(model, other, apart, checks, test="t-test over seeds and sentences, Holm")
    still = gained(runs[model])
    facts = {} if still is None else {"BLEU still gained per doubling of the tokens": round(still, 1)}
    return replace(found, facts=facts, variations=variations(model, other, runs) if found.decided else {})


def gained(runs: BySeed) -> float | None:
    """BLEU, in percent, that a doubling of the tokens still adds on the validation set; None where looks are too few.

    It is the slope of a line through the looks of the last doubling, of the mean over seeds.
    """
    return slope_per_doubling(*mean_curve(runs, "bleus"))


def _figures(runs: Runs) -> list[Figure]:
    tokens = ("tokens", "tokens", axis("target tokens learned from"))
    seconds = ("seconds", "time", axis("time of training, one thread of a processor or a GPU", "s"))
    loss = ("losses", axis("validation loss", "nats per token"))
    scores = {name: partial(_score, metric) for metric, name in (*_NAMES.items(), ("exact", "exact"))}
    return [
        score_bars(scores, runs, "Intervals (95 %): Student's over seeds; over sentences where there is one seed."),
        *(curves(runs, "loss", "Learning curves", x, loss) for x in (tokens, seconds)),
        *cost_figures(runs),
    ]


def _summary(runs: Runs) -> Table:
    columns = [
        *map(Column, ("model", "seeds")),
        Interval("BLEU", lambda row: _score("bleu", row["runs"]), 2),
        Interval("chrF2++", lambda row: _score("chrf", row["runs"]), 2, "chrF2++"),
        SeedMean("exact (%)", "exact", 1),
        SeedMean("validation loss (nats per token)", lambda run: min(run["losses"]), 4),
        Column("BLEU gained in the last doubling", lambda row: gained(row["runs"]), 2),
        Column("parameters"),
        Column("Mflop per target token", lambda row: row["flops"] / 1e6, 3),
        SeedMean("training (s)", lambda run: run["seconds"][-1], 1),
        SeedMean("whole run (CPU s)", "cpu_seconds", 1),
    ]
    return table("scores", "Scores, sizes and costs: means over seeds", columns, every_model(runs))


def _pairs(pairs: Mapping[tuple[str, str], Pair]) -> Table:
    level = LEVEL / max(1, len(pairs))
    columns = [
        Column("models"),
        Column("seed resampled", "seed"),
        Interval("BLEU", "bleu", 2),
        Column("p (randomisation)", "bleu_p", 4),
        Column("chrF2++", lambda pair: pair["chrf"].value, 2),
        Column("p (randomisation, chrF2++)", "chrf_p", 4),
        Column("seeds", lambda pair: min(pair["seeds"])),
        Interval("BLEU over seeds and sentences", "over_both", 2, "both"),
        Column("p (both)", lambda pair: pair["over_both"] and pair["over_both"].p(), 4),
        Column("p (equal within 1 BLEU)", lambda pair: pair["over_both"] and pair["over_both"].equivalence_p(TIE), 4),
        Column(
            "seen in 80 %, of all pairs (BLEU)",
            lambda pair: pair["over_both"] and pair["over_both"].detectable(level=level),
            2,
        ),
    ]
    rows = [{"models": f"{b} − {a}", **vars(pair)} for (a, b), pair in pairs.items()]
    title = "Differences between models: of one seed's sentences, and over all seeds and sentences"
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
    """Example translations of each candidate."""
    firsts = first_runs(runs)
    first = next(iter(firsts.values()))
    columns = [first["sources"], first["references"], *(run["translations"] for run in firsts.values())]
    rows = list(zip(*columns, strict=True))
    rows = rows[:: max(1, len(rows) // _EXAMPLES)][:_EXAMPLES]
    title = "Some sentences of the test set, as each model's first seed translates them"
    return table("examples", title, ("source", "reference", *firsts), rows)


_RATES = {"half the rate": 0.5, "twice the rate": 2.0}


def variations(model: str, other: str, runs: Runs) -> dict[str, bool]:
    """Recompute the difference under other choices, to see whether its sign stays.

    Other budgets and learning rates are compared by validation loss, seeds left out by BLEU on the test set. Losses at
    other rates are those of full trainings of the first seed where there are any: short ones favour high rates.

    Args:
        model: the candidate.
        other: its rival.
        runs: of all candidates, which share budgets.
    """
    own, others = runs[model], runs[other]
    seeds = [seed for seed in own if seed in others]
    sides = {
        name: _ahead(*(found.value if (found := mean_loss(each, *spent)) else None for each in (own, others)))
        for name, spent in budgets(runs).items()
    }
    choices = [rate for each in (own, others) if (rate := next(iter(each.values())).get("rate"))]
    if len(choices) == 2:
        whole = all(choice.get("whole") for choice in choices)
        sides |= {name: _ahead(*(_at_rate(each, times, whole) for each in choices)) for name, times in _RATES.items()}
    ahead = _bleu(own) > _bleu(others)
    kept = {name: side == ahead for name, side in sides.items() if side is not None}
    if len(seeds) > 2:
        # one choice, however many seeds there are
        kept[WITHOUT_A_SEED] = all((_bleu(own, seed) > _bleu(others, seed)) == ahead for seed in seeds)
    return kept


def _ahead(own: float | None, other: float | None) -> bool | None:
    return None if own is None or other is None else own < other


def _at_rate(choice: Mapping[str, Any], times: float, whole: bool) -> float | None:
    """The loss at a multiple of the rate chosen, of a whole training or a short one; None where there was none."""
    short = zip(choice["tried"], choice["losses"], strict=True)
    # what is half of a rate was tried as exactly that
    return dict(choice["whole"] if whole else short).get(times * choice["chosen"])


def _bleu(runs: BySeed, without: int | None = None) -> float:
    return statistics.mean(run["scores"]["bleu"]["value"] for seed, run in runs.items() if seed != without)
