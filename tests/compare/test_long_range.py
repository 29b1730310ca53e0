"""The long-range experiment: small real measurements, and conclusions from made-up ones."""

import dataclasses
import json
import math

import pytest
import torch

from s2s.comparison.matching import size_of
from s2s.comparison.questions.long_range import capacity
from s2s.comparison.questions.long_range import measure as long_range
from s2s.comparison.questions.long_range.analyse import variations
from s2s.comparison.questions.long_range.learning import Budget
from s2s.comparison.questions.long_range.measure import EXPERIMENT, Distances, Sizes
from s2s.comparison.questions.long_range.reach import Part, TaskRuns
from s2s.comparison.spec import NotForThisModel
from s2s.comparison.tuning_search import RATES
from s2s.evaluation.differences import welch

TINY = Sizes(
    distances={"recall": Distances((1, 2), (4, 8), 6)},
    parameters=6_000,
    examples=100,
    held_out=10,
    tested=20,
    budget=Budget(updates=0, rows=16, batches=2, every=3, trial=3, warmup=2),
    capacity=capacity.Sizes(widths=(4,), seeds=1, updates=4, trial=3),
)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(long_range.SIZES, "quick", TINY)
    monkeypatch.setattr(capacity, "_EXAMPLES", 20)


def _measured(right, solved=None, looks=((50, 2.0, 0.0), (75, 2.0, 0.0), (100, 2.0, 0.0)), **changes):
    found = {
        "distances": [1, 2, 4, 8, 16],
        "trained": 3,
        "asked": [100] * 5,
        "right": list(right),
        "half": list(right),
        "baseline": [0.1] * 5,
        "cheat": "knows half of it",
        "cheating": [0.3] * 5,
        "title": "first-token recall",
        "unit": "symbols",
        "settings": {"width": 8},
        "parameters": 1000,
        "rate": 0.002,
        "budget": 100,
        "updates": solved or 100,
        "solved": solved,
        "looks": [list(look) for look in looks],
        "seconds": 1.0,
    }
    return found | changes


def _rates(**changes):
    tried = {"updates": 60, "solved": None, "loss": 0.5, "left chance": True}
    return {"best": 0.002, "other": 0.004, "inside": True, "tried": {f"{r:g}": tried for r in RATES}} | changes


FAR, MIDDLE, NEAR = (100,) * 5, (100, 100, 100, 100, 40), (100, 96, 60, 30, 10)


def _trials(*runs, rates=None):
    return TaskRuns("m", Part("recall", "full"), dict(enumerate(runs, 1)), rates)


def _contested(contest, outcomes, seeds, rates=None):
    """A contest, and made-up measurements of recall by whole models: by model, one for each seed."""
    made = contest(list(outcomes), seeds=seeds)
    cells = {(cell.model, cell.part, cell.seed): cell for cell in EXPERIMENT.trials(made)}
    measured = {cells[model, "recall-full-rates", None]: (rates or {}).get(model, _rates()) for model in outcomes}
    for model, runs in outcomes.items():
        for seed, run in zip(seeds, runs, strict=True):
            measured[cells[model, "recall-full", seed]] = run
    return made, measured, cells


def _verdicts(contest, outcomes, rates=None):
    seeds = tuple(range(1, 1 + len(next(iter(outcomes.values())))))
    made, measured, _ = _contested(contest, outcomes, seeds, rates)
    result = EXPERIMENT.result(made, measured)
    return {finding.model: finding for finding in result.findings if finding.row == "long-term dependencies"}, result


def _runs(*rights, solved=20):
    return [_measured(right, solved=solved) for right in rights]


def _varied(first, *others):
    """Five seeds that fall at different places."""
    return _runs(*((100, 100, 100, fall, 10) for fall in (first, *others)))


def _clean(found):
    return {key: value for key, value in found.items() if "seconds" not in key}


def test_what_is_measured_is_small_repeatable_and_json(contest, tiny):
    made = contest(["gru"])
    cells = EXPERIMENT.trials(made)
    assert [cell.part for cell in cells] == [
        "recall-head-rates",
        "recall-full-rates",
        "recall-head",
        "recall-full",
        "recall-full-other",
        "capacity-4",
    ]
    measured = {cell: EXPERIMENT.measure(made, cell) for cell in cells if not cell.part.endswith("other")}
    for found in measured.values():
        assert json.loads(json.dumps(found, allow_nan=False)) == found
    rates, head, full, bits = (measured[cells[i]] for i in (1, 2, 3, 5))
    tried = [float(rate) for rate in rates["tried"]]
    assert set(RATES) <= set(tried) == {min(tried) * 2**i for i in range(len(tried))}
    assert full["parameters"] == pytest.approx(TINY.parameters, rel=0.05)
    # the same encoder, of the same width, without a decoder
    assert head["settings"] == full["settings"]
    assert head["parameters"] < full["parameters"]
    assert full["rate"] == rates["best"]
    assert full["updates"] == 6
    assert len(full["right"]) == len(full["half"]) == len(full["distances"]) == 4
    assert bits["width"] == 4
    assert bits["attention"] is False
    torch.manual_seed(99)
    assert _clean(EXPERIMENT.measure(made, cells[3])) == _clean(full)
    result = EXPERIMENT.result(made, measured)
    assert [figure.name for figure in result.figures] == [
        "recall-full",
        "recall-full-solved",
        "recall-head",
        "recall-head-solved",
        "capacity",
    ]


def test_trials_are_kept_and_not_made_again_for_each_seed(contest, tiny, monkeypatch):
    made = contest(["gru"], seeds=(1, 2))
    searched = []
    real = long_range.search
    monkeypatch.setattr(long_range, "search", lambda *given: searched.append(1) or real(*given))
    one, two = (cell for cell in EXPERIMENT.trials(made) if cell.part == "recall-head")
    first, second = EXPERIMENT.measure(made, one), EXPERIMENT.measure(made, two)
    assert len(searched) == 1
    assert first["looks"] != second["looks"]


def test_a_seed_trains_at_the_rate_of_the_trials_or_at_the_next_best(contest, tiny):
    made = contest(["gru"])
    folder = made.results_folder("long-range")
    folder.mkdir(parents=True)
    kept = {"measured": _rates(best=0.004, other=None), "failed": "", "seconds": 1.0}
    (folder / "gru--recall-full-rates.json").write_text(json.dumps(kept))
    cells = {cell.part: cell for cell in EXPERIMENT.trials(made)}
    assert EXPERIMENT.measure(made, cells["recall-full"])["rate"] == 0.004
    with pytest.raises(long_range.UserError, match="no other rate"):
        EXPERIMENT.measure(made, cells["recall-full-other"])


def test_a_model_that_learns_positions_has_them_for_the_longest_test(contest, tiny):
    made = contest(["conv"])
    settings = long_range.small(made.candidates[0], 68, (40, 2_000), parameters=6_000)
    assert settings.model_dump()["max_positions"] == 2_000
    assert settings.model_dump()["dropout"] == 0
    # those that training never reaches take nothing from what can learn: as wide as one that has no more than it learns
    reached = long_range.small(made.candidates[0], 68, (40, 40), parameters=6_000)
    assert size_of("conv", reached, 68, 68) == pytest.approx(6_000, rel=0.05)
    assert settings.model_dump() == reached.model_dump() | {"max_positions": 2_000}


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_who_does_not_learn_positions_is_as_large_whatever_is_tested(kind, contest):
    own = contest([kind]).candidates[0]
    near, far = (long_range.small(own, 68, (40, longest), parameters=18_800) for longest in (40, 2_000))
    assert size_of(kind, far, 68, 68) == size_of(kind, near, 68, 68) == pytest.approx(18_800, rel=0.05)


def test_a_models_own_settings_are_kept(contest):
    own = contest(["lstm"]).candidates[0]
    residual = own.settings.model_copy(update={"residual": True})
    deep = dataclasses.replace(own, recipe=own.recipe.model_copy(update={"model": residual}))
    # trials join many layers so, and these are few
    assert not long_range.small(deep, 68, (20, 20), parameters=20_000).model_dump()["residual"]
    own = dataclasses.replace(deep, own=("residual",))
    for width in (None, 32):
        found = long_range.small(own, 68, (20, 20), parameters=20_000, width=width).model_dump()
        assert (found["residual"], found["bidirectional"]) == (True, False)
        assert width is None or (found["width"], found["encoder_layers"]) == (32, 1)


def test_a_tagger_says_that_it_cannot(contest, tiny):
    made = contest(["rnn-tagger"])
    for cell in EXPERIMENT.trials(made):
        if cell.part in ("recall-full-rates", "capacity-4"):
            with pytest.raises(NotForThisModel, match="cannot translate"):
                EXPERIMENT.measure(made, cell)


def test_a_better_model_is_called_so_by_the_log_rank_test_of_distances(contest):
    near = _varied(10, 20, 30, 40, 50)
    found, result = _verdicts(contest, {"gru": _runs(*[FAR] * 5), "rnn": near, "lstm": _varied(12, 22, 32, 42, 52)})
    difference = welch(_trials(*near).doublings(), [4.0] * 5)
    # one of all ways to share ten seeds out, and its mirror image
    p = 2 / math.comb(10, 5)
    assert found["rnn"].standing == "worse"
    # all three pairs are corrected for: of the two smallest p-values, which are equal, each counts three times
    assert (found["rnn"].rival, found["rnn"].difference) == ("gru", pytest.approx(-difference.value))
    assert found["rnn"].p == pytest.approx(3 * p)
    assert found["gru"].standing == "better"
    rows = {row[2]: row for row in next(t for t in result.tables if t.name == "distances").rows}
    assert rows["rnn − gru"][3] == pytest.approx(-difference.value, abs=0.01)
    assert rows["rnn − gru"][6] == pytest.approx(3 * p, abs=1e-4)
    assert found["gru"].value == 16
    assert found["gru"].at_least
    assert found["rnn"].value == pytest.approx(sorted(2**d for d in _trials(*near).doublings())[2])


def test_equal_models_tie_within_half_a_doubling_unless_some_reach_beyond_the_tests(contest):
    some = _varied(40, 41, 42, 43, 44)
    found, _ = _verdicts(contest, {"gru": some, "rnn": _varied(41, 42, 43, 44, 45)})
    assert {each.standing for each in found.values()} == {"tie"}
    edge = _runs(*[(100, 100, 100, 100, 45)] * 5)
    found, _ = _verdicts(contest, {"gru": edge, "rnn": [*edge[:4], *_runs(FAR)]})
    assert {(each.standing, each.at_least) for each in found.values()} == {("undecided", False)}
    assert found["rnn"].reasons == ["some seeds reach beyond 16, the longest distance tested"]
    # three seeds are too few to prove that
    found, _ = _verdicts(contest, {"gru": _runs(*[MIDDLE] * 3), "rnn": _runs(*[MIDDLE] * 3)})
    assert found["rnn"].standing == "undecided"
    assert "no run varies" in found["rnn"].reasons[0]


CHANCE = _measured((12, 10, 8, 10, 9))
FALLING = [(50, 2.0, 0.0), (75, 1.5, 40.0), (100, 1.0, 80.0)]


@pytest.mark.parametrize(
    ("run", "rates", "standing", "words"),
    [
        (CHANCE, _rates(), "not measurable", "without doing it 30.0 %"),
        (_measured((33, 30, 30, 10, 10)), _rates(), "not measurable", "without doing it 30.0 %"),
        (
            _measured(MIDDLE, looks=FALLING),
            _rates(),
            "still learning",
            "5 of 5 seeds have not solved it in 100 updates",
        ),
        (_measured(MIDDLE), _rates(best=0.008, inside=False), "not measurable", "0.008 lies at an end of"),
    ],
    ids=["chance", "cheating", "learning", "rate"],
)
def test_what_fails_a_gate_is_no_verdict_and_says_which(contest, run, rates, standing, words):
    found, result = _verdicts(contest, {"gru": _runs(*[FAR] * 5), "rnn": [run] * 5}, {"rnn": rates})
    assert found["rnn"].standing == standing
    assert words in "; ".join(found["rnn"].reasons)
    # of the others none may be spoken of
    assert found["gru"].standing == "not measurable"
    assert found["gru"].reasons[0].startswith("rnn: ")
    gates = next(table for table in result.tables if table.name == "gates").rows
    assert [row[3] for row in gates if row[1] == "rnn"].count("no") == 1


def test_a_training_that_learns_no_longer_may_be_judged_though_it_solved_nothing(contest):
    found, _ = _verdicts(contest, {"gru": _runs(*[FAR] * 5), "rnn": _varied(10, 20, 30, 40, 50)})
    capped = [{**run, "solved": None, "updates": 100} for run in _varied(10, 20, 30, 40, 50)]
    again, _ = _verdicts(contest, {"gru": _runs(*[FAR] * 5), "rnn": capped})
    assert again["rnn"].standing == found["rnn"].standing == "worse"


def test_the_best_other_is_sought_among_those_that_may_be_spoken_of(contest):
    lucky = [_measured(FAR, looks=FALLING)] * 5
    found, _ = _verdicts(contest, {"gru": lucky, "rnn": _varied(10, 20, 30, 40, 50), "lstm": _runs(*[MIDDLE] * 5)})
    assert (found["rnn"].standing, found["rnn"].rival) == ("worse", "lstm")
    assert found["gru"].standing == "still learning"


def test_two_that_reach_beyond_all_that_was_tested_are_not_told_apart(contest):
    found, _ = _verdicts(contest, {"gru": _runs(*[FAR] * 5), "rnn": _runs(*[FAR] * 5)})
    for model, other in (("gru", "rnn"), ("rnn", "gru")):
        assert (found[model].standing, found[model].at_least) == ("undecided", True)
        assert found[model].rival == other
        assert found[model].reasons == ["both reach beyond the longest distance tested, 16 symbols"]


def test_variations_keep_their_sign():
    looked = {"rate": {"a": [3.0, 4.0], "b": [2.0, 2.0]}, "half": {"a": [1.0], "b": [1.4]}, "none": {"a": [1]}}
    assert variations("a", "b", "better", {}, looked) == {"rate": True, "half": False}
    assert variations("b", "a", "worse", {}, looked) == {"rate": True, "half": False}
    assert variations("a", "b", "tie", {}, looked) == {"rate": False, "half": True}
    assert variations("a", "b", "not measurable", {}, looked) == {}
    # what nobody learned otherwise with is no other choice
    assert variations("a", "b", "better", looked["half"], looked) == {"rate": True}


def test_a_verdict_is_looked_at_with_half_the_updates_another_rate_and_a_linear_head(contest):
    outcomes = {"gru": _runs(*[FAR] * 5), "rnn": [run | {"half": list(FAR)} for run in _varied(10, 20, 30, 40, 50)]}
    made, measured, cells = _contested(contest, outcomes, (1, 2, 3, 4, 5))
    for seed in range(1, 6):
        for model, right in (("gru", FAR), ("rnn", NEAR)):
            measured[cells[model, "recall-full-other", seed]] = _measured(right, solved=20)
            measured[cells[model, "recall-head", seed]] = _measured(MIDDLE, solved=20)
    found = next(each for each in EXPERIMENT.result(made, measured).findings if each.model == "rnn")
    assert found.variations == {"next best rate": True, "half the updates": False, "linear head": False}
    assert found.facts["reach of its encoder under a linear head"] == 13
