"""Analyse translation runs: scores over seeds, tests between candidates, learning curves and training costs."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Literal

import numpy as np

from s2s.comparison.claims import traits_of
from s2s.comparison.paired_tests import WITHOUT_A_SEED, gates_of_rate, percent
from s2s.comparison.questions.quality.claims import translates_best
from s2s.comparison.reporting import (
    Column,
    Interval,
    Runs,
    Value,
    axis,
    curves,
    every_run,
    figure,
    filled,
    first_run,
    gates_table,
    score_bars,
    seed_mean,
    series,
    table,
    verdict,
)
from s2s.comparison.results import Claim, Figure, Table, Verdict, without_precision
from s2s.comparison.runs import TrainedRun
from s2s.comparison.spec import Analysis, Comparison, RateChoice, Trial, by_model
from s2s.comparison.translation import corpus_score, resampled_scores
from s2s.evaluation.differences import LEVEL, Difference, Pairwise, over_seeds_and_sentences
from s2s.evaluation.gates import (
    TIE,
    Assessment,
    Gate,
    Progress,
    assess_pair,
    improves_little,
    progress_of,
    uses_its_source,
)
from s2s.evaluation.inference import Estimate, draws, estimate, holm, mean, paired_p
from s2s.evaluation.metrics import Score, metrics, scores_of
from s2s.evaluation.survival import Times, kaplan_meier, log_rank_p
from s2s.tasks.source_use import SourceUse

RUN = "run"
LEVELS = (6.0, 5.0, 4.0, 3.0, 2.5, 2.0, 1.5, 1.0, 0.7, 0.5, 0.3, 0.2)
"""Validation losses (nats per token) to which the training cost is measured; fixed before any measurement."""
Kind = Literal["updates", "seconds", "flops"]
UNITS: dict[Kind, str] = {"updates": "updates", "seconds": "s", "flops": "Tflop"}
"""Kinds of training cost, with their units."""
_EXAMPLES = 5
_NAMES = {"bleu": "BLEU", "chrf": "chrF2++"}


@dataclass(frozen=True, kw_only=True)
class TranslationRun(TrainedRun):
    """Measurement of a trained translator."""

    bleus: list[float]  # BLEU at each validation
    split: str  # on which it was evaluated
    beam: int
    scores: dict[str, Score]  # by metric
    exact: float  # exact matches in percent
    counts: dict[str, list[list[int]]]  # sacreBLEU's statistics of each sentence, by metric
    sources: list[str]
    references: list[str]
    translations: list[str]
    source_use: SourceUse | None  # None if no two sentences have the same length
    parameters: int
    flops: float  # per target token of training


TranslationRuns = Mapping[int, TranslationRun]


@dataclass(frozen=True)
class Pair:
    """Differences between two candidates: the second minus the first."""

    seeds: tuple[int, int]  # numbers of seeds
    over_both: Difference | None  # BLEU over seeds and sentences, which decides; None below two seeds
    seed: int  # of the two runs whose sentences are tested alone
    bleu: Estimate  # difference on these sentences, with its bootstrap interval
    bleu_p: float  # p-value of paired randomisation
    chrf: Estimate
    chrf_p: float


def analyse(comparison: Comparison, measured: Mapping[Trial, TranslationRun]) -> Analysis:
    """Compare scores over seeds and sentences, learning curves and costs."""
    runs = by_model(comparison, measured, RUN)
    if not runs:
        return Analysis()
    pairs = {(a, b): pair for a, b in combinations(runs, 2) if (pair := compared(runs[a], runs[b]))}
    return Analysis(
        findings=[_verdict(model, runs, pairs) for model in runs],
        figures=_figures(runs),
        tables=[
            _summary(runs),
            gates_table("the trained models", {model: gates(own) for model, own in runs.items()}),
            _pairs(pairs),
            losses_at_budgets(runs),
            *filled(*costs(runs)),
            _every_run(runs),
            _examples(runs),
        ],
        claims=[_claim(comparison, runs, pairs)],
    )


def _claim(comparison: Comparison, runs: Runs[TranslationRun], pairs: Mapping[tuple[str, str], Pair]) -> Claim | None:
    apart = Pairwise({models: pair.over_both for models, pair in pairs.items() if pair.over_both})
    checks = {name: gates(own) for name, own in runs.items()}
    scores = {model: _score("bleu", own) for model, own in runs.items()}
    return translates_best(traits_of(comparison), scores, apart, checks, lambda a, b: variations(a, b, runs))


def compared(first: TranslationRuns, second: TranslationRuns) -> Pair | None:
    """Test the differences of two candidates (second minus first); None without a common seed."""
    seed = next((seed for seed in first if seed in second), None)
    if seed is None:
        return None
    counts = [[np.array(run.counts["bleu"]) for run in runs.values()] for runs in (first, second)]
    over_both = over_seeds_and_sentences(
        counts[0], counts[1], partial(scores_of, metrics()["bleu"]), draws(len(counts[0][0]))
    )
    (bleu, bleu_p), (chrf, chrf_p) = (_compare_over_sentences(metric, first[seed], second[seed]) for metric in _NAMES)
    return Pair((len(first), len(second)), over_both, seed, bleu, bleu_p, chrf, chrf_p)


def _compare_over_sentences(metric: str, first: TranslationRun, second: TranslationRun) -> tuple[Estimate, float]:
    counts = [np.array(run.counts[metric]) for run in (first, second)]
    drawn = draws(len(counts[0]))
    resampled = resampled_scores(metric, counts[1], drawn) - resampled_scores(metric, counts[0], drawn)
    difference = corpus_score(metric, counts[1]) - corpus_score(metric, counts[0])
    return estimate(difference, resampled), paired_p(counts[0], counts[1], partial(scores_of, metrics()[metric]))


def gates(runs: TranslationRuns) -> list[Gate]:
    """Return the validity checks of a candidate's runs."""
    checks = [improves_little(progress(runs))]
    if worth := [run.source_use for run in runs.values() if run.source_use]:
        right, exchanged = (statistics.mean(getattr(each, key) for each in worth) for key in ("right", "exchanged"))
        checks.append(uses_its_source(right, exchanged))
    return [*checks, *gates_of_rate(runs)]


def progress(runs: TranslationRuns) -> dict[str, Progress | None]:
    """Return the BLEU and the negative loss on the validation set at the end, with their gains; None if unknown."""
    tokens = [run.tokens for run in runs.values()]
    falling = [[-loss for loss in run.losses] for run in runs.values()]
    bleus = [run.bleus for run in runs.values()]
    return {"BLEU": progress_of(tokens, bleus, 100.0), "nats": progress_of(tokens, falling, 0.0)}


def _score(metric: str, runs: TranslationRuns) -> Estimate:
    """Mean score over seeds; with one seed, the score with its bootstrap interval. `exact` has none then."""
    if metric == "exact":
        return percent([run.exact for run in runs.values()])
    scores = [run.scores[metric] for run in runs.values()]
    if len(scores) == 1:
        return Estimate(scores[0].value, scores[0].low, scores[0].high)
    return percent([score.value for score in scores])


def _verdict(model: str, runs: Runs[TranslationRun], pairs: Mapping[tuple[str, str], Pair]) -> Verdict:
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
        statistics.mean(run.tokens[-1] for run in runs[model].values()),
    )


def _assess(model: str, runs: Runs[TranslationRun], pairs: Mapping[tuple[str, str], Pair]) -> Assessment:
    others = [name for name in runs if (name, model) in pairs or (model, name) in pairs]
    if not others:
        return Assessment("not measurable", reasons=("no other model was measured at the same seed",))
    other = max(others, key=lambda name: _score("bleu", runs[name]).value)
    apart = Pairwise({models: pair.over_both for models, pair in pairs.items() if pair.over_both})
    checks = {name: gates(own) for name, own in runs.items()}
    found = assess_pair(model, other, apart, checks, test="t-test over seeds and sentences, Holm")
    still = gained(runs[model])
    facts = {}
    if still is not None and found.standing != "still learning":
        facts = {"BLEU gain per doubling of the tokens": round(still, 1)}
    return replace(found, facts=facts, variations=variations(model, other, runs) if found.decided else {})


def gained(runs: TranslationRuns) -> float | None:
    """Return the validation BLEU gained per doubling of the tokens at the end; None with too few validations."""
    known = progress(runs)["BLEU"]
    return known.gain.value if known else None


# Robustness of the verdict


def variations(model: str, other: str, runs: Runs[TranslationRun]) -> dict[str, bool]:
    """Return whether the difference keeps its sign under other choices.

    Other budgets and learning rates are compared by validation loss, seeds left out by BLEU on the test set. Losses at
    other rates are those of full trainings of the first seed if there are any: short trainings favour high rates.

    Args:
        model: The candidate.
        other: Its rival.
        runs: Runs of all candidates, which the budgets depend on.
    """
    own, others = runs[model], runs[other]
    sides: dict[str, bool | None] = {}
    for name, (kind, budget) in budgets(runs).items():
        one, two = (mean_loss(each, kind, budget) for each in (own, others))
        sides[name] = _is_below(one and one.value, two and two.value)
    choices = [rate for each in (own, others) if (rate := first_run(each).rate)]
    if len(choices) == 2:
        whole = all(choice.whole for choice in choices)
        for name, times in (("half the rate", 0.5), ("twice the rate", 2.0)):
            sides[name] = _is_below(*(_loss_at_rate(choice, times, whole) for choice in choices))

    def _is_ahead(without: int | None = None) -> bool:
        bleus = [
            statistics.mean(run.scores["bleu"].value for seed, run in each.items() if seed != without)
            for each in (own, others)
        ]
        return bleus[0] > bleus[1]

    kept = {name: side == _is_ahead() for name, side in sides.items() if side is not None}
    seeds = [seed for seed in own if seed in others]
    if len(seeds) > 2:
        kept[WITHOUT_A_SEED] = all(_is_ahead(seed) == _is_ahead() for seed in seeds)
    return kept


def _is_below(own: float | None, other: float | None) -> bool | None:
    return None if own is None or other is None else own < other


def _loss_at_rate(choice: RateChoice, times: float, whole: bool) -> float | None:
    losses = choice.whole if whole else zip(choice.tried, choice.losses, strict=True)
    # the rates of the grid differ by exact factors of two
    return dict(losses).get(times * choice.chosen)


# Losses at other budgets


def spent(run: TranslationRun, kind: Kind) -> np.ndarray:
    """Return the training cost at each validation, in the unit of its kind."""
    if kind == "flops":
        return np.array(run.tokens) * run.flops / 1e12
    return np.array(run.updates if kind == "updates" else run.seconds, dtype=float)


def _kinds(runs: Runs[TranslationRun]) -> dict[Kind, str]:
    """Kinds of cost that are comparable: seconds only if one machine ran all. The precision is always the same."""
    machines = {without_precision(run.machine) for own in runs.values() for run in own.values()}
    return {kind: unit for kind, unit in UNITS.items() if kind != "seconds" or len(machines) == 1}


def budgets(runs: Runs[TranslationRun]) -> dict[str, tuple[Kind, float]]:
    """Return smaller budgets, by name: half the updates; the time and the FLOPs of the cheapest candidate."""
    names = {"updates": "half the updates", "seconds": "at equal time", "flops": "at equal FLOPs"}
    found: dict[str, tuple[Kind, float]] = {}
    for kind in _kinds(runs):
        least = min(float(np.mean([spent(run, kind)[-1] for run in own.values()])) for own in runs.values())
        found[names[kind]] = kind, least / 2 if kind == "updates" else least
    return found


def loss_at(run: TranslationRun, kind: Kind, budget: float) -> float | None:
    """Interpolate the validation loss at a budget, linearly in the logarithm of the cost.

    Returns:
        The loss; the last one beyond the end of the training, and None before the first validation.
    """
    cost = spent(run, kind)
    if budget < cost[0] * (1 - 1e-9):
        return None
    return float(np.interp(np.log(budget), np.log(cost), run.losses))


def mean_loss(runs: TranslationRuns, kind: Kind, budget: float) -> Estimate | None:
    """Return the mean loss at a budget over seeds; None if a seed has no validation so early."""
    losses = [loss_at(run, kind, budget) for run in runs.values()]
    return None if None in losses else mean([loss for loss in losses if loss is not None])


def losses_at_budgets(runs: Runs[TranslationRun]) -> Table:
    """Build the table of losses at the end and at smaller budgets."""
    known = budgets(runs)
    columns = [Column("model"), Interval("full training", "end", 3, "end")]
    for name, (kind, budget) in known.items():
        columns.append(Interval(f"{name} ({budget:.4g} {UNITS[kind]})", name, 3, name))
    rows = [
        {"model": model, "end": mean([run.losses[-1] for run in own.values()])}
        | {name: mean_loss(own, *each) for name, each in known.items()}
        for model, own in runs.items()
    ]
    return table("readings", "Validation loss (nats per token) at smaller budgets", columns, rows)


# Cost of reaching a loss


def times(runs: TranslationRuns, kind: Kind, level: float) -> Times:
    """Return the cost until the validation loss is at most `level`, censored if it never is.

    If the first validation is below the level already, its cost is an upper bound.
    """
    ended, waited = [], []
    for run in runs.values():
        cost, losses = spent(run, kind), np.array(run.losses)
        below = np.flatnonzero(losses <= level)
        if not len(below):
            waited.append(float(cost[-1]))
        elif below[0] == 0:
            ended.append(float(cost[0]))
        else:
            # between two validations the loss is interpolated linearly in the logarithm of the cost
            around = slice(below[0] - 1, below[0] + 1)
            ended.append(float(np.exp(np.interp(-level, -losses[around], np.log(cost[around])))))
    return Times(ended, waited)


def half_reach(runs: Runs[TranslationRun]) -> float | None:
    """Return the lowest level that at least half of all runs reach; None if there is none."""
    best = np.array([min(run.losses) for own in runs.values() for run in own.values()])
    return min((level for level in LEVELS if np.mean(best <= level) >= 0.5), default=None)


def costs(runs: Runs[TranslationRun]) -> list[Table]:
    """Build the table of the cost of reaching each level, and of tests at the level of `half_reach`."""
    kinds = _kinds(runs)
    heads = ["validation loss (nats per token)", "model", "seeds that reach it"]
    for unit in kinds.values():
        heads += [f"median {unit}", f"low ({unit})", f"high ({unit})"]
    rows = [
        (level, model, f"{reached} of {len(own)}", *(cell for kind in kinds for cell in _cost_cells(own, kind, level)))
        for level in LEVELS
        for model, own in runs.items()
        if (reached := len(times(own, "updates", level).ended))
    ]
    title = (
        "Cost of reaching a validation loss: medians over seeds (Kaplan–Meier); ≤: upper bound, reached before the "
        "first validation; empty: not reached by half of the seeds"
    )
    return [table("costs", title, heads, rows), _cost_tests(runs, kinds)]


def _cost_cells(runs: TranslationRuns, kind: Kind, level: float) -> tuple[Value, Value, Value]:
    """Median and ends of its interval, where they are finite; upper bounds are marked by ≤."""
    median = kaplan_meier(times(runs, kind, level)).median()
    if not np.isfinite(median.value):
        return None, None, None
    bounds = {float(spent(run, kind)[0]) for run in runs.values() if run.losses[0] <= level}
    low, high = (round(end, 1) if end is not None and np.isfinite(end) else None for end in (median.low, median.high))
    value = round(median.value, 1)
    return f"≤ {value:,g}" if median.value in bounds else value, None if median.low in bounds else low, high


def _cost_tests(runs: Runs[TranslationRun], kinds: Mapping[Kind, str]) -> Table:
    level, pairs = half_reach(runs), list(combinations(runs, 2))
    columns = [Column("models"), *(Column(f"p ({unit})", kind, 4) for kind, unit in kinds.items())]
    columns += [Column(f"p ({unit}, Holm)", f"{kind} corrected", 4) for kind, unit in kinds.items()]
    rows: list[dict[str, object]] = []
    if level is not None and all(len(own) > 1 for own in runs.values()):
        rows = [{"models": f"{b} − {a}"} for a, b in pairs]
        for kind in kinds:
            found = [log_rank_p(times(runs[a], kind, level), times(runs[b], kind, level)) for a, b in pairs]
            for row, p, corrected in zip(rows, found, holm(found), strict=True):
                row |= {kind: p, f"{kind} corrected": corrected}
    title = f"Log-rank tests of the cost of reaching {level} nats per token"
    return table("cost-tests", title, columns, rows)


def _cost_figures(runs: Runs[TranslationRun]) -> list[Figure]:
    """Figures of the cost of reaching each level, and the survival curves at the level of `half_reach`."""
    shown = []
    for kind, unit in _kinds(runs).items():
        lines = []
        for model, own in runs.items():
            reached = {level: each for level in LEVELS if (each := times(own, kind, level)).ended}
            medians = {level: kaplan_meier(each).median().value for level, each in reached.items()}
            known = {level: median for level, median in medians.items() if np.isfinite(median)}
            lines.append(series(model, model, list(known), list(known.values())))
        axes = (axis("validation loss", "nats per token", log=True), axis("median cost over seeds", unit, log=True))
        caption = (
            "Medians over seeds (Kaplan–Meier), for losses that half of the seeds reach. For a loss that is reached "
            "before the first validation, the cost of this validation is an upper bound."
        )
        shown.append(figure(f"cost-{kind}", f"Cost of reaching a validation loss, in {unit}", axes, lines, caption))
    level = half_reach(runs)
    if level is None:
        return shown
    lines = []
    for model, own in runs.items():
        found = times(own, "updates", level)
        x, y = kaplan_meier(found).steps(1.0) if found.ended else ([1.0], [100.0])
        last = max(run.updates[-1] for run in own.values())
        lines.append(series(model, model, [*x, float(last)], [*y, y[-1]]))
    axes = (axis("updates", log=True), axis("runs that have not reached the loss", "%"))
    caption = (
        "Kaplan–Meier curves over seeds. A curve that ends above 0 has seeds that never reach the loss. A drop at "
        "the first validation means that the loss was reached then or earlier."
    )
    title = f"Runs that have not reached {level:g} nats per token"
    return [*shown, figure("survival", title, axes, lines, caption)]


# Tables and figures of scores


def _figures(runs: Runs[TranslationRun]) -> list[Figure]:
    tokens = ("tokens", "tokens", axis("target tokens trained on"))
    seconds = ("seconds", "time", axis("training time, one CPU thread or a GPU", "s"))
    loss = ("losses", axis("validation loss", "nats per token"))
    scores = {name: partial(_score, metric) for metric, name in (*_NAMES.items(), ("exact", "exact"))}
    return [
        score_bars(scores, runs, "Intervals (95 %): Student's over seeds; with one seed, a bootstrap over sentences."),
        *(curves(runs, "loss", "Learning curves", x, loss) for x in (tokens, seconds)),
        *_cost_figures(runs),
    ]


def _summary(runs: Runs[TranslationRun]) -> Table:
    columns = [
        "model",
        Column("seeds", lambda row: len(row[1])),
        Interval("BLEU", lambda row: _score("bleu", row[1]), 2),
        Interval("chrF2++", lambda row: _score("chrf", row[1]), 2, "chrF2++"),
        seed_mean("exact (%)", lambda run: run.exact, 1),
        seed_mean("validation loss (nats per token)", lambda run: min(run.losses), 4),
        Column("BLEU gain in the last doubling", lambda row: gained(row[1]), 2),
        Column("parameters", lambda row: first_run(row[1]).parameters),
        Column("Mflop per target token", lambda row: first_run(row[1]).flops / 1e6, 3),
        seed_mean("training (s)", lambda run: run.seconds[-1], 1),
        seed_mean("whole run (CPU s)", lambda run: run.cpu_seconds, 1),
    ]
    return table("scores", "Scores, sizes and costs: means over seeds", columns, runs.items())


def _pairs(pairs: Mapping[tuple[str, str], Pair]) -> Table:
    level = LEVEL / max(1, len(pairs))
    columns = [
        Column("models", lambda row: f"{row[0][1]} − {row[0][0]}"),
        Column("seed of the sentences", lambda row: row[1].seed),
        Interval("BLEU", lambda row: row[1].bleu, 2),
        Column("p (randomisation)", lambda row: row[1].bleu_p, 4),
        Column("chrF2++", lambda row: row[1].chrf.value, 2),
        Column("p (randomisation, chrF2++)", lambda row: row[1].chrf_p, 4),
        Column("seeds", lambda row: min(row[1].seeds)),
        Interval("BLEU over seeds and sentences", lambda row: row[1].over_both, 2, "both"),
        Column("p (both)", lambda row: row[1].over_both and row[1].over_both.p(), 4),
        Column("p (equal within 1 BLEU)", lambda row: row[1].over_both and row[1].over_both.equivalence_p(TIE), 4),
        Column(
            "detectable with 80 % power, Holm (BLEU)",
            lambda row: row[1].over_both and row[1].over_both.detectable(level=level),
            2,
        ),
    ]
    title = "Differences between models, over the sentences of one seed and over all seeds and sentences"
    return table("pairs", title, columns, pairs.items())


def _every_run(runs: Runs[TranslationRun]) -> Table:
    columns = [
        *("model", "seed"),
        Column("split", "run.split"),
        Column("beam", "run.beam"),
        Column("BLEU", lambda row: row.run.scores["bleu"].value, 2),
        Column("chrF2++", lambda row: row.run.scores["chrf"].value, 2),
        Column("TER", lambda row: row.run.scores["ter"].value, 2),
        Column("exact (%)", "run.exact", 1),
        Column("updates", lambda row: row.run.updates[-1]),
        Column("target tokens", lambda row: row.run.tokens[-1]),
        Column("training (s)", lambda row: row.run.seconds[-1]),
        Column("whole run (s)", "run.run_seconds", 1),
        Column("whole run (CPU s)", "run.cpu_seconds", 1),
        Column("signature", lambda row: row.run.scores["bleu"].signature),
    ]
    return table("runs", "All runs", columns, every_run(runs))


def _examples(runs: Runs[TranslationRun]) -> Table:
    firsts = {model: first_run(own) for model, own in runs.items()}
    first = next(iter(firsts.values()))
    columns = [first.sources, first.references, *(run.translations for run in firsts.values())]
    rows = list(zip(*columns, strict=True))
    rows = rows[:: max(1, len(rows) // _EXAMPLES)][:_EXAMPLES]
    title = "Example translations of the test set, first seed of each model"
    return table("examples", title, ("source", "reference", *firsts), rows)
