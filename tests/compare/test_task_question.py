"""Questions on synthetic tasks: trials, measurements, and claims about the sizes that are mastered."""

import json
from dataclasses import asdict, replace

import pytest
from scipy import stats

from s2s.comparison import task_question
from s2s.comparison.engine import EXPERIMENTS
from s2s.comparison.questions.capacity import measure as capacity
from s2s.comparison.questions.copying import measure as copying
from s2s.comparison.questions.state_tracking import measure as state_tracking
from s2s.comparison.spec import NotForThisModel, Trial
from s2s.comparison.task_question import Mastery, TaskPlan, TaskResult
from s2s.comparison.task_training import Validation
from s2s.data.synthetic_tasks import Copying, StateTracking

NAMES = ("copying", "associative-recall", "capacity", "state-tracking")
SIZES = [1, 2, 4, 8]
TINY = [TaskPlan(Copying(4, (1, 2), SIZES), 8, (4,), seeds=2, other_seeds=1, updates=4, trial=2, every=2, rows=10)]


def _result(mastered: int, solved: int | None = None, **changes: object) -> TaskResult:
    planted = TaskResult(
        width=8,
        parameters=1000,
        sizes=SIZES,
        trained=4,
        asked=[100] * 4,
        right=[1.0 if size <= mastered else 0.3 for size in SIZES],
        rate=0.002,
        inside=True,
        budget=100,
        updates=solved or 100,
        solved=solved,
        looks=[Validation(update, 2.0, 0.0) for update in (50, 75, 100)],
        seconds=1.0,
    )
    return replace(planted, **changes)  # type: ignore[arg-type]


@pytest.fixture
def asked(contest, monkeypatch):
    """The result of `copying` for planted sizes by model, one for each seed, at the deciding width and another one."""
    monkeypatch.setitem(copying.PLANS, "quick", TINY)

    def ask(sizes, other=None, longer=None, **changes):
        made = contest(list(sizes), seeds=(1, 2, 3))
        measured = {}
        for part, by_model in (("copying-8", sizes), ("copying-4", other or {}), ("copying-8-longer", longer or {})):
            for model, own in by_model.items():
                measured |= {
                    Trial(model, part, seed): asdict(_result(size, **changes.get(model.replace("-", "_"), {})))
                    for seed, size in enumerate(own, 1)
                }
        return copying.EXPERIMENT.result(made, measured)

    return ask


@pytest.mark.parametrize(
    ("right", "mastered", "is_bound"),
    [
        ((1.0, 0.95, 0.94, 1.0), 2, False),
        ((0.9, 1.0, 1.0, 1.0), 0, False),
        ((1.0, 1.0, 1.0, 0.96), 8, True),
    ],
)
def test_mastered_size_counts_up_to_the_first_failure(right, mastered, is_bound) -> None:
    run = _result(0, right=list(right))
    assert (run.mastered, run.is_bound) == (mastered, is_bound)


def test_median_of_mastered_sizes_censors_the_largest() -> None:
    own = Mastery(dict(enumerate([_result(4), _result(8), _result(8)])))
    assert (own.median.value, own.is_bound) == (8, True)
    assert (list(own.times.ended), list(own.times.waited)) == ([4], [8, 8])
    assert Mastery({1: _result(2), 2: _result(4), 3: _result(4)}).median.value == 4


def test_bits_are_the_largest_bound_and_censored_if_the_largest_size_is_mastered() -> None:
    runs = [_result(2, bits=[1.5, 3.0, 2.5, 0.0]), _result(8, bits=[2.0, 4.0, 8.0, 15.9]), _result(8, bits=[8.0] * 4)]
    own = Mastery(dict(enumerate(runs)), capacity.CONVEYED)
    assert (list(own.times.ended), list(own.times.waited)) == ([3.0], [15.9, 8.0])
    assert (own.median.value, own.is_bound) == (8, True)
    assert own.order == (8, pytest.approx(26.9 / 3))


def test_claim_says_no_more_bits_than_were_measured(contest, monkeypatch) -> None:
    monkeypatch.setitem(capacity.PLANS, "quick", TINY)
    made = contest(["rnn", "gru-attention", "transformer"])
    bits = {"rnn": 9.0, "gru-attention": 31.2, "transformer": 31.9}
    measured = {
        Trial(model, "copying-8", seed): asdict(_result(2 if model == "rnn" else 8, bits=[2.0, 4.0, 8.0, most]))
        for model, most in bits.items()
        for seed in range(1, 6)
    }
    (claim,) = capacity.EXPERIMENT.result(made, measured).claims
    assert (claim.name, claim.verdict) == ("bits", "yes")
    assert [each.value for each in claim.numbers] == [9.0, 31.2, 31.9]
    # neither of two lower bounds is known to be the higher number
    assert [each.best for each in claim.numbers] == [False, True, True]
    assert "conveys 31.2 bits or more (gru-attention the fewest)" in claim.sentence


def test_bits_are_measured_where_the_plan_has_an_entropy(contest, monkeypatch) -> None:
    plan = replace(TINY[0], entropy=2.0, updates=30, every=10, trial=10)
    monkeypatch.setitem(copying.PLANS, "quick", [plan])
    made = contest(["gru", "transformer"])

    def trial(model, part, seed):
        return Trial(model, part, seed, search=Trial(model, f"{part}-rates"))

    for model in made.models:
        run = copying.EXPERIMENT.measure(made, trial(model, "copying-8", 1))
        assert isinstance(run, TaskResult)
        assert all(0 <= each <= 2 * size for each, size in zip(run.bits, run.sizes, strict=True))
        assert run.bits[0] > 0
    assert copying.EXPERIMENT.measure(made, trial("gru", "copying-4", 1)).bits is not None
    monkeypatch.setitem(copying.PLANS, "quick", TINY)
    assert copying.EXPERIMENT.measure(made, trial("gru", "copying-8", 2)).bits is None


def test_pairs_are_tested_by_ranks_of_the_sizes() -> None:
    """With distinct values and no censoring the log-rank scores order as the values do, so the extreme p agrees."""
    one, two = ([1, 2, 4, 1, 2], [8, 8, 8, 8, 8])
    models = {
        name: Mastery({seed: _result(size) for seed, size in enumerate(own, 1)})
        for name, own in {"a": one, "b": two}.items()
    }
    ((_, p),) = task_question.pair_p_values(models).items()
    # one of C(10, 5) = 252 ways to divide the seeds is as extreme on each side
    by_sums = stats.permutation_test((one, two), lambda x, y, axis: x.sum(axis) - y.sum(axis), vectorized=True)
    assert p == pytest.approx(by_sums.pvalue)


def test_claim_holds_for_attention_ahead_of_every_fixed_state(asked) -> None:
    far, near = [8] * 5, [1, 2, 2, 1, 2]
    result = asked({"rnn": near, "gru": near, "gru-attention": far, "transformer": far})
    (claim,) = result.claims
    assert (claim.name, claim.verdict) == ("copies", "yes")
    assert claim.p == pytest.approx(2 / 252)
    assert [each.value for each in claim.numbers] == [2, 2, 8, 8]
    assert [each.at_least for each in claim.numbers] == [False, False, True, True]
    assert [each.best for each in claim.numbers] == [False, False, True, True]
    assert claim.sentence == (
        "Within 100 updates, by medians over seeds, with attention each of gru-attention and transformer copies 8 "
        "symbols or more; without attention none copies more than 2 (rnn, gru)."
    )


def test_claim_does_not_hold_if_one_pair_is_reversed(asked) -> None:
    result = asked({"rnn": [8] * 5, "transformer": [1, 2, 2, 1, 2]})
    assert result.claims[0].verdict == "no"
    result = asked({"rnn": [2, 2, 4, 2, 2], "transformer": [4, 2, 2, 2, 2]})
    assert result.claims[0].verdict == "undecided"
    assert "do not differ significantly" in result.claims[0].sentence


def test_claim_without_one_of_its_groups_is_left_out(asked) -> None:
    assert asked({"rnn": [2] * 5, "gru": [4] * 5}).claims == []


def test_claim_needs_rates_inside_their_grids(asked) -> None:
    sizes = {"rnn": [1, 2, 2, 1, 2], "transformer": [8] * 5}
    assert asked(sizes).claims[0].verdict == "yes"
    at_an_end = asked(sizes, rnn={"inside": False})
    assert at_an_end.claims[0].verdict == "undecided"
    assert "The learning rate of rnn is at an end of its grid" in at_an_end.claims[0].sentence
    # every rate is good enough for a model that solves the task
    assert asked(sizes, transformer={"inside": False, "solved": 50}).claims[0].verdict == "yes"


def test_claim_names_models_of_neither_group(contest, monkeypatch) -> None:
    monkeypatch.setitem(
        state_tracking.PLANS, "quick", [replace(TINY[0], task=StateTracking("parity", (1, 2), SIZES), others=())]
    )
    made = contest(["rnn", "mingru", "transformer"])
    sizes = {"rnn": 8, "mingru": 2, "transformer": 1}
    measured = {
        Trial(model, "parity-8", seed): asdict(_result(size)) for model, size in sizes.items() for seed in range(1, 6)
    }
    (claim,) = state_tracking.EXPERIMENT.result(made, measured).claims
    assert (claim.name, claim.verdict) == ("tracks", "yes")
    assert claim.sentence == (
        "Within 100 updates, by medians over seeds, rnn tracks at least 8 symbols, transformer 1. The others: "
        "2 (mingru)."
    )


def test_claim_says_who_still_learns(asked) -> None:
    falling = [Validation(update, loss, 0.0) for update, loss in ((50, 2.0), (75, 1.5), (100, 1.0))]
    sizes = {"rnn": [1, 2, 2, 1, 2], "transformer": [8] * 5}
    found = asked(sizes, rnn={"looks": falling}, transformer={"looks": falling, "solved": 50}).claims[0]
    assert [each.note for each in found.numbers] == ["still learning", ""]
    assert [each.note for each in asked(sizes).claims[0].numbers] == ["", ""]


def test_claim_says_whether_other_widths_agree(asked) -> None:
    sizes = {"rnn": [1, 2, 2, 1, 2], "transformer": [8] * 5}
    assert asked(sizes).claims[0].stable == {}

    def at_width_4(rnn: list[int], transformer: list[int]) -> dict[str, bool]:
        return asked(sizes, {"rnn": rnn, "transformer": transformer}).claims[0].stable

    # the same test decides
    assert at_width_4([2] * 5, [4] * 5) == {"width 4": True}
    assert at_width_4([4] * 5, [2] * 5) == {"width 4": False}
    assert at_width_4([2, 2, 4, 4, 4], [2, 4, 4, 4, 4]) == {"width 4": False}
    # no test of three seeds can: all seeds of one model must be ahead
    assert at_width_4([2, 2, 1], [4, 4, 8]) == {"width 4": True}
    assert at_width_4([4, 4, 8], [2, 2, 1]) == {"width 4": False}
    assert at_width_4([2, 2, 4], [4, 2, 4]) == {}


def test_contradicted_claim_stays_so_with_another_width_if_one_pair_contradicts_it(asked) -> None:
    contradicted = {"rnn": [8] * 5, "gru": [2] * 5, "transformer": [4] * 5}
    found = asked(contradicted, {"rnn": [4, 4, 4], "gru": [1, 1, 1], "transformer": [2, 2, 2]}).claims[0]
    assert (found.verdict, found.stable) == ("no", {"width 4": True})
    found = asked(contradicted, {"rnn": [2, 2, 2], "gru": [1, 1, 1], "transformer": [4, 4, 4]}).claims[0]
    assert (found.verdict, found.stable) == ("no", {"width 4": False})
    found = asked(contradicted, {"rnn": [2, 2, 4], "gru": [1, 1, 1], "transformer": [4, 4, 2]}).claims[0]
    assert (found.verdict, found.stable) == ("no", {})


def test_claim_says_whether_longer_trainings_agree(asked, monkeypatch) -> None:
    monkeypatch.setitem(copying.PLANS, "quick", [replace(TINY[0], longer=400)])
    sizes = {"rnn": [1, 2, 2, 1, 2], "transformer": [8] * 5}
    assert asked(sizes).claims[0].stable == {}
    for late, stays in (([2] * 4, True), ([8] * 4, False)):
        result = asked(sizes, longer={"rnn": late, "transformer": [8] * 4})
        (claim,) = result.claims
        assert (claim.verdict, claim.stable) == ("yes", {"400 updates": stays})
        numbers = "2 (rnn) and at least 8 (transformer)" if stays else "at least 8 (rnn, transformer)"
        assert claim.sentence.endswith(f" Within 400 updates: {numbers}.")
        runs = next(table for table in result.tables if table.name == "runs")
        assert [row[0] for row in runs.rows] == ["copying a string"] * 10 + ["copying a string, 400 updates"] * 8
        assert {each.model: each.variations for each in result.findings}["rnn"] == {"400 updates": stays}


def test_longer_training_continues_a_shorter_one_at_its_rate(contest, monkeypatch) -> None:
    plan = replace(TINY[0], longer=6)
    monkeypatch.setitem(copying.PLANS, "quick", [plan])
    made = contest(["transformer"])
    trials = {trial.key: trial for trial in copying.EXPERIMENT.trials(made)}
    assert [key for key in trials if "longer" in key] == ["transformer--copying-8-longer--seed1"]
    short, long = (
        copying.EXPERIMENT.measure(made, trials[f"transformer--copying-8{kind}--seed1"]) for kind in ("", "-longer")
    )
    assert (short.budget, short.updates, long.budget, long.updates) == (4, 4, 6, 6)
    assert (short.rate, short.looks[0]) == (long.rate, long.looks[0])


def test_verdicts_compare_with_the_best_other(asked) -> None:
    result = asked({"rnn": [1, 2, 2, 1, 2], "transformer": [8] * 5})
    found = {each.model: each for each in result.findings}
    assert {model: each.standing for model, each in found.items()} == {"rnn": "worse", "transformer": "better"}
    assert found["rnn"].p == pytest.approx(2 / 252)
    assert [figure.name for figure in result.figures] == ["copying-8-accuracy"]
    assert [table.name for table in result.tables] == ["pairs", "runs"]


def test_measure_trains_at_the_best_rate_of_one_search(contest, monkeypatch) -> None:
    monkeypatch.setitem(copying.PLANS, "quick", TINY)
    searched, real = [], task_question.search
    monkeypatch.setattr(task_question, "search", lambda *given: searched.append(1) or real(*given))
    made = contest(["transformer"])
    trials = copying.EXPERIMENT.trials(made)
    assert [trial.key for trial in trials] == [
        "transformer--copying-8-rates",
        "transformer--copying-8--seed1",
        "transformer--copying-8--seed2",
        "transformer--copying-4-rates",
        "transformer--copying-4--seed1",
    ]
    one, two = (copying.EXPERIMENT.measure(made, trials[i]) for i in (1, 2))
    assert isinstance(one, TaskResult)
    assert isinstance(two, TaskResult)
    assert len(searched) == 1
    assert one.looks != two.looks
    assert one.rate == two.rate
    assert one.asked == [10] * len(SIZES)
    again = copying.EXPERIMENT.measure(made, trials[1])
    assert replace(again, seconds=one.seconds) == one
    stored = {trials[i]: json.loads(json.dumps(asdict(each))) for i, each in ((1, one), (2, two))}
    assert len(copying.EXPERIMENT.result(made, stored).findings) == 1


def test_measure_refuses_a_tagger(contest, monkeypatch) -> None:
    monkeypatch.setitem(copying.PLANS, "quick", TINY)
    with pytest.raises(NotForThisModel, match="cannot translate"):
        copying.EXPERIMENT.measure(contest(["rnn-tagger"]), Trial("rnn-tagger", "copying-8-rates"))


@pytest.mark.parametrize("profile", ["quick", "lecture", "definitive"])
@pytest.mark.parametrize("name", NAMES)
def test_trials_have_names_of_their_own(contest, name, profile) -> None:
    trials = EXPERIMENTS[name].trials(contest(["rnn", "transformer"], profile=profile))
    assert len({trial.key for trial in trials}) == len(trials)
    assert EXPERIMENTS[name].text("METHOD")
    assert EXPERIMENTS[name].text("LIMITS")
