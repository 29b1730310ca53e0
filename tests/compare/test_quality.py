"""The question quality: outcomes follow from the tests, and losses are compared at equal budgets."""

import functools
import json
import random
from dataclasses import asdict, replace

import pytest

from s2s.comparison.plans import ROWS
from s2s.comparison.questions.quality.analyse import (
    TranslationRun,
    budgets,
    compared,
    costs,
    half_reach,
    loss_at,
    losses_at_budgets,
    times,
    variations,
)
from s2s.comparison.questions.quality.measure import EXPERIMENT
from s2s.comparison.spec import RateChoice
from s2s.comparison.translation import counts_of
from s2s.evaluation.metrics import exact_share, scores
from s2s.models.base import count_parameters
from s2s.run.inference import load
from s2s.tasks.source_use import SourceUse

RATE = RateChoice(0.004, (0.002, 0.004, 0.008), (2.2, 2.1, None), inside=True)


@functools.cache
def _base(wrong, seed):
    chosen, mistakes = random.Random(0), random.Random(seed)
    references = [" ".join(f"w{chosen.randrange(40)}" for _ in range(chosen.randint(5, 12))) for _ in range(50)]
    texts = [" ".join("x" if mistakes.random() < wrong else w for w in text.split()) for text in references]
    return TranslationRun(
        split="test",
        beam=5,
        scores=scores(texts, references),
        exact=exact_share(texts, references),
        counts={metric: counts_of(metric, texts, references) for metric in ("bleu", "chrf")},
        sources=[f"source {n}" for n in range(len(texts))],
        references=references,
        translations=texts,
        updates=[5, 10, 20, 40],
        tokens=[100 * seed, 200 * seed, 400 * seed, 800 * seed],
        seconds=[1.0, 2.0, 4.0, 8.0],
        losses=[3.0, 2.02 + wrong, 2.01 + wrong, 2.0 + wrong],
        bleus=[1.0, 1.5, 1.8, 2.0],
        source_use=SourceUse(2.0 + wrong, 4.0, 40),
        rate=RATE,
        parameters=1000,
        flops=6000.0,
        run_seconds=9.0,
        cpu_seconds=None if seed == 2 else 7.5,
    )


def _run(wrong, seed, **changes):
    """A run with this share of wrong words."""
    return replace(_base(wrong, seed), **changes)


def _runs(made, wrong, **changes):
    """Runs of a comparison by the share of wrong words of each model; seeds of different models differ."""
    return {
        trial: _run(wrong[trial.model], 10 * len(trial.model) + trial.seed, **changes.get(trial.model, {}))
        for trial in EXPERIMENT.trials(made)
    }


def _result(contest, wrong, seeds, **changes):
    made = contest(list(wrong), seeds=seeds)
    measured = _runs(made, wrong, **changes)
    return EXPERIMENT.result(made, measured)


def _table(result, name):
    table = next(table for table in result.tables if table.name == name)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_quality_one_seed_is_not_tested(contest):
    result = _result(contest, {"rnn": 0.6, "transformer": 0.2}, (1,))
    rnn, transformer = result.findings
    assert (transformer.rival, transformer.reasons) == ("rnn", ["one seed, so no test over seeds"])
    assert {finding.standing for finding in result.findings} == {"not measurable"}
    assert "interval over sentences" in rnn.quantity
    assert rnn.low < rnn.value < rnn.high
    assert _table(result, "pairs")[0]["p (both)"] is None


def test_quality_is_tested_over_seeds_and_sentences(contest):
    result = _result(contest, {"rnn": 0.5, "transformer": 0.2}, (1, 2, 3))
    pair = _table(result, "pairs")[0]
    assert pair["seeds"] == 3
    assert pair["p (both)"] < 0.05
    rnn, transformer = result.findings
    assert (rnn.standing, transformer.standing, transformer.rival) == ("worse", "better", "rnn")
    assert rnn.tokens == 800 * (30 + 2)
    assert transformer.difference == pytest.approx(transformer.value - rnn.value)
    difference = pair["BLEU over seeds and sentences"]
    assert difference == pytest.approx(transformer.value - rnn.value, abs=0.01)
    assert pair["low (both)"] < difference < pair["high (both)"]
    assert transformer.quantity.endswith("(mean of 3 seeds)")


def test_quality_rival_is_the_best_other_candidate(contest):
    result = _result(contest, {"rnn": 0.6, "gru": 0.4, "transformer": 0.1}, (1, 2, 3))
    assert {(each.model, each.standing, each.rival) for each in result.findings} == {
        ("rnn", "worse", "transformer"),
        ("gru", "worse", "transformer"),
        ("transformer", "better", "gru"),
    }
    assert [row["models"] for row in _table(result, "pairs")] == ["gru − rnn", "transformer − rnn", "transformer − gru"]


def test_quality_contradicting_seeds_are_undecided(contest):
    made = contest(["rnn", "gru"], seeds=(1, 2, 3))
    wrong = {("rnn", 1): 0.6, ("gru", 1): 0.2, ("rnn", 2): 0.2, ("gru", 2): 0.6, ("rnn", 3): 0.4, ("gru", 3): 0.4}
    measured = {trial: _run(wrong[trial.model, trial.seed], trial.seed) for trial in EXPERIMENT.trials(made)}
    result = EXPERIMENT.result(made, measured)
    # the test over the sentences of one seed is significant all the same
    assert (result.findings[0].standing, result.findings[0].rival) == ("undecided", "gru")
    assert _table(result, "pairs")[0]["p (randomisation)"] <= 0.001


def test_quality_equal_runs_are_a_tie():
    runs = {seed: _run(0.3, seed) for seed in (1, 2, 3)}
    difference = compared(runs, runs).over_both
    assert difference.value == 0
    assert replace(difference, error=0.1).equivalence_p(1.0) < 0.05


def _gaining(contest, gains):
    """The result of models that translate equally well, and gain so many BLEU with each doubling."""
    made = contest(list(gains), seeds=(1, 2, 3, 4, 5))
    # the first validation lies before the last doubling
    measured = {
        trial: _run(
            0.001,
            trial.seed,
            tokens=[100, 400, 565.685, 800],
            bleus=[9.0, *(90 + gains[trial.model] * doublings for doublings in (0, 0.5, 1))],
        )
        for trial in EXPERIMENT.trials(made)
    }
    result = EXPERIMENT.result(made, measured)
    rows = {row["model"]: row["BLEU gain in the last doubling"] for row in _table(result, "scores")}
    assert rows == pytest.approx(gains, abs=0.01)
    return result


def test_quality_tie_of_equal_gains_per_doubling_is_a_verdict(contest):
    gains = {"rnn": 3.0, "gru": 2.5}
    result = _gaining(contest, gains)
    assert [each.standing for each in result.findings] == ["tie", "tie"]
    facts = {each.model: each.facts["BLEU gain per doubling of the tokens"] for each in result.findings}
    assert facts == pytest.approx(gains, abs=0.1)


def test_quality_tie_of_unequal_gains_per_doubling_still_learns(contest):
    result = _gaining(contest, {"rnn": 3.5, "gru": 2.0})
    assert [each.standing for each in result.findings] == ["still learning", "still learning"]
    gain, so_far = result.findings[1].reasons
    assert gain == "it gains 2.0 BLEU per doubling of the tokens (< 1 required)"
    assert so_far == "so far +0.0 BLEU compared with rnn (equal)"


@pytest.mark.parametrize(
    ("bleus", "losses", "standings"),
    [
        # 4 doublings of 2 BLEU and of 0.1 nats close neither gap
        ([4.0, 6.0, 8.0, 10.0], [2.8, 2.7, 2.6, 2.5], ["worse", "better"]),
        # those of 20 BLEU do
        ([0.0, 20.0, 40.0, 60.0], [2.8, 2.7, 2.6, 2.5], ["still learning", "not measurable"]),
        # BLEU may follow a loss that falls fast
        ([4.0, 6.0, 8.0, 10.0], [4.0, 3.5, 3.0, 2.5], ["still learning", "not measurable"]),
    ],
)
def test_quality_gap_that_cannot_close_is_a_verdict(contest, bleus, losses, standings):
    over = {"bleus": [89.0, 90.0, 90.0, 90.0], "losses": [2.0, 1.0, 1.0, 1.0]}
    late = {"bleus": bleus, "losses": losses}
    result = _result(contest, {"rnn": 0.5, "transformer": 0.1}, (1, 2, 3), rnn=late, transformer=over)
    assert [found.standing for found in result.findings] == standings
    if standings[0] == "worse":
        assert [found.reasons for found in result.findings] == [
            ["and would still be with 16 times the training"],
            ["and rnn would not catch up with 16 times the training"],
        ]


def test_quality_without_exchangeable_sources_skips_that_check(contest):
    none = {"source_use": None}
    result = _result(contest, {"rnn": 0.5, "transformer": 0.2}, (1, 2, 3), rnn=none, transformer=none)
    assert [found.standing for found in result.findings] == ["worse", "better"]


@pytest.mark.parametrize(
    ("change", "standing", "sentence"),
    [
        ({"bleus": [1.0, 3.0, 5.0, 7.0]}, "still learning", "it gains 2.0 BLEU per doubling"),
        ({"source_use": SourceUse(2.2, 2.3, 40)}, "not measurable", "0.10 nats lower with the right"),
        ({"rate": RateChoice(0.008, (0.004, 0.008))}, "not measurable", "0.008 lies at an end of"),
    ],
)
def test_quality_failed_checks_replace_the_verdict(contest, change, standing, sentence):
    result = _result(contest, {"rnn": 0.5, "transformer": 0.2}, (1, 2, 3), rnn=change)
    rnn, transformer = result.findings
    assert (rnn.standing, transformer.standing) == (standing, "not measurable")
    assert sentence in rnn.reasons[0]
    assert transformer.reasons == [f"rnn: {rnn.reasons[0]}"]
    assert [row["passed"] for row in _table(result, "gates")].count("no") == 1


def test_quality_compares_seconds_of_one_machine_only(contest):
    made = contest(["rnn", "transformer"], seeds=(1, 2))
    trials = EXPERIMENT.trials(made)

    def _shown(*machines):
        pairs = zip(trials, machines, strict=True)
        measured = {trial: _run(0.2 if trial.model == "rnn" else 0.5, trial.seed, machine=at) for trial, at in pairs}
        result = EXPERIMENT.result(made, measured)
        names = {figure.name for figure in result.figures if figure.name.startswith("cost-")}
        return names, {column.partition(" (")[0] for column in _table(result, "readings")[0]}

    figures, columns = _shown("EPYC (fp32)", "EPYC", "EPYC (fp32)", "EPYC (fp32)")
    assert "cost-seconds" in figures
    assert "at equal time" in columns
    fewer = _shown("EPYC (fp32)", "EPYC", "Xeon (fp32)", "EPYC (fp32)")
    assert fewer == (figures - {"cost-seconds"}, columns - {"at equal time"})


def test_quality_measures_real_runs_repeatably(contest, tmp_path):
    made = contest(["transformer"])
    (trial,) = EXPERIMENT.trials(made)
    found = json.loads(json.dumps(asdict(EXPERIMENT.measure(made, trial)), allow_nan=False))
    result = EXPERIMENT.result(made, {trial: found})
    assert [finding.model for finding in result.findings] == made.models
    assert result.experiment == ROWS["translation quality"][1]
    assert {f.figure for f in result.findings} <= {figure.name for figure in result.figures}
    assert found["parameters"] == count_parameters(load(made.folder / "runs" / "transformer-seed1").model)
    assert len(found["counts"]["bleu"]) == 40
    assert found["source_use"]["exchanged"] > 0
    assert found["updates"] == [6, 12]
    again = json.loads(json.dumps(asdict(EXPERIMENT.measure(replace(made, folder=tmp_path / "again"), trial))))
    assert {k: v for k, v in again.items() if "seconds" not in k} == {
        k: v for k, v in found.items() if "seconds" not in k
    }


def _curve(losses, seconds=1.0, bleu=50.0, rate=None):
    """A run with validations after 1, 2, 4 … updates of ten tokens, at 2 Tflop a token."""
    updates = [2**i for i in range(len(losses))]
    run = _run(0.3, 1)
    return replace(
        run,
        updates=updates,
        tokens=[10 * each for each in updates],
        seconds=[seconds * each for each in updates],
        flops=2e12,
        losses=losses,
        scores={"bleu": replace(run.scores["bleu"], value=bleu)},
        rate=rate,
    )


def test_quality_loss_at_budget_is_interpolated_in_log_cost():
    run = _curve([4.0, 3.0, 2.0, 1.9])
    assert loss_at(run, "updates", 4) == pytest.approx(2.0)
    assert loss_at(run, "updates", 2 * 2**0.5) == pytest.approx(2.5)
    assert loss_at(run, "flops", 40.0) == pytest.approx(3.0)
    assert loss_at(run, "seconds", 0.5) is None
    assert loss_at(run, "seconds", 1e9) == pytest.approx(1.9)


def test_quality_cost_of_a_loss_inverts_loss_at_budget_and_is_censored():
    run = _curve([4.0, 3.0, 2.0, 1.9])
    for kind in ("updates", "seconds", "flops"):
        found = times({1: run, 2: _curve([4.0, 3.5])}, kind, 2.5)
        assert loss_at(run, kind, found.ended[0]) == pytest.approx(2.5)
        assert found.waited == [40.0 if kind == "flops" else 2.0]
    assert times({1: run}, "updates", 5.0).ended == [1.0]
    assert half_reach({"a": {1: run, 2: _curve([4.0, 3.5])}}) == 2.0


def test_quality_cost_before_the_first_validation_is_an_upper_bound():
    def _losses(*losses):
        costs = [100 * (i + 1) for i in range(len(losses))]
        return replace(_run(0.3, 1), losses=list(losses), flops=1e12, updates=costs, tokens=costs, seconds=costs)

    early = {1: _losses(4.5, 3.5), 2: _losses(4.4, 3.5), 3: _losses(5.5, 3.5)}
    late = {seed: _losses(5.5, 3.5) for seed in (1, 2, 3)}
    rows = {(row[0], row[1]): row for row in costs({"early": early, "late": late})[0].rows}
    # median and lower end for updates, seconds and operations: two of three runs start below the level
    assert rows[5.0, "early"][2:5] == ["3 of 3", "≤ 100", None]
    assert rows[5.0, "early"][6:8] == rows[5.0, "early"][9:11] == ["≤ 100", None]
    assert rows[5.0, "late"][3] == pytest.approx(100 * 2 ** (0.5 / 2), abs=0.06)
    assert all(not isinstance(cell, str) for cell in rows[4.0, "early"][3:])


def test_quality_budgets_are_those_of_the_cheapest_candidate():
    runs = {"slow": {1: _curve([4.0, 2.0, 1.0], 4.0)}, "fast": {1: _curve([4.0, 3.0, 1.5], 1.0)}}
    assert budgets(runs) == {
        "half the updates": ("updates", 2.0),
        "at equal time": ("seconds", 4.0),
        "at equal FLOPs": ("flops", 80.0),
    }
    found = losses_at_budgets(runs)
    slow, fast = (dict(zip(found.columns, row, strict=True)) for row in found.rows)
    assert (slow["full training"], fast["full training"]) == (1.0, 1.5)
    assert (slow["at equal time (4 s)"], fast["at equal time (4 s)"]) == (4.0, 1.5)


def test_quality_variations_keep_or_change_the_sign():
    slow_rate, fast_rate = (RateChoice(0.004, (0.002, 0.004), losses) for losses in ((2.0, 1.0), (1.5, 1.2)))
    bleus = {1: 90.0, 2: 20.0, 3: 20.0}
    slow = {seed: _curve([4.0, 2.0, 1.0], 4.0, bleu, slow_rate) for seed, bleu in bleus.items()}
    fast = {seed: _curve([4.0, 3.0, 1.5], 1.0, 40.0, fast_rate) for seed in bleus}
    runs = {"slow": slow, "fast": fast}
    assert variations("slow", "fast", runs) == {
        "half the updates": True,
        "at equal time": False,  # one update in four seconds
        "at equal FLOPs": True,
        "half the rate": False,
        "any one seed left out": False,  # without the first one, the other two are worse
    }
    assert variations("fast", "slow", runs) == variations("slow", "fast", runs)


def test_quality_variations_read_other_rates_from_full_trainings_if_both_have_them():
    def _variations(slow_whole, fast_whole):
        slow = _curve([2.0, 1.0], bleu=90.0, rate=RateChoice(0.004, (0.002, 0.004), (2.0, 1.0), slow_whole))
        fast = _curve([3.0, 1.5], rate=RateChoice(0.004, (0.002, 0.004), (1.5, 1.2), fast_whole))
        return variations("slow", "fast", {"slow": {1: slow}, "fast": {1: fast}})

    lower = ((0.002, 1.1), (0.004, 1.0))
    assert _variations((), ())["half the rate"] is False
    assert _variations(lower, ())["half the rate"] is False
    assert _variations(lower, ((0.002, 1.4), (0.004, 1.5)))["half the rate"] is True
    higher = _variations(((0.004, 1.0), (0.008, 1.3)), ((0.004, 1.0), (0.008, 1.3)))
    assert "half the rate" not in higher
    assert "twice the rate" in higher
