"""Long-range question: small real measurements, and conclusions from planted ones."""

import json
import math
from dataclasses import asdict, replace

import pytest
import torch
from scipy import stats

from s2s.comparison.executor import run_cached
from s2s.comparison.matching import size_of
from s2s.comparison.questions.long_range import measure as long_range
from s2s.comparison.questions.long_range.analyse import (
    DISTANCE_ROW,
    TIME_ROW,
    Part,
    TaskRun,
    TaskRuns,
    assess_time,
    differences,
    half_distance,
    pooled,
    variations,
)
from s2s.comparison.questions.long_range.learning import ExerciseBudget
from s2s.comparison.questions.long_range.measure import EXPERIMENT, Distances, Sizes
from s2s.comparison.spec import NotForThisModel, Trial
from s2s.comparison.task_training import Rates, Run, TriedRate, Validation
from s2s.comparison.tuning_search import RATES
from s2s.errors import UserError
from s2s.evaluation.differences import welch
from s2s.evaluation.survival import Times, log_rank_p

TINY = Sizes(
    distances={"recall": Distances((1, 2), (4, 8), 6)},
    parameters=6_000,
    examples=100,
    held_out=10,
    tested=20,
    budget=ExerciseBudget(updates=0, rows=16, batches=2, every=3, trial=3, warmup=2),
)
WHOLE = Part("recall", "full")
FAR, MIDDLE, NEAR = (100,) * 5, (100, 100, 100, 100, 40), (100, 96, 60, 30, 10)
FALLING = [Validation(50, 2.0, 0.0), Validation(75, 1.5, 40.0), Validation(100, 1.0, 80.0)]


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(long_range.SIZES, "quick", TINY)


def _store_rates(made, model, rates):
    folder = made.results_folder("long-range")
    folder.mkdir(parents=True)
    run_cached(folder, lambda _: rates, Trial(model, "recall-full-rates"), "fp32")


def _run(right=FAR, solved=None, **changes):
    planted = TaskRun(
        distances=[1, 2, 4, 8, 16],
        trained=3,
        asked=[100] * 5,
        right=list(right),
        half=list(right),
        baseline=[0.1] * 5,
        cheat="knows half of it",
        cheating=[0.3] * 5,
        title="first-token recall",
        unit="symbols",
        settings={"width": 8},
        parameters=1000,
        rate=0.002,
        budget=100,
        updates=solved or 100,
        solved=solved,
        looks=[Validation(update, 2.0, 0.0) for update in (50, 75, 100)],
        seconds=1.0,
    )
    return replace(planted, **changes)


def _rates(**changes):
    tried = TriedRate(updates=60, solved=None, loss=0.5, left_chance=True)
    return replace(Rates(best=0.002, other=0.004, inside=True, tried=dict.fromkeys(RATES, tried)), **changes)


def _task_runs(*runs):
    return TaskRuns("m", WHOLE, dict(enumerate(runs, 1)))


def _runs(*rights):
    return [_run(right, solved=20) for right in rights]


def _varied(*falls):
    """Seeds that fall at different places."""
    return _runs(*((100, 100, 100, fall, 10) for fall in falls))


def _planted(contest, outcomes, rates=None):
    """A comparison, and planted measurements of recall by whole models: by model, one for each seed."""
    seeds = tuple(range(1, 1 + len(next(iter(outcomes.values())))))
    measured = {Trial(model, "recall-full-rates"): (rates or {}).get(model, _rates()) for model in outcomes}
    for model, runs in outcomes.items():
        measured |= {Trial(model, "recall-full", seed): run for seed, run in zip(seeds, runs, strict=True)}
    return contest(list(outcomes), seeds=seeds), measured


def _result(made, measured):
    return EXPERIMENT.result(made, {trial: asdict(each) for trial, each in measured.items()})


def _verdicts(contest, outcomes, rates=None):
    result = _result(*_planted(contest, outcomes, rates))
    return {finding.model: finding for finding in result.findings if finding.row == DISTANCE_ROW}, result


def _table(result, name):
    return next(table for table in result.tables if table.name == name).rows


# measurements


def test_long_range_measurements_are_small_and_repeatable(contest, tiny):
    made = contest(["gru"])
    trials = {trial.part: trial for trial in EXPERIMENT.trials(made)}
    parts = ["recall-head-rates", "recall-full-rates", "recall-head", "recall-full", "recall-full-other"]
    assert list(trials) == parts
    measured = {part: EXPERIMENT.measure(made, trials[part]) for part in parts if not part.endswith("other")}
    rates, head, full = (measured[part] for part in ("recall-full-rates", "recall-head", "recall-full"))
    assert set(RATES) <= set(rates.tried) == {min(rates.tried) * 2**i for i in range(len(rates.tried))}
    assert full.parameters == pytest.approx(TINY.parameters, rel=0.05)
    # the same encoder, of the same width, without a decoder
    assert head.settings == full.settings
    assert head.parameters < full.parameters
    assert (full.rate, full.updates) == (rates.best, 6)
    assert len(full.right) == len(full.half) == len(full.distances) == 4
    torch.manual_seed(99)
    assert replace(EXPERIMENT.measure(made, trials["recall-full"]), seconds=full.seconds) == full
    stored = {trials[part]: json.loads(json.dumps(asdict(each))) for part, each in measured.items()}
    names = ["recall-full", "recall-full-solved", "recall-head", "recall-head-solved"]
    assert [figure.name for figure in EXPERIMENT.result(made, stored).figures] == names


def test_long_range_search_for_the_rate_serves_all_seeds(contest, tiny, monkeypatch):
    made = contest(["gru"], seeds=(1, 2))
    searched, real = [], long_range.search
    monkeypatch.setattr(long_range, "search", lambda *given: searched.append(1) or real(*given))
    one, two = (trial for trial in EXPERIMENT.trials(made) if trial.part == "recall-head")
    assert EXPERIMENT.measure(made, one).looks != EXPERIMENT.measure(made, two).looks
    assert len(searched) == 1


def test_long_range_seed_trains_at_the_best_rate_or_at_the_next_best(contest, tiny):
    made = contest(["gru"])
    _store_rates(made, "gru", _rates(best=0.004, other=None))
    searched = Trial("gru", "recall-full-rates")
    assert EXPERIMENT.measure(made, Trial("gru", "recall-full", 1, search=searched)).rate == 0.004
    with pytest.raises(UserError, match="no other rate"):
        EXPERIMENT.measure(made, Trial("gru", "recall-full-other", 1, search=searched))


def test_long_range_learned_positions_reach_the_longest_test_and_do_not_count(contest):
    own = contest(["conv"]).candidates[0]
    settings = long_range.small(own, 68, (40, 2_000), 6_000)
    assert settings.model_dump()["max_positions"] == 2_000
    assert settings.model_dump()["dropout"] == 0
    reached = long_range.small(own, 68, (40, 40), 6_000)
    assert size_of("conv", reached, 68, 68) == pytest.approx(6_000, rel=0.05)
    assert settings.model_dump() == reached.model_dump() | {"max_positions": 2_000}


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_long_range_size_without_learned_positions_is_independent_of_the_tests(kind, contest):
    own = contest([kind]).candidates[0]
    near, far = (long_range.small(own, 68, (40, longest), 18_800) for longest in (40, 2_000))
    assert size_of(kind, far, 68, 68) == size_of(kind, near, 68, 68) == pytest.approx(18_800, rel=0.05)


def test_long_range_keeps_a_candidates_own_settings(contest):
    own = contest(["lstm"]).candidates[0]
    residual = own.settings.model_copy(update={"residual": True})
    deep = replace(own, recipe=own.recipe.model_copy(update={"model": residual}))
    # tuning joins many layers so, and these are few
    assert not long_range.small(deep, 68, (20, 20), 20_000).model_dump()["residual"]
    own = replace(deep, own=("residual",))
    found = long_range.small(own, 68, (20, 20), 20_000).model_dump()
    assert (found["residual"], found["bidirectional"]) == (True, False)


def test_long_range_refuses_a_tagger(contest, tiny):
    made = contest(["rnn-tagger"])
    with pytest.raises(NotForThisModel, match="cannot translate"):
        EXPERIMENT.measure(made, Trial("rnn-tagger", "recall-full-rates"))


@pytest.mark.parametrize("after", [0, 3])
def test_long_range_diverged_training_counts_as_unsolved(contest, monkeypatch, after):
    monkeypatch.setitem(long_range.SIZES, "quick", TINY)
    train = Run._train

    def diverge(run, until, stop_when_solved):
        train(run, min(until, after), stop_when_solved)
        run.failure = "the loss is no number"

    monkeypatch.setattr(Run, "_train", diverge)
    made, rates = contest(["rnn"]), _rates(tried={})
    _store_rates(made, "rnn", rates)
    found = EXPERIMENT.measure(made, Trial("rnn", "recall-full", 1, search=Trial("rnn", "recall-full-rates")))
    assert (found.solved, found.updates, found.failure) == (None, after, "the loss is no number")
    assert len(found.looks) == bool(after)
    # censored at the end of its budget, whenever it diverged
    runs = TaskRuns("rnn", WHOLE, {1: found})
    assert runs.times() == Times([], [6])
    assert "the training of 1 of 1 seeds failed: the loss is no number" in str(runs.gates())
    result = _result(made, {Trial("rnn", "recall-full-rates"): rates, Trial("rnn", "recall-full", 1): found})
    assert {finding.row for finding in result.findings} == {DISTANCE_ROW, TIME_ROW}
    assert all(finding.standing == "not measurable" for finding in result.findings)


# distances


@pytest.mark.parametrize(
    ("right", "distance", "beyond"),
    [
        (FAR, 16, True),
        # half way from 1.0 to 0.1 is 0.55: between 8 and 16, where 1.0 falls to 0.4
        (MIDDLE, 8 * 2 ** (0.45 / 0.6), False),
        (NEAR, 4 * 2 ** (0.05 / 0.3), False),
        # half of what it has near is left at 4
        ((50, 50, 30, 30, 30), 4, False),
        ((10, 10, 10, 10, 10), 1, False),
        ((50, 50, 50, 50, 50), 16, True),
    ],
)
def test_half_distance_is_where_half_of_the_accuracy_above_chance_is_left(right, distance, beyond):
    assert half_distance(_run(right), right) == (pytest.approx(distance), beyond)


def test_half_distance_counts_0_as_1_and_chance_may_change_with_distance():
    far = [0, 4, 8, 16, 32]
    run = _run((100, 100, 70, 0, 0), distances=far, baseline=[0.5, 0.5, 0.6, 0.5, 0.5])
    # above chance: 0.5, 0.5, 0.1
    assert half_distance(run, run.right)[0] == pytest.approx(4 * 2 ** (0.25 / 0.4))
    run = _run((50,) * 5, distances=far, baseline=[0.5] * 5)
    assert half_distance(run, run.right) == (1.0, False)


def test_pooled_interval_is_the_wider_of_wilsons_and_students():
    agreeing = pooled([(90, 100), (90, 100), (90, 100)])
    wilson = stats.binomtest(270, 300).proportion_ci(method="wilson")
    assert (agreeing.low, agreeing.high) == (pytest.approx(100 * wilson.low), pytest.approx(100 * wilson.high))
    apart = pooled([(60, 100), (70, 100), (80, 100)])
    half = stats.t.ppf(0.975, 2) * 10 / 3**0.5
    assert (apart.low, apart.high) == (pytest.approx(70 - half), pytest.approx(70 + half))
    assert pooled([(0, 100), (100, 100)]).low == 0.0


def test_task_runs_censor_unsolved_seeds_at_their_budget():
    own = _task_runs(_run(FAR, solved=20), _run(NEAR), _run(FAR, solved=50))
    assert own.times() == Times([20, 50], [100])
    assert (own.num_solved, own.beyond) == (2, 2)


def test_task_runs_reach_is_the_median_and_censored_at_the_longest_distance():
    falls = (100, 100, 55, 10, 10)
    own = _task_runs(_run(FAR), _run(falls), _run(falls))
    assert own.doublings() == [4, pytest.approx(2), pytest.approx(2)]
    assert own.reaches() == Times([pytest.approx(4)] * 2, [16])
    assert own.reach().value == pytest.approx(4)
    assert own.reach().low is None
    most = _task_runs(*[_run(FAR)] * 4, _run(falls), _run(falls))
    assert (most.reach().value, most.reach().high) == (16, 16)
    everybody = _task_runs(*[_run(FAR)] * 6).reach()
    assert (everybody.value, everybody.low, everybody.high) == (16, 16, 16)
    assert own.error().value == 0


def test_differences_are_tested_by_the_log_rank_test_of_censored_distances():
    far = _task_runs(*[_run(FAR)] * 4)
    near = _task_runs(*[_run((100, 100, 55 - i, 10, 10)) for i in range(4)])
    found = differences({"far": far, "near": near})["far", "near"]
    assert found.value < -1.9
    # one of all 70 ways to assign eight seeds, and its mirror image
    assert found.p() == pytest.approx(2 / 70) == log_rank_p(far.reaches(), near.reaches())


def test_long_range_better_candidate_is_found_by_the_log_rank_test(contest):
    near = _varied(10, 20, 30, 40, 50)
    found, result = _verdicts(contest, {"gru": _runs(*[FAR] * 5), "rnn": near, "lstm": _varied(12, 22, 32, 42, 52)})
    difference = welch(_task_runs(*near).doublings(), [4.0] * 5)
    # one of all ways to assign ten seeds, and its mirror image
    p = 2 / math.comb(10, 5)
    # three pairs are corrected for: of the two smallest p-values, which are equal, each counts three times
    assert (found["rnn"].standing, found["rnn"].rival) == ("worse", "gru")
    assert (found["rnn"].difference, found["rnn"].p) == (pytest.approx(-difference.value), pytest.approx(3 * p))
    assert found["gru"].standing == "better"
    rows = {row[2]: row for row in _table(result, "distances")}
    assert rows["rnn − gru"][3] == pytest.approx(-difference.value, abs=0.01)
    assert rows["rnn − gru"][6] == pytest.approx(3 * p, abs=1e-4)
    assert (found["gru"].value, found["gru"].at_least) == (16, True)
    assert found["rnn"].value == pytest.approx(sorted(2**d for d in _task_runs(*near).doublings())[2])


def test_long_range_equal_candidates_tie_unless_some_seeds_are_censored(contest):
    found, _ = _verdicts(contest, {"gru": _varied(40, 41, 42, 43, 44), "rnn": _varied(41, 42, 43, 44, 45)})
    assert {each.standing for each in found.values()} == {"tie"}
    edge = _runs(*[(100, 100, 100, 100, 45)] * 5)
    found, _ = _verdicts(contest, {"gru": edge, "rnn": [*edge[:4], *_runs(FAR)]})
    assert {(each.standing, each.at_least) for each in found.values()} == {("undecided", False)}
    assert found["rnn"].reasons == ["some seeds reach beyond the longest tested distance, 16 symbols"]
    # three seeds are too few to prove a tie
    found, _ = _verdicts(contest, {"gru": _runs(*[MIDDLE] * 3), "rnn": _runs(*[MIDDLE] * 3)})
    assert found["rnn"].standing == "undecided"
    assert "the runs do not vary" in found["rnn"].reasons[0]
    # nor is one proven where both are censored
    found, _ = _verdicts(contest, {"gru": _runs(*[FAR] * 5), "rnn": _runs(*[FAR] * 5)})
    for model, other in (("gru", "rnn"), ("rnn", "gru")):
        assert (found[model].standing, found[model].at_least, found[model].rival) == ("undecided", True, other)
        assert found[model].reasons == ["both reach beyond the longest tested distance, 16 symbols"]


@pytest.mark.parametrize(
    ("run", "rates", "standing", "words"),
    [
        (_run((12, 10, 8, 10, 9)), _rates(), "not measurable", "shortcut baseline 30.0 %"),
        (_run((33, 30, 30, 10, 10)), _rates(), "not measurable", "shortcut baseline 30.0 %"),
        (_run(MIDDLE, looks=FALLING), _rates(), "still learning", "5 of 5 seeds have not solved it in 100 updates"),
        (_run(MIDDLE), _rates(best=0.008, inside=False), "not measurable", "0.008 lies at an end of"),
    ],
    ids=["chance", "cheating", "learning", "rate"],
)
def test_long_range_failed_check_replaces_the_verdict(contest, run, rates, standing, words):
    found, result = _verdicts(contest, {"gru": _runs(*[FAR] * 5), "rnn": [run] * 5}, {"rnn": rates})
    assert found["rnn"].standing == standing
    assert words in "; ".join(found["rnn"].reasons)
    # there is no other rival that passes
    assert found["gru"].standing == "not measurable"
    assert found["gru"].reasons[0].startswith("rnn: ")
    assert [row[3] for row in _table(result, "gates") if row[1] == "rnn"].count("no") == 1


def test_long_range_converged_training_gets_a_verdict_without_a_solution(contest):
    near = _varied(10, 20, 30, 40, 50)
    unsolved = [replace(run, solved=None, updates=100) for run in near]
    for runs in (near, unsolved):
        found, _ = _verdicts(contest, {"gru": _runs(*[FAR] * 5), "rnn": runs})
        assert found["rnn"].standing == "worse"


def test_long_range_rival_is_the_best_that_passes_its_checks(contest):
    lucky = [_run(FAR, looks=FALLING)] * 5
    found, _ = _verdicts(contest, {"gru": lucky, "rnn": _varied(10, 20, 30, 40, 50), "lstm": _runs(*[MIDDLE] * 5)})
    assert (found["rnn"].standing, found["rnn"].rival) == ("worse", "lstm")
    assert found["gru"].standing == "still learning"


def test_variations_compare_the_sign():
    other = {"rate": {"a": [3.0, 4.0], "b": [2.0, 2.0]}, "half": {"a": [1.0], "b": [1.4]}, "none": {"a": [1]}}
    assert variations("a", "b", "better", {}, other) == {"rate": True, "half": False}
    assert variations("b", "a", "worse", {}, other) == {"rate": True, "half": False}
    assert variations("a", "b", "tie", {}, other) == {"rate": False, "half": True}
    assert variations("a", "b", "not measurable", {}, other) == {}
    # equal values are no other choice
    assert variations("a", "b", "better", other["half"], other) == {"rate": True}


def test_long_range_verdict_is_varied_by_updates_rate_and_head(contest):
    outcomes = {"gru": _runs(*[FAR] * 5), "rnn": [replace(r, half=list(FAR)) for r in _varied(10, 20, 30, 40, 50)]}
    made, measured = _planted(contest, outcomes)
    for seed in range(1, 6):
        for model, right in (("gru", FAR), ("rnn", NEAR)):
            measured[Trial(model, "recall-full-other", seed)] = _run(right, solved=20)
            measured[Trial(model, "recall-head", seed)] = _run(MIDDLE, solved=20)
    found = next(each for each in _result(made, measured).findings if each.model == "rnn")
    assert found.variations == {"next best rate": True, "half the updates": False, "linear head": False}
    assert found.facts["reach with a linear head"] == 13


# times to the solution

FAST, SLOW = (20, 20, 40, 40, 40), (60, 60, 80, 80, None)


def _timed(*times, part=WHOLE, inside=True, model="m"):
    """Trainings that solved the task after so many updates; None: not within the budget of 100."""
    looks = [Validation(10, 2.0, 0.0), Validation(20, 1.9, 0.0), Validation(100, 1.0, 0.0)]
    runs = {seed: _run(solved=at, looks=looks) for seed, at in enumerate(times, 1)}
    return TaskRuns(model, part, runs, _rates(inside=inside))


def _models(**runs):
    return {model: replace(own, model=model) for model, own in runs.items()}


def test_time_verdict_is_that_of_the_corrected_log_rank_test():
    of_all = _models(a=_timed(*FAST), b=_timed(*SLOW), c=_timed(*SLOW))
    p = log_rank_p(of_all["a"].times(), of_all["b"].times())
    assert p == pytest.approx(2 / math.comb(10, 5))
    found = assess_time("a", of_all)
    # three pairs: the two smallest p-values are equal
    assert (found.standing, found.rival, found.p) == ("better", "b", pytest.approx(3 * p))
    assert found.facts == {"median of b (updates)": 80, "seeds that solve the task, b": "4 of 5"}
    found = assess_time("b", of_all)
    assert (found.standing, found.rival) == ("worse", "a")


def test_time_verdict_needs_a_difference_and_a_solution():
    assert assess_time("a", _models(a=_timed(20, 40, 40), b=_timed(40, 40, 20))).standing == "undecided"
    never = _models(a=_timed(None, None), b=_timed(None, None))
    assert assess_time("a", never).reasons == ("neither model solves the task with any seed",)
    assert assess_time("a", _models(a=_timed(*FAST))).standing == "not measurable"


def test_time_verdict_is_undecided_within_one_validation():
    first, second, third = (_timed(*[at] * 5) for at in (10, 20, 30))
    found = assess_time("a", _models(a=first, b=second))
    assert (found.standing, found.rival) == ("undecided", "b")
    assert found.reasons == ("the medians differ by at most one validation interval, 10 updates",)
    assert assess_time("a", _models(a=first, b=third)).standing == "better"


def test_time_verdict_leaves_out_rates_at_an_end_of_the_grid():
    of_all = _models(a=_timed(*FAST, inside=False), b=_timed(*SLOW), c=_timed(*FAST))
    found = assess_time("a", of_all)
    assert (found.standing, "rate" in found.reasons[0]) == ("not measurable", True)
    # one pair is left, so nothing is corrected
    p = log_rank_p(of_all["b"].times(), of_all["c"].times())
    assert (assess_time("b", of_all).rival, assess_time("b", of_all).p) == ("c", pytest.approx(p))


def test_median_time_is_at_most_the_budget():
    assert (_timed(20, None, None).time().value, _timed(None).time().value) == (100, 100)
    assert _timed(20, 40, None).time().value == 40


def _time_verdicts(contest, parts):
    """Verdicts on times, from runs by model and part."""
    measured = {}
    for key, models in parts.items():
        for model, own in models.items():
            measured |= {Trial(model, key, seed): run for seed, run in own.by_seed.items()}
            measured[Trial(model, key.removesuffix("-other") + "-rates")] = own.rates
    made = contest(["rnn", "gru"], seeds=range(1, 6))
    return [finding for finding in _result(made, measured).findings if finding.row == TIME_ROW]


def test_time_verdict_is_varied_by_rate_form_and_task(contest):
    first, second = _time_verdicts(
        contest,
        {
            "recall-full": {"rnn": _timed(*FAST), "gru": _timed(*SLOW)},
            "recall-full-other": {"rnn": _timed(20, 20), "gru": _timed(40, 40)},
            "copy-full": {"rnn": _timed(None, None), "gru": _timed(40, 40)},
            "recall-head": {"rnn": _timed(20, 20), "gru": _timed(20, 20)},
            "agreement-full": {"rnn": _timed(None, None), "gru": _timed(None, None)},
        },
    )
    # nothing is said of a task that neither solves
    assert first.variations == second.variations == {"next best rate": True, "copy": False, "linear head": False}
    assert (first.value, first.figure, first.at_least) == (40, "recall-full-solved", False)
    assert (first.standing, second.standing) == ("better", "worse")


def test_time_verdict_is_a_lower_bound_if_most_seeds_are_unsolved(contest):
    found = _time_verdicts(contest, {"recall-full": {"rnn": _timed(20, None, None), "gru": _timed(20, 20, None)}})
    assert [(each.value, each.at_least) for each in found] == [(100, True), (20, False)]


def test_time_verdict_counts_failed_trainings_as_unsolved():
    failing = _timed(20, 20, 40, None, None, None, None, None)
    failed = {"failure": "its answers are no longer finite", "looks": [Validation(10, 9.9, 0.0)]}
    runs = {seed: run if run.solved else replace(run, **failed) for seed, run in failing.by_seed.items()}
    failing, well = replace(failing, by_seed=runs), _timed(*[60] * 8)
    found = assess_time("a", _models(a=failing, b=well))
    assert (found.standing, found.facts["seeds that solve the task, a"]) == ("undecided", "3 of 8")
    gates = {gate.name: gate for gate in failing.gates()}
    assert gates["trains"].sentence == "the training of 5 of 8 seeds failed: its answers are no longer finite"
    assert (gates["trains"].passed, gates["converged"].passed) == (False, True)
    assert "trains" not in {gate.name for gate in well.gates()}
