"""Analyse classification runs: scores over seeds, tests between candidates, learning curves and costs."""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import numpy as np

from s2s.comparison.paired_tests import Evidence, against, difference, gates_of_training, percent, seeds_in_words
from s2s.comparison.reporting import (
    Column,
    Interval,
    Runs,
    axis,
    curves,
    every_run,
    figure,
    first_run,
    gates_table,
    score_bars,
    seed_mean,
    series,
    table,
    verdict,
)
from s2s.comparison.results import Figure, Table, Verdict
from s2s.comparison.runs import TrainedRun
from s2s.comparison.spec import Analysis, Comparison, Trial, by_model
from s2s.evaluation.classification import Calibration, ClassScore
from s2s.evaluation.gates import Assessment, Gate
from s2s.evaluation.inference import Estimate, Share, mean
from s2s.evaluation.significance import McNemar, mcnemar

_DISAGREEMENTS = 10


@dataclass(frozen=True, kw_only=True)
class ClassificationRun(TrainedRun):
    """Measurement of a trained classifier; scores in percent."""

    accuracies: list[float]  # accuracy at each validation
    texts: list[int]  # texts trained on before each validation
    split: str  # that was evaluated
    digest: str  # of the texts of this split
    classes: list[str]
    truth: list[int]
    predicted: list[int]
    truncated: int  # number of texts that were too long
    accuracy: Share
    macro_f1: float
    loss: float  # nats per text
    per_class: list[ClassScore]
    calibration: Calibration  # bins of equal width
    adaptive: Calibration  # bins of equal count
    wrong: dict[int, str]  # some misclassified texts, by row
    parameters: int


ClassifierRuns = Mapping[int, ClassificationRun]

# compared values of a run by name; None where unknown
_VALUES: dict[str, Callable[[ClassificationRun], float | None]] = {
    "accuracy": lambda run: run.accuracy.value,
    "macro_f1": lambda run: run.macro_f1,
    "calibration": lambda run: run.calibration.error,
    # tokens per second
    "speed": lambda run: run.tokens[-1] / max(run.seconds[-1], 1e-9),
    "cost": lambda run: run.cpu_seconds,
}


@dataclass(frozen=True)
class Pair:
    """Differences between two candidates (the second minus the first), over seeds and over texts."""

    evidence: dict[str, Evidence]  # by name of the value; of logarithms for speed and cost; without unknown ones
    test: McNemar  # the texts of one seed


Pairs = Mapping[tuple[str, str], Pair]


def analyse(comparison: Comparison, measured: Mapping[Trial, ClassificationRun]) -> Analysis:
    """Compare scores over seeds and texts, learning curves and costs."""
    runs = by_model(comparison, measured)
    if not runs:
        return Analysis()
    pairs = {(a, b): pair for a, b in combinations(runs, 2) if (pair := _compare(runs[a], runs[b]))}
    checks = {model: _gates(own) for model, own in runs.items()}
    return Analysis(
        findings=[each for model in runs for each in _verdicts(model, runs, pairs, checks)],
        figures=_figures(runs),
        tables=[
            _summary(runs),
            gates_table("a model before it is compared", checks),
            _pairs(pairs),
            _every_run(runs),
            _classes(runs),
            _disagreements(runs),
        ],
    )


def _compare(first: ClassifierRuns, second: ClassifierRuns) -> Pair | None:
    """Test the differences of two candidates; None without a common seed."""
    seed = next((seed for seed in first if seed in second), None)
    if seed is None:
        return None
    evidence = {}
    for name in _VALUES:
        one, two = (_known(runs, name) for runs in (first, second))
        if name in ("speed", "cost"):
            one, two = ({at: math.log(value) for at, value in own.items() if value} for own in (one, two))
        if found := difference(one, two):
            evidence[name] = found
    test = mcnemar(*map(np.array, (first[seed].truth, first[seed].predicted, second[seed].predicted)))
    evidence["accuracy"] = replace(evidence["accuracy"], test="McNemar", test_p=test.p_value, seed=seed)
    return Pair(evidence, test)


def _known(runs: ClassifierRuns, name: str) -> dict[int, float]:
    return {seed: value for seed, run in runs.items() if (value := _VALUES[name](run)) is not None}


def _mean_over_seeds(name: str, runs: ClassifierRuns) -> Estimate:
    return percent(list(_known(runs, name).values()))


def _accuracy(runs: ClassifierRuns) -> Estimate:
    """Mean over seeds; with one seed, the accuracy with its Wilson interval."""
    return first_run(runs).accuracy if len(runs) == 1 else _mean_over_seeds("accuracy", runs)


def _verdicts(
    model: str, runs: Runs[ClassificationRun], pairs: Pairs, checks: Mapping[str, list[Gate]]
) -> Iterator[Verdict]:
    own, seeds = runs[model], len(runs[model])
    split = first_run(own).split
    over = "one seed" if seeds == 1 else f"mean of {seeds_in_words(seeds)}"

    def _assess(name: str, unit: str, best: Callable[..., str] = max) -> Assessment:
        means = {other: statistics.mean(known.values()) for other in runs if (known := _known(runs[other], name))}
        evidence = {models: pair.evidence[name] for models, pair in pairs.items() if name in pair.evidence}
        return against(model, means, evidence, unit, best, checks if name in ("accuracy", "calibration") else {})

    quantity = f"accuracy on the {split} set ({over}{'; interval over texts' if seeds == 1 else ''})"
    yield verdict("accuracy", model, _accuracy(own), "%", quantity, _assess("accuracy", "points"), "scores")
    quantity = f"expected calibration error on the {split} set ({over})"
    found = _assess("calibration", "points", min)
    yield verdict("calibration", model, _mean_over_seeds("calibration", own), "points", quantity, found, "reliability")
    quantity = f"training tokens per second, while other trainings may run in parallel ({over})"
    found = _assess("speed", "times as fast")
    speed = mean(list(_known(own, "speed").values()))
    yield verdict("training speed", model, speed, "tokens/s", quantity, found, "")
    known = list(_known(own, "cost").values())
    if not known:
        why = "all of its runs were interrupted, so none was measured whole"
        yield Verdict(row="training cost", model=model, failed=why)
        return
    quantity = f"CPU seconds of a whole run, while others may run in parallel ({over})"
    if len(known) < seeds:
        quantity = f"CPU seconds of a whole run ({seeds_in_words(len(known))} that ran without interruption)"
    found = _assess("cost", "times the CPU seconds", min)
    yield verdict("training cost", model, mean(known), "s", quantity, found, "")


def _gates(runs: ClassifierRuns) -> list[Gate]:
    """Return the validity checks: those of training, and that accuracy is above that of the most frequent class."""
    first = first_run(runs)
    usual = 100 * np.bincount(first.truth).max() / len(first.truth)
    low = first.accuracy.low
    said = f"its accuracy is at least {low:.1f} %, that of the most frequent class {usual:.1f} %"
    return [*gates_of_training(runs), Gate("beats frequencies", bool(low > usual), said)]


def _figures(runs: Runs[ClassificationRun]) -> list[Figure]:
    texts = ("texts", "texts", axis("training texts"))
    tokens = ("tokens", "tokens", axis("training tokens"))
    seconds = ("seconds", "time", axis("training time on one CPU thread or a GPU", "s"))
    accuracy = ("accuracies", axis("validation accuracy", "%"))
    loss = ("losses", axis("validation loss", "nats per text"))
    return [
        score_bars(
            {"accuracy": _accuracy, "macro-F1": partial(_mean_over_seeds, "macro_f1")},
            runs,
            "Intervals (95 %): Student's over seeds; with one seed, Wilson's over texts, for accuracy only.",
        ),
        *(curves(runs, "accuracy", "Accuracy", x, accuracy) for x in (texts, seconds)),
        *(curves(runs, "loss", "Learning curves", x, loss) for x in (texts, tokens, seconds)),
        _reliability(runs),
    ]


def _reliability(runs: Runs[ClassificationRun]) -> Figure:
    """Reliability diagram of each candidate's first seed."""
    shown = []
    for model, own in runs.items():
        bins = first_run(own).adaptive.bins
        shown.append(series(model, model, [each.confidence for each in bins], [each.accuracy for each in bins]))
    ends = [min(float(x) for one in shown for x in one.x), 100.0]
    return figure(
        "reliability",
        "Reliability diagram: accuracy against confidence, first seed",
        (axis("confidence, mean of its bin", "%"), axis("accuracy", "%")),
        [*shown, series("perfect calibration", "", ends, ends, reference=True)],
        "Bins have equally many texts. Below the line, a model is overconfident. Intervals (95 %): Wilson's.",
    )


def _summary(runs: Runs[ClassificationRun]) -> Table:
    scores = (
        ("accuracy (%)", "accuracy", ""),
        ("macro-F1 (%)", "macro_f1", "macro-F1"),
        ("calibration error (points)", "calibration", "calibration"),
    )
    columns = [
        "model",
        Column("seeds", lambda row: len(row[1])),
        *(
            Interval(head, lambda row, name=name: _mean_over_seeds(name, row[1]), 2, what)
            for head, name, what in scores
        ),
        seed_mean("calibration error, equal counts (points)", lambda run: run.adaptive.error, 2),
        seed_mean("test loss (nats per text)", lambda run: run.loss, 4),
        Column("parameters", lambda row: first_run(row[1]).parameters),
        seed_mean("training (s)", lambda run: run.seconds[-1], 1),
        seed_mean("whole run (s)", lambda run: run.run_seconds, 1),
        seed_mean("whole run (CPU s)", lambda run: run.cpu_seconds, 1),
    ]
    return table("scores", "Scores, sizes and costs: means over seeds", columns, runs.items())


def _pairs(pairs: Pairs) -> Table:
    columns = [
        Column("models", lambda row: f"{row[0][1]} − {row[0][0]}"),
        Column("seed tested", lambda row: row[1].evidence["accuracy"].seed),
        Column("only the first named is right", lambda row: row[1].test.only_second),
        Column("only the other is right", lambda row: row[1].test.only_first),
        Column("p (McNemar)", lambda row: row[1].test.p_value, 4),
        Column("variant of the test", lambda row: row[1].test.method),
        Column("seeds", lambda row: row[1].evidence["accuracy"].seeds),
    ]
    for head, key, of_what, test in (
        ("accuracy (points)", "accuracy", "", "t-test"),
        ("macro-F1 (points)", "macro_f1", "macro-F1", "macro-F1"),
        ("calibration error (points)", "calibration", "calibration", "calibration"),
    ):
        columns.append(Interval(head, lambda row, key=key: row[1].evidence[key].over_seeds, 2, of_what))
        columns.append(Column(f"p ({test})", lambda row, key=key: row[1].evidence[key].p, 4))
    title = "Differences between models: McNemar's test over texts, and paired t-tests over seeds"
    return table("pairs", title, columns, pairs.items())


def _every_run(runs: Runs[ClassificationRun]) -> Table:
    columns = [
        *("model", "seed"),
        Column("split", "run.split"),
        Column("texts tested", lambda row: len(row.run.truth)),
        Column("of them truncated", "run.truncated"),
        Interval("accuracy (%)", "run.accuracy", 2),
        Column("macro-F1 (%)", "run.macro_f1", 2),
        Column("calibration error (points)", "run.calibration.error", 2),
        Column("loss (nats per text)", "run.loss", 4),
        Column("best validation accuracy (%)", lambda row: max(row.run.accuracies), 2),
        Column("lowest validation loss", lambda row: min(row.run.losses), 4),
        Column("updates", lambda row: row.run.updates[-1]),
        Column("texts", lambda row: row.run.texts[-1]),
        Column("tokens", lambda row: row.run.tokens[-1]),
        Column("training (s)", lambda row: row.run.seconds[-1], 1),
        Column("whole run (s)", "run.run_seconds", 1),
        Column("whole run (CPU s)", "run.cpu_seconds", 1),
    ]
    return table("runs", "All runs; intervals of accuracy are Wilson's", columns, every_run(runs))


def _classes(runs: Runs[ClassificationRun]) -> Table:
    def _f1(i: int) -> list[float]:
        return [round(statistics.mean(run.per_class[i].f1 for run in own.values()), 2) for own in runs.values()]

    classes = first_run(next(iter(runs.values()))).per_class
    rows = [(each.name, each.support, *_f1(i)) for i, each in enumerate(classes)]
    return table("classes", "F1 of each class, in percent: means over seeds", ("class", "texts", *runs), rows)


def _disagreements(runs: Runs[ClassificationRun]) -> Table:
    """Table of texts that the candidates' first seeds classify differently, spread over the test set."""
    firsts = {model: first_run(own) for model, own in runs.items()}
    any_run = next(iter(firsts.values()))
    # only runs on the same texts in the same order can be compared
    same = {model: run for model, run in firsts.items() if run.digest == any_run.digest}
    texts = {row: text for run in same.values() for row, text in run.wrong.items()}
    rows = [
        (row + 1, texts[row], any_run.classes[any_run.truth[row]], *answers)
        for row in sorted(texts)
        if len(set(answers := [run.classes[run.predicted[row]] for run in same.values()])) > 1
    ]
    title = "Sample of test texts on which the models disagree (first seeds)"
    chosen = rows[:: max(1, len(rows) // _DISAGREEMENTS)][:_DISAGREEMENTS]
    return table("disagreements", title, ("row", "text", "class", *same), chosen)
