"""The long-range experiment: small real measurements, and conclusions from made-up ones."""

import dataclasses
import json

import pytest
import torch
from scipy import stats

from s2s.experiments import long_range
from s2s.experiments.contest import NotForThisModel
from s2s.experiments.long_range import EXPERIMENT, NAMES, SIZES, Distances, Sizes
from s2s.experiments.long_range.conclude import Trials, memory, pooled, within
from s2s.experiments.long_range.learning import Budget
from s2s.experiments.matching import size_of
from s2s.questions import ROWS
from s2s.results import Result

TINY = Sizes(
    distances={"recall": Distances((1, 2), (4, 8), 1.0), "dyck": Distances((1, 2), (4, 8), 1.0)},
    parameters=6_000,
    examples=100,
    held_out=10,
    tested=20,
    budget=Budget(updates=6, rows=16, batches=2, every=3, trial=3, rates=(0.004, 0.01), warmup=2),
    other_seeds=1,
)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(long_range.SIZES, "quick", TINY)


def _measured(right, asked=100, trained=3, solved=None, **changes):
    found = {
        "distances": [1, 2, 4, 8, 16],
        "trained": trained,
        "asked": [asked] * 5,
        "right": list(right),
        "pieces": [0.5] * 5,
        "baseline": [0.1] * 5,
        "cheat": "knows half of it",
        "cheating": [0.3] * 5,
        "title": "first-token recall",
        "unit": "symbols",
        "settings": {"width": 8},
        "parameters": 1000,
        "rate": 0.01,
        "losses": {"0.01": 1.5, "0.1": None},
        "budget": 100,
        "updates": 100,
        "solved": solved,
        "loss": 1.0,
        "seconds": 1.0,
        "trial_seconds": 0.5,
    }
    return found | changes


GOOD = (100, 100, 100, 97, 40)
BAD = (100, 96, 60, 99, 20)


def _conclude(contest, outcomes, seeds):
    """The conclusion of made-up measurements of `recall`: by model, one for each seed."""
    contest = contest(list(outcomes), seeds=seeds)
    cells = {(cell.model, cell.part, cell.seed): cell for cell in EXPERIMENT.cells(contest)}
    measured = {
        cells[model, "recall", seed]: _measured(right)
        for model, of_seeds in outcomes.items()
        for seed, right in zip(seeds, of_seeds, strict=True)
    }
    return EXPERIMENT.conclude(contest, measured)


def _clean(found):
    return {key: value for key, value in found.items() if "seconds" not in key}


def test_what_is_measured_is_small_repeatable_and_json(contest, tiny):
    made = contest(["gru", "lstm-attention"])
    cells = EXPERIMENT.cells(made)
    assert [(cell.part, cell.model) for cell in cells] == [
        ("recall", "gru"),
        ("recall", "lstm-attention"),
        ("dyck", "gru"),
        ("dyck", "lstm-attention"),
    ]
    measured = {cell: EXPERIMENT.measure(made, cell) for cell in cells}
    for cell, found in measured.items():
        assert json.loads(json.dumps(found, allow_nan=False)) == found
        assert found["parameters"] == pytest.approx(TINY.parameters, rel=0.05)
        assert found["updates"] <= TINY.budget.updates
        assert len(found["right"]) == len(found["distances"]) == 4
        assert all(0 <= right <= asked <= 20 for right, asked in zip(found["right"], found["asked"], strict=True))
        assert set(found["losses"]) == {"0.004", "0.01"}
        assert cell.model in EXPERIMENT.conclude(made, {cell: found}).figures[0].series[0].label
    torch.manual_seed(99)
    again = EXPERIMENT.measure(made, cells[3])
    assert _clean(again) == _clean(measured[cells[3]])


def test_another_seed_gives_another_network_and_other_examples(contest, tiny):
    made = contest(["gru"], seeds=(1, 2))
    one, two = (EXPERIMENT.measure(made, cell) for cell in EXPERIMENT.cells(made)[:2])
    assert one["losses"] != two["losses"]


def test_a_model_that_learns_positions_has_them_for_the_longest_test(contest, tiny):
    made = contest(["conv"])
    cell = EXPERIMENT.cells(made)[0]
    found = EXPERIMENT.measure(made, cell)
    # a key, eight symbols and the end
    assert found["settings"]["max_positions"] == 10
    assert found["settings"]["dropout"] == 0
    assert found["parameters"] == size_of("conv", _settings(found), 68, 68)


def _settings(found):
    from s2s.recipe.installed import module_of

    return module_of("conv").Settings.model_validate(found["settings"])


def test_a_models_own_settings_are_kept(contest):
    made = contest(["lstm"])
    own = made.contestants[0]
    residual = own.settings.model_copy(update={"residual": True})
    own = dataclasses.replace(own, recipe=own.recipe.model_copy(update={"model": residual}))
    found = long_range.small(own, long_range.exercise_of("recall"), 20_000, 20).model_dump()
    assert found["residual"] is True
    assert found["bidirectional"] is False
    assert found["width"] != own.settings.width


def test_a_tagger_says_that_it_cannot(contest, tiny):
    made = contest(["rnn-tagger"])
    with pytest.raises(NotForThisModel, match="cannot translate"):
        EXPERIMENT.measure(made, EXPERIMENT.cells(made)[0])


def test_every_profile_has_seven_tasks_and_tests_at_two_and_four_times_the_trained_distance():
    for sizes in SIZES.values():
        assert tuple(sizes.distances) == NAMES
        assert len(NAMES) == 7
        for name, distances in sizes.distances.items():
            longest = distances.trained[-1]
            assert distances.longer == (2 * longest, 4 * longest)
            assert sorted(distances.tested) == list(distances.tested)
            assert long_range.exercise_of(name).examples(longest, 2, 1).targets


def test_on_a_processor_only_recall_is_repeated(contest):
    quick = EXPERIMENT.cells(contest(["rnn", "gru"], seeds=(1, 2)))
    assert [cell.seed for cell in quick if cell.part == "recall"] == [1, 1, 2, 2]
    assert {cell.seed for cell in quick if cell.part != "recall"} == {1}
    assert len({cell.key for cell in quick}) == len(quick) == 4 + 2 * 6
    made = contest(["rnn"], seeds=(1, 2), profile="definitive")
    assert len(EXPERIMENT.cells(made)) == 2 + 6
    gpu = dataclasses.replace(made.computer, device=torch.device("cuda"))
    assert len(EXPERIMENT.cells(dataclasses.replace(made, computer=gpu))) == 14


def test_a_gpu_gets_longer_sequences(contest):
    made = contest(["rnn"], profile="definitive")
    assert made.sizes(SIZES) is SIZES["definitive"]
    gpu = dataclasses.replace(made.computer, device=torch.device("cuda"))
    assert dataclasses.replace(made, computer=gpu).sizes(SIZES) is SIZES["definitive on a GPU"]
    assert dataclasses.replace(made, computer=gpu).sizes({"definitive": 1, "quick": 2}) == 1
    quick = dataclasses.replace(made, computer=gpu, profile="quick")
    assert quick.sizes(SIZES) is SIZES["quick"]


@pytest.mark.parametrize(
    ("right", "expected"),
    [(GOOD, 8), (BAD, 2), ((94, 100, 100, 100, 100), 0), ((95,) * 5, 16), ((100, 95, 94, 100, 100), 2)],
)
def test_effective_memory_ends_at_the_first_distance_below_95_per_cent(right, expected):
    assert memory(_measured(right)) == expected


def test_in_distribution_means_the_trained_distances_together():
    assert within(_measured((100, 50, 0, 7, 7))) == 0.5
    assert within(_measured((100, 50, 0, 7, 7), trained=1)) == 1.0


def test_the_interval_is_the_wider_of_wilsons_and_students():
    agreeing = pooled([(90, 100), (90, 100), (90, 100)])
    wilson = stats.binomtest(270, 300).proportion_ci(method="wilson")
    assert (agreeing.low, agreeing.high) == (pytest.approx(wilson.low), pytest.approx(wilson.high))
    apart = pooled([(60, 100), (70, 100), (80, 100)])
    half = stats.t.ppf(0.975, 2) * 0.1 / 3**0.5
    assert (apart.low, apart.high) == (pytest.approx(0.7 - half), pytest.approx(0.7 + half))
    assert pooled([(0, 100), (100, 100)]).low == 0.0
    alone = pooled([(5, 10)])
    assert alone.low < alone.value < alone.high


def test_updates_to_99_per_cent_are_a_median_in_which_never_counts_as_late():
    def steps(*solved):
        return Trials("m", "recall", {i: _measured(GOOD, solved=s) for i, s in enumerate(solved)}).steps()

    assert steps(20, 60, 40) == 40
    assert steps(20, None, 40) == 40
    assert steps(20, None, None) is None
    assert steps(20, None) is None


def test_with_enough_seeds_the_verdict_is_a_tests(contest):
    result = _conclude(contest, {"gru": [GOOD] * 3, "rnn": [BAD, (100, 96, 55, 0, 0), (99, 98, 65, 0, 0)]}, (1, 2, 3))
    gru, rnn = result.findings
    p = stats.ttest_rel([0.6, 0.55, 0.65], [1.0, 1.0, 1.0]).pvalue
    assert f"40 points below gru at 4 symbols (p = {p:.2g})" in rnn.verdict
    assert f"40 points above rnn at 4 symbols (p = {p:.2g})" in gru.verdict
    assert (gru.value, gru.low, gru.high) == (8, 8, 8)
    assert (rnn.value, rnn.low, rnn.high) == (2, 2, 2)
    assert "recalls a first symbol over 8 symbols (trained to 4)" in gru.verdict
    assert "solves as trained 1 of 1 tasks with 3 seeds (recall);" in gru.verdict
    assert "solves as trained 0 of 1 tasks with 3 seeds;" in rnn.verdict


def test_equal_models_do_not_differ_significantly(contest):
    result = _conclude(contest, {"gru": [GOOD] * 3, "rnn": [GOOD] * 3}, (1, 2, 3))
    assert all("no significant difference" in finding.verdict for finding in result.findings)
    assert result.findings[1].verdict.endswith("(3 seeds, p = 1)")


@pytest.mark.parametrize(("seeds", "words"), [((1,), "1 seed is too few"), ((1, 2), "2 seeds are too few")])
def test_few_seeds_give_no_verdict(contest, seeds, words):
    result = _conclude(contest, {"gru": [GOOD] * len(seeds), "rnn": [BAD] * len(seeds)}, seeds)
    assert all(words in finding.verdict for finding in result.findings)
    assert (result.findings[0].low is None) == (len(seeds) == 1)


def test_the_longest_distance_tested_is_a_lower_bound(contest):
    result = _conclude(contest, {"gru": [(100,) * 5], "rnn": [(10,) * 5]}, (1,))
    assert "over at least 16 symbols" in result.findings[0].verdict
    assert "at no distance" in result.findings[1].verdict


def test_curves_have_intervals_and_the_baseline_beside_them(contest):
    result = _conclude(contest, {"gru": [GOOD, BAD], "rnn": [BAD, BAD]}, (1, 2))
    curves = result.figures[0]
    assert curves.name == result.findings[0].figure == "recall"
    gru, rnn, baseline, cheating = curves.series
    assert (cheating.label, cheating.reference) == ("knows half of it", True)
    assert cheating.y == pytest.approx([30] * 5)
    assert gru.y == pytest.approx([100, 98, 80, 98, 30])
    assert rnn.y == pytest.approx(list(BAD))
    assert baseline.reference
    assert baseline.y == pytest.approx([10] * 5)
    for series in (gru, rnn):
        assert all(low <= y <= high for low, y, high in zip(series.low, series.y, series.high, strict=True))
    success = next(figure for figure in result.figures if figure.name == "success")
    assert [series.y for series in success.series] == [[50], [0]]
    low, high = stats.binomtest(1, 2).proportion_ci(method="wilson")
    assert (success.series[0].low, success.series[0].high) == ([pytest.approx(100 * low)], [pytest.approx(100 * high)])


def test_comparisons_test_answers_and_seeds(contest):
    result = _conclude(contest, {"gru": [GOOD, GOOD], "rnn": [BAD, BAD]}, (1, 2))
    (row,) = next(table for table in result.tables if table.name == "comparisons").rows
    assert row[:4] == ["recall", "rnn − gru", 4, -40.0]
    assert row[6] is None
    assert row[7] == pytest.approx(stats.fisher_exact([[200, 0], [120, 80]]).pvalue)


def test_p_values_are_corrected_for_the_number_of_pairs(contest):
    worse = [BAD, (100, 96, 55, 0, 0), (99, 98, 65, 0, 0)]
    result = _conclude(contest, {"gru": [GOOD] * 3, "lstm": [GOOD] * 3, "rnn": worse}, (1, 2, 3))
    p = stats.ttest_rel([0.6, 0.55, 0.65], [1.0, 1.0, 1.0]).pvalue
    # of three pairs two are as far apart, and the third does not differ: the smallest p-values count three times
    assert f"(p = {3 * p:.2g})" in result.findings[2].verdict
    rows = next(table for table in result.tables if table.name == "comparisons").rows
    answers = {row[1]: row[7] for row in rows}
    alone = stats.fisher_exact([[300, 0], [180, 120]]).pvalue
    assert answers["rnn − gru"] == pytest.approx(3 * alone)
    assert answers["lstm − gru"] == 1.0


def test_a_task_tried_with_fewer_seeds_is_told_apart(contest):
    made = contest(["gru", "rnn"], seeds=(1, 2, 3))
    measured = {cell: _measured(GOOD) for cell in EXPERIMENT.cells(made)}
    tried = {name: sum(cell.part == name and cell.model == "gru" for cell in measured) for name in ("recall", "copy")}
    assert tried == {"recall": 3, "copy": 1}
    verdict = EXPERIMENT.conclude(made, measured).findings[0].verdict
    assert (
        "solves as trained 1 of 1 tasks with 3 seeds (recall) and 6 of 6 tasks with 1 seed (copy, adding, " in verdict
    )


def test_what_is_missing_is_left_out(contest, tiny):
    made = contest(["gru", "rnn"], seeds=(1, 2))
    cells = EXPERIMENT.cells(made)
    every = {cell: _measured(GOOD, solved=20) for cell in cells}
    whole = EXPERIMENT.conclude(made, every)
    assert {finding.row for finding in whole.findings} == set(EXPERIMENT.rows) <= set(ROWS)
    assert len(whole.findings) == 2
    assert whole == EXPERIMENT.conclude(made, dict(reversed(every.items())))
    assert Result.model_validate_json(whole.model_dump_json()) == whole
    for gone in cells:
        left = EXPERIMENT.conclude(made, {cell: found for cell, found in every.items() if cell != gone})
        assert len(left.findings) == 2
    without_rnn = EXPERIMENT.conclude(made, {cell: found for cell, found in every.items() if cell.model == "gru"})
    assert [finding.model for finding in without_rnn.findings] == ["gru"]
    assert "no other model" in without_rnn.findings[0].verdict
    only_dyck = EXPERIMENT.conclude(made, {cell: found for cell, found in every.items() if cell.part == "dyck"})
    assert only_dyck.findings == []
    assert [figure.name for figure in only_dyck.figures] == ["dyck", "success"]
    nothing = EXPERIMENT.conclude(made, {})
    assert nothing.findings == nothing.figures == nothing.tables == []


def test_models_that_share_no_seed_are_not_compared(contest):
    made = contest(["gru", "rnn"], seeds=(1, 2))
    cells = {(cell.model, cell.seed): cell for cell in EXPERIMENT.cells(made) if cell.part == "recall"}
    apart = {cells["gru", 1]: _measured(GOOD), cells["rnn", 2]: _measured(BAD)}
    assert "too few to compare" in EXPERIMENT.conclude(made, apart).findings[0].verdict


def test_names_of_figures_and_tables_are_unique(contest, tiny):
    made = contest(["gru"])
    result = EXPERIMENT.conclude(made, {cell: _measured(GOOD) for cell in EXPERIMENT.cells(made)})
    names = [part.name for part in (*result.figures, *result.tables)]
    assert len(set(names)) == len(names)
