"""Scores of whole runs: verdicts follow from the tests, and too few seeds say so."""

import json
import random
from dataclasses import replace

import pytest

from s2s.evaluation.metrics import exact_share, scores
from s2s.evaluation.significance import compare
from s2s.experiments.contest import NotForThisModel
from s2s.experiments.quality import EXPERIMENT
from s2s.experiments.quality.conclude import compared
from s2s.experiments.translating import counts_of
from s2s.models.contract import parameter_count
from s2s.results import ROWS
from s2s.run.loaded import load


def _texts(wrong, seed):
    chosen, mistakes = random.Random(0), random.Random(seed)
    references = [" ".join(f"w{chosen.randrange(40)}" for _ in range(chosen.randint(5, 12))) for _ in range(50)]
    return references, [" ".join("x" if mistakes.random() < wrong else w for w in text.split()) for text in references]


def _planted(wrong, seed):
    """What a run would leave behind that gets that share of words wrong."""
    references, texts = _texts(wrong, seed)
    found = scores(texts, references)
    return {
        "split": "test",
        "beam": 5,
        "scores": {
            name: {"name": s.name, "value": s.value, "low": s.low, "high": s.high, "signature": s.signature}
            for name, s in found.items()
        },
        "exact": exact_share(texts, references),
        "counts": {metric: counts_of(metric, texts, references) for metric in ("bleu", "chrf")},
        "examples": [["source", references[0], texts[0]]],
        "updates": [5, 10],
        "tokens": [100 * seed, 200 * seed],
        "seconds": [1.0, 2.0],
        "losses": [3.0, 2.0 + wrong],
        "bleus": [1.0, 2.0],
        "parameters": 1000,
        "flops": 6000.0,
        "run_seconds": 9.0,
        "cpu_seconds": None if seed == 2 else 7.5,
    }


def _result(contest, wrong, seeds):
    made = contest(list(wrong), seeds=seeds)
    measured = {cell: _planted(wrong[cell.model], 10 * len(cell.model) + cell.seed) for cell in EXPERIMENT.cells(made)}
    result = EXPERIMENT.conclude(made, measured)
    assert EXPERIMENT.conclude(made, dict(reversed(measured.items()))) == result
    return result, measured


def _table(result, name):
    table = next(table for table in result.tables if table.name == name)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_one_seed_is_too_few_and_two_are(contest):
    result, _ = _result(contest, {"rnn": 0.6, "transformer": 0.2}, (1,))
    rnn, transformer = result.findings
    assert "higher than rnn (randomisation p ≤ 0.001; 1 seed is too few for a test over seeds)" in transformer.verdict
    assert "lower than transformer" in rnn.verdict
    # the interval is that of sentences
    assert "interval over sentences" in rnn.quantity
    assert rnn.low < rnn.value < rnn.high
    result, _ = _result(contest, {"rnn": 0.6, "transformer": 0.2}, (1, 2))
    assert "randomisation p ≤ 0.001 on seed 1; 2 seeds are too few" in result.findings[1].verdict
    assert result.findings[1].quantity.endswith("(mean of 2 seeds)")


def test_three_seeds_decide_by_themselves(contest):
    result, _ = _result(contest, {"rnn": 0.5, "transformer": 0.2}, (1, 2, 3))
    pair = _table(result, "pairs")[0]
    assert pair["seeds"] == 3
    assert pair["p (t-test)"] < 0.05
    assert f"higher than rnn (3 seeds, p = {pair['p (t-test)']:.3f}" in result.findings[1].verdict
    assert pair["BLEU over seeds"] == pytest.approx(result.findings[1].value - result.findings[0].value, abs=0.01)


def test_no_difference_is_called_none(contest):
    result, _ = _result(contest, {"rnn": 0.3, "gru": 0.3}, (1, 2, 3))
    verdict = result.findings[0].verdict
    assert verdict.startswith("no significant difference from gru: ")
    assert "(3 seeds, p = " in verdict


def test_seeds_come_before_sentences(contest):
    made = contest(["rnn", "gru"], seeds=(1, 2, 3))
    wrong = {("rnn", 1): 0.6, ("gru", 1): 0.2, ("rnn", 2): 0.2, ("gru", 2): 0.6, ("rnn", 3): 0.4, ("gru", 3): 0.4}
    measured = {cell: _planted(wrong[cell.model, cell.seed], cell.seed) for cell in EXPERIMENT.cells(made)}
    verdict = EXPERIMENT.conclude(made, measured).findings[0].verdict
    # the sentences of one seed are sure of what the other seeds deny
    assert verdict.startswith("no significant difference")
    assert "randomisation p ≤ 0.001" in verdict


def test_models_are_compared_as_runs_are():
    runs = [{1: _planted(wrong, seed)} for wrong, seed in ((0.3, 5), (0.35, 6))]
    references, first = _texts(0.3, 5)
    wanted = {c.metric: c for c in compare({"a": first, "b": _texts(0.35, 6)[1]}, references) if c.system == "b"}
    pair = compared(*runs)
    assert (pair.evidence.test_p, pair.chrf_p) == pytest.approx(
        (wanted["bleu"].p_value, wanted["chrf"].p_value), abs=1e-9
    )
    assert pair.bleu.low < pair.bleu.value < pair.bleu.high
    assert compared(runs[0], {2: runs[1][1]}) is None


def test_the_best_of_the_others_is_the_measure(contest):
    result, _ = _result(contest, {"rnn": 0.6, "gru": 0.4, "transformer": 0.1}, (1,))
    verdicts = {finding.model: finding.verdict for finding in result.findings}
    assert "lower than transformer" in verdicts["rnn"]
    assert "lower than transformer" in verdicts["gru"]
    assert "higher than gru" in verdicts["transformer"]
    assert [row["models"] for row in _table(result, "pairs")] == ["gru − rnn", "transformer − rnn", "transformer − gru"]


def test_missing_runs_are_left_out(contest):
    made = contest(["rnn", "gru"], seeds=(1, 2))
    cells = EXPERIMENT.cells(made)
    unequal = {cell: _planted(0.3, cell.seed) for cell in cells if (cell.model == "rnn") == (cell.seed == 1)}
    result = EXPERIMENT.conclude(made, unequal)
    assert [f.verdict for f in result.findings] == ["no other model was measured at the same seed"] * 2
    assert _table(result, "pairs") == []
    only = {cell: m for cell, m in unequal.items() if cell.model == "gru"}
    assert [f.model for f in EXPERIMENT.conclude(made, only).findings] == ["gru"]
    assert EXPERIMENT.conclude(made, {}).findings == []
    # a run that was interrupted has no CPU seconds; the other seed's are shown
    assert {row["whole run (CPU s)"] for row in _table(result, "scores")} == {7.5, None}


def test_real_runs_say_everything_and_again_the_same(contest, tmp_path):
    made = contest(["gru", "transformer"])
    cells = EXPERIMENT.cells(made)
    measured = {cell: json.loads(json.dumps(EXPERIMENT.measure(made, cell), allow_nan=False)) for cell in cells}
    result = EXPERIMENT.conclude(made, measured)
    assert [finding.model for finding in result.findings] == made.models
    assert result.experiment == ROWS["translation quality"][1]
    assert {f.figure for f in result.findings} <= {figure.name for figure in result.figures}
    found = measured[cells[0]]
    assert found["parameters"] == parameter_count(load(made.folder / "runs" / "gru-seed1").model)
    assert len(found["counts"]["bleu"]) == 40
    assert found["updates"] == [6, 12]
    again = EXPERIMENT.measure(replace(made, folder=tmp_path / "again"), cells[0])
    assert {k: v for k, v in json.loads(json.dumps(again)).items() if "seconds" not in k} == {
        k: v for k, v in found.items() if "seconds" not in k
    }


def test_a_tagger_is_told_so(contest):
    made = contest(["rnn-tagger"])
    with pytest.raises(NotForThisModel):
        EXPERIMENT.measure(made, EXPERIMENT.cells(made)[0])
