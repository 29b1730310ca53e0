"""What lacks some seeds is not judged by the others, and rounds of times are of use only beside each other."""

import io
import json
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from s2s.comparison import engine, executor, setup, tuning
from s2s.comparison.analysis import partly_failed
from s2s.comparison.executor import StoredResult
from s2s.comparison.report.table import matrix
from s2s.comparison.request import Order, extended, order
from s2s.comparison.results import RESULT, read_result, read_summary
from s2s.comparison.spec import Analysis, NotForThisModel, Trial
from s2s.errors import Stopped, UserError
from s2s.files import COMPARISON
from tests.compare.counting import TINY, begin


def _went_on(folder, **more):
    told = io.StringIO()
    engine.resume(folder, Console(file=told, width=500), **more)
    return told.getvalue()


def _asks(monkeypatch, **changes):
    experiment = replace(engine.EXPERIMENTS["memory"], **changes)
    monkeypatch.setattr(engine, "EXPERIMENTS", {"memory": experiment})


def test_a_model_that_fails_with_some_seeds_is_not_judged_by_the_others(counting, tmp_path, monkeypatch):
    seen, well = [], []

    def measure(contest, cell):
        if (cell.model, cell.seed) == ("lstm", 2) and not well:
            raise UserError("the loss is no number")
        return counting.measure(contest, cell)

    def conclusion(contest, measured):
        seen.append({(cell.model, cell.seed) for cell in measured})
        return counting.conclusion(contest, {cell: m for cell, m in measured.items() if cell.model == "lstm"})

    _asks(monkeypatch, measure=measure, analyse=conclusion)
    folder = begin(tmp_path / "diverging", "rnn", "lstm")
    _went_on(folder)
    assert seen[-1] == {("rnn", 1), ("rnn", 2)}
    result = read_result(folder / "memory" / RESULT)
    (cell,) = [finding for finding in result.findings if finding.model == "lstm"]
    assert cell.failed == "1 of 2 seeds failed, so the others are biased: the loss is no number"
    assert [failure.task for failure in result.failures] == ["lstm--count--seed2"]
    # what failed is tried again, and then all of them count
    well.append(True)
    _went_on(folder)
    assert seen[-1] == {(model, seed) for model in ("rnn", "lstm") for seed in (1, 2)}
    assert not next(f.failed for f in read_result(folder / "memory" / RESULT).findings if f.model == "lstm")


def test_a_question_that_does_not_apply_to_a_model_has_not_failed(counting, tmp_path, monkeypatch):
    def measure(contest, cell):
        if cell.model == "lstm":
            raise NotForThisModel("it has no positions")
        raise UserError("the loss is no number")

    _asks(monkeypatch, measure=measure, analyse=lambda contest, measured: Analysis())
    folder = begin(tmp_path / "other", "rnn", "lstm")
    _went_on(folder)
    result = read_result(folder / "memory" / RESULT)
    rows = matrix(read_summary(folder / COMPARISON), ["rnn", "lstm"], [result])
    boxes = next(line.boxes for line in rows if line.boxes)
    assert [(box.label, box.verdict, box.open) for box in boxes] == [
        ("failed", "the loss is no number", True),
        ("not applicable", "it has no positions", True),
    ]
    assert {(each.model, each.applicable) for each in result.failures} == {("rnn", True), ("lstm", False)}


def test_estimates_are_scaled_by_the_seconds_of_finished_trials(counting, tmp_path):
    folder = begin(tmp_path / "slow", "rnn", "lstm")
    _went_on(folder)
    paths = sorted((folder / "cells" / "memory").glob("*.json"))
    paths[0].write_text(json.dumps(json.loads(paths[0].read_text()) | {"seconds": 1200.0}))
    for path in paths[1:]:
        path.unlink()
    assert "memory: 3 measurements, about 1 h 0 min" in engine.describe_costs(folder, setup.load_summary(folder), None)
    said = _went_on(folder)
    assert "memory: 3 measurements, about 1 h 0 min" in said
    left = [line.rpartition(" · ")[2] for line in said.splitlines() if line.startswith("memory: ") and "left" in line]
    assert left[-1] == "0:00 left"


def test_parts_whose_seeds_all_failed_or_succeeded_and_rounds_are_whole():
    fails, holds = StoredResult(None, "no", 1.0), StoredResult({}, "", 1.0)
    made = {
        **{Trial("rnn", "a", seed): fails for seed in (1, 2)},
        **{Trial("rnn", "b", seed): holds for seed in (1, 2)},
        **{Trial("rnn", f"round-{i}"): fails if i == 2 else holds for i in (1, 2, 3)},
        **{Trial("lstm", "b", seed): fails if seed == 2 else holds for seed in (1, 2, 3)},
    }
    assert partly_failed(made) == {("lstm", "b"): "1 of 3 seeds failed, so the others are biased: no"}


def test_a_cell_says_what_fails_always_before_what_fails_sometimes(counting, tmp_path, monkeypatch):
    def cells(contest):
        return [Trial(model, part, seed) for model in contest.models for part in "ba" for seed in contest.seeds]

    def measure(contest, cell):
        if (cell.model, cell.part, cell.seed) == ("rnn", "b", 2):
            raise UserError("now and then")
        if (cell.model, cell.part) == ("rnn", "a"):
            raise UserError("always")
        return {"rate": 0.1}

    _asks(monkeypatch, trials=cells, measure=measure, analyse=lambda contest, measured: Analysis())
    folder = begin(tmp_path / "reasons", "rnn", "lstm")
    _went_on(folder)
    reasons = {found.model: found.failed for found in read_result(folder / "memory" / RESULT).findings}
    assert reasons == {"rnn": "always", "lstm": "not measured"}

    def dies(contest, measured):
        raise ValueError("upside down")

    _asks(monkeypatch, trials=cells, measure=measure, analyse=dies)
    _went_on(folder)
    said = {found.failed for found in read_result(folder / "memory" / RESULT).findings}
    assert said == {"the analysis failed: ValueError: upside down"}


@pytest.fixture
def rounds(counting, monkeypatch):
    """Each seed of the counting question is a round."""
    cells = counting.trials

    def in_rounds(contest):
        by_seed = sorted(cells(contest), key=lambda cell: cell.seed)
        return [Trial(cell.model, f"round-{cell.seed}", in_round=True) for cell in by_seed]

    _asks(monkeypatch, trials=in_rounds)
    return counting


def test_a_model_that_comes_later_has_rounds_with_all_others(rounds, tmp_path):
    folder = begin(tmp_path / "later", "rnn", "lstm")
    _went_on(folder)
    assert rounds.asked == ["rnn--round-1", "lstm--round-1", "rnn--round-2", "lstm--round-2"]
    # all is there
    _went_on(folder)
    assert len(rounds.asked) == 4
    asked = extended(setup.load_summary(folder), Order(("mingru",)))
    assert "memory: 6 measurements" in engine.describe_costs(folder, asked, None)
    told = _went_on(folder, summary=asked)
    assert "memory: rounds in which a model is missing are measured again" in told
    assert rounds.asked[4:] == [f"{model}--round-{i}" for i in (1, 2) for model in ("rnn", "lstm", "mingru")]


def test_an_interrupted_round_is_begun_again(rounds, tmp_path):
    folder = begin(tmp_path / "interrupted", "rnn", "lstm")
    rounds.interrupt_at = 3
    with pytest.raises(Stopped):
        _went_on(folder)
    rounds.interrupt_at = None
    _went_on(folder)
    assert rounds.asked[3:] == ["rnn--round-2", "lstm--round-2"]


def test_a_failed_round_that_succeeds_elsewhere_takes_all_others_with_it(rounds, tmp_path, monkeypatch):
    well, measure = [], rounds.measure

    def fails(contest, cell):
        if cell.key == "rnn--round-2" and not well:
            raise RuntimeError("no memory")
        return measure(contest, cell)

    _asks(monkeypatch, measure=fails)
    monkeypatch.setattr(executor, "processor_name", lambda: "Old")
    folder = begin(tmp_path / "failed", "rnn", "lstm")
    _went_on(folder)
    assert len(rounds.asked) == 3
    # tried again elsewhere in vain, it makes nobody be measured again
    monkeypatch.setattr(executor, "processor_name", lambda: "New")
    _went_on(folder)
    assert len(rounds.asked) == 3
    well.append(True)
    _went_on(folder)
    # alone it says that it succeeds; then its round is made in turns, and so is the other one, which is of elsewhere
    in_turns = [f"{model}--round-{i}" for i in (1, 2) for model in ("rnn", "lstm")]
    assert rounds.asked[3:] == ["rnn--round-2", *in_turns]
    machines = {json.loads(path.read_text())["machine"] for path in (folder / "cells/memory").glob("*.json")}
    assert machines == {"New (fp32)"}


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_failed_round_that_succeeds_later_is_made_again_as_a_whole(rounds, tmp_path, monkeypatch, interrupted):
    fails, measure = {"lstm--round-1", "lstm--round-2"}, rounds.measure

    def measured(contest, cell):
        if cell.key in fails:
            raise RuntimeError("no memory")
        return measure(contest, cell)

    _asks(monkeypatch, measure=measured)
    folder = begin(tmp_path / "failed", "rnn", "lstm")
    _went_on(folder)
    assert rounds.asked == ["rnn--round-1", "rnn--round-2"]
    fails.remove("lstm--round-2")
    if interrupted:
        rounds.interrupt_at = 3
        with pytest.raises(Stopped):
            _went_on(folder)
        rounds.interrupt_at = None
    _went_on(folder)
    # the other round, in which it fails again, stays as it is
    assert rounds.asked[2:] == ["lstm--round-2", "rnn--round-2", "lstm--round-2"]


def test_times_with_another_number_of_threads_are_no_company(rounds, tmp_path):
    folder = begin(tmp_path / "threads", "rnn", "lstm")
    _went_on(folder)
    for path in (folder / "cells/memory").glob("*--round-1.json"):
        path.unlink()
    for path in (folder / "cells/memory").glob("*.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"threads": 1 + torch.get_num_threads()}))
    told = _went_on(folder)
    assert "memory: results with another number of threads are measured again with 1" in told
    assert len(rounds.asked) == 8


def test_a_comparison_that_goes_on_on_a_gpu_asks_what_it_asked_before(counting, tmp_path, monkeypatch):
    sizes = {"lecture": "small", "definitive": "large", "definitive on a GPU": "huge"}
    seen = []

    def cells(contest):
        seen.append(contest.sizes(sizes))
        return counting.trials(contest)

    _asks(monkeypatch, trials=cells)
    monkeypatch.setitem(tuning.FULL_TRIALS, "definitive", 0)
    folder = begin(tmp_path / "moved", "rnn", "lstm")
    summary = setup.load_summary(folder).model_copy(update={"profile": "definitive"})
    _went_on(folder, summary=summary)
    assert set(seen) == {"large"}
    assert setup.load_summary(folder).sized_for == "cpu"
    base = setup.load_task(folder)
    contest = engine._comparison(folder, setup.load_summary(folder), base)
    there = replace(contest, device_context=replace(contest.device_context, device=torch.device("cuda")))
    assert there.sizes(sizes) == "large"
    assert replace(there, sized_for="").sizes(sizes) == "huge"


@pytest.mark.parametrize(
    ("asked", "trainings"), [(("bottleneck",), 4), (("quality", "bottleneck"), 0), (("gradients",), 0)]
)
def test_costs_count_the_trainings_of_models_that_no_asked_question_trains(asked, trainings, tmp_path):
    planned = order(Order(("rnn", "lstm", *TINY), seeds=2, experiments=asked, out=tmp_path / "new"))
    told = engine.describe_costs(planned.folder, planned.summary, planned.base)
    assert (f"trained models (as for quality): {trainings} measurements" in told) == (trainings > 0)


def test_costs_do_not_count_trainings_that_are_there(tmp_path):
    planned = order(Order(("rnn", "lstm", *TINY), seeds=2, experiments=("bottleneck",), out=tmp_path / "there"))
    setup.create(planned.folder, planned.base, planned.summary)
    for run in ("rnn-seed1", "rnn-seed2", "lstm-seed2"):
        (planned.folder / "runs" / run).mkdir(parents=True)
        (planned.folder / "runs" / run / "cost.json").write_text("{}")
    told = engine.describe_costs(planned.folder, planned.summary, None)
    assert "trained models (as for quality): 1 measurements" in told
