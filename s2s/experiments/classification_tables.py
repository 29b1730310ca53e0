"""The tables of `classification`: scores and costs, differences, every run, each class, and what models disagree on."""

import statistics
from collections.abc import Mapping

from s2s.evaluation.inference import Estimate
from s2s.evaluation.mcnemar import McNemar
from s2s.experiments.verdicts import BySeed, Evidence, Row, ends, mean_known, percent, rounded
from s2s.results import Table

_DISAGREEMENTS = 10

Runs = Mapping[str, BySeed]
Tests = Mapping[tuple[str, str], tuple[McNemar, Evidence, Evidence, Evidence]]


def tables(runs: Runs, tests: Tests) -> list[Table]:
    """All tables.

    Args:
        runs: of at least one model.
        tests: of each pair of models: McNemar's, and the differences of accuracy, macro-F1 and calibration.
    """
    return [_summary(runs), _pairs(tests), _runs(runs), _classes(runs), _disagreements(runs)]


def _summary(runs: Runs) -> Table:
    rows: list[Row] = []
    for model, own in runs.items():
        found = list(own.values())
        scores: list[Estimate] = [
            percent([run["accuracy"]["value"] for run in found]),
            percent([run["macro_f1"] for run in found]),
            percent([run["calibration"]["error"] for run in found]),
        ]
        rows.append(
            [
                model,
                len(own),
                *(cell for score in scores for cell in ends(score, 2)),
                rounded(statistics.mean(run["adaptive"]["error"] for run in found), 2),
                rounded(statistics.mean(run["loss"] for run in found), 4),
                found[0]["parameters"],
                rounded(statistics.mean(run["seconds"][-1] for run in found), 1),
                rounded(mean_known(run["run_seconds"] for run in found), 1),
                rounded(mean_known(run["cpu_seconds"] for run in found), 1),
            ]
        )
    return Table(
        name="scores",
        title="Scores, sizes and costs: means over seeds",
        columns=[
            "model",
            "seeds",
            "accuracy (%)",
            "low",
            "high",
            "macro-F1 (%)",
            "low (macro-F1)",
            "high (macro-F1)",
            "calibration error (points)",
            "low (calibration)",
            "high (calibration)",
            "calibration error, equal counts (points)",
            "test loss (nats per text)",
            "parameters",
            "training (s)",
            "whole run (s)",
            "whole run (CPU s)",
        ],
        rows=rows,
    )


def _pairs(tests: Tests) -> Table:
    rows: list[Row] = [
        [
            f"{b} − {a}",
            accuracy.seed,
            test.only_second,
            test.only_first,
            rounded(test.p_value, 4),
            test.method,
            accuracy.seeds,
            *(cell for each in (accuracy, macro_f1, error) for cell in (*ends(each.over_seeds, 2), rounded(each.p, 4))),
        ]
        for (a, b), (test, accuracy, macro_f1, error) in tests.items()
    ]
    return Table(
        name="pairs",
        title="Differences between models: McNemar's test over texts, and paired t-tests over seeds",
        columns=[
            "models",
            "seed tested",
            "only the first named has it right",
            "only the other has it right",
            "p (McNemar)",
            "form of the test",
            "seeds",
            *("accuracy (points)", "low", "high", "p (t-test)"),
            *("macro-F1 (points)", "low (macro-F1)", "high (macro-F1)", "p (macro-F1)"),
            *("calibration error (points)", "low (calibration)", "high (calibration)", "p (calibration)"),
        ],
        rows=rows,
    )


def _runs(runs: Runs) -> Table:
    rows: list[Row] = [
        [
            model,
            seed,
            run["split"],
            len(run["truth"]),
            run["truncated"],
            *ends(Estimate(*(run["accuracy"][key] for key in ("value", "low", "high"))), 2),
            rounded(run["macro_f1"], 2),
            rounded(run["calibration"]["error"], 2),
            rounded(run["loss"], 4),
            rounded(max(run["accuracies"]), 2),
            rounded(min(run["losses"]), 4),
            run["updates"][-1],
            run["texts"][-1],
            run["tokens"][-1],
            rounded(run["seconds"][-1], 1),
            rounded(run["run_seconds"], 1),
            rounded(run["cpu_seconds"], 1),
        ]
        for model, own in runs.items()
        for seed, run in own.items()
    ]
    return Table(
        name="runs",
        title="Every run; intervals of its accuracy are Wilson's",
        columns=[
            "model",
            "seed",
            "split",
            "texts tested",
            "of them read in part",
            "accuracy (%)",
            "low",
            "high",
            "macro-F1 (%)",
            "calibration error (points)",
            "loss (nats per text)",
            "best validation accuracy (%)",
            "lowest validation loss",
            "updates",
            "texts",
            "tokens",
            "training (s)",
            "whole run (s)",
            "whole run (CPU s)",
        ],
        rows=rows,
    )


def _classes(runs: Runs) -> Table:
    """The F1 of each class, mean over seeds."""
    first = next(iter(next(iter(runs.values())).values()))
    rows: list[Row] = [
        [
            each["name"],
            each["support"],
            *(round(statistics.mean(run["per_class"][i]["f1"] for run in own.values()), 2) for own in runs.values()),
        ]
        for i, each in enumerate(first["per_class"])
    ]
    return Table(
        name="classes",
        title="F1 of each class, in percent: means over seeds",
        columns=["class", "texts", *runs],
        rows=rows,
    )


def _disagreements(runs: Runs) -> Table:
    """Some texts that the models' first seeds do not agree on; nobody picked them."""
    firsts = {model: next(iter(own.values())) for model, own in runs.items()}
    any_run = next(iter(firsts.values()))
    # the same texts in the same order, or there is nothing to agree on
    same = {model: run for model, run in firsts.items() if run["digest"] == any_run["digest"]}
    texts = {int(row): text for run in same.values() for row, text in run["wrong"].items()}
    rows: list[Row] = []
    for row in sorted(texts):
        answers = [run["classes"][run["predicted"][row]] for run in same.values()]
        if len(set(answers)) > 1:
            rows.append([row + 1, texts[row], any_run["classes"][any_run["truth"][row]], *answers])
    # spread over the test set, whatever the order in which it lists its classes
    chosen = rows[:: max(1, len(rows) // _DISAGREEMENTS)][:_DISAGREEMENTS]
    return Table(
        name="disagreements",
        title="Some texts of the test set that the models' first seeds do not agree on",
        columns=["row", "text", "class", *same],
        rows=chosen,
    )
