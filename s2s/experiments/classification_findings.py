"""What the runs of `classification` say: scores over seeds, tests between models, curves and costs."""

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from s2s.evaluation.inference import Estimate, mean
from s2s.evaluation.mcnemar import McNemar, mcnemar
from s2s.experiments.classification_tables import tables
from s2s.experiments.contest import Contest, Experiment, Measured, Task
from s2s.experiments.run_figures import curves, score_bars
from s2s.experiments.verdicts import (
    BySeed,
    Evidence,
    against,
    by_model,
    difference,
    percent,
    seeds_in_words,
    times,
)
from s2s.results import Axis, Figure, Finding, Result, Series

METHOD = """\
Every model is trained on the same texts, cut by the same tokenizer, in the same order, for the recipe's number of \
updates (or, where the comparison is matched by time, for as many as fit), with its own learning rate, once for each \
seed. Models differ in the encoder alone: pooling and head are the recipe's. The checkpoint with the best validation \
is tested. Accuracy is the share of texts with the right class; macro-F1 the mean of the classes' F1, in which all \
classes weigh the same. Calibration is the expected calibration error: the mean distance between how sure a model is \
of its answers and how many of them are right, in 15 bins of equal width (Guo et al. 2017).

Over seeds: the mean with Student's 95 % interval, cut off where a score ends (0 and 100). With one seed, the \
interval of accuracy is Wilson's, over texts. Between two models: McNemar's test on the texts of the first seed that \
both have, and a paired t-test over seeds, from three seeds on; how many times as fast or as dear is tested on the \
logarithms. In words, the p-values of each test are corrected for the number of pairs of models (Holm 1979); in the \
table of pairs they are not.

Tokens are pieces that were read, special ones counted, padding not. Training time is the sum of the updates', \
without validations. CPU seconds are those of the whole run on all processor threads: training, validations and test, \
but not cutting the training texts into pieces, which is done once for all models; they stand in for energy."""

LIMITS = """\
McNemar's test doubts the choice of texts, not that of the network: it says whether these trained networks differ. \
Whether their architectures do, only seeds can tell. Training \
is short: a model that learns faster is ahead, and would not be if all were trained until they learn no more. The \
expected calibration error of few texts is too high, for all models alike.

Speeds and costs are those of trainings that run beside each other, as many as the report's head says: on a machine \
that does nothing else, each would be faster and take less. All models were measured so. CPU seconds are not measured \
in joules, know nothing of a GPU, and are not given for a run that was interrupted."""


@dataclass(frozen=True)
class Pair:
    """How the second of two models differs from the first.

    Attributes:
        accuracy: over seeds, in points, with McNemar's test on one of them.
        macro_f1: likewise, without a test of texts.
        calibration: likewise.
        test: McNemar's, where the runs of one seed were tested on the same texts.
        speed: of the logarithms of tokens per second.
        cost: of the logarithms of CPU seconds; None where no seed has those of both.
    """

    accuracy: Evidence
    macro_f1: Evidence
    calibration: Evidence
    test: McNemar
    speed: Evidence
    cost: Evidence | None


def conclude(experiment: Experiment, contest: Contest, measured: Mapping[Task, Measured]) -> Result:
    """The result of what was measured; what is missing is left out.

    Args:
        experiment: whose result it is.
        contest: gives the models and the seeds.
        measured: by `Classification.measure`.
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
        findings=[finding for model in runs for finding in _findings(model, runs, pairs)],
        figures=_figures(runs) if runs else [],
        tables=tables(runs, {models: (pair.test, *_evidence(pair)) for models, pair in pairs.items()}) if runs else [],
    )


def _evidence(pair: Pair) -> tuple[Evidence, Evidence, Evidence]:
    return pair.accuracy, pair.macro_f1, pair.calibration


def compared(first: BySeed, second: BySeed) -> Pair | None:
    """By how much the second model is better, and whether that is more than chance; None without a seed in common."""
    accuracy, macro_f1, error, speed, cost = (
        difference(_by_seed(first, figure), _by_seed(second, figure))
        for figure in (accuracy_of, _macro_f1, error_of, _log(speed_of), _log(_cost))
    )
    if accuracy is None or macro_f1 is None or error is None or speed is None:
        return None
    seed = next(seed for seed in first if seed in second)
    one, two = first[seed], second[seed]
    test = mcnemar(*(np.array(row) for row in (one["truth"], one["predicted"], two["predicted"])))
    accuracy = replace(accuracy, test="McNemar", test_p=test.p_value, seed=seed)
    return Pair(accuracy, macro_f1, error, test, speed, cost)


Figures = Callable[[Measured], float | None]


def _by_seed(runs: BySeed, figure: Figures) -> dict[int, float]:
    return {seed: value for seed, run in runs.items() if (value := figure(run)) is not None}


def _log(figure: Figures) -> Figures:
    def logarithm(run: Measured) -> float | None:
        value = figure(run)
        return math.log(value) if value else None

    return logarithm


def accuracy_of(run: Measured) -> float:
    """In percent."""
    return run["accuracy"]["value"]


def _macro_f1(run: Measured) -> float:
    return run["macro_f1"]


def error_of(run: Measured) -> float:
    """The expected calibration error, in percent."""
    return run["calibration"]["error"]


def speed_of(run: Measured) -> float:
    """Tokens learned from in a second."""
    return run["tokens"][-1] / max(run["seconds"][-1], 1e-9)


def _cost(run: Measured) -> float | None:
    return run["cpu_seconds"]


def accuracy_over(runs: BySeed) -> Estimate:
    """The mean over seeds; with Wilson's interval where there is one seed."""
    if len(runs) == 1:
        (run,) = runs.values()
        return Estimate(run["accuracy"]["value"], run["accuracy"]["low"], run["accuracy"]["high"])
    return percent([accuracy_of(run) for run in runs.values()])


def _findings(model: str, runs: Mapping[str, BySeed], pairs: Mapping[tuple[str, str], Pair]) -> list[Finding]:
    own, seeds = runs[model], len(runs[model])
    split = next(iter(own.values()))["split"]
    over = "one seed" if seeds == 1 else f"mean of {seeds_in_words(seeds)}"
    error = percent([error_of(run) for run in own.values()])
    found = [
        _finding("accuracy", model, accuracy_over(own), "%", "scores").model_copy(
            update={
                "quantity": f"accuracy on the {split} set ({over}{'; interval over texts' if seeds == 1 else ''})",
                "verdict": against(
                    model, _means(runs, accuracy_of), {k: pair.accuracy for k, pair in pairs.items()}, "points", 2
                ),
            }
        ),
        _finding("calibration", model, error, "points", "reliability").model_copy(
            update={
                "quantity": f"expected calibration error on the {split} set ({over})",
                "verdict": against(
                    model, _means(runs, error_of), {k: pair.calibration for k, pair in pairs.items()}, "points", 2, min
                ),
            }
        ),
        _finding("training speed", model, mean([speed_of(run) for run in own.values()]), "tokens/s", "").model_copy(
            update={
                "quantity": f"tokens learned from per second, while other trainings may run beside it ({over})",
                "verdict": times(
                    model, _means(runs, speed_of), {k: pair.speed for k, pair in pairs.items()}, "as fast as"
                ),
            }
        ),
    ]
    return [*found, _cost_finding(model, runs, pairs, over)]


def _cost_finding(model: str, runs: Mapping[str, BySeed], pairs: Mapping[tuple[str, str], Pair], over: str) -> Finding:
    known = list(_by_seed(runs[model], _cost).values())
    if not known:
        return Finding(
            row="training cost", model=model, failed="its runs were interrupted, so they were not counted whole"
        )
    costs = {k: pair.cost for k, pair in pairs.items() if pair.cost is not None}
    return _finding("training cost", model, mean(known), "s", "").model_copy(
        update={
            "quantity": f"CPU seconds of a whole run, while others may run beside it ({over})"
            if len(known) == len(runs[model])
            else f"CPU seconds of a whole run ({seeds_in_words(len(known))} that ran without interruption)",
            "verdict": times(model, _means(runs, _cost), costs, "the CPU seconds of", min),
        }
    )


def _finding(row: str, model: str, found: Estimate, unit: str, figure: str) -> Finding:
    return Finding(row=row, model=model, value=found.value, low=found.low, high=found.high, unit=unit, figure=figure)


def _means(runs: Mapping[str, BySeed], figure: Figures) -> dict[str, float]:
    """Each model's mean over seeds; models without a figure are left out."""
    found = {model: list(_by_seed(own, figure).values()) for model, own in runs.items()}
    return {model: statistics.mean(values) for model, values in found.items() if values}


def _figures(runs: Mapping[str, BySeed]) -> list[Figure]:
    texts, seconds = Axis(label="texts learned from"), Axis(label="time of training", unit="s")
    loss, accuracy = Axis(label="validation loss", unit="nats per text"), Axis(label="validation accuracy", unit="%")
    tokens = Axis(label="tokens learned from")
    return [
        score_bars(
            "Scores on the test set",
            ("accuracy", "macro-F1"),
            {
                model: [accuracy_over(own), percent([_macro_f1(run) for run in own.values()])]
                for model, own in runs.items()
            },
            "Intervals (95 %): Student's over seeds; for one seed Wilson's over texts, of accuracy alone.",
        ),
        curves(runs, "accuracy-texts", "Accuracy against texts", ("texts", texts), ("accuracies", accuracy)),
        curves(runs, "accuracy-seconds", "Accuracy against wall-clock", ("seconds", seconds), ("accuracies", accuracy)),
        curves(runs, "loss-texts", "Learning curves against texts", ("texts", texts), ("losses", loss)),
        curves(runs, "loss-tokens", "Learning curves against tokens", ("tokens", tokens), ("losses", loss)),
        curves(runs, "loss-seconds", "Learning curves against wall-clock", ("seconds", seconds), ("losses", loss)),
        _reliability(runs),
    ]


def _reliability(runs: Mapping[str, BySeed]) -> Figure:
    """How many answers are right of those that a model's first seed is about equally sure of."""
    series = []
    for model, own in runs.items():
        bins = next(iter(own.values()))["adaptive"]["bins"]
        series.append(
            Series(
                label=model,
                model=model,
                x=[each["confidence"] for each in bins],
                y=[each["accuracy"]["value"] for each in bins],
                low=[each["accuracy"]["low"] for each in bins],
                high=[each["accuracy"]["high"] for each in bins],
            )
        )
    least = min(min(one.x) for one in series)
    ideal = Series(label="knows how often it is right", model="", x=[least, 100.0], y=[least, 100.0], reference=True)
    return Figure(
        name="reliability",
        title="Right answers against how sure the model is, first seed",
        x=Axis(label="confidence, mean of its bin", unit="%"),
        y=Axis(label="accuracy", unit="%"),
        series=[*series, ideal],
        caption="Bins of equally many texts; below the line a model is too sure. Intervals (95 %): Wilson's.",
    )
