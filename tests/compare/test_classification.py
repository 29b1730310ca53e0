"""The question classification: outcomes follow from McNemar's test, or from tests over seeds."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from scipy import stats

from s2s.comparison.plans import TABLES
from s2s.comparison.questions.classification.analyse import ClassificationRun
from s2s.comparison.questions.classification.measure import EXPERIMENT
from s2s.comparison.spec import RateChoice
from s2s.evaluation.classification import classification_scores
from s2s.evaluation.inference import Share, wilson
from s2s.evaluation.significance import mcnemar
from s2s.models.base import count_parameters
from s2s.run.inference import load

CLASSES = ["World", "Sports", "Business"]
TRUTH = np.random.default_rng(0).integers(0, 3, 200)


def _run(wrong, seed, seconds=2.0, **changes):
    """A run with this share of misclassified texts."""
    missed = np.random.default_rng([seed, 7]).random(len(TRUTH)) < wrong
    predicted = np.where(missed, (TRUTH + 1) % 3, TRUTH)
    probabilities = np.full((len(TRUTH), 3), 0.1)
    probabilities[np.arange(len(TRUTH)), predicted] = 0.8
    scores = classification_scores(TRUTH, probabilities, CLASSES)
    run = ClassificationRun(
        split="test",
        digest="same",
        classes=CLASSES,
        truth=TRUTH.tolist(),
        predicted=predicted.tolist(),
        accuracy=scores.accuracy,
        macro_f1=scores.macro_f1,
        loss=scores.loss,
        per_class=scores.classes,
        calibration=scores.calibration,
        adaptive=scores.adaptive,
        truncated=3,
        wrong={row: f"text {row}" for row in np.flatnonzero(missed)[:20].tolist()},
        updates=[5, 7, 10],
        texts=[100, 150, 200],
        tokens=[500, 750, 1000],
        seconds=[seconds / 2, 3 * seconds / 4, seconds],
        losses=[0.49, 0.485, 0.48],
        accuracies=[50.0, 70.0, 80.0],
        rate=RateChoice(0.004, (0.002, 0.004, 0.008), (0.6, 0.5, 0.6), inside=True),
        parameters=1000,
        run_seconds=3 * seconds,
        cpu_seconds=None if seed == 12 else 2 * seconds,
    )
    return replace(run, **changes)


def _result(planted, wrong, seeds, seconds=None):
    made = planted(list(wrong), seeds=seeds)
    measured = {
        trial: _run(wrong[trial.model], trial.seed + 10 * (trial.model == "lstm"), (seconds or {}).get(trial.model, 2))
        for trial in EXPERIMENT.trials(made)
    }
    result = EXPERIMENT.result(made, measured)
    assert EXPERIMENT.result(made, dict(reversed(measured.items()))) == result
    return result, measured


def _findings(result, row):
    return {finding.model: finding for finding in result.findings if finding.row == row}


def _table(result, name):
    table = next(table for table in result.tables if table.name == name)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_classification_one_seed_uses_mcnemar_and_wilson(planted):
    result, measured = _result(planted, {"lstm": 0.3, "transformer": 0.1}, (1,))
    found = _findings(result, "accuracy")
    one, two = measured.values()
    test = mcnemar(TRUTH, np.array(one.predicted), np.array(two.predicted))
    ours, its = found["transformer"], found["lstm"]
    assert (ours.rival, ours.difference_unit, ours.test) == ("lstm", "points", "McNemar, Holm")
    assert ours.p == pytest.approx(test.p_value)
    assert ours.difference == -its.difference > 0
    share = wilson(int((np.array(two.predicted) == TRUTH).sum()), len(TRUTH))
    assert (ours.value, ours.low, ours.high) == pytest.approx((share.value, share.low, share.high))
    assert "interval over texts" in ours.quantity
    pair = _table(result, "pairs")[0]
    assert pair["p (McNemar)"] == round(test.p_value, 4)
    assert pair["only the first named is right"] == test.only_second
    assert _findings(result, "calibration")["transformer"].p is None


def test_classification_three_seeds_use_the_paired_t_test(planted):
    result, measured = _result(planted, {"lstm": 0.45, "transformer": 0.2}, (1, 2, 3))
    lstm, transformer = (
        [run.accuracy.value for trial, run in measured.items() if trial.model == model]
        for model in ("lstm", "transformer")
    )
    p = stats.ttest_rel(transformer, lstm).pvalue
    pair = _table(result, "pairs")[0]
    assert pair["p (t-test)"] == pytest.approx(p, abs=1e-4)
    assert pair["accuracy (points)"] == pytest.approx(np.mean(transformer) - np.mean(lstm), abs=0.01)
    found = _findings(result, "accuracy")["transformer"]
    assert (found.rival, found.p, found.test) == ("lstm", pytest.approx(p), "paired t-test over seeds, Holm")
    assert "p (McNemar, one seed)" in found.facts
    found = _findings(result, "calibration")["lstm"]
    assert found.rival == "transformer"
    assert found.difference > 0


def test_classification_compares_speeds_by_ratio_and_skips_unknown_costs(planted):
    result, _ = _result(planted, {"lstm": 0.2, "transformer": 0.2}, (1, 2, 3), {"lstm": 4.0, "transformer": 2.0})
    speed, cost = _findings(result, "training speed"), _findings(result, "training cost")
    assert (speed["lstm"].value, speed["transformer"].value) == (250, 500)
    assert (speed["lstm"].difference, speed["lstm"].difference_unit) == (pytest.approx(0.5), "times as fast")
    # equal times have no spread: the sign test of three seeds
    assert (speed["lstm"].rival, speed["lstm"].p) == ("transformer", 0.25)
    # the second seed of the lstm was interrupted, and two seeds are too few for a test
    assert (cost["lstm"].difference, cost["lstm"].p) == (pytest.approx(2.0), None)
    assert "2 seeds that ran without interruption" in cost["lstm"].quantity
    assert [row["whole run (CPU s)"] for row in _table(result, "runs") if row["model"] == "lstm"] == [8.0, None, 8.0]


def test_classification_tables_of_classes_and_disagreements(planted):
    result, measured = _result(planted, {"lstm": 0.3, "transformer": 0.1}, (1, 2))
    row = _table(result, "classes")[1]
    wanted = np.mean([run.per_class[1].f1 for trial, run in measured.items() if trial.model == "lstm"])
    assert row["class"] == "Sports"
    assert row["lstm"] == pytest.approx(wanted, abs=0.01)
    shown = _table(result, "disagreements")
    assert 1 <= len(shown) <= 10
    assert all(row["lstm"] != row["transformer"] and row["text"] == f"text {row['row'] - 1}" for row in shown)
    assert all(row["class"] == CLASSES[TRUTH[row["row"] - 1]] for row in shown)


@pytest.mark.parametrize(
    ("change", "standing", "words"),
    [
        ({"losses": [0.9, 0.7, 0.5]}, "still learning", "its loss still falls by 0.40 nats"),
        ({"rate": RateChoice(0.008, (0.004, 0.008))}, "not measurable", "lies at an end of"),
        ({"accuracy": Share(40.0, 33.0, 47.0)}, "not measurable", "that of the most frequent class"),
    ],
)
def test_classification_failed_checks_replace_the_verdict(planted, change, standing, words):
    made = planted(["lstm", "transformer"], seeds=(1, 2, 3))
    measured = {
        trial: _run(0.2, trial.seed, **(change if trial.model == "lstm" else {})) for trial in EXPERIMENT.trials(made)
    }
    result = EXPERIMENT.result(made, measured)
    for row in ("accuracy", "calibration"):
        found = _findings(result, row)
        assert found["lstm"].standing == standing
        assert words in "; ".join(found["lstm"].reasons)
        assert (found["transformer"].standing, found["transformer"].rival) == ("not measurable", "lstm")
        assert words in "; ".join(found["transformer"].reasons)
    # speed does not depend on what was learned
    assert _findings(result, "training speed")["lstm"].difference_unit == "times as fast"
    assert [row["passed"] for row in _table(result, "gates") if row["model"] == "lstm"].count("no") == 1


def test_classification_measures_real_runs_repeatably(classifiers, tmp_path):
    made = classifiers(["transformer"])
    (trial,) = EXPERIMENT.trials(made)
    found = json.loads(json.dumps(asdict(EXPERIMENT.measure(made, trial)), allow_nan=False))
    result = EXPERIMENT.result(made, {trial: found})
    assert {finding.row for finding in result.findings} == set(EXPERIMENT.rows) <= set(TABLES["classification"])
    assert {f.figure for f in result.findings} - {""} <= {figure.name for figure in result.figures}
    run = made.folder / "runs" / "transformer-seed1"
    evaluated = json.loads((run / "evaluation-test.json").read_text())
    assert _findings(result, "accuracy")["transformer"].value == evaluated["scores"]["accuracy"]["value"]
    assert found["parameters"] == count_parameters(load(run).model)
    assert found["updates"] == [24, 48]
    updates = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert found["texts"][-1] == sum(entry.get("count", 0) for entry in updates)
    assert found["tokens"][-1] == sum(entry.get("tokens", 0) for entry in updates)
    lines = (made.folder.parent / "test.tsv").read_text().splitlines()[1:]
    for row, text in found["wrong"].items():
        assert lines[int(row)].split("\t")[1] == text
        assert found["truth"][int(row)] != found["predicted"][int(row)]
    again = json.loads(json.dumps(asdict(EXPERIMENT.measure(replace(made, folder=tmp_path / "again"), trial))))
    assert {k: v for k, v in again.items() if "seconds" not in k} == {
        k: v for k, v in found.items() if "seconds" not in k
    }
