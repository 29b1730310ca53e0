"""The search for each model's learning rate and depth."""

import json
import math
from dataclasses import replace

import pytest

from s2s.comparison.candidates import candidate_recipe
from s2s.comparison.executor import StoredResult
from s2s.comparison.matching import TOLERANCE, size_of
from s2s.comparison.runs import learning_curve, seeds_of
from s2s.comparison.spec import Candidate, Trial
from s2s.comparison.tasks import trained
from s2s.comparison.tuning import (
    TRIAL_SEED,
    TUNING,
    at_equal_depth,
    can_have_equal_depth,
    depths_of,
    foreseen,
    recipe_at,
    settled,
    short_training,
    summarize,
    tried,
    tuned,
    warn_unconverged,
)
from s2s.comparison.tuning_search import DEEPEST, HIGHEST, LOWEST, RATES, TuningTrial, best_trial, inside, next_trials
from s2s.evaluation.gates import slope_per_doubling
from s2s.recipe.reading import shipped
from s2s.run.tasks import read


@pytest.fixture(scope="module")
def base():
    return read(shipped()["compare"])


def searched(loss, depths=(), whole=0):
    """All trials of a model that has this loss at a rate and a depth, as they are made."""
    losses = {}
    while new := next_trials(depths, losses, whole):
        assert not set(new) & set(losses), "a trial is made twice"
        losses |= {trial: loss(trial) for trial in new}
    return losses


def around(best, depth=None):
    """A loss that rises from the best rate on, by its logarithm, and by one for another depth."""
    return lambda trial: abs(math.log2(trial.rate / best)) + (trial.layers != depth) - 0.1 * trial.whole


@pytest.mark.parametrize("best", [0.0005, 0.001, 0.002, 0.008, 0.016, 0.032])
def test_the_grid_grows_until_its_best_is_inside(best):
    losses = searched(around(best))
    assert best_trial(losses) == TuningTrial(best)
    assert inside(TuningTrial(best), losses)
    rates = sorted(trial.rate for trial in losses)
    assert rates == [LOWEST * 2**n for n in range(round(math.log2(max(rates) / LOWEST)) + 1)][-len(rates) :]


@pytest.mark.parametrize(("best", "end"), [(1e-6, LOWEST), (1.0, HIGHEST)])
def test_a_best_rate_at_the_limit_is_not_inside(best, end):
    losses = searched(around(best))
    assert best_trial(losses) == TuningTrial(end)
    assert not inside(TuningTrial(end), losses)


@pytest.mark.parametrize("deep", [1, 2])
def test_depth_is_chosen_like_the_rate(deep):
    losses = searched(around(0.016, deep), depths=(2, 1))
    assert best_trial(losses) == TuningTrial(0.016, deep)
    assert inside(TuningTrial(0.016, deep), losses)
    assert len([trial for trial in losses if trial.layers == 1]) == 3
    assert {trial.rate for trial in losses if trial.layers == 2} >= set(RATES)


def test_another_depth_may_want_another_rate():
    losses = searched(lambda t: around(0.002, 2)(t) if t.layers == 2 else around(0.016, 1)(t) - 1.0, depths=(2, 1))
    assert best_trial(losses) == TuningTrial(0.016, 1)
    assert inside(TuningTrial(0.016, 1), losses)


def test_the_best_two_are_trained_in_full_and_the_better_of_them_is_chosen():
    losses = searched(
        lambda t: {0.002: 1.0, 0.004: 1.1}.get(t.rate, 2.0) - (0.5 * (t.rate == 0.004) if t.whole else 0.0), whole=2
    )
    assert {trial.rate for trial in losses if trial.whole} == {0.002, 0.004}
    assert best_trial(losses) == TuningTrial(0.004, whole=True)


def test_of_each_depth_the_best_is_trained_in_full_for_short_trainings_favour_the_shallow():
    deep_learns_later = searched(
        lambda t: around(0.004, 1)(t) - (2.0 if t.whole and t.layers == 2 else 0.0), depths=(2, 1), whole=2
    )
    # and at half its rate; and, since the deepest is the best, twice as deep, which is behind in all
    whole = {TuningTrial(rate, n, whole=True) for rate in (0.002, 0.004) for n in (1, 2)} | {
        TuningTrial(0.004, 4, whole=True)
    }
    assert {trial for trial in deep_learns_later if trial.whole} == whole
    assert best_trial(deep_learns_later) == TuningTrial(0.004, 2, whole=True)
    # a fourth is the best of the others
    fourth = searched(around(0.004, 1), depths=(2, 1), whole=4)
    # the best of each, and one of the others, which is half the best rate of the only one ahead
    assert [(trial.layers, trial.rate) for trial in fourth if trial.whole] == [
        (1, 0.004),
        (2, 0.004),
        (4, 0.004),
        (1, 0.002),
    ]


@pytest.mark.parametrize("failing", [{8}, {4, 8}, {2, 4, 8}])
def test_where_all_whole_trainings_of_a_depth_fail_others_are_trained_in_full(failing):
    """However far behind they were in short ones."""
    losses = searched(
        lambda t: None if t.whole and t.layers in failing else around(0.004, t.layers)(t) - math.log2(t.layers),
        depths=(2, 1),
        whole=2,
    )
    assert best_trial(losses) == TuningTrial(0.004, min(failing) // 2, whole=True)


def test_a_depth_that_is_behind_a_deeper_one_in_short_trainings_is_not_trained_in_full():
    shallow_is_behind = searched(around(0.004, 2), depths=(2, 1), whole=2)
    # two of what is left, and half the rate of the one that is ahead
    full = [(trial.layers, trial.rate) for trial in shallow_is_behind if trial.whole]
    assert full == [(2, 0.004), (4, 0.004), (2, 0.002)]
    # more layers than the recipe's come before any whole training, and show that fewer are behind
    deep_is_best = searched(lambda t: around(0.004, t.layers)(t) - math.log2(t.layers), depths=(2, 1), whole=2)
    assert {trial.layers for trial in deep_is_best} == {1, 2, 4, 8}
    assert {trial.layers for trial in deep_is_best if trial.whole} == {8}
    # but not where even more are worse than the deepest so far
    four = searched(around(0.004, 4), depths=(2, 1), whole=2)
    assert {trial.layers for trial in four if trial.whole} == {4, 8}
    assert best_trial(four) == TuningTrial(0.004, 4, whole=True)


@pytest.mark.parametrize("deep", [1, 2, 4, 8, 16])
def test_twice_as_many_layers_are_tried_while_the_deepest_is_the_best(deep):
    def far(trial):
        return around(0.004, trial.layers)(trial) + abs(math.log2(trial.layers / deep))

    losses = searched(far, depths=(2, 1), whole=2)
    best = min(deep, DEEPEST)
    assert best_trial(losses) == TuningTrial(0.004, best, whole=True)
    assert inside(TuningTrial(0.004, best, whole=True), losses)
    tried = sorted({trial.layers for trial in losses})
    assert tried == [layers for layers in (1, 2, 4, 8) if layers <= 2 * best or layers <= 4]
    # each as the others are: the best rate of the depth before and its neighbours, and the best in full, and at half if
    # it is the best, unless the depth is behind, or even the recipe's was more than enough
    for layers in tried[2:]:
        assert sorted(trial.rate for trial in losses if trial == TuningTrial(trial.rate, layers)) == [
            0.002,
            0.004,
            0.008,
        ]
        whole = [trial.rate for trial in losses if trial == TuningTrial(trial.rate, layers, whole=True)]
        assert sorted(whole) == ([] if layers < best or best == 1 else [0.002, 0.004] if layers == best else [0.004])
    # where nothing is trained in full, short trainings say nothing of depth
    assert {trial.layers for trial in searched(far, depths=(2, 1))} == {1, 2}
    # nor where the depth before did not learn, or this one does not
    blind = searched(lambda t: None if t.layers == 4 else far(t), depths=(2, 1), whole=2)
    assert not any(trial.whole for trial in blind if trial.layers == 4)
    assert 8 not in {trial.layers for trial in blind}


def test_lower_rates_are_trained_in_full_as_long_as_they_are_better_for_short_trainings_favour_high_ones():
    slow_wins_later = searched(
        lambda t: around(0.002, 2)(t) if t.whole else around(0.016, 1)(t), depths=(2, 1), whole=2
    )
    full = [t for t in slow_wins_later if t.whole]
    # the other depth too: what is best of it in a short training is not what is best in a whole one
    for layers in (1, 2):
        assert [t.rate for t in full if t.layers == layers] == [0.016, 0.008, 0.004, 0.002, 0.001]
    assert best_trial(slow_wins_later) == TuningTrial(0.002, 2, whole=True)
    assert inside(TuningTrial(0.002, 2, whole=True), slow_wins_later)
    slowest = searched(lambda t: t.rate if t.whole else around(0.002)(t), whole=1)
    assert best_trial(slowest) == TuningTrial(LOWEST, whole=True)
    assert not inside(TuningTrial(LOWEST, whole=True), slowest)
    assert not any(trial.whole for trial in searched(around(0.002), depths=(2, 1)))
    # where no whole training learned there is nothing to go down from
    assert [t.rate for t in searched(lambda t: None if t.whole else around(0.002)(t), whole=1) if t.whole] == [0.002]


@pytest.mark.parametrize(
    ("short", "full", "halved"),
    [
        ((1.0, 2.0), (1.0, 2.0), {1}),
        # what is behind in one of the two alone may come to be the better one at another rate
        ((1.0, 2.0), (2.0, 1.0), {1, 2}),
        ((2.0, 1.0), (1.0, 2.0), {1, 2}),
        ((1.0, 1.0), (1.0, 2.0), {1, 2}),
    ],
)
def test_lower_rates_are_for_depths_that_are_not_behind_both_shortly_and_in_full(short, full, halved):
    made = {TuningTrial(rate, n): (*short, 9.0, 9.0)[n - 1] + (rate != 0.004) for n in (1, 2, 4) for rate in RATES}
    made |= {TuningTrial(0.004, n, whole=True): full[n - 1] for n in (1, 2)}
    assert next_trials((2, 1), made, whole=2) == [TuningTrial(0.002, n, whole=True) for n in halved]


def test_a_model_that_fails_at_high_rates_is_tried_at_lower_ones():
    losses = searched(lambda t: None if t.rate > 0.0003 else t.rate)
    assert best_trial(losses) == TuningTrial(LOWEST)
    failing = searched(lambda t: None)
    assert best_trial(failing) is None
    assert min(trial.rate for trial in failing) == LOWEST


def test_the_name_of_a_trial_tells_it():
    for trial in (
        TuningTrial(0.0005),
        TuningTrial(0.016, 2),
        TuningTrial(0.001, 1, whole=True),
        TuningTrial(LOWEST),
        TuningTrial(HIGHEST, whole=True),
    ):
        assert TuningTrial.of(trial.part) == trial
    with pytest.raises(ValueError, match="is not a tuning trial"):
        TuningTrial.of("rate-x")


@pytest.mark.parametrize("kind", ["lstm", "conv", "transformer", "mingru"])
def test_a_depth_keeps_the_size(base, kind):
    recipe = candidate_recipe(kind, base, {})
    assert depths_of(recipe, {}) == (2, 1)
    shallow = recipe_at(recipe, TuningTrial(0.016, 1))
    assert (shallow.model.encoder_layers, shallow.model.decoder_layers) == (1, 1)
    assert shallow.training.learning_rate == 0.016
    assert shallow.model.width > recipe.model.width
    pieces = base.tokenizer.size
    sizes = [size_of(kind, r.model, pieces, pieces) for r in (shallow, recipe)]
    assert abs(sizes[0] - sizes[1]) <= TOLERANCE * sizes[1]
    assert recipe_at(recipe, TuningTrial(0.004, 2)).model == recipe.model


def test_deep_recurrent_layers_are_joined_by_residual_connections(base):
    recipe = candidate_recipe("lstm", base, {})
    assert not any(recipe_at(recipe, TuningTrial(0.004, layers)).model.residual for layers in (1, 2))
    deep = recipe_at(recipe, TuningTrial(0.004, 4)).model
    assert (deep.residual, deep.encoder_layers, deep.decoder_layers) == (True, 4, 4)
    # unless the command says something else
    own = {"residual": False}
    plain = candidate_recipe("lstm", base, own)
    assert not recipe_at(plain, TuningTrial(0.004, 4), settled(plain, own)).model.residual
    joined = candidate_recipe("lstm", base, {"residual": True})
    assert (settled(recipe, {}), settled(joined, {})) == ((), ("residual",))
    assert recipe_at(candidate_recipe("conv", base, {}), TuningTrial(0.004, 4)).model.encoder_layers == 4


@pytest.mark.parametrize(("own", "joined"), [({}, False), ({"residual": True}, True)])
def test_equal_depth_undoes_what_tuning_did(base, own, joined):
    recipe = candidate_recipe("lstm", base, own)
    entrant = Candidate("lstm", recipe, depths_of(recipe, own), own=settled(recipe, own))
    deep = replace(entrant, recipe=recipe_at(recipe, TuningTrial(0.004, 4), entrant.own))
    level = at_equal_depth(deep)
    assert (deep.settings.residual, level.settings.residual) == (True, joined)
    # the width may be the next one, because that of the deep model was not exact
    assert abs(level.settings.width - recipe.model.width) <= 2
    assert level.settings.model_copy(update={"width": recipe.model.width}) == recipe.model
    assert level.learning_rate == 0.004
    fixed = replace(deep, depths=())
    assert [can_have_equal_depth(each) for each in ([deep, level], [deep, fixed], [fixed])] == [True, False, False]


def test_depth_that_the_command_gives_is_not_chosen(base):
    recipe = candidate_recipe("lstm", base, {"encoder_layers": 1})
    assert depths_of(recipe, {"encoder_layers": 1}) == ()


def test_what_was_tried_decides_and_is_described(base):
    entrant = Candidate("transformer", candidate_recipe("transformer", base, {}), (2, 1))
    losses = searched(around(0.008, 1), depths=(2, 1), whole=1)
    made = {
        Trial("transformer", trial.part): StoredResult(
            {"loss": loss, "seconds": 2.0, "updates": 4, "slope": loss - 1}, "", 3.0
        )
        for trial, loss in losses.items()
    } | {Trial("rnn", "rate-1000"): StoredResult(None, "diverged", 1.0)}
    found = tried(made, "transformer")
    assert (found.losses, found.seconds, found.seconds_per_update) == (losses, 3.0 * len(losses), 0.5)
    candidate = tuned(entrant, found, 7)
    assert (candidate.learning_rate, candidate.recipe.model.encoder_layers) == (0.008, 1)
    assert (candidate.recipe.training.updates, candidate.recipe.training.warmup) == (7, 1)
    # the chosen one's, whose loss is -0.1
    assert (candidate.slope, candidate.still_learns) == (-1.1, True)
    assert candidate.choice().whole == ((0.004, 0.9), (0.008, -0.1))
    told = summarize(candidate, found)
    assert (told.learning_rate, told.inside, told.settings["encoder_layers"]) == (0.008, True, 1)
    assert set(told.rates) == {"0.004", "0.008", "0.016"}
    assert told.depths == {"2": 1.0, "1": 0.0, "4": 1.0}
    assert told.whole == {"rate 0.008, 1 layer": -0.1, "rate 0.004, 1 layer": 0.9}
    failed = tried(made, "rnn")
    assert (failed.losses, failed.seconds_per_update) == ({TuningTrial(0.001): None}, None)
    assert tuned(entrant, failed, None).recipe == entrant.recipe
    assert (told.failures, summarize(entrant, failed).failures) == ({}, {"diverged": "rate 0.001"})


def test_whose_budget_is_too_small_is_told_before_the_rest_is_spent():
    def _ends(slope):
        # measurements of before it was noted have none
        whole = {"loss": 1.0, "seconds": 2.0, "updates": 4} | ({} if slope is None else {"slope": slope})
        return {"rate-2000": {"loss": 2.0, "seconds": 1.0, "updates": 1}, "whole-rate-2000": whole}

    slopes = {"rnn": -0.0912, "lstm": -0.05, "conv": -0.049, "gru": 0.2, "mingru": None}
    trials = {
        Trial(model, part): StoredResult(measured, "", 1.0)
        for model, slope in slopes.items()
        for part, measured in _ends(slope).items()
    }
    # the better one of two whole trainings is the one that decides
    trials[Trial("conv", "whole-rate-1000")] = StoredResult(
        {"loss": 1.5, "seconds": 2.0, "updates": 4, "slope": -0.9}, "", 1.0
    )
    told = warn_unconverged({model: tried(trials, model) for model in slopes})
    assert "rnn (0.09), lstm (0.05);" in told
    assert "conv" not in told
    assert "gru" not in told
    del slopes["rnn"], slopes["lstm"]
    assert warn_unconverged({model: tried(trials, model) for model in slopes}) == ""


def test_trials_are_asked_for_until_there_are_no_more(contest):
    made = contest(["lstm"])
    folder = made.results_folder("tuning")
    folder.mkdir(parents=True)
    asked = []
    while new := [cell for cell in TUNING.trials(made) if cell not in asked]:
        asked += new
        for cell in new:
            loss = around(0.016)(TuningTrial.of(cell.part))
            measured = {"loss": loss, "seconds": 1.0, "updates": 3}
            (folder / f"{cell.key}.json").write_text(json.dumps({"measured": measured, "failed": "", "seconds": 1.0}))
    assert [TuningTrial.of(cell.part).rate for cell in asked] == [*RATES, 0.016, 0.032]
    assert TUNING.trials(made) == asked


def test_what_is_foreseen_goes_on_from_what_was_made(contest):
    entrant = replace(contest(["lstm"]).candidates[0], depths=(2, 1))
    made = replace(contest(["lstm"]), candidates=(entrant,), profile="lecture")
    folder = made.results_folder("tuning")
    folder.mkdir(parents=True)
    shallow = searched(around(0.004, 1), depths=(2, 1), whole=2)
    for trial, loss in shallow.items():
        if trial.layers != 4:
            one = {"measured": {"loss": 3 + loss, "seconds": 1.0, "updates": 3}, "failed": "", "seconds": 1.0}
            (folder / f"lstm--{trial.part}.json").write_text(json.dumps(one))
    new = {TuningTrial.of(cell.part) for cell in foreseen(made)} - {trial for trial in shallow if trial.layers != 4}
    # losses of trials that were not made are not to be lower than those that were
    assert new == {TuningTrial(rate, 4) for rate in (0.002, 0.004, 0.008)}


def test_a_trial_learns_a_share_of_what_a_whole_training_does(contest):
    made = contest(["transformer"])
    often = made.candidates[0].recipe
    often = often.model_copy(update={"validation": often.validation.model_copy(update={"every": 4})})
    made = replace(made, candidates=(replace(made.candidates[0], recipe=often),))
    short, long = (TUNING.measure(made, Trial("transformer", part)) for part in ("rate-4000", "whole-rate-4000"))
    assert (short.updates, long.updates) == (2, 12)
    assert long.loss < short.loss
    recipe = made.candidates[0].recipe
    assert long.loss == short_training(recipe, TRIAL_SEED, made.device_context)[0]
    # no training that is scored is the one that chose: the best of several is a lucky one
    assert TRIAL_SEED not in made.seeds
    (run,) = (made.folder / "runs").iterdir()
    curve = learning_curve(run, made.device_context)
    assert short.slope is None
    assert curve.updates == [4, 8, 12]
    assert long.slope == slope_per_doubling(curve.tokens, curve.losses)
    mine = trained(made, "transformer", made.seeds[0])
    assert mine != run
    assert read(mine / "recipe.yaml").seeds == seeds_of(made.seeds[0])
