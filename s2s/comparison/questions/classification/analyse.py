"""Analyse classification runs: scores over seeds, tests between candidates, learning curves and costs."""

import math
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from s2s.comparison.paired_tests import Evidence, against, difference, gates_of_training, percent, seeds_in_words
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
    figure,
    first_runs,
    gates_table,
    score_bars,
    series,
    table,
    verdict,
)
from s2s.comparison.results import Figure, Table, Verdict
from s2s.comparison.spec import Analysis, BySeed, Comparison, Measured, Trials, by_model
from s2s.evaluation.gates import Assessment, Gate
from s2s.evaluation.inference import Estimate, mean
from s2s.evaluation.significance import McNemar, mcnemar

_DISAGREEMENTS = 10

# of a run, by the field of `Pair`; None where it is not known
_VALUES: dict[str, Callable[[Measured], float | None]] = {
    "accuracy": lambda run: run["accuracy"]["value"],
    "macro_f1": lambda run: run["macro_f1"],
    "calibration": lambda run: run["calibration"]["error"],
    # tokens learned from in a second
    "speed": lambda run: run["tokens"][-1] / max(run["seconds"][-1], 1e-9),
    "cost": lambda run: run["cpu_seconds"],
}
_RATIOS = ("speed", "cost")


@dataclass(frozen=True)
class Pair:
    """Differences between two candidates: the second minus the first."""

    accuracy: Evidence  # over seeds, in points, with McNemar's test on one of them
    macro_f1: Evidence  # likewise, without a test of texts
    calibration: Evidence  # likewise
    speed: Evidence  # of the logarithms of tokens per second
    cost: Evidence | None  # of the logarithms of CPU seconds; None where no seed has those of both
    test: McNemar  # where the runs of one seed were tested on the same texts


Pairs = dict[tuple[str, str], Pair]


def analyse(comparison: Comparison, measured: Trials) -> Analysis:
    """Scores over seeds, tests for each pair of models, curves and costs."""
    runs = by_model(comparison, measured)
    if not runs:
        return Analysis()
    pairs = each_pair(runs, compared)
    return Analysis(
        findings=[each for model in runs for each in _verdicts(model, runs, pairs)],
        figures=_figures(runs),
        tables=[
            _summary(runs),
            gates_table("a model before its answers are spoken of", {model: gates(own) for model, own in runs.items()}),
            _pairs(pairs),
            _every_run(runs),
            _classes(runs),
            _disagreements(runs),
        ],
    )


def compared(first: BySeed, second: BySeed) -> Pair | None:
    """Differences (second minus first) with their tests; None without a common seed."""
    accuracy, *others = (difference(_paired(first, name), _paired(second, name)) for name in _VALUES)
    if accuracy is None:
        return None
    seed = next(seed for seed in first if seed in second)
    one, two = first[seed], second[seed]
    test = mcnemar(*(np.array(row) for row in (one["truth"], one["predicted"], two["predicted"])))
    return Pair(replace(accuracy, test="McNemar", test_p=test.p_value, seed=seed), *others, test)  # pyright: ignore


def _paired(runs: BySeed, name: str) -> dict[int, float]:
    known = {seed: value for seed, run in runs.items() if (value := _VALUES[name](run)) is not None}
    return {seed: math.log(value) for seed, value in known.items() if value} if name in _RATIOS else known


def _known(runs: BySeed, name: str) -> list[float]:
    return [value for run in runs.values() if (value := _VALUES[name](run)) is not None]


def _of_texts(run: Measured) -> Estimate:
    return Estimate(*(run["accuracy"][key] for key in ("value", "low", "high")))


def _over(name: str, runs: BySeed) -> Estimate:
    return percent(_known(runs, name))


def _accuracy_over(runs: BySeed) -> Estimate:
    """The mean over seeds; with Wilson's interval where there is one seed."""
    return _of_texts(*runs.values()) if len(runs) == 1 else _over("accuracy", runs)


def _verdicts(model: str, runs: Runs, pairs: Pairs) -> Iterator[Verdict]:
    own, seeds = runs[model], len(runs[model])
    split = next(iter(own.values()))["split"]
    over = "one seed" if seeds == 1 else f"mean of {seeds_in_words(seeds)}"
    checks = {name: gates(each) for name, each in runs.items()}

    def assess(name: str, unit: str, best: Callable[..., str] = max) -> Assessment:
        means = {other: statistics.mean(values) for other in runs if (values := _known(runs[other], name))}
        known = {k: each for k, pair in pairs.items() if (each := getattr(pair, name)) is not None}
        return against(model, means, known, unit, best, checks if name in ("accuracy", "calibration") else {})

    quantity = f"accuracy on the {split} set ({over}{'; interval over texts' if seeds == 1 else ''})"
    yield verdict("accuracy", model, _accuracy_over(own), "%", quantity, assess("accuracy", "points"), "scores")
    quantity = f"expected calibration error on the {split} set ({over})"
    found = assess("calibration", "points", min)
    yield verdict("calibration", model, _over("calibration", own), "points", quantity, found, "reliability")
    quantity = f"tokens learned from per second, while other trainings may run beside it ({over})"
    found = assess("speed", "times as fast")
    yield verdict("training speed", model, mean(_known(own, "speed")), "tokens/s", quantity, found, "")
    known = _known(own, "cost")
    if not known:
        why = "its runs were interrupted, so they were not counted whole"
        yield Verdict(row="training cost", model=model, failed=why)
        return
    quantity = f"CPU seconds of a whole run, while others may run beside it ({over})"
    if len(known) < seeds:
        quantity = f"CPU seconds of a whole run ({seeds_in_words(len(known))} that ran without interruption)"
    found = assess("cost", "times the CPU seconds", min)
    yield verdict("training cost", model, mean(known), "s", quantity, found, "")


def gates(runs: BySeed) -> list[Gate]:
    """Validity checks of a classifier."""
    first = next(iter(runs.values()))
    truth = np.array(first["truth"])
    usual = 100 * np.bincount(truth).max() / len(truth)
    low = first["accuracy"]["low"]
    said = f"at least {low:.1f} % are right, where naming the most frequent class is right for {usual:.1f} %"
    return [*gates_of_training(runs), Gate("beats frequencies", low > usual, said)]


def _figures(runs: Runs) -> list[Figure]:
    texts = ("texts", "texts", axis("texts learned from"))
    tokens = ("tokens", "tokens", axis("tokens learned from"))
    seconds = ("seconds", "time", axis("time of training, one thread of a processor or a GPU", "s"))
    accuracy = ("accuracies", axis("validation accuracy", "%"))
    loss = ("losses", axis("validation loss", "nats per text"))
    return [
        score_bars(
            {"accuracy": _accuracy_over, "macro-F1": partial(_over, "macro_f1")},
            runs,
            "Intervals (95 %): Student's over seeds; for one seed Wilson's over texts, of accuracy alone.",
        ),
        *(curves(runs, "accuracy", "Accuracy", x, accuracy) for x in (texts, seconds)),
        *(curves(runs, "loss", "Learning curves", x, loss) for x in (texts, tokens, seconds)),
        _reliability(runs),
    ]


def _reliability(runs: Runs) -> Figure:
    """Reliability diagram of each candidate's first seed."""
    shown = []
    for model, run in first_runs(runs).items():
        bins = run["adaptive"]["bins"]
        shown.append(series(model, model, [each["confidence"] for each in bins], [_of_texts(each) for each in bins]))
    ends = [min(float(x) for one in shown for x in one.x), 100.0]
    return figure(
        "reliability",
        "Right answers against how sure the model is, first seed",
        (axis("confidence, mean of its bin", "%"), axis("accuracy", "%")),
        [*shown, series("knows how often it is right", "", ends, ends, reference=True)],
        "Bins of equally many texts; below the line a model is too sure. Intervals (95 %): Wilson's.",
    )


def _summary(runs: Runs) -> Table:
    scores = (
        ("accuracy (%)", "accuracy", ""),
        ("macro-F1 (%)", "macro_f1", "macro-F1"),
        ("calibration error (points)", "calibration", "calibration"),
    )
    columns = [
        *map(Column, ("model", "seeds")),
        *(Interval(head, lambda row, name=name: _over(name, row["runs"]), 2, what) for head, name, what in scores),
        SeedMean("calibration error, equal counts (points)", lambda run: run["adaptive"]["error"], 2),
        SeedMean("test loss (nats per text)", "loss", 4),
        Column("parameters"),
        SeedMean("training (s)", lambda run: run["seconds"][-1], 1),
        SeedMean("whole run (s)", "run_seconds", 1),
        SeedMean("whole run (CPU s)", "cpu_seconds", 1),
    ]
    return table("scores", "Scores, sizes and costs: means over seeds", columns, every_model(runs))


def _pairs(pairs: Pairs) -> Table:
    columns = [
        Column("models"),
        Column("seed tested", lambda pair: pair["accuracy"].seed),
        Column("only the first named has it right", lambda pair: pair["test"].only_second),
        Column("only the other has it right", lambda pair: pair["test"].only_first),
        Column("p (McNemar)", lambda pair: pair["test"].p_value, 4),
        Column("form of the test", lambda pair: pair["test"].method),
        Column("seeds", lambda pair: pair["accuracy"].seeds),
    ]
    for head, key, of_what, test in (
        ("accuracy (points)", "accuracy", "", "t-test"),
        ("macro-F1 (points)", "macro_f1", "macro-F1", "macro-F1"),
        ("calibration error (points)", "calibration", "calibration", "calibration"),
    ):
        columns.append(Interval(head, lambda pair, key=key: pair[key].over_seeds, 2, of_what))
        columns.append(Column(f"p ({test})", lambda pair, key=key: pair[key].p, 4))
    title = "Differences between models: McNemar's test over texts, and paired t-tests over seeds"
    return table("pairs", title, columns, [{"models": f"{b} − {a}", **vars(p)} for (a, b), p in pairs.items()])


def _every_run(runs: Runs) -> Table:
    columns = [
        *map(Column, ("model", "seed", "split")),
        Column("texts tested", lambda run: len(run["truth"])),
        Column("of them read in part", "truncated"),
        Interval("accuracy (%)", _of_texts, 2),
        Column("macro-F1 (%)", "macro_f1", 2),
        Column("calibration error (points)", _VALUES["calibration"], 2),
        Column("loss (nats per text)", "loss", 4),
        Column("best validation accuracy (%)", lambda run: max(run["accuracies"]), 2),
        Column("lowest validation loss", lambda run: min(run["losses"]), 4),
        *(Column(key, lambda run, key=key: run[key][-1]) for key in ("updates", "texts", "tokens")),
        Column("training (s)", lambda run: run["seconds"][-1], 1),
        Column("whole run (s)", "run_seconds", 1),
        Column("whole run (CPU s)", "cpu_seconds", 1),
    ]
    return table("runs", "Every run; intervals of its accuracy are Wilson's", columns, every_run(runs))


def _classes(runs: Runs) -> Table:
    """The F1 of each class, mean over seeds."""

    def f1(own: BySeed, i: int) -> float:
        return statistics.mean(run["per_class"][i]["f1"] for run in own.values())

    names = next(iter(first_runs(runs).values()))["per_class"]
    columns = [
        Column("class", lambda i: names[i]["name"]),
        Column("texts", lambda i: names[i]["support"]),
        *(Column(model, partial(f1, own), 2) for model, own in runs.items()),
    ]
    return table("classes", "F1 of each class, in percent: means over seeds", columns, range(len(names)))


def _disagreements(runs: Runs) -> Table:
    """Texts on which the candidates' first seeds disagree, spread over the test set."""
    firsts = first_runs(runs)
    any_run = next(iter(firsts.values()))
    # the same texts in the same order, or there is nothing to agree on
    same = {model: run for model, run in firsts.items() if run["digest"] == any_run["digest"]}
    texts = {int(row): text for run in same.values() for row, text in run["wrong"].items()}

    def answer(run: Measured, row: int) -> str:
        return run["classes"][run["predicted"][row]]

    rows = [row for row in sorted(texts) if len({answer(run, row) for run in same.values()}) > 1]
    columns = [
        Column("row", lambda row: row + 1),
        Column("text", lambda row: texts[row]),
        Column("class", lambda row: any_run["classes"][any_run["truth"][row]]),
        *(Column(model, partial(answer, run)) for model, run in same.items()),
    ]
    # spread over the test set, whatever the order in which it lists its classes
    chosen = rows[:: max(1, len(rows) // _DISAGREEMENTS)][:_DISAGREEMENTS]
    title = "Some texts of the test set that the models' first seeds do not agree on"
    return table("disagreements", title, columns, chosen)
