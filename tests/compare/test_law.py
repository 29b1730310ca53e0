"""The law from a gradient to a distance: what was written down before, and that it measures what it says."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from s2s.comparison.questions.gradients.sweep import radius, sweep_parameter_of
from s2s.comparison.reproduce import law
from s2s.comparison.reproduce.law import Law, Point, d50, log_xi
from s2s.comparison.reproduce.reproducing import checks
from s2s.comparison.spec import Trial


def test_the_law_is_what_was_written_down_before():
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
        measured[cell] = {"factor": factor, "d50": min(far, 30.0), "beyond": beyond}
    numbers = task.numbers(measured)
    assert numbers["slope"] == [pytest.approx(1.0, abs=1e-3)]
    assert numbers["within"] == [100.0]
    assert numbers["gain"][0] < 0.01
    line, learned, held_out = task.fitted(measured, 1)
    assert (len(learned), len(held_out)) == (54, 18)
    assert math.exp(line.a) == pytest.approx(2.0, rel=1e-2)
    # what is held out has no part in the line
    for cell, run in measured.items():
        if run in held_out:
            measured[cell] = run | {"d50": 1.0, "beyond": 0}
    assert task.fitted(measured, 1)[0] == line
    assert task.numbers(measured)["gain"][0] > 0.7
    # where nearly all lie beyond what was tried, there is no law to be seen
    beyond = {cell: run | {"beyond": int(i > 9)} for i, (cell, run) in enumerate(measured.items())}
    assert task.numbers(beyond) == {"slope": [], "within": [], "gain": []}


def _planted(task, slope, noise=0.3):
    """Distances that follow a law of this slope; widths of one gain and bias are copies of each other."""
    chance, measured, drawn = np.random.default_rng(3), {}, {}
    for cell, point in zip(task.trials([1]), task.initialisations, strict=True):
        group = point.kind, point.gain, point.bias
        if group not in drawn:
            xi = chance.uniform(0, 4)
            drawn[group] = {
                "factor": math.exp(-math.exp(-xi)),
                "d50": math.exp(1 + slope * xi + noise * chance.normal()),
            }
        measured[cell] = drawn[group] | {"beyond": 0}
    return measured


def test_widths_that_say_the_same_are_no_further_values(monkeypatch):
    monkeypatch.setattr(law, "_HELD_OUT", 10**6)
    monkeypatch.setattr(law, "_DRAWN", 100)
    every, one = Law(), Law(initialisations=tuple(p for p in law.points() if p.width == 32))
    both = [task.intervals(_planted(task, 0.5))["slope"] for task in (every, one)]
    assert both[0] == pytest.approx(both[1], abs=1e-5)
    assert both[0][0] < 0.5 < both[0][1]


@pytest.mark.parametrize(("slope", "excluded"), [(0.6, True), (1.0, False)])
def test_a_slope_inside_its_band_may_exclude_what_was_derived(monkeypatch, slope, excluded):
    monkeypatch.setattr(law, "_DRAWN", 100)
    task = Law()
    found = checks(task, _planted(task, slope))
    (check,) = [each for each in found if each.band.key == "slope"]
    assert check.inside
    low, high = check.interval
    assert low < check.ours < high
    assert check.excluded == excluded == (not low < 1 < high)
    assert check.state == ("inside, but the derived 1 is excluded" if excluded else "inside")
    # no theory says anything of the others
    assert not any(each.excluded for each in found if each != check)


def test_too_few_distances_have_no_interval():
    task = Law()
    beyond = {cell: run | {"beyond": 1} for cell, run in _planted(task, 1.0).items()}
    assert task.intervals(beyond) == task.intervals({}) == {}


def test_a_distance_of_the_law_is_learned_by_a_network_that_saw_no_other(monkeypatch):
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
    assert found["right"] == pytest.approx([0.9, 0.9, 0.9, 0.2, 0.2, 0.1, 0.1, 0.1])
    assert 4 < found["d50"] < 8


def test_half_of_what_is_above_chance_is_left_at_a_distance_between_two():
    assert d50((1, 2, 4), (1.0, 0.8, 0.3), 0.1) == (pytest.approx(2 ** (1 + 0.25 / 0.5)), 0)
    assert d50((1, 2, 4), (1.0, 0.8, 0.6), 0.1) == (4.0, 1)
    assert d50((1, 2, 4), (0.2, 0.1, 0.1), 0.1) == (1.0, -1)


def test_an_initialisation_has_the_gain_and_the_bias_that_its_name_says():
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
