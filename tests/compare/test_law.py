"""The law between an untrained gradient and the learned distance: its formula, its fit and its measurement."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from s2s.comparison.questions.gradients.sweep import radius, sweep_parameter_of
from s2s.comparison.reproduce import law
from s2s.comparison.reproduce.law import Law, Point, Reach, d50, log_xi
from s2s.comparison.reproduce.reproducing import checks
from s2s.comparison.spec import Trial


def test_law_has_the_formula_fixed_before_the_measurement():
    # log D50 = a + b log ξ, ξ = 1 / |log factor|; to be changed only before anything is measured
    assert log_xi(0.9) == pytest.approx(-math.log(-math.log(0.9)))
    assert log_xi(1 / 0.9) == pytest.approx(log_xi(0.9))
    assert (log_xi(1.0), log_xi(0.0)) == (pytest.approx(math.log(1000)), pytest.approx(math.log(0.1)))
    task = Law()
    assert len(task.initialisations) == 72
    measured = {}
    for i, cell in enumerate(task.trials([1])):
        factor = 0.3 + 0.009 * i
        far = 2.0 / -math.log(factor)
        beyond = 1 if far > 30 else 0
        measured[cell] = Reach(factor, [], min(far, 30.0), beyond)
    numbers = task.numbers(measured)
    assert numbers["slope"] == {1: pytest.approx(1.0, abs=1e-3)}
    assert numbers["within"] == {1: 100.0}
    assert numbers["gain"][1] < 0.01
    line, learned, held_out = task.fitted(measured, 1)
    assert (len(learned), len(held_out)) == (54, 18)
    assert math.exp(line.a) == pytest.approx(2.0, rel=1e-2)
    # what is held out has no part in the line
    for cell, run in measured.items():
        if run in held_out:
            measured[cell] = replace(run, d50=1.0, beyond=0)
    assert task.fitted(measured, 1)[0] == line
    assert task.numbers(measured)["gain"][1] > 0.7
    # where nearly all lie beyond what was tried, there is no law to be seen
    beyond = {cell: replace(run, beyond=int(i > 9)) for i, (cell, run) in enumerate(measured.items())}
    assert task.numbers(beyond) == {"slope": {}, "within": {}, "gain": {}}


def _planted(task, slope, noise=0.3):
    """Distances that follow a law of this slope; widths of one gain and bias are copies of each other."""
    chance, measured, drawn = np.random.default_rng(3), {}, {}
    for cell, point in zip(task.trials([1]), task.initialisations, strict=True):
        group = point.kind, point.gain, point.bias
        if group not in drawn:
            xi = chance.uniform(0, 4)
            drawn[group] = Reach(math.exp(-math.exp(-xi)), [], math.exp(1 + slope * xi + noise * chance.normal()), 0)
        measured[cell] = drawn[group]
    return measured


def test_law_interval_counts_equal_widths_once(monkeypatch):
    monkeypatch.setattr(law, "_HELD_OUT", 10**6)
    monkeypatch.setattr(law, "_DRAWN", 100)
    every, one = Law(), Law(initialisations=tuple(p for p in law.points() if p.width == 32))
    both = [task.intervals(_planted(task, 0.5))["slope"] for task in (every, one)]
    assert both[0] == pytest.approx(both[1], abs=1e-5)
    assert both[0][0] < 0.5 < both[0][1]


@pytest.mark.parametrize(("slope", "excluded"), [(0.6, True), (1.0, False)])
def test_law_slope_may_exclude_the_derived_value(monkeypatch, slope, excluded):
    monkeypatch.setattr(law, "_DRAWN", 100)
    task = Law()
    found = checks(task, _planted(task, slope))
    (check,) = [each for each in found if each.band.key == "slope"]
    low, high = check.interval
    assert low < check.mean < high
    assert check.excluded == excluded == (not low < 1 < high)
    # one seed decides nothing, but its bootstrap may exclude the theory
    assert check.state.startswith("undecided: 1 voting seed")
    assert check.state.endswith("; the derived 1 is excluded") == excluded
    # no theory says anything of the others
    assert not any(each.excluded for each in found if each != check)


def test_law_without_enough_distances_has_no_interval():
    task = Law()
    beyond = {cell: replace(run, beyond=1) for cell, run in _planted(task, 1.0).items()}
    assert task.intervals(beyond) == task.intervals({}) == {}


def test_law_trains_each_distance_alone(monkeypatch):
    seen = []

    def _noted(model, draw, loss_of, budget, seed, enough):
        distance = draw(torch.Generator().manual_seed(seed))[0].shape[1] - 1
        seen.append(distance)
        # the accuracy that `measure` sees: 180 or 40 of 200
        share = 0.9 if distance < 8 else 0.2
        wrong = torch.arange(200) >= 200 * share
        model.forward = lambda source: functional.one_hot((source[:, 0] + wrong) % 10, 10)

    monkeypatch.setattr(law, "train", _noted)
    found = Law().measure(Trial("rnn", Point("rnn", 1.0, 0.0, 16).part, 1))
    # two in a row are not learned, so longer ones are not tried
    assert seen == [1, 2, 4, 8, 16]
    assert found.right == pytest.approx([0.9, 0.9, 0.9, 0.2, 0.2, 0.1, 0.1, 0.1])
    assert 4 < found.d50 < 8


def test_d50_interpolates_between_distances():
    assert d50((1, 2, 4), (1.0, 0.8, 0.3), 0.1) == (pytest.approx(2 ** (1 + 0.25 / 0.5)), 0)
    assert d50((1, 2, 4), (1.0, 0.8, 0.6), 0.1) == (4.0, 1)
    assert d50((1, 2, 4), (0.2, 0.1, 0.1), 0.1) == (1.0, -1)


def test_law_initialisation_has_its_gain_and_bias():
    task = Law()
    for point in (Point("rnn", 1.3, 0.0, 16), Point("lstm", 0.7, 2.0, 16), Point("mingru", 1.0, 4.0, 16)):
        encoder, _ = task._encoder(point, 1)
        knob = sweep_parameter_of(encoder)
        assert knob.own == pytest.approx(point.gain if point.kind == "rnn" else point.bias, rel=1e-5)
        for layer in encoder.modules():
            if isinstance(layer, torch.nn.LSTM):
                gates = layer.weight_hh_l0.detach().split(16)
                assert [radius(gate) for gate in gates] == [pytest.approx(0.7, rel=1e-5)] * 4
    assert len({(p.kind, p.part) for p in task.initialisations}) == 72
