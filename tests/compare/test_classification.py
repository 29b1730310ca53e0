"""Classifiers compared: verdicts follow from the tests, and what is said of a run is what the run left behind."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from s2s.comparison.plans import TABLES
from s2s.comparison.questions.classification.measure import EXPERIMENT
from s2s.evaluation.classification import classification_scores
from s2s.evaluation.inference import wilson
from s2s.evaluation.significance import mcnemar
from s2s.models.base import count_parameters
from s2s.run.inference import load

CLASSES = ["World", "Sports", "Business"]
TRUTH = np.random.default_rng(0).integers(0, 3, 200)


def _planted(wrong, seed, seconds=2.0, tokens=1000):
    """What a run would leave behind that gets that share of texts wrong."""
    chance = np.random.default_rng([seed, 7])
    missed = chance.random(len(TRUTH)) < wrong
    predicted = np.where(missed, (TRUTH + 1) % 3, TRUTH)
    probabilities = np.full((len(TRUTH), 3), 0.1)
    probabilities[np.arange(len(TRUTH)), predicted] = 0.8
    found = json.loads(json.dumps(classification_scores(TRUTH, probabilities, CLASSES), default=vars))
    return {
        "split": "test",
        "digest": "same",
        "classes": CLASSES,
        "truth": TRUTH.tolist(),
        "predicted": predicted.tolist(),
        "accuracy": found["accuracy"],
        "macro_f1": found["macro_f1"],
        "loss": found["loss"],
        "per_class": found["classes"],
        "calibration": found["calibration"],
        "adaptive": found["adaptive"],
        "truncated": 3,
        "wrong": {str(row): f"text {row}" for row in np.flatnonzero(missed)[:20].tolist()},
        "updates": [5, 7, 10],
        "texts": [100, 150, 200],
        "tokens": [tokens // 2, 3 * tokens // 4, tokens],
        "seconds": [seconds / 2, 3 * seconds / 4, seconds],
        "losses": [0.5, 0.49, 0.48],
        "accuracies": [50.0, 70.0, 80.0],
        "macro_f1s": [50.0, 70.0, 80.0],
        "rate": {"chosen": 0.004, "tried": [0.002, 0.004, 0.008], "losses": [0.6, 0.5, 0.6], "inside": True},
        "parameters": 1000,
        "run_seconds": 3 * seconds,
        "cpu_seconds": None if seed == 12 else 2 * seconds,
    }


def _result(planted, wrong, seeds, seconds=None):
    made = planted(list(wrong), seeds=seeds)
    measured = {
        cell: _planted(wrong[cell.model], cell.seed + 10 * (cell.model == "lstm"), (seconds or {}).get(cell.model, 2.0))
        for cell in EXPERIMENT.trials(made)
    }
    result = EXPERIMENT.result(made, measured)
    assert EXPERIMENT.result(made, dict(reversed(measured.items()))) == result
    return result, measured


def _findings(result, row):
    return {finding.model: finding for finding in result.findings if finding.row == row}


def _table(result, name):
    table = next(table for table in result.tables if table.name == name)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_one_seed_is_decided_by_mcnemar_and_has_wilsons_interval(planted):
    result, measured = _result(planted, {"lstm": 0.3, "transformer": 0.1}, (1,))
    found = _findings(result, "accuracy")
    one, two = measured.values()
    test = mcnemar(TRUTH, *(np.array(run["predicted"]) for run in (one, two)))
    ours, its = found["transformer"], found["lstm"]
    assert (ours.rival, ours.difference_unit, ours.test) == ("lstm", "points", "McNemar, Holm")
    assert ours.p == pytest.approx(test.p_value)
    assert ours.difference == -its.difference > 0
    right = int((np.array(two["predicted"]) == TRUTH).sum())
    share = wilson(right, len(TRUTH))
    assert (ours.value, ours.low, ours.high) == pytest.approx((share.value, share.low, share.high))
    assert "interval over texts" in ours.quantity
    pair = _table(result, "pairs")[0]
    assert pair["p (McNemar)"] == round(test.p_value, 4)
    assert pair["only the first named has it right"] == test.only_second
    # nothing but seeds could test it
    assert _findings(result, "calibration")["transformer"].p is None


def test_three_seeds_decide_by_themselves(planted):
    result, measured = _result(planted, {"lstm": 0.45, "transformer": 0.2}, (1, 2, 3))
    values = {
        model: [m["accuracy"]["value"] for cell, m in measured.items() if cell.model == model]
        for model in ("lstm", "transformer")
    }
    p = stats.ttest_rel(values["transformer"], values["lstm"]).pvalue
    pair = _table(result, "pairs")[0]
    assert pair["p (t-test)"] == pytest.approx(p, abs=1e-4)
    assert pair["accuracy (points)"] == pytest.approx(
        np.mean(values["transformer"]) - np.mean(values["lstm"]), abs=0.01
    )
    found = _findings(result, "accuracy")["transformer"]
    assert (found.rival, found.p, found.test) == ("lstm", pytest.approx(p), "paired t-test over seeds, Holm")
    assert "p (McNemar, one seed)" in found.facts
    # the least calibration error is the measure of the others
    found = _findings(result, "calibration")["lstm"]
    assert found.rival == "transformer"
    assert found.difference > 0


def test_speeds_are_compared_by_ratio_and_costs_that_are_not_known_left_out(planted):
    result, _ = _result(planted, {"lstm": 0.2, "transformer": 0.2}, (1, 2, 3), {"lstm": 4.0, "transformer": 2.0})
    speed, cost = _findings(result, "training speed"), _findings(result, "training cost")
    assert (speed["lstm"].value, speed["transformer"].value) == (250, 500)
    # seeds that took exactly as long have no spread to test by: three coins that agree
    assert (speed["lstm"].difference, speed["lstm"].difference_unit) == (pytest.approx(0.5), "times as fast")
    assert (speed["lstm"].rival, speed["lstm"].p) == ("transformer", 0.25)
    # two seeds are too few for a test
    assert (cost["lstm"].difference, cost["lstm"].p) == (pytest.approx(2.0), None)
    # the second seed of the lstm was interrupted
    assert "2 seeds that ran without interruption" in cost["lstm"].quantity
    assert [row["whole run (CPU s)"] for row in _table(result, "runs") if row["model"] == "lstm"] == [8.0, None, 8.0]


def test_the_f1_of_each_class_is_the_mean_over_seeds_and_disagreements_are_some(planted):
    result, measured = _result(planted, {"lstm": 0.3, "transformer": 0.1}, (1, 2))
    row = _table(result, "classes")[1]
    wanted = np.mean([m["per_class"][1]["f1"] for cell, m in measured.items() if cell.model == "lstm"])
    assert row["class"] == "Sports"
    assert row["lstm"] == pytest.approx(wanted, abs=0.01)
    shown = _table(result, "disagreements")
    assert 1 <= len(shown) <= 10
    assert all(row["lstm"] != row["transformer"] and row["text"] == f"text {row['row'] - 1}" for row in shown)
    assert all(row["class"] == CLASSES[TRUTH[row["row"] - 1]] for row in shown)


def test_real_runs_say_what_they_left_behind_and_again_the_same(classifiers, tmp_path):
    made = classifiers(["gru", "transformer"])
    cells = EXPERIMENT.trials(made)
    measured = {cell: json.loads(json.dumps(EXPERIMENT.measure(made, cell), allow_nan=False)) for cell in cells}
    result = EXPERIMENT.result(made, measured)
    assert {finding.row for finding in result.findings} == set(EXPERIMENT.rows) <= set(TABLES["classification"])
    assert {f.figure for f in result.findings} - {""} <= {figure.name for figure in result.figures}
    for cell, found in measured.items():
        run = made.folder / "runs" / f"{cell.model}-seed1"
        kept = json.loads((run / "evaluation-test.json").read_text())
        assert _findings(result, "accuracy")[cell.model].value == kept["scores"]["accuracy"]["value"]
        assert found["parameters"] == count_parameters(load(run).model)
        assert found["updates"] == [24, 48]
        updates = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert found["texts"][-1] == sum(entry.get("count", 0) for entry in updates)
        assert found["tokens"][-1] == sum(entry.get("tokens", 0) for entry in updates)
        lines = (made.folder.parent / "test.tsv").read_text().splitlines()[1:]
        for row, text in found["wrong"].items():
            assert lines[int(row)].split("\t")[1] == text
            assert found["truth"][int(row)] != found["predicted"][int(row)]
    again = EXPERIMENT.measure(replace(made, folder=tmp_path / "again"), cells[0])
    assert {k: v for k, v in json.loads(json.dumps(again)).items() if "seconds" not in k} == {
        k: v for k, v in measured[cells[0]].items() if "seconds" not in k
    }


@pytest.mark.parametrize(
    ("change", "standing", "words"),
    [
        ({"losses": [0.9, 0.7, 0.5]}, "still learning", "its loss still falls by 0.40 nats"),
        ({"rate": {"chosen": 0.008, "tried": [0.004, 0.008], "inside": False}}, "not measurable", "lies at an end of"),
        ({"accuracy": {"value": 40.0, "low": 33.0, "high": 47.0}}, "not measurable", "most frequent class is right"),
    ],
)
def test_nothing_is_said_of_a_classifier_that_has_not_learned_or_beside_it(planted, change, standing, words):
    made = planted(["lstm", "transformer"], seeds=(1, 2, 3))
    measured = {
        cell: _planted(0.2, cell.seed) | (change if cell.model == "lstm" else {}) for cell in EXPERIMENT.trials(made)
    }
    result = EXPERIMENT.result(made, measured)
    for row in ("accuracy", "calibration"):
        found = _findings(result, row)
        assert found["lstm"].standing == standing
        assert words in "; ".join(found["lstm"].reasons)
        assert (found["transformer"].standing, found["transformer"].rival) == ("not measurable", "lstm")
        assert words in "; ".join(found["transformer"].reasons)
    # speed is measured, whatever was learned
    assert _findings(result, "training speed")["lstm"].difference_unit == "times as fast"
    assert [row["holds"] for row in _table(result, "gates") if row["model"] == "lstm"].count("no") == 1
