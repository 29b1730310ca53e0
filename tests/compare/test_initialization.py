"""Initialization, decay of gradients, and updates until a task is learned."""

import itertools
import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import scipy.stats
import torch

from s2s.comparison.questions.gradients.sweep import sweep_parameter_of
from s2s.comparison.questions.initialization import measure as initialization
from s2s.comparison.questions.initialization.analyse import Start, Starts, correlation, underflow
from s2s.comparison.questions.initialization.measure import EXPERIMENT, gradient_norms
from s2s.comparison.spec import NotForThisModel, Trial
from s2s.comparison.task_training import Rates


def _start(slope: float | None, solved: int | None, value: float = 1.0) -> Start:
    return Start("radius", value, 1.0, slope, 0.002, True, 100, solved or 100, solved, 0.1, 1.0)


def _starts(*runs: tuple[float | None, int | None]) -> dict[float, Starts]:
    return {float(i): Starts([_start(slope, solved, float(i))]) for i, (slope, solved) in enumerate(runs)}


def test_correlation_counts_pairs_in_the_same_order() -> None:
    runs = [(-0.1, 20), (0.2, 40), (-0.3, 30), (None, None)]
    own = _starts(*runs)
    away = [0.1, 0.2, 0.3, np.inf]
    waits = [20, 40, 30, 101]
    signs = [np.sign(away[j] - away[i]) * np.sign(waits[j] - waits[i]) for i, j in itertools.combinations(range(4), 2)]
    assert correlation(own)[0] == pytest.approx(sum(signs) / len(signs))
    assert correlation(_starts((-0.1, 20), (-0.2, 20))) == (0.0, 1.0)


def test_correlation_permutes_initializations() -> None:
    chance = np.random.default_rng(0)
    waits = chance.integers(10, 20, size=(5, 3)) + 2 * np.arange(5)[:, None]
    slopes = [-0.1, -0.3, -0.2, -0.5, -0.4]
    own = {
        float(i): Starts([_start(slope, int(wait), float(i)) for wait in row])
        for i, (slope, row) in enumerate(zip(slopes, waits, strict=True))
    }
    taus = [
        scipy.stats.kendalltau(np.repeat(order, 3), waits.ravel()).statistic
        for order in itertools.permutations(np.abs(slopes))
    ]
    tau, p = correlation(own)
    assert tau == pytest.approx(taus[0])
    assert p == np.mean(np.abs(taus) >= abs(tau) - 1e-12)
    # more seeds do not make up for few initializations: no p-value is below 2 of 24 orders
    same = {float(i): Starts([_start(-0.1 * i, 10 * i, float(i))] * 50) for i in range(1, 5)}
    assert correlation(same) == pytest.approx((1.0, 2 / 24))


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_underflow_equals_repeated_multiplication(name: str) -> None:
    dtype = getattr(torch, name)
    smallest = {"float32": 2.0**-149, "bfloat16": 2.0**-133, "float16": 2.0**-24}[name]
    for factor in (0.5, 0.7, 0.93):
        steps = next(i for i in range(1, 10_000) if torch.tensor(factor, dtype=torch.double).pow(i).to(dtype) == 0)
        assert underflow(factor, smallest) == steps
    assert underflow(1.01, smallest) is None


def test_gradient_norms_equal_products_of_jacobians(contest) -> None:
    made = contest(["rnn"])
    learner = initialization._model(made, "rnn", 1)
    found = gradient_norms(learner.model, 1)
    assert found.shape == (8, initialization.SPAN)
    # h′ = tanh(W x + U h + b): ∂h′/∂h = diag(1 − h′²) U
    source = initialization._TASK.draw(
        initialization.SPAN - 1, 8, chance := torch.Generator().manual_seed(initialization.derive_seed(1, 4) % 2**63)
    ).source
    encoder = learner.model.encoder
    states = encoder(source, source > 0).states.detach()
    direction = torch.randn(states[:, -1].shape, generator=chance, dtype=torch.double)
    (layer,) = (part for part in encoder.modules() if isinstance(part, torch.nn.RNN))
    back = direction
    for distance in range(10):
        back = back * (1 - states[:, -1 - distance] ** 2)
        by_input = (back @ layer.weight_ih_l0).norm(dim=1)
        assert np.allclose(found[:, distance], by_input.detach().numpy())
        back = back @ layer.weight_hh_l0


def test_measurement_turns_the_initialization_and_trains(contest, monkeypatch, tmp_path) -> None:
    monkeypatch.setitem(initialization.UPDATES, "quick", 40)
    monkeypatch.setitem(initialization.SEEDS, "quick", 1)
    made = contest(["lstm"])
    trials = EXPERIMENT.trials(made)
    parts = [f"bias-{value}" for value in (-200, -100, 0, 100, 200, 400, 600, 800)]
    assert [trial.part for trial in trials] == [name for part in parts for name in (f"{part}-rates", part)]
    searched = []

    def search(start, cheating):
        # the search trains the model from the initialization that it is for
        run, other = start(0.004), initialization._model(made, "lstm", initialization.TRIAL_SEED)
        searched.append(sweep_parameter_of(run.model.model.encoder).own)
        assert sweep_parameter_of(other.model.encoder).own == 1.0
        return Rates(0.004 if len(searched) == 1 else 0.002, None, True, {})

    monkeypatch.setattr(initialization, "search", search)
    low, high = (EXPERIMENT.measure(made, trials[i]) for i in (1, 11))
    assert searched == [-2.0, 4.0]
    assert (low.rate, high.rate) == (0.004, 0.002)
    assert isinstance(low, Start)
    assert isinstance(high, Start)
    assert (low.value, high.value, low.own) == (-2.0, 4.0, high.own)
    # an open gate neither shrinks nor multiplies the gradient
    assert abs(high.slope) < abs(low.slope)
    assert low.updates == 40
    again = EXPERIMENT.measure(made, trials[1])
    assert replace(again, seconds=low.seconds) == low
    stored = {trials[i]: json.loads(json.dumps(asdict(each))) for i, each in ((1, low), (11, high))}
    result = EXPERIMENT.result(made, stored)
    assert [claim.name for claim in result.claims] == ["late-by-gradients"]
    assert [figure.name for figure in result.figures] == ["initialization"]


def test_claim_holds_if_every_model_learns_later_with_vanishing_gradients(contest) -> None:
    made = contest(["rnn", "lstm"])

    def verdict(solved):
        measured = {
            Trial(model, f"radius-{i}", seed): asdict(_start(-0.1 * i, own[i - 1] + seed, float(i)))
            for model, own in solved.items()
            for i in range(1, 7)
            for seed in range(1, 5)
        }
        (claim,) = EXPERIMENT.result(made, measured).claims
        return claim.verdict

    late, early, flat = (10, 20, 30, 40, 50, 60), (60, 50, 40, 30, 20, 10), (20, 21, 20, 21, 20, 21)
    assert verdict({"rnn": late, "lstm": late}) == "yes"
    assert verdict({"rnn": late, "lstm": early}) == "no"
    assert verdict({"rnn": late, "lstm": flat}) == "undecided"


def test_claim_needs_rates_inside_their_grids(contest) -> None:
    made = contest(["rnn"])

    def claim(**changes):
        runs = {i: replace(_start(-0.1 * i, 10 * i, float(i)), **(changes if i == 6 else {})) for i in range(1, 7)}
        measured = {Trial("rnn", f"radius-{i}", seed): asdict(run) for i, run in runs.items() for seed in range(1, 5)}
        return EXPERIMENT.result(made, measured).claims[0]

    assert claim().verdict == claim(inside=False).verdict == "yes"
    unsettled = claim(inside=False, solved=None)
    assert unsettled.verdict == "undecided"
    assert "The learning rate of rnn is at an end" in unsettled.sentence


def test_claim_names_both_sides_of_a_factor_of_one(contest) -> None:
    made = contest(["rnn", "lstm"])
    # Factors exp(slope): 0.74, 0.90, 1.00 and 1.22 for rnn; lstm has no factor above 1.
    solved = {"rnn": {-0.3: 90, -0.1: 60, 0.0: 40, 0.2: None}, "lstm": {-0.3: 50, -0.1: 30, 0.0: 20}}
    measured = {
        Trial(model, f"radius-{i}", seed): asdict(_start(slope, updates, float(i)))
        for model, own in solved.items()
        for i, (slope, updates) in enumerate(own.items())
        for seed in range(1, 5)
    }
    (claim,) = EXPERIMENT.result(made, measured).claims
    notes = {each.model: (each.value, each.note) for each in claim.numbers}
    assert notes == {
        "rnn": (40, "90 at 0.74, over 100 at 1.22"),
        "lstm": (20, "50 at 0.74"),
    }
    assert "rnn 40 at a factor of 1.00 per step, 90 at 0.74 and over 100 at 1.22 (Kendall's τ" in claim.sentence
    assert "lstm 20 at a factor of 1.00 per step, 50 at 0.74 (Kendall's τ" in claim.sentence


def test_models_without_recurrence_are_not_measured(contest) -> None:
    made = contest(["transformer"])
    (trial,) = EXPERIMENT.trials(made)
    assert sweep_parameter_of(initialization._model(made, "transformer", 1).model.encoder) is None
    with pytest.raises(NotForThisModel, match="not recurrent"):
        EXPERIMENT.measure(made, trial)
