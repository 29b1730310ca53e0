"""Scores of whole runs: verdicts follow from the tests, and too few seeds say so."""

import json
import random
from dataclasses import replace

import pytest

from s2s.comparison.plans import ROWS
from s2s.comparison.questions.quality.analyse import compared, variations
from s2s.comparison.questions.quality.curves import at_first_look, budgets, costs, half_reach, loss_at, readings, times
from s2s.comparison.questions.quality.measure import EXPERIMENT
from s2s.comparison.translation import counts_of
from s2s.evaluation.metrics import exact_share, scores
from s2s.models.base import count_parameters
from s2s.run.inference import load


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
        "sources": [f"source {n}" for n in range(len(texts))],
        "references": references,
        "translations": texts,
        "updates": [5, 10, 20, 40],
        "tokens": [100 * seed, 200 * seed, 400 * seed, 800 * seed],
        "seconds": [1.0, 2.0, 4.0, 8.0],
        "losses": [3.0, 2.02 + wrong, 2.01 + wrong, 2.0 + wrong],
        "bleus": [1.0, 1.5, 1.8, 2.0],
        "source_use": {"right": 2.0 + wrong, "exchanged": 4.0, "pairs": 40},
        "rate": {"chosen": 0.004, "tried": [0.002, 0.004, 0.008], "losses": [2.2, 2.1, None], "inside": True},
        "parameters": 1000,
        "flops": 6000.0,
        "run_seconds": 9.0,
        "cpu_seconds": None if seed == 2 else 7.5,
    }


def _result(contest, wrong, seeds):
    made = contest(list(wrong), seeds=seeds)
    measured = {cell: _planted(wrong[cell.model], 10 * len(cell.model) + cell.seed) for cell in EXPERIMENT.trials(made)}
    result = EXPERIMENT.result(made, measured)
    assert EXPERIMENT.result(made, dict(reversed(measured.items()))) == result
    return result, measured


def _table(result, name):
    table = next(table for table in result.tables if table.name == name)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_one_seed_is_too_few(contest):
    result, _ = _result(contest, {"rnn": 0.6, "transformer": 0.2}, (1,))
    rnn, transformer = result.findings
    assert (transformer.rival, transformer.reasons) == ("rnn", ["one seed, so no test over seeds"])
    assert {finding.standing for finding in result.findings} == {"not measurable"}
    # the interval is that of sentences
    assert "interval over sentences" in rnn.quantity
    assert rnn.low < rnn.value < rnn.high
    assert _table(result, "pairs")[0]["p (both)"] is None


def test_seeds_and_sentences_decide(contest):
    result, _ = _result(contest, {"rnn": 0.5, "transformer": 0.2}, (1, 2, 3))
    pair = _table(result, "pairs")[0]
    assert pair["seeds"] == 3
    assert pair["p (both)"] < 0.05
    rnn, transformer = result.findings
    assert (rnn.standing, transformer.standing) == ("worse", "better")
    # of seeds that learned from 800 times their number
    assert rnn.tokens == 800 * (30 + 2)
    assert transformer.rival == "rnn"
    assert transformer.difference == pytest.approx(transformer.value - rnn.value)
    difference = pair["BLEU over seeds and sentences"]
    assert difference == pytest.approx(transformer.value - rnn.value, abs=0.01)
    assert pair["low (both)"] < difference < pair["high (both)"]
    assert transformer.quantity.endswith("(mean of 3 seeds)")


def test_equal_time_is_that_of_one_machine(contest):
    made = contest(["rnn", "transformer"], seeds=(1, 2))
    cells = {cell: _planted(0.2 if cell.model == "rnn" else 0.5, cell.seed) for cell in EXPERIMENT.trials(made)}

    def told(*machines: str) -> tuple[set[str], set[str]]:
        measured = {
            cell: each | {"machine": machine} for (cell, each), machine in zip(cells.items(), machines, strict=True)
        }
        result = EXPERIMENT.result(made, measured)
        names = {figure.name for figure in result.figures if figure.name.startswith("cost-")}
        return names, {column.partition(" (")[0] for column in _table(result, "readings")[0]}

    costs, readings = told("EPYC (fp32)", "EPYC", "EPYC (fp32)", "EPYC (fp32)")
    assert "cost-seconds" in costs
    assert "at equal time" in readings
    # one of them was trained elsewhere
    fewer = told("EPYC (fp32)", "EPYC", "Xeon (fp32)", "EPYC (fp32)")
    assert fewer == (costs - {"cost-seconds"}, readings - {"at equal time"})


def test_equal_runs_are_a_tie(contest):
    made = contest(["rnn", "gru"], seeds=(1, 2, 3))
    measured = {cell: _planted(0.3, cell.seed) for cell in EXPERIMENT.trials(made)}
    runs = [
        {seed: measured[cell] for cell in measured if cell.model == m for seed in [cell.seed]} for m in ("rnn", "gru")
    ]
    assert compared(*runs).over_both.value == 0
    narrow = replace(compared(*runs).over_both, error=0.1)
    assert narrow.equivalence_p(1.0) < 0.05


def test_the_gain_of_the_last_doubling_is_a_fact(contest):
    made = contest(["rnn", "gru"], seeds=(1, 2, 3, 4, 5))
    # each doubling brings so much; the first look lies before the last doubling
    gains = {"rnn": 3.0, "gru": 2.0}
    measured = {}
    for cell in EXPERIMENT.trials(made):
        # one in a thousand words is wrong, in other places for each seed
        run = _planted(0.001, cell.seed) | {"tokens": [100, 400, 565.685, 800]}
        measured[cell] = run | {"bleus": [9.0, *(90 + gains[cell.model] * doublings for doublings in (0, 0.5, 1))]}
    result = EXPERIMENT.result(made, measured)
    assert [each.standing for each in result.findings] == ["tie", "tie"]
    facts = {each.model: each.facts["BLEU still gained per doubling of the tokens"] for each in result.findings}
    assert facts == pytest.approx(gains, abs=0.1)
    rows = {row["model"]: row["BLEU gained in the last doubling"] for row in _table(result, "scores")}
    assert rows == pytest.approx(gains, abs=0.01)


def test_seeds_that_deny_each_other_decide_nothing(contest):
    made = contest(["rnn", "gru"], seeds=(1, 2, 3))
    wrong = {("rnn", 1): 0.6, ("gru", 1): 0.2, ("rnn", 2): 0.2, ("gru", 2): 0.6, ("rnn", 3): 0.4, ("gru", 3): 0.4}
    measured = {cell: _planted(wrong[cell.model, cell.seed], cell.seed) for cell in EXPERIMENT.trials(made)}
    result = EXPERIMENT.result(made, measured)
    # the sentences of one seed are sure of what the other seeds deny
    assert (result.findings[0].standing, result.findings[0].rival) == ("undecided", "gru")
    assert _table(result, "pairs")[0]["p (randomisation)"] <= 0.001


def test_a_set_in_which_no_sources_can_be_exchanged_closes_no_gate(contest):
    made = contest(["rnn", "transformer"], seeds=(1, 2, 3))
    measured = {
        cell: _planted(0.5 if cell.model == "rnn" else 0.2, cell.seed) | {"source_use": None}
        for cell in EXPERIMENT.trials(made)
    }
    result = EXPERIMENT.result(made, measured)
    assert [found.standing for found in result.findings] == ["worse", "better"]


@pytest.mark.parametrize(
    ("change", "standing", "sentence"),
    [
        ({"losses": [4.0, 3.5, 3.0, 2.5]}, "still learning", "its loss still falls by 0.50 nats"),
        (
            {"source_use": {"right": 2.2, "exchanged": 2.3, "pairs": 40}},
            "not measurable",
            "0.10 nats lower with the right",
        ),
        (
            {"rate": {"chosen": 0.008, "tried": [0.004, 0.008], "inside": False}},
            "not measurable",
            "0.008 lies at an end of",
        ),
    ],
)
def test_a_model_that_has_not_learned_is_not_judged(contest, change, standing, sentence):
    made = contest(["rnn", "transformer"], seeds=(1, 2, 3))
    measured = {
        cell: _planted(0.5 if cell.model == "rnn" else 0.2, cell.seed) | (change if cell.model == "rnn" else {})
        for cell in EXPERIMENT.trials(made)
    }
    result = EXPERIMENT.result(made, measured)
    rnn, transformer = result.findings
    assert (rnn.standing, transformer.standing) == (standing, "not measurable")
    assert sentence in rnn.reasons[0]
    assert transformer.reasons == [f"rnn: {rnn.reasons[0]}"]
    assert [row["holds"] for row in _table(result, "gates")].count("no") == 1


def test_the_best_of_the_others_is_the_measure(contest):
    result, _ = _result(contest, {"rnn": 0.6, "gru": 0.4, "transformer": 0.1}, (1, 2, 3))
    assert {(each.model, each.standing, each.rival) for each in result.findings} == {
        ("rnn", "worse", "transformer"),
        ("gru", "worse", "transformer"),
        ("transformer", "better", "gru"),
    }
    assert [row["models"] for row in _table(result, "pairs")] == ["gru − rnn", "transformer − rnn", "transformer − gru"]


def test_real_runs_say_everything_and_again_the_same(contest, tmp_path):
    made = contest(["gru", "transformer"])
    cells = EXPERIMENT.trials(made)
    measured = {cell: json.loads(json.dumps(EXPERIMENT.measure(made, cell), allow_nan=False)) for cell in cells}
    result = EXPERIMENT.result(made, measured)
    assert [finding.model for finding in result.findings] == made.models
    assert result.experiment == ROWS["translation quality"][1]
    assert {f.figure for f in result.findings} <= {figure.name for figure in result.figures}
    found = measured[cells[0]]
    assert found["parameters"] == count_parameters(load(made.folder / "runs" / "gru-seed1").model)
    assert len(found["counts"]["bleu"]) == 40
    assert found["source_use"]["exchanged"] > 0
    assert found["updates"] == [6, 12]
    again = EXPERIMENT.measure(replace(made, folder=tmp_path / "again"), cells[0])
    assert {k: v for k, v in json.loads(json.dumps(again)).items() if "seconds" not in k} == {
        k: v for k, v in found.items() if "seconds" not in k
    }


def _curve(losses, seconds=1.0, bleu=50.0, rates=()):
    """A run with looks after 1, 2, 4 … updates, at so many seconds an update and 2 Tflop a token, ten tokens each."""
    updates = [2**i for i in range(len(losses))]
    return {
        "updates": updates,
        "tokens": [10 * each for each in updates],
        "seconds": [seconds * each for each in updates],
        "flops": 2e12,
        "losses": losses,
        "scores": {"bleu": {"value": bleu}},
        "rate": {"chosen": 0.004, "tried": [0.002, 0.004], "losses": list(rates)} if rates else None,
    }


def test_a_loss_is_read_off_where_so_much_was_spent():
    run = _curve([4.0, 3.0, 2.0, 1.9])
    assert loss_at(run, "updates", 4) == pytest.approx(2.0)
    # on a line in log cost: half of a doubling
    assert loss_at(run, "updates", 2 * 2**0.5) == pytest.approx(2.5)
    assert loss_at(run, "flops", 40.0) == pytest.approx(3.0)
    assert loss_at(run, "seconds", 0.5) is None
    assert loss_at(run, "seconds", 1e9) == pytest.approx(1.9)


def test_what_a_loss_cost_is_the_reading_turned_round_and_who_never_gets_there_is_waited_for():
    run = _curve([4.0, 3.0, 2.0, 1.9])
    for kind in ("updates", "seconds", "flops"):
        found = times({1: run, 2: _curve([4.0, 3.5])}, kind, 2.5)
        assert loss_at(run, kind, found.ended[0]) == pytest.approx(2.5)
        assert found.waited == [40.0 if kind == "flops" else 2.0]
    assert times({1: run}, "updates", 5.0).ended == [1.0]
    assert half_reach({"a": {1: run, 2: _curve([4.0, 3.5])}}) == 2.0


def test_equal_time_is_the_time_of_the_fastest_and_the_whole_training_its_last_loss():
    slow, fast = {1: _curve([4.0, 2.0, 1.0], 4.0)}, {1: _curve([4.0, 3.0, 1.5], 1.0)}
    known = budgets({"slow": slow, "fast": fast})
    assert known == {
        "half the updates": ("updates", 2.0),
        "at equal time": ("seconds", 4.0),
        "at equal FLOPs": ("flops", 80.0),
    }
    rows = readings({"slow": slow, "fast": fast}).rows
    names = readings({"slow": slow, "fast": fast}).columns
    table = {row[0]: dict(zip(names, row, strict=True)) for row in rows}
    assert (table["slow"]["whole training"], table["fast"]["whole training"]) == (1.0, 1.5)
    assert (table["slow"]["at equal time (4 s)"], table["fast"]["at equal time (4 s)"]) == (4.0, 1.5)


def test_each_other_choice_says_whether_the_verdict_keeps_its_side():
    slow = {seed: _curve([4.0, 2.0, 1.0], 4.0, bleu, (2.0, 1.0)) for seed, bleu in ((1, 90.0), (2, 20.0), (3, 20.0))}
    fast = {seed: _curve([4.0, 3.0, 1.5], 1.0, 40.0, (1.5, 1.2)) for seed in (1, 2, 3)}
    runs = {"slow": slow, "fast": fast}
    assert variations("slow", "fast", runs) == {
        "half the updates": True,
        "at equal time": False,  # after four seconds it has made one update
        "at equal FLOPs": True,
        "half the rate": False,
        "any one seed left out": False,  # without the first, the other two are worse
    }
    # what one keeps, the other keeps
    assert variations("fast", "slow", runs) == variations("slow", "fast", runs)


def test_another_rate_is_read_from_whole_trainings_where_both_have_some():
    slow = {1: _curve([2.0, 1.0], bleu=90.0, rates=(2.0, 1.0))}
    fast = {1: _curve([3.0, 1.5], rates=(1.5, 1.2))}
    runs = {"slow": slow, "fast": fast}
    assert variations("slow", "fast", runs)["half the rate"] is False
    slow[1]["rate"]["whole"] = [[0.002, 1.1], [0.004, 1.0]]
    assert variations("slow", "fast", runs)["half the rate"] is False
    fast[1]["rate"]["whole"] = [[0.002, 1.4], [0.004, 1.5]]
    assert variations("slow", "fast", runs)["half the rate"] is True
    slow[1]["rate"]["whole"], fast[1]["rate"]["whole"] = [[[0.004, 1.0], [0.008, 1.3]] for _ in range(2)]
    assert "half the rate" not in variations("slow", "fast", runs)
    assert "twice the rate" in variations("slow", "fast", runs)


def test_what_was_reached_before_the_first_look_is_a_bound():
    def run(*losses):
        looks = len(losses)
        costs = {kind: [(i + 1) * 100.0 for i in range(looks)] for kind in ("updates", "seconds", "tokens")}
        return {"losses": list(losses), "flops": 1e12, **costs}

    early, late = {1: run(4.5, 3.5), 2: run(4.4, 3.5), 3: run(5.5, 3.5)}, {s: run(5.5, 3.5) for s in (1, 2, 3)}
    rows = {(row[0], row[1]): row for row in costs({"early": early, "late": late})[0].rows}
    # median, low and high, of updates, seconds and operations: two of three were there at the first look
    assert rows[5.0, "early"][2:5] == ["3 of 3", "≤ 100", None]
    assert rows[5.0, "early"][6:8] == rows[5.0, "early"][9:11] == ["≤ 100", None]
    # nobody of the others was: the loss falls on a line in log cost
    assert rows[5.0, "late"][3] == pytest.approx(100 * 2 ** (0.5 / 2), abs=0.06)
    # at the lower level, nobody is bounded
    assert all(not isinstance(cell, str) for cell in rows[4.0, "early"][3:])
    assert at_first_look(early, "updates", 5.0) == {100.0}
    assert at_first_look(late, "updates", 5.0) == set()
