"""The question `length-generalization`: decoder-only models, endings of answers, and the claim."""

import json
from dataclasses import asdict, replace

import pytest
import torch
from scipy import stats

from s2s.comparison.questions.length_generalization import measure as question
from s2s.comparison.questions.length_generalization.measure import EXPERIMENT, PLANS
from s2s.comparison.questions.length_generalization.plan import PositionsPlan
from s2s.comparison.spec import NotForThisModel, Trial
from s2s.comparison.task_question import TaskResult
from s2s.comparison.task_training import Rates, TaskModel, TaskRun, Validation, ending
from s2s.data.synthetic_tasks import Copying, Reversal

SIZES = [1, 2, 4]
TINY = [
    PositionsPlan(*(task, 8, (), 2, 0, 4, 2), every=2, rows=10, is_written=True, positions=kind)
    for task in (Copying(4, (1, 2), SIZES), Reversal(4, (1, 2), SIZES))
    for kind in ("sinusoidal", "alibi")
]


def _result(near: float, far: float, **changes: object) -> TaskResult:
    planted = TaskResult(
        width=8,
        parameters=1000,
        sizes=SIZES,
        trained=2,
        asked=[100] * 3,
        right=[1.0, near, far],
        rate=0.002,
        inside=True,
        budget=100,
        updates=100,
        solved=None,
        looks=[Validation(update, 2.0, 0.0) for update in (50, 75, 100)],
        seconds=1.0,
        endings={"right": 0, "stops too early": 6, "does not stop in time": 2, "writes something else": 2},
    )
    return replace(planted, **changes)  # type: ignore[arg-type]


@pytest.fixture
def asked(contest, monkeypatch):
    """The result for planted shares of right answers at sizes 2 and 4, one for each seed, by part."""

    def ask(shares, models=("rnn", "transformer"), plans=tuple(TINY)):
        monkeypatch.setitem(question.PLANS, "quick", list(plans))
        measured = {
            Trial("transformer", part, seed): json.loads(json.dumps(asdict(_result(*each))))
            for part, own in shares.items()
            for seed, each in enumerate(own, 1)
        }
        return EXPERIMENT.result(contest(list(models)), measured)

    return ask


@pytest.mark.parametrize("kind", ["sinusoidal", "learned", "rope", "alibi", "relative", "none"])
def test_decoder_only_model_writes_what_it_predicts(contest, kind) -> None:
    """Greedy search is right exactly where every right token is the likeliest one after the right ones before."""
    (candidate,) = contest(["transformer"]).candidates
    plan = replace(TINY[0], positions=kind)
    torch.manual_seed(1)
    run = TaskRun(
        TaskModel(plan.build(candidate, 8), 8, 0),
        plan.task,
        0.01,
        plan.budget,
        1,
        contest(["transformer"]).device_context,
    )
    run.train_until(4)
    for size in SIZES:
        share, count = run.right(size, 40, torch.Generator().manual_seed(5))
        counts = run.endings(size, 40, torch.Generator().manual_seed(5))
        assert counts["right"] == round(share * count)
        assert sum(counts.values()) == count


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ([5, 6, 7], "right"),
        ([5, 6], "stops too early"),
        ([5, 6, 7, 7], "does not stop in time"),
        ([5, 7, 6], "writes something else"),
    ],
)
def test_endings_follow_from_length_and_symbols(written, found) -> None:
    assert ending(written, [5, 6, 7]) == found


def test_claim_holds_if_at_most_five_points_are_lost(asked) -> None:
    near, far = [1.0, 0.99, 1.0, 0.98], [0.99, 0.98, 1.0, 0.98]
    result = asked({"copying-sinusoidal-8": list(zip(near, far, strict=True))})
    (claim,) = result.claims
    assert claim.verdict == "yes"
    kept = [100 * (b - a) + 5 for a, b in zip(near, far, strict=True)]
    assert claim.p == pytest.approx(stats.ttest_1samp(kept, 0)[1])
    assert [(each.model, each.value) for each in claim.numbers] == [("transformer", pytest.approx(98.75))]


def test_claim_marks_models_that_still_learn(asked, monkeypatch) -> None:
    shares = {"copying-sinusoidal-8": [(1.0, 0.0)] * 3, "copying-alibi-8": [(1.0, 0.9)] * 3}
    falling = [Validation(update, 2.0 - update / 100, 0.0) for update in (50, 75, 100)]
    whole = _result

    def planted(near: float, far: float, **changes: object) -> TaskResult:
        return whole(near, far, looks=falling, **changes)

    monkeypatch.setitem(globals(), "_result", planted)
    (claim,) = asked(shares).claims
    assert claim.numbers[0].note == "still learning, alibi 90 %†"
    assert "100 % at 2, and still learns" in claim.sentence


def test_claim_does_not_hold_if_longer_strings_fail_and_names_other_kinds(asked) -> None:
    lost = [(1.0, 0.0), (0.98, 0.01), (1.0, 0.0)]
    result = asked({"copying-sinusoidal-8": lost, "copying-alibi-8": [(1.0, 0.9)] * 3, "reversal-sinusoidal-8": lost})
    (claim,) = result.claims
    assert (claim.verdict, claim.stable) == ("no", {"alibi positions": False, "reversing a string": True})
    unlearned = {"copying-sinusoidal-8": lost, "reversal-sinusoidal-8": [(0.5, 0.0)] * 3}
    assert asked(unlearned).claims[0].stable == {}
    assert claim.numbers[0].note == "alibi 90 %"
    assert claim.sentence == (
        "With sinusoidal positions, transformer predicts 0 % of the symbols correctly at 4 symbols and 99 % at 2. "
        "Other positions, at 4: 90 % (alibi)."
    )


def test_claim_says_whether_longer_trainings_agree(asked) -> None:
    plans = [replace(TINY[0], longer=16, positions=kind) for kind in ("sinusoidal", "learned")] + TINY[2:]
    lost, kept = [(1.0, 0.0), (0.98, 0.01), (1.0, 0.0)], [(1.0, 0.99)] * 3
    shares = {"copying-sinusoidal-8": lost, "copying-learned-8": lost}
    for late, stays in ((lost, True), (kept, False)):
        result = asked(shares | {"copying-sinusoidal-8-longer": late, "copying-learned-8-longer": kept}, plans=plans)
        (claim,) = result.claims
        assert (claim.verdict, claim.stable["16 updates"]) == ("no", stays)
        numbers = "0 % (sinusoidal) and 99 % (learned)" if stays else "99 % (sinusoidal, learned)"
        assert claim.sentence.endswith(f" Within 16 updates: {numbers}.")
        assert claim.numbers[0].note == "learned positions 0 %"
        titles = [row[0] for table in result.tables for row in table.rows if table.name in ("endings", "runs")]
        assert titles.count("copying a string, 16 updates") == 2 + 6
    unlearned = {"copying-sinusoidal-8": lost, "copying-sinusoidal-8-longer": [(0.5, 0.0)] * 3}
    assert asked(unlearned, plans=plans).claims[0].stable == {}


def test_claim_is_undecided_if_the_trained_sizes_are_not_learned(asked) -> None:
    (claim,) = asked({"copying-sinusoidal-8": [(0.5, 0.0), (0.6, 0.0), (0.5, 0.1)]}).claims
    assert claim.verdict == "undecided"
    assert "is only 53 % at 2" in claim.sentence


def test_result_classifies_failures_by_kind(asked) -> None:
    lost = [(1.0, 0.0), (1.0, 0.0)]
    result = asked({"copying-sinusoidal-8": lost, "copying-alibi-8": lost, "reversal-alibi-8": lost})
    assert [figure.name for figure in result.figures] == [
        *("copying-accuracy", "reversal-accuracy", "copying-endings", "reversal-endings"),
    ]
    kinds = next(each for each in result.tables if each.name == "endings")
    assert [row[:2] for row in kinds.rows] == [
        *(["copying a string", "sinusoidal"], ["copying a string", "alibi"], ["reversing a string", "alibi"]),
    ]
    early = kinds.columns.index("stops too early (%)")
    assert [row[early] for row in kinds.rows] == [60.0] * 3
    assert asked({}).findings == []


def test_measure_trains_the_first_transformer_alone(contest, monkeypatch) -> None:
    monkeypatch.setitem(question.PLANS, "quick", TINY[:1])
    made = contest(["rnn", "transformer"])
    trials = EXPERIMENT.trials(made)
    assert [trial.key for trial in trials] == [
        "transformer--copying-sinusoidal-8-rates",
        "transformer--copying-sinusoidal-8--seed1",
        "transformer--copying-sinusoidal-8--seed2",
        "rnn",
    ]
    assert isinstance(EXPERIMENT.measure(made, trials[0]), Rates)
    measured = EXPERIMENT.measure(made, trials[1])
    assert isinstance(measured, TaskResult)
    assert sum((measured.endings or {}).values()) == 10
    with pytest.raises(NotForThisModel, match="first Transformer"):
        EXPERIMENT.measure(made, trials[-1])


@pytest.mark.parametrize("profile", ["quick", "lecture", "definitive"])
def test_plans_train_all_tasks_with_all_kinds(profile) -> None:
    plans = PLANS[profile]
    assert len({plan.part(plan.width) for plan in plans}) == len(plans) == 3 * 6
