"""What trainings of a comparison come to, once more from the files that it keeps: D50, times to a solution, BLEU, p."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from s2s.evaluation.gates import EQUIVALENCE
from tests.compare import by_hand
from tests.compare.kept_comparison import MODELS, SEEDS, cell, compared, figure, findings, result, table

pytestmark = pytest.mark.release

PAIRS = list(combinations(MODELS, 2))
FORMS = {"whole model": "full", "linear head": "head"}
RESAMPLES, EXCHANGES = 4_000, 10_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A comparison that is over."""
    return compared(tmp_path_factory.mktemp("kept") / "comparison", "long-range", "quality")


def _answers(folder, kind, form):
    return [cell(folder, "long-range", f"{kind}--recall-{form}--seed{seed}") for seed in SEEDS]


def _d50(run):
    right = [one / asked for one, asked in zip(run["right"], run["asked"], strict=True)]
    return by_hand.half_distance(run["distances"], right, run["baseline"])


@pytest.fixture(scope="module")
def reached(folder):
    """D50 by form and model, seed by seed."""
    return {
        form: {kind: [_d50(run) for run in _answers(folder, kind, short)] for kind in MODELS}
        for form, short in FORMS.items()
    }


def test_d50_is_half_way_from_the_shortest_distance_to_chance(folder, reached):
    said = result(folder, "long-range")
    row = iter(table(said, "runs"))
    for own in reached.values():
        for each in own.values():
            assert [next(row)["D50"] for _ in SEEDS] == pytest.approx(each, abs=0.051)
    # some fall within the distances tested, and some never do
    every = [each for own in reached.values() for seeds in own.values() for each in seeds]
    assert 0 < sum(each == 256 for each in every) < len(every) / 2
    for kind, found in findings(said, "long-term dependencies").items():
        median = by_hand.median_reach(_seen(reached["whole model"][kind]), 256)
        for end, wanted in zip(("value", "low", "high"), median, strict=True):
            assert found[end] == (wanted and pytest.approx(wanted, rel=1e-9))
    for row in table(said, "tasks"):
        median = by_hand.median_reach(_seen(reached[row["form"]][row["model"]]), 256)
        for name, wanted in zip(("D50", "low (D50)", "high (D50)"), median, strict=True):
            assert row[name] == (wanted and pytest.approx(wanted, abs=0.051))


def _seen(reaches):
    return [(reach, reach < 256) for reach in reaches]


def test_models_are_told_apart_by_the_log_rank_test_of_distances(folder, reached):
    said = result(folder, "long-range")
    corrected = {}
    for form, own in reached.items():
        rows = [row for row in table(said, "distances") if row["form"] == form]
        assert [row["models"] for row in rows] == [f"{b} − {a}" for a, b in PAIRS]
        tests = [stats.ttest_ind(np.log2(own[b]), np.log2(own[a]), equal_var=False) for a, b in PAIRS]
        p = by_hand.holm([by_hand.log_rank_by_counting(_seen(own[a]), _seen(own[b])) for a, b in PAIRS])
        corrected |= {(form, *pair): each for pair, each in zip(PAIRS, p, strict=True)}
        for (a, b), row, test in zip(PAIRS, rows, tests, strict=True):
            wanted = np.log2(own[b]).mean() - np.log2(own[a]).mean()
            ends = test.confidence_interval(0.95)
            shown = [row[name] for name in ("doublings of D50", "low", "high")]
            assert shown == pytest.approx([wanted, *ends], abs=0.0051)
            sides = [
                stats.ttest_ind(np.log2(own[b]) - end, np.log2(own[a]), equal_var=False, alternative=way).pvalue
                for end, way in ((-0.5, "greater"), (0.5, "less"))
            ]
            # of seeds that reach beyond the tests nobody knows how alike they are
            beyond = any(not fell for each in (a, b) for _, fell in _seen(own[each]))
            assert row["p (equal within 0.5)"] == (None if beyond else pytest.approx(max(sides), abs=5.1e-5))
        assert [row["p (log-rank, Holm within the task)"] for row in rows] == pytest.approx(p, abs=5.1e-5)
    for kind, found in findings(said, "long-term dependencies").items():
        own = reached["whole model"]
        other = max((name for name in MODELS if name != kind), key=lambda name: np.log2(own[name]).mean())
        p = corrected["whole model", *sorted((kind, other), key=MODELS.index)]
        assert (found["rival"], found["p"]) == (other, pytest.approx(p))
        assert (found["standing"] in ("better", "worse")) == (p < 0.05)


def test_times_to_the_solution_are_those_of_the_product_limit_and_of_all_ways_to_deal_runs_out(folder):
    said = result(folder, "long-range")
    times = {
        (form, kind): [
            (run["solved"] or run["updates"], run["solved"] is not None) for run in _answers(folder, kind, f)
        ]
        for form, f in FORMS.items()
        for kind in MODELS
    }
    assert {over for own in times.values() for _, over in own} == {True, False}
    for row in table(said, "tasks"):
        own = times[row["form"], row["model"]]
        ended, waited = ([time for time, over in own if over == which] for which in (True, False))
        shown = tuple(row[f"updates to solve, {name}"] for name in ("median", "low", "high"))
        assert shown == by_hand.median_by_product_limit(ended, waited)
    for form in FORMS:
        rows = [row for row in table(said, "solved") if row["form"] == form]
        p = [by_hand.log_rank_by_counting(times[form, a], times[form, b]) for a, b in PAIRS]
        assert [row["models"] for row in rows] == [f"{a}, {b}" for a, b in PAIRS]
        assert [row["p (log-rank)"] for row in rows] == pytest.approx(p, abs=5.1e-5)
        assert [row["p (Holm within the task)"] for row in rows] == pytest.approx(by_hand.holm(p), abs=5.1e-5)
        corrected = dict(zip(PAIRS, by_hand.holm(p), strict=True))
        for kind, found in findings(said, "learning long-term dependencies").items() if form == "whole model" else ():
            own = times[form, kind]
            ended, waited = ([time for time, over in own if over == which] for which in (True, False))
            budget = max(run["budget"] for run in _answers(folder, kind, FORMS[form]))
            by_product = by_hand.median_by_product_limit(ended, waited)
            wanted = tuple(budget if end is None else end for end in by_product)
            if len(own) < by_hand.FEWEST:
                wanted = (wanted[0], None, None)
            assert (found["value"], found["low"], found["high"]) == wanted
            if found["standing"] != "not measurable":
                pair = tuple(sorted((kind, found["rival"]), key=MODELS.index))
                assert found["p"] == pytest.approx(corrected[pair])
        least = 2 / math.comb(2 * len(SEEDS), len(SEEDS))
        assert {row["smallest possible p"] for row in rows} == {round(least, 4)}


# ---------------------------------------------------------------------------------------------------------------------
# BLEU


@pytest.fixture(scope="module")
def counted(folder):
    """What BLEU counts in each kept translation, by model and seed."""
    return {
        kind: [by_hand.bleu_counts(run["translations"], run["references"]) for run in _runs(folder, kind)]
        for kind in MODELS
    }


def _runs(folder, kind):
    return [cell(folder, "quality", f"{kind}--run--seed{seed}") for seed in SEEDS]


def _bleu(counts):
    return float(by_hand.bleu(counts.sum(axis=0))[0])


def test_bleu_of_kept_translations_is_what_was_recorded(folder, counted):
    said = result(folder, "quality")
    for kind in MODELS:
        own = [_bleu(each) for each in counted[kind]]
        recorded = [run["scores"]["bleu"]["value"] for run in _runs(folder, kind)]
        assert own == pytest.approx(recorded, rel=0, abs=1e-9)
        value, low, high = by_hand.student(own)
        found = findings(said, "translation quality")[kind]
        assert [found[end] for end in ("value", "low", "high")] == pytest.approx(
            [value, max(0, low), min(100, high)], rel=0, abs=1e-9
        )
        bars = figure(said, "scores")[kind]
        assert dict(zip(bars["x"], bars["y"], strict=True))["BLEU"] == pytest.approx(value, rel=0, abs=1e-9)
    # of one, no three words in a row are right; there is a penalty for short ones, and none for long ones
    sums = {kind: [each.sum(axis=0) for each in own] for kind, own in counted.items()}
    assert sums["mingru"][-1][[6, 8]].tolist() == [0, 0]
    assert all(each[0] < each[1] for each in sums["mingru"])
    assert all(each[0] > each[1] for each in sums["transformer"])


@pytest.mark.parametrize("pair", PAIRS, ids=" ".join)
def test_one_seeds_sentences_are_tested_by_exchange_and_doubted_by_drawing(folder, counted, pair):
    one, two = (counted[kind][0] for kind in pair)
    row = _compared(folder, pair)
    difference = _bleu(two) - _bleu(one)
    assert row["BLEU"] == pytest.approx(difference, abs=0.0051)
    chance = np.random.default_rng(99)
    drawn = chance.multinomial(len(one), np.full(len(one), 1 / len(one)), RESAMPLES)
    apart = by_hand.bleu(drawn @ two) - by_hand.bleu(drawn @ one)
    # an end of a bootstrap's interval of a thousand draws is a twelfth of its deviation away from itself, and ours, too
    near = 4 * apart.std() * math.hypot(0.085, 0.085 / math.sqrt(RESAMPLES / 1000)) + 0.005
    assert [row["low"], row["high"]] == pytest.approx(np.quantile(apart, [0.025, 0.975]), abs=near)
    coins = chance.integers(0, 2, (EXCHANGES, len(one)))
    exchanged = by_hand.bleu(coins @ one + (1 - coins) @ two) - by_hand.bleu(coins @ two + (1 - coins) @ one)
    p = (1 + np.sum(abs(exchanged) >= abs(difference) - 1e-9)) / (1 + EXCHANGES)
    error = math.sqrt(p * (1 - p) * (1 / 5000 + 1 / EXCHANGES))
    assert row["p (randomisation)"] == pytest.approx(p, abs=4 * error + 5e-5)


def _compared(folder, pair):
    rows = {row["models"]: row for row in table(result(folder, "quality"), "pairs")}
    return rows[f"{pair[1]} − {pair[0]}"]


def _over_both(systems):
    chance, count = np.random.default_rng(7), len(systems[0][0])
    draws = chance.multinomial(count, np.full(count, 1 / count), RESAMPLES)
    scores = [[_bleu(counts) for counts in runs] for runs in systems]
    return by_hand.over_both(scores, [np.stack([by_hand.bleu(draws @ c) for c in runs]) for runs in systems], count)


@pytest.mark.parametrize("pair", PAIRS, ids=" ".join)
def test_seeds_and_sentences_are_doubted_together(folder, counted, pair):
    row = _compared(folder, pair)
    difference, error, freedom = _over_both([counted[kind] for kind in pair])
    assert row["BLEU over seeds and sentences"] == pytest.approx(difference, abs=0.0051)
    half = error * stats.t.isf(0.025, freedom)
    # a variance of a thousand draws is 4.5 % off, and it is not the whole; 4 such errors at most
    assert row["high (both)"] - difference == pytest.approx(half, rel=0.09)
    assert difference - row["low (both)"] == pytest.approx(half, rel=0.09)
    for name, p in (
        ("p (both)", 2 * stats.t.sf(abs(difference) / error, freedom)),
        ("p (equal within 1 BLEU)", stats.t.cdf((abs(difference) - 1) / error, freedom)),
    ):
        assert row[name] == pytest.approx(p, rel=0.15, abs=5e-5)


def test_the_verdict_on_quality_has_holms_p_beside_the_best_other(folder):
    p = by_hand.holm([_compared(folder, pair)["p (both)"] for pair in PAIRS])
    found = findings(result(folder, "quality"), "translation quality")
    for kind, each in found.items():
        other = max((name for name in MODELS if name != kind), key=lambda name: found[name]["value"])
        own = p[PAIRS.index(tuple(sorted((kind, other), key=MODELS.index)))]
        assert each["rival"] == other
        if each["test"] != EQUIVALENCE:
            assert each["p"] == pytest.approx(own, rel=0.06, abs=1.5e-4)
        assert (each["standing"] in ("better", "worse")) == (own < 0.05)
