"""A profile takes no longer than it says: what does not fit is left for later, told, and measured when asked for."""

import io
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from s2s.cli.compare import Order, order, time_limit
from s2s.experiments import beginning, comparison, tuning
from s2s.experiments.contest import Cell
from s2s.experiments.running import Kept, Watch
from s2s.report.drawing import draw
from s2s.results import RESULT, read_result
from tests.experiments.counting import TINY, Asked


@pytest.fixture
def four(counting, monkeypatch):
    """Four questions, one of which takes long, and one of which looks at what that one leaves."""

    def asked(name, seconds, reads=""):
        cells = lambda contest: [Cell(model, name, seconds=seconds) for model in contest.models]  # noqa: E731
        return Asked(name, "How often?", cells, counting.measure, counting.conclusion, reads=reads)

    every = [asked("memory", 1), asked("quality", 250), asked("bottleneck", 1, "quality"), asked("decoding", 1)]
    monkeypatch.setattr(comparison, "EXPERIMENTS", {each.name: each for each in every})
    return counting


def _begun(folder):
    names = ("memory", "quality", "bottleneck", "decoding")
    planned = order(Order(("rnn", "lstm", *TINY), seeds=1, experiments=names, out=folder))
    beginning.begin(folder, planned.base, planned.summary)
    return folder, planned


def _went_on(folder, limit=math.inf):
    told = io.StringIO()
    comparison.go_on(folder, Console(file=told, width=500), limit=limit)
    return told.getvalue()


def _findings(folder):
    return {path.parent.name: read_result(path).findings for path in folder.glob(f"*/{RESULT}")}


def test_what_does_not_fit_is_left_for_later_with_what_looks_at_it_and_nothing_is_lost(four, tmp_path):
    folder, planned = _begun(tmp_path / "limited")
    before = comparison.costs(folder, planned.summary, None, limit=300)
    assert "it is to take about 5 min at most: what does not fit is left for later" in before
    told = _went_on(folder, limit=300)
    assert before in told
    left = (
        "left for later, as all is to take about 5 min at most: quality (about 8 min), bottleneck (less than a minute)"
    )
    assert f"{left}; s2s compare --resume {folder} measures what is left" in told
    assert set(_findings(folder)) == {"memory", "decoding"}
    page = draw(folder).read_text(encoding="utf-8")
    assert "Nothing is shown yet of: bottleneck, quality." in page
    told = _went_on(folder)
    assert "left for later" not in told
    whole, _ = _begun(tmp_path / "whole")
    _went_on(whole)
    assert _findings(folder) == _findings(whole)
    assert len(four.asked) == 2 * 8


def test_nothing_is_said_of_a_limit_that_is_kept(four, tmp_path):
    folder, planned = _begun(tmp_path / "short")
    assert "left for later" not in comparison.costs(folder, planned.summary, None, limit=3_600)
    assert "left for later" not in _went_on(folder, limit=3_600)
    assert set(_findings(folder)) == {"memory", "quality", "bottleneck", "decoding"}
    # all is there: there is nothing to leave
    assert "left for later" not in _went_on(folder, limit=0)


def test_what_is_to_come_takes_as_long_as_the_pace_so_far_says(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("s2s.experiments.running.time", SimpleNamespace(perf_counter=lambda: clock.now))
    with Watch(10_000.0, Console(file=io.StringIO())) as watch:
        clock.now = 30.0
        watch.ends("memory", Cell("rnn"), Kept({}, "", 30.0), 1.0)
        # little to tell by, thirty times as long though it took: 500 seconds are as if they had gone as expected
        assert watch.takes(100.0) == pytest.approx(100 * 530 / 501)
        clock.now = 8_500.0
        watch.ends("memory", Cell("lstm"), Kept({}, "", 8_470.0), 3_999.0)
        assert watch.takes(100.0) == pytest.approx(100 * 9_000 / 4_500)


def test_what_trials_took_is_not_told_by_the_pace_of_guesses_once_more(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("s2s.experiments.running.time", SimpleNamespace(perf_counter=lambda: clock.now))
    told = io.StringIO()
    with Watch(4_000.0, Console(file=told)) as watch:
        # a machine that is half as fast as guessed
        clock.now = 4_000.0
        watch.ends("tuning", Cell("rnn"), Kept({}, "", 4_000.0), 2_000.0)
        watch.expect(-1_000.0)
        watch.expect(2_000.0, timed=True)
        before = 0.05 * 5_000
        assert watch.takes(2_000.0, timed=True) == 2_000.0
        assert watch.takes(1_000.0) == pytest.approx(1_000 * (4_000 + before) / (2_000 + before))
        clock.now = 5_000.0
        watch.ends("quality", Cell("rnn"), Kept({}, "", 1_000.0), 1_000.0, timed=True)
        # what was timed says nothing about guesses
        assert watch.takes(1_000.0) == pytest.approx(1_000 * (4_000 + before) / (2_000 + before))
    seconds = round(1_000 + 1_000 * 4_250 / 2_250)
    assert f"{seconds // 60}:{seconds % 60:02} left" in told.getvalue().strip().splitlines()[-1]


def _by_a_clock(monkeypatch, counting):
    """A measurement, be it a trial of a rate, takes a hundred seconds of a clock."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("s2s.experiments.running.time", SimpleNamespace(perf_counter=lambda: clock.now))
    measure = counting.measure

    def slowly(contest, cell):
        clock.now += 100.0
        return measure(contest, cell)

    monkeypatch.setattr(counting, "measure", slowly)
    return clock


def test_an_experiment_that_takes_much_longer_than_expected_stops_and_is_gone_on_with(counting, tmp_path, monkeypatch):
    _by_a_clock(monkeypatch, counting)
    experiment = replace(comparison.EXPERIMENTS["memory"], measure=counting.measure)
    monkeypatch.setattr(comparison, "EXPERIMENTS", {"memory": experiment})
    planned = order(Order(("rnn", "lstm", *TINY), seeds=3, experiments=("memory",), out=tmp_path / "slow"))
    beginning.begin(planned.folder, planned.base, planned.summary)
    # six measurements that were to take a second each: the fourth is the first to end beyond the limit and a tenth
    told = _went_on(planned.folder, limit=300)
    assert len(counting.asked) == 4
    assert "left for later, as all is to take about 5 min at most: memory (" in told
    assert _findings(planned.folder) == {}
    assert "left for later" not in _went_on(planned.folder)
    assert len(counting.asked) == len(set(counting.asked)) == 6
    assert set(_findings(planned.folder)) == {"memory"}


def test_choosing_rates_stops_likewise(counting, tmp_path, monkeypatch):
    clock = _by_a_clock(monkeypatch, counting)
    trial = tuning.TUNING.measure

    def slowly(contest, cell):
        clock.now += 100.0
        return trial(contest, cell)

    monkeypatch.setattr(comparison, "TUNING", replace(tuning.TUNING, measure=slowly))
    folder, _ = _begun(tmp_path / "slow")
    told = _went_on(folder, limit=150)
    assert "left for later, as all is to take about 2 min at most: the rest of choosing rates and depths, and" in told
    assert counting.asked == []
    trials = list((folder / "cells/tuning").glob("*.json"))
    assert len(trials) == 2
    _went_on(folder)
    assert len(counting.asked) == 2
    assert {path for path in trials if path.exists()} == set(trials)


QUICK = Order(("rnn", "transformer"))


@pytest.mark.parametrize(
    ("asked", "hours"),
    [
        (QUICK, 0.25),
        # each model more has as much time as the first two
        (replace(QUICK, words=("rnn", "gru", "lstm", "transformer")), 0.5),
        (replace(QUICK, profile="lecture"), 4),
        (replace(QUICK, profile="lecture", out=Path("there"), match="time"), 4),
        (replace(QUICK, words=(*QUICK.words, "device.precision=fp32", "rnn.encoder_layers=1")), 0.25),
        # whoever asks for more than a profile's own is given it
        (replace(QUICK, words=(*QUICK.words, "training.updates=9000")), math.inf),
        (replace(QUICK, profile="lecture", seeds=9), math.inf),
        (replace(QUICK, experiments=("quality",)), math.inf),
        (replace(QUICK, recipe=Path("compare")), math.inf),
        (replace(QUICK, profile="definitive"), math.inf),
    ],
)
def test_a_profile_has_a_limit_where_it_is_asked_for_nothing_else(asked, hours):
    assert time_limit(asked, order(asked).summary) == 3_600 * hours


def test_classifiers_have_none():
    asked = Order(("lstm", "rnn"), task=Path("imdb_lab"))
    assert time_limit(asked, order(asked).summary) == math.inf
