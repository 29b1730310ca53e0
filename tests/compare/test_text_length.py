"""The question text-length: accuracy in buckets of texts of the same length."""

import itertools
import json
import random
from dataclasses import asdict, replace

import numpy as np
import pytest

from s2s.comparison.questions.text_length.analyse import TextLengthRun, buckets
from s2s.comparison.questions.text_length.measure import EXPERIMENT
from s2s.comparison.tasks import evaluation_of

WORDS = np.random.default_rng(3).integers(3, 60, 400)


def _run(per_word, seed):
    """A run that misclassifies longer texts more often."""
    wrong = np.random.default_rng([seed, 5]).random(len(WORDS)) < 0.05 + per_word * (WORDS - 3)
    return TextLengthRun(WORDS.tolist(), (~wrong).astype(int).tolist(), 34.0)


def _table(result, name):
    table = next(table for table in result.tables if table.name == name)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_text_length_buckets_have_equal_counts_and_rise():
    words = [random.Random(5).randint(2, 9) for _ in range(3)] + [5] * 40 + list(range(2, 61))
    found = buckets(words, 4)
    assert sorted(row for part in found for row in part) == list(range(len(words)))
    sizes = [len(part) for part in found]
    assert max(sizes) - min(sizes) <= 1
    ends = [(min(words[i] for i in part), max(words[i] for i in part)) for part in found]
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(ends))
    assert len(buckets([1, 2], 4)) == 2


def test_text_length_finds_a_planted_fall(planted):
    made = planted(["lstm", "transformer"], seeds=(1, 2, 3, 4, 5))
    measured = {cell: _run(0.008 if cell.model == "lstm" else 0.0, cell.seed) for cell in EXPERIMENT.trials(made)}
    result = EXPERIMENT.result(made, measured)
    falls, stays = result.findings
    assert falls.high < 0
    assert (falls.rival, falls.p < 0.05) == ("transformer", True)
    assert falls.difference < 0
    assert stays.low < 0 < stays.high
    assert (stays.rival, stays.difference) == ("lstm", pytest.approx(-falls.difference))
    table = {row["models"]: row for row in _table(result, "differences")}
    assert table["transformer − lstm"]["low"] > 0
    # eight of a thousand more are wrong with each word, so eight of a hundred with ten
    assert table["lstm"]["low (slope)"] < -8 < table["lstm"]["high (slope)"]
    assert EXPERIMENT.result(made, dict(reversed(measured.items()))) == result


@pytest.mark.parametrize("texts", [1, 4, 12, 24])
@pytest.mark.parametrize("seeds", [1, 2])
def test_text_length_small_test_set_is_not_significant_and_has_no_nan(planted, texts, seeds):
    made = planted(["lstm", "transformer"], seeds=tuple(range(1, seeds + 1)))
    measured = {}
    for i, cell in enumerate(EXPERIMENT.trials(made)):
        right = (np.random.default_rng([texts, i]).random(texts) < 0.7).astype(int)
        measured[cell] = TextLengthRun(WORDS[:texts].tolist(), right.tolist(), 0.0)
    for found in EXPERIMENT.result(made, measured).findings:
        assert found.p is None or found.p >= 0.05
        assert "nan" not in found.model_dump_json()


@pytest.mark.parametrize(("texts", "p"), [(15, 2 / 20), (20, 2 / 70)])
def test_text_length_least_p_follows_from_the_number_of_texts(planted, texts, p):
    made, right = planted(["lstm", "transformer"]), np.ones(texts, dtype=int)
    runs = {"lstm": np.where(np.arange(texts) < 4 * texts / 5, right, 0), "transformer": right}
    measured = {
        cell: TextLengthRun(list(range(texts)), runs[cell.model].tolist(), 10.0) for cell in EXPERIMENT.trials(made)
    }
    # one of all ways to share out 6, and 8, texts among the shortest and the longest, in either direction: 2/20, 2/70
    for found in EXPERIMENT.result(made, measured).findings:
        assert found.p == pytest.approx(p)


def test_text_length_buckets_add_up_to_the_accuracy(planted):
    made = planted(["lstm"], seeds=(1, 2, 3))
    measured = {cell: _run(0.004, cell.seed) for cell in EXPERIMENT.trials(made)}
    rows = _table(EXPERIMENT.result(made, measured), "buckets")
    assert [row["texts"] for row in rows] == [80] * 5
    total = np.mean([np.mean(run.right) for run in measured.values()])
    weighted = sum(row["texts"] * row["accuracy (%)"] for row in rows) / sum(row["texts"] for row in rows)
    assert weighted == pytest.approx(100 * total, abs=0.01)
    assert all(row["low"] <= row["accuracy (%)"] <= row["high"] for row in rows)


def test_text_length_guessing_model_is_not_compared(planted):
    made = planted(["lstm"])
    guess = replace(_run(0.0, 1), right=(np.arange(400) % 4 == 0).astype(int).tolist())
    (finding,) = EXPERIMENT.result(made, dict.fromkeys(EXPERIMENT.trials(made), guess)).findings
    assert finding.reasons == ["its accuracy is below that of the most frequent class, 34 %, at all lengths"]
    assert EXPERIMENT.result(made, {}).findings == []


def test_text_length_measures_a_real_run(classifiers):
    made = classifiers(["transformer"])
    (cell,) = EXPERIMENT.trials(made)
    measured = json.loads(json.dumps(asdict(EXPERIMENT.measure(made, cell))))
    rows = _table(EXPERIMENT.result(made, {cell: measured}), "buckets")
    _, kept = evaluation_of(made, "transformer", 1)
    weighted = sum(row["texts"] * row["accuracy (%)"] for row in rows) / 90
    assert weighted == pytest.approx(kept["scores"]["accuracy"]["value"], abs=0.01)
    lines = (made.folder.parent / "test.tsv").read_text().splitlines()[1:]
    assert measured["words"] == [len(line.split("\t")[1].split()) for line in lines]
