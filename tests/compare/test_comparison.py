"""A comparison goes on where it was interrupted, and a cell that failed says so."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from rich.console import Console

from s2s.comparison import engine, executor, setup
from s2s.comparison.report.drawing import draw
from s2s.comparison.request import Order, extended, order
from s2s.comparison.results import RESULT, Failure, read_result, read_summary
from s2s.errors import Stopped, UserError
from s2s.files import COMPARISON
from tests.compare.counting import TINY, Asked, begin


def _without_times(folder: Path) -> tuple:
    summary, result = read_summary(folder / COMPARISON), read_result(folder / "memory" / RESULT)
    contenders = [c.model_copy(update={"tuning_seconds": 0}) for c in summary.contenders]
    machine = {key: value for key, value in summary.machine.items() if key != "processes"}
    same = {"seconds": 0, "contenders": contenders, "command": "", "machine": machine}
    return summary.model_copy(update=same), result.model_copy(update={"seconds": 0})


@pytest.mark.real_trials
@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_one_process_interrupted_and_two_that_are_not_come_to_the_same_results(
    counting, tmp_path, monkeypatch, processes
):
    console = Console(file=io.StringIO())
    whole = begin(tmp_path / "whole", "rnn", "transformer")
    with monkeypatch.context() as beside:
        beside.setattr(engine, "number_for", lambda device_context: processes)
        engine.resume(whole, console)
    asked, counting.asked, counting.interrupt_at = counting.asked, [], 3
    stopped = begin(tmp_path / "stopped", "rnn", "transformer")
    with pytest.raises(Stopped, match=r"resume with: s2s compare --resume .*stopped"):
        engine.resume(stopped, console)
    counting.interrupt_at = None
    engine.resume(stopped, console)
    assert counting.asked == asked
    assert _without_times(stopped) == _without_times(whole)
    # and once finished, nothing is done again
    engine.resume(stopped, console)
    assert counting.asked == asked
    # but for what is damaged
    rate = read_summary(stopped / COMPARISON).contenders[0].learning_rate
    for path in (stopped / "cells" / "tuning").glob(f"rnn--*rate-{round(1e6 * rate)}.json"):
        path.write_text(path.read_text()[:20])
    engine.resume(stopped, console)
    assert counting.asked == asked
    assert _without_times(stopped) == _without_times(whole)


@pytest.mark.real_trials
def test_contestants_have_equal_sizes_and_the_rate_of_the_lowest_loss(counting, tmp_path):
    folder = begin(tmp_path / "both", "rnn", "transformer", "rnn.bidirectional=false")
    engine.resume(folder, Console(file=io.StringIO()))
    rnn, transformer = read_summary(folder / COMPARISON).contenders
    assert abs(rnn.parameters - transformer.parameters) <= 0.05 * transformer.parameters
    assert rnn.settings["bidirectional"] is False
    for contender in (rnn, transformer):
        losses = {float(rate): loss for rate, loss in contender.rates.items()}
        assert contender.learning_rate == min(losses, key=losses.get)
    found = read_result(folder / "memory" / RESULT).findings
    assert found[0].value == rnn.learning_rate


def test_a_model_that_cannot_take_part_says_so_in_its_cell(counting, tmp_path):
    folder = begin(tmp_path / "gru", "rnn", "gru")
    text = io.StringIO()
    engine.resume(folder, Console(file=text))
    result = read_result(folder / "memory" / RESULT)
    assert [(f.model, f.failed) for f in result.findings] == [("rnn", ""), ("gru", "gru cannot count")]
    reason = "gru cannot count"
    assert result.failures[0] == Failure(task="gru--count--seed1", model="gru", reason=reason, applicable=False)
    assert "not applicable: gru cannot count" in text.getvalue()


def test_a_conclusion_that_fails_leaves_the_measurements(counting, tmp_path, monkeypatch):
    def broken(contest, measured):
        raise ValueError("no numbers")

    monkeypatch.setattr(counting, "conclusion", broken)
    folder = begin(tmp_path / "broken", "rnn", "lstm")
    engine.resume(folder, Console(file=io.StringIO()))
    result = read_result(folder / "memory" / RESULT)
    assert all("the analysis failed: ValueError: no numbers" in f.failed for f in result.findings)
    assert len(list((folder / "cells" / "memory").glob("*.json"))) == 4


ROPE = "transformer:encoder_positions=rope,decoder_positions=rope"
WIDE = "transformer:heads_kind=wide"


def test_contenders_of_one_kind_have_rates_cells_and_columns_of_their_own(counting, tmp_path):
    folder = begin(tmp_path / "variants", "transformer", ROPE, WIDE, "transformer.dropout=0.2")
    told = io.StringIO()
    engine.resume(folder, Console(file=told))
    summary, result = read_summary(folder / COMPARISON), read_result(folder / "memory" / RESULT)
    assert [c.model for c in summary.contenders] == result.models == ["transformer", ROPE, WIDE]
    plain, rope, wide = (c.settings for c in summary.contenders)
    assert (plain["encoder_positions"], rope["encoder_positions"], rope["decoder_positions"]) == (
        *("sinusoidal", "rope", "rope"),
    )
    assert (plain["heads_kind"], wide["heads_kind"]) == ("split", "wide")
    assert {c["dropout"] for c in (plain, rope, wide)} == {0.2}
    sizes = [c.parameters for c in summary.contenders]
    assert max(sizes) <= 1.1 * min(sizes)
    assert wide["width"] < plain["width"]
    # three contenders, two seeds; each has trials of its own
    assert len(list((folder / "cells" / "memory").glob("*.json"))) == 6
    trials = [path.name.rpartition("--")[0] for path in (folder / "cells" / "tuning").glob("*.json")]
    assert len(set(trials)) == 3
    assert len({trials.count(name) for name in set(trials)}) == 1
    # the rates are those of different models
    assert plain != rope
    assert summary.contenders[0].rates != summary.contenders[1].rates != summary.contenders[2].rates
    page = draw(folder).read_text(encoding="utf-8")
    assert all(name in page for name in (ROPE, WIDE))
    asked = list(counting.asked)
    engine.resume(folder, Console(file=io.StringIO()))
    assert counting.asked == asked


def test_contenders_that_come_to_the_same_model_are_refused(counting, tmp_path):
    with pytest.raises(UserError, match="transformer and transformer:norm=pre are the same model"):
        begin(tmp_path / "same", "transformer", "transformer:norm=pre")
    assert not (tmp_path / "same").exists()


def _two(counting, monkeypatch):
    """Two questions that are asked one after the other."""
    both = {}
    for name in ("memory", "decoding"):
        given = (counting.trials, counting.measure, lambda *given: counting.conclusion(*given))
        both[name] = Asked(name, "How often?", *given, TypeAdapter(dict), exclusive=name == "memory")
    monkeypatch.setattr(engine, "EXPERIMENTS", both)


def test_what_it_costs_is_told_before_and_counts_only_what_no_file_holds(counting, tmp_path, monkeypatch):
    _two(counting, monkeypatch)
    folder = tmp_path / "costs"
    planned = order(Order(("rnn", "lstm", *TINY), seeds=2, experiments=("memory", "decoding"), out=folder))
    before = engine.describe_costs(folder, planned.summary, planned.base).splitlines()
    assert not folder.exists()
    assert before[1:3] == [
        "memory: 4 measurements, about 2 min, one after another",
        "decoding: 4 measurements, less than a minute",
    ]
    # of two rates, at two depths
    assert before[3].startswith("total: 16 measurements, about 2 min")
    setup.create(folder, planned.base, planned.summary)
    assert engine.describe_costs(folder, planned.summary, planned.base).splitlines() == before
    counting.interrupt_at = 5
    with pytest.raises(Stopped):
        engine.resume(folder, Console(file=io.StringIO()))
    again = engine.describe_costs(folder, setup.load_summary(folder), None).splitlines()
    assert again[0] == "decoding: 3 measurements, less than a minute"
    assert again[1].endswith("; 13 are stored already")
    # what is answered can be drawn while the rest is not
    page = draw(folder).read_text(encoding="utf-8")
    assert "No results yet for: decoding." in page
    assert 'id="experiment-memory"' in page
    summary = read_summary(folder / COMPARISON)
    assert summary.machine["date"]
    assert summary.seconds > 0
    told, counting.interrupt_at = io.StringIO(), None
    engine.resume(folder, Console(file=told))
    assert told.getvalue().splitlines()[: len(again)] == again
    assert len(counting.asked) == 8
    # a third seed is measured, and nothing again
    asked = extended(setup.load_summary(folder), Order(seeds=3))
    assert "decoding: 2 measurements" in engine.describe_costs(folder, asked, None)
    assert setup.load_summary(folder).seeds == [1, 2]
    engine.resume(folder, Console(file=io.StringIO()), summary=asked)
    assert len(counting.asked) == 12
    assert setup.load_summary(folder) == read_summary(folder / COMPARISON)
    assert read_summary(folder / COMPARISON).seeds == [1, 2, 3]
    # one whose rates were chosen with seed 1 goes on from its own
    later = asked.model_copy(update={"seeds": [2, 3, 4]})
    assert extended(later, Order(seeds=5)).seeds == [2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("profile", "experiment", "settles"),
    [("quick", "quality", "lecture"), ("quick", "scaling", "definitive"), ("lecture", "scaling", "definitive")],
)
def test_what_a_profile_cannot_settle_is_measured_when_asked_for_and_said(
    profile, experiment, settles, counting, tmp_path, monkeypatch
):
    asked = Order(("rnn", "lstm", *TINY), profile, 1, experiments=(experiment,), out=tmp_path / experiment)
    planned = order(asked)
    monkeypatch.setattr(engine, "EXPERIMENTS", {experiment: engine.all_experiments()[experiment]})
    told = engine.describe_costs(planned.folder, planned.summary, planned.base).splitlines()
    assert told[-1].startswith(f"profile too short for {experiment}: ")
    assert told[-1].endswith(f"use --profile {settles}")


def _on(monkeypatch, name: str) -> None:
    """As if this processor were that one."""
    monkeypatch.setattr(executor, "processor_name", lambda: name)
    monkeypatch.setattr(engine, "processor_name", lambda: name)


def test_times_are_of_one_machine_and_results_name_those_that_measured_them(counting, tmp_path, monkeypatch):
    _two(counting, monkeypatch)
    folder = tmp_path / "moved"
    planned = order(Order(("rnn", "lstm", *TINY), seeds=1, experiments=("memory", "decoding"), out=folder))
    _on(monkeypatch, "Old")
    setup.create(folder, planned.base, planned.summary)
    engine.resume(folder, Console(file=io.StringIO()))
    assert len(counting.asked) == 4
    _on(monkeypatch, "New")
    # what is finished is not measured again elsewhere
    engine.resume(folder, Console(file=io.StringIO()))
    assert len(counting.asked) == 4
    told, asked = io.StringIO(), extended(setup.load_summary(folder), Order(seeds=2))
    assert "memory: 4 measurements" in engine.describe_costs(folder, asked, None)
    assert "decoding: 2 measurements" in engine.describe_costs(folder, asked, None)
    engine.resume(folder, Console(file=told), summary=asked)
    assert "memory: results of Old (fp32) are measured again on this machine" in told.getvalue()
    assert len(counting.asked) == 10
    summary = read_summary(folder / COMPARISON)
    assert summary.machine["processor"] == "Old"
    memory, decoding = (read_result(folder / name / RESULT) for name in ("memory", "decoding"))
    assert (memory.machines, decoding.machines) == (["New (fp32)"], ["Old (fp32)", "New (fp32)"])
    assert memory.elsewhere(summary) == ["New (fp32)"]
    # names that begin alike are other machines
    other = memory.model_copy(update={"machines": ["Old (fp32)", "Old (family 26, model 2) (fp32)"]})
    assert other.elsewhere(summary) == other.machines
    page = draw(folder).read_text(encoding="utf-8")
    assert ", on New (fp32)." in page
    assert ", on Old (fp32) and New (fp32)." in page


def test_what_is_measured_in_fp32_is_labelled_so_in_any_comparison(counting, tmp_path, monkeypatch):
    experiment = engine.EXPERIMENTS["memory"]
    assert {engine.all_experiments()[name].precision for name in ("memory", "decoding")} == {"fp32"}
    _on(monkeypatch, "New")
    for precision, label in (("", "New (bf16)"), ("fp32", "New (fp32)")):
        monkeypatch.setattr(engine, "EXPERIMENTS", {"memory": replace(experiment, precision=precision)})
        words = [word.replace("precision=fp32", "precision=bf16") for word in TINY]
        asked = Order(("rnn", "lstm", *words), seeds=1, experiments=("memory",))
        planned = order(replace(asked, out=tmp_path / label))
        setup.create(planned.folder, planned.base, planned.summary)
        engine.resume(planned.folder, Console(file=io.StringIO()))
        assert read_result(planned.folder / "memory" / RESULT).machines == [label]


def test_what_another_s2s_measured_is_told_and_times_are_of_one(counting, tmp_path, monkeypatch):
    def by(code: str) -> None:
        for module in (executor, engine):
            monkeypatch.setattr(module, "code_version", lambda: code)

    _two(counting, monkeypatch)
    folder = tmp_path / "updated"
    planned = order(Order(("rnn", "lstm", *TINY), seeds=1, experiments=("memory", "decoding"), out=folder))
    by("s2s 1 at abc")
    setup.create(folder, planned.base, planned.summary)
    engine.resume(folder, Console(file=io.StringIO()))
    # what is finished is not measured again by another one
    by("s2s 1 at def")
    told = io.StringIO()
    engine.resume(folder, Console(file=told))
    assert "abc" not in told.getvalue()
    assert len(counting.asked) == 4
    assert "by s2s" not in draw(folder).read_text(encoding="utf-8")
    asked = extended(setup.load_summary(folder), Order(seeds=2))
    engine.resume(folder, Console(file=told, width=200), summary=asked)
    assert "memory: results of s2s 1 at abc are measured again on this machine" in told.getvalue()
    assert "decoding: some results are from s2s 1 at abc, new ones from s2s 1 at def" in told.getvalue()
    # again in the order of the rounds, not the missing ones first
    assert counting.asked[4:8] == [f"{model}--count--seed{s}" for model in ("rnn", "lstm") for s in (1, 2)]
    assert len(counting.asked) == 10
    memory, decoding = (read_result(folder / name / RESULT) for name in ("memory", "decoding"))
    assert (memory.codes, decoding.codes) == (["s2s 1 at def"], ["s2s 1 at abc", "s2s 1 at def"])
    assert ", with code s2s 1 at abc and s2s 1 at def." in draw(folder).read_text(encoding="utf-8")


def test_who_always_fails_makes_nobody_be_measured_again(counting, tmp_path, monkeypatch):
    folder = begin(tmp_path / "failing", "rnn", "gru")
    for code in ("s2s 1 at abc", "s2s 1 at def"):
        for module in (executor, engine):
            monkeypatch.setattr(module, "code_version", lambda code=code: code)
        engine.resume(folder, Console(file=io.StringIO()))
    assert counting.asked == [f"{model}--count--seed{s}" for model in ("rnn", "gru") for s in (1, 2)] + [
        f"gru--count--seed{s}" for s in (1, 2)
    ]
    assert read_result(folder / "memory" / RESULT).codes == ["s2s 1 at abc"]
