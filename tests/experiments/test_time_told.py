"""What a comparison says that it will take: when it is over, nothing is left, whatever came between."""

import io
import json
import math
import time
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from s2s.cli.compare import Order, order
from s2s.experiments import beginning, comparison, cost, running
from s2s.experiments.contest import Cell
from tests.experiments.counting import TINY, Asked, begin


@pytest.fixture
def watches(monkeypatch):
    """Those of all comparisons that go on."""
    made = []

    class Seen(running.Watch):
        def __init__(self, *given):
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(comparison, "Watch", Seen)
    return made


def _asked(counting, name, seconds, **more):
    def cells(contest):
        return [Cell(model, name, seed, seconds) for seed in contest.seeds for model in contest.models]

    return Asked(name, "How often?", cells, counting.measure, counting.conclusion, **more)


def _begun(folder, *names):
    planned = order(Order(("rnn", "lstm", *TINY), seeds=2, experiments=names, out=folder))
    beginning.begin(folder, planned.base, planned.summary)
    return folder


def _went_on(folder, limit=math.inf):
    told = io.StringIO()
    comparison.go_on(folder, Console(file=told, width=500), limit=limit)
    return told.getvalue()


def _left(watch):
    return pytest.approx([0.0, 0.0], abs=1e-6) == [*watch._ahead.values()]


def test_nothing_is_left_when_all_is_over_and_what_trials_told_is_timed(counting, watches, tmp_path, monkeypatch):
    # quality's seconds are by what trials took, of which it is not known before
    def cells(contest):
        pace = [each.pace or 7.0 for each in contest.contestants]
        return [Cell(model, "quality", 1, 50 * one) for model, one in zip(contest.models, pace, strict=True)]

    quality = Asked("quality", "How often?", cells, counting.measure, counting.conclusion, paced=True)
    every = {"memory": _asked(counting, "memory", 3), "quality": quality}
    monkeypatch.setattr(comparison, "EXPERIMENTS", every)
    folder = _begun(tmp_path / "all", "memory", "quality")
    _went_on(folder)
    (watch,) = watches
    assert _left(watch)
    contest = comparison._planned(folder, beginning.begun(folder), beginning.task_of(folder))
    # trials and what is guessed, and what is timed, each by itself
    assert watch._done[False] > 2 * 2 * 3
    assert 0 < watch._done[True] < 50 * 7.0 * 2
    assert not cost.timed(quality, contest)


def test_nothing_is_left_of_trials_that_were_foreseen_and_not_needed(counting, watches, tmp_path, monkeypatch):
    foreseen = comparison.tuning.foreseen
    needless = [Cell("rnn", "needless", 1, 500.0)]
    monkeypatch.setattr(comparison.tuning, "foreseen", lambda contest: [*foreseen(contest), *needless])
    _went_on(begin(tmp_path / "needless", "rnn", "lstm"))
    assert _left(watches[0])


def test_nothing_is_left_of_what_is_left_for_later(counting, watches, tmp_path, monkeypatch):
    every = {name: _asked(counting, name, long) for name, long in (("memory", 1), ("quality", 900), ("decoding", 1))}
    monkeypatch.setattr(comparison, "EXPERIMENTS", every)
    folder = _begun(tmp_path / "later", *every)
    assert "left for later" in _went_on(folder, limit=600)
    assert _left(watches[0])
    assert not {path.name for path in (folder / "cells").glob("quality/*")}


def test_nothing_is_left_where_time_is_over_among_failures(counting, watches, tmp_path, monkeypatch):
    def cells(contest):
        return [Cell(model, f"part-{i}", seconds=100) for i in range(9) for model in contest.models]

    def measure(contest, cell):
        if cell.model == "rnn":
            raise RuntimeError("no memory")
        time.sleep(0.5)
        return {"rate": 0.1}

    every = {"memory": replace(comparison.EXPERIMENTS["memory"], cells=cells, measure=measure, chosen="")}
    monkeypatch.setattr(comparison, "EXPERIMENTS", every)
    folder = begin(tmp_path / "failures", "rnn", "lstm")
    monkeypatch.setattr(running.Watch, "takes", lambda watch, seconds, timed=False: 0.0)
    assert "left for later" in _went_on(folder, limit=2)
    assert 2 < len([*(folder / "cells/memory").glob("rnn*.json")]) < 9
    assert _left(watches[0])


def test_nothing_is_left_where_trials_choose_anew(counting, watches, tmp_path, monkeypatch):
    folder = begin(tmp_path / "anew", "rnn", "lstm")
    _went_on(folder)
    for path in (folder / "cells/tuning").glob("rnn*.json"):
        kept = json.loads(path.read_text())
        kept["measured"]["loss"] = 9 - kept["measured"]["loss"]
        path.write_text(json.dumps(kept))
    assert "what was measured before lies in" in _went_on(folder)
    assert _left(watches[1])


def test_nothing_is_left_where_a_round_is_made_again(counting, watches, tmp_path, monkeypatch):
    fails = {"rnn--round-1"}

    def cells(contest):
        return [Cell(model, "round-1", seconds=40, in_round=True) for model in contest.models]

    def measure(contest, cell):
        if cell.key in fails:
            raise RuntimeError("no memory")
        return {"rate": 0.1}

    every = {"memory": Asked("memory", "How often?", cells, measure, counting.conclusion, alone=True, chosen="")}
    monkeypatch.setattr(comparison, "EXPERIMENTS", every)
    folder = begin(tmp_path / "again", "rnn", "lstm")
    _went_on(folder)
    fails.clear()
    _went_on(folder)
    assert [_left(watch) for watch in watches] == [True, True]
    assert watches[1]._done[False] == 3 * 40


@pytest.mark.parametrize("trained", [False, True])
def test_trainings_that_nobody_asked_for_are_counted_once_and_done_once(
    counting, watches, tmp_path, monkeypatch, trained
):
    def runs(contest):
        return contest.folder / "runs"

    def measure(contest, cell):
        run = runs(contest) / f"{cell.model}-seed{cell.seed}"
        run.mkdir(parents=True, exist_ok=True)
        (run / "cost.json").write_text("{}")
        return {"rate": 0.1}

    every = {
        "quality": _asked(counting, "quality", 200),
        "bottleneck": replace(_asked(counting, "bottleneck", 5, reads="quality"), measure=measure),
        "positions": replace(_asked(counting, "positions", 7, reads="quality"), measure=measure),
    }
    monkeypatch.setattr(comparison, "EXPERIMENTS", every)
    names = [*every] if trained else ["bottleneck", "positions"]
    folder = _begun(tmp_path / "unasked", *names)
    contest = comparison._planned(folder, beginning.begun(folder), beginning.task_of(folder))
    _, seconds = comparison._told(contest, beginning.begun(folder), 1, math.inf)
    _, trials = comparison._told(contest, beginning.begun(folder).model_copy(update={"experiments": []}), 1, math.inf)
    # two models with two seeds each
    looked = 4 * (200 + 5 + 7)
    asked_for = [cost.cost(comparison.TUNING, contest, comparison.tuning.foreseen(contest), 1).seconds]
    assert (seconds, trials) == (pytest.approx(sum(asked_for) + looked), 0)
    told = _went_on(folder)
    assert _left(watches[0])
    assert "0:00 left" in told


def test_what_other_threads_measured_costs_nothing_where_as_many_measure_again(counting, tmp_path, monkeypatch):
    def cells(contest):
        return [Cell(model, f"size-{i}") for i in range(3) for model in contest.models]

    every = {"memory": replace(comparison.EXPERIMENTS["memory"], cells=cells, chosen="")}
    monkeypatch.setattr(comparison, "EXPERIMENTS", every)
    # the recipe asks for one thread
    folder = begin(tmp_path / "threads", "rnn", "lstm")
    _went_on(folder)
    (folder / "cells/memory/lstm--size-2.json").unlink()
    torch.set_num_threads(2)
    asked = comparison.costs(folder, beginning.begun(folder), None)
    assert "memory: 1 measurements" in asked
    assert "beside each other" not in asked


@pytest.mark.parametrize(
    ("device", "sizes"), [("NVIDIA H100 80GB HBM3, bf16", "cuda"), ("cpu, 2 threads, fp32", "cpu"), (None, "cpu")]
)
def test_what_an_older_version_began_keeps_the_sizes_of_its_device(counting, tmp_path, device, sizes):
    folder = begin(tmp_path / "older", "rnn", "lstm")
    machine = {"processor": "X"} | ({"device": device} if device else {})
    beginning.note(folder, beginning.begun(folder).model_copy(update={"machine": machine}))
    _went_on(folder)
    assert beginning.begun(folder).sized_for == sizes
