"""What trials choose, which measurements depend on it, and what becomes of them when it changes."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from s2s.experiments import choice, comparison
from s2s.experiments.beginning import begun
from s2s.experiments.running import Watch, Workers
from s2s.folders import COMPARISON
from s2s.report.drawing import draw
from s2s.results import Contender, read_summary, write
from tests.experiments.counting import begin


def test_another_choice_is_one_of_the_rate_or_of_any_setting_that_both_versions_know():
    def contender(model, rate, **settings):
        given = {"model": model, "settings": settings, "learning_rate": rate, "parameters": 5, "recipe": ""}
        return Contender(**given, rates={f"{rate}": 1.0}, tuning_seconds=0)

    before = [contender("rnn", 0.004, layers=2, residual=False), contender("conv", 0.008, layers=4)]
    now = [contender("rnn", 0.004, layers=2, residual=True), contender("conv", 0.008, layers=4, positions="none")]
    assert choice.rechosen(before, now) == {"rnn": {"residual": "True (was False)"}}
    both = choice.rechosen(before, [contender("conv", 0.002, layers=8), contender("lstm", 0.001)])
    assert both == {"conv": {"learning_rate": "0.002 (was 0.008)", "layers": "8 (was 4)"}}
    assert choice.reshaped(both) == ["conv"]
    assert choice.reshaped(choice.rechosen(before, [contender("rnn", 0.002, layers=2, residual=False)])) == []
    assert choice.rechosen([], now) == {}
    # nothing was chosen for what was measured
    assert choice.rechosen([each.model_copy(update={"rates": {}}) for each in before], now) == {}


@pytest.mark.parametrize("another_depth", [True, False])
def test_runs_and_cells_of_a_model_are_set_aside_and_no_others(another_depth, tmp_path):
    gone = (
        "cells/quality/lstm--run--seed2.json", "cells/quality/lstm--run--seed3.txt", "runs/lstm-seed2/weights",
        "runs/transfer-real-lstm-seed2.safetensors",
    )  # fmt: skip
    # the same model takes the same time and memory at every rate
    timed = (
        "cells/memory/rnn.json", "cells/parallelism/rnn--round-1.json", "cells/parallelism/lstm--round-1.json",
    )  # fmt: skip
    stay = (
        "cells/tuning/lstm--rate-1000.json", "cells/quality/lstm-attention--run--seed2.json", "cells/recipe.yaml",
        "cells/quality/rnn--run--seed2.json", "runs/lstm-whole-rate-1000/weights", "runs/lstm-attention-seed2/weights",
        "runs/transfer-real-lstm-attention-seed2.json", "quality/result.json", "cells/long-range/lstm--seed2.json",
    )  # fmt: skip
    gone, stay = (gone + timed, stay) if another_depth else (gone, stay + timed)
    for path in (*gone, *stay):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    others = ["lstm"] if another_depth else []
    aside = choice.set_aside(tmp_path, ["lstm"], others, comparison.EXPERIMENTS.values())
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {*stay, *(f"set-aside-1/{path}" for path in gone)}
    assert aside == tmp_path / "set-aside-1"
    assert choice.set_aside(tmp_path, ["gru"], [], comparison.EXPERIMENTS.values()) is None


def test_nothing_is_tried_for_measurements_that_do_not_depend_on_it_until_others_are_asked_for(
    counting, tmp_path, monkeypatch
):
    memory = comparison.EXPERIMENTS["memory"]
    monkeypatch.setattr(comparison, "EXPERIMENTS", {"memory": replace(memory, chosen="")})
    folder = begin(tmp_path / "both", "rnn", "lstm")
    assert "tuning" not in comparison.costs(folder, begun(folder), None)
    comparison.go_on(folder, Console(file=io.StringIO()))
    assert not (folder / "cells/tuning").exists()
    sizes = [f"{each.parameters:,}" for each in read_summary(folder / COMPARISON).contenders]
    assert len(sizes) == 2
    page = draw(folder).read_text()
    assert "Nothing that is measured here depends on a learning rate" in page
    assert "Learning rates are not chosen yet" not in page
    # sizes and recipes are those of what is measured
    assert all(size in page for size in sizes)
    assert page.count('<details class="recipe">') == 2
    assert "lowest validation loss among trials" not in page
    asked, counting.asked = counting.asked, []
    monkeypatch.setattr(comparison, "EXPERIMENTS", {"memory": memory})
    comparison.go_on(folder, Console(file=io.StringIO()))
    assert "lowest validation loss among trials" in draw(folder).read_text()
    assert {Path(path).name for path in (folder / "cells/tuning").glob("rnn--*")}
    # what did not depend on the choice stays
    assert asked
    assert not counting.asked


def test_a_depth_that_the_command_gives_needs_no_trials_where_rates_change_nothing(counting, tmp_path, monkeypatch):
    experiment = replace(comparison.EXPERIMENTS["memory"], chosen="depth")
    monkeypatch.setattr(comparison, "EXPERIMENTS", {"memory": experiment})
    layers = ("encoder_layers=2", "decoder_layers=2")
    given = [f"{model}.{each}" for model in ("rnn", "lstm") for each in layers]
    folder = begin(tmp_path / "given", "rnn", "lstm", *given)
    comparison.go_on(folder, Console(file=io.StringIO()))
    assert not (folder / "cells/tuning").exists()
    assert len(counting.asked) == 4
    # one whose depth is open is enough
    folder = begin(tmp_path / "open", "rnn", "lstm", *given[:2])
    comparison.go_on(folder, Console(file=io.StringIO()))
    assert {path.name.split("--")[0] for path in (folder / "cells/tuning").iterdir()} == {"rnn", "lstm"}


def test_what_takes_time_is_told_of_models_as_deep_as_chosen_and_what_learns_of_their_rates():
    of = {experiment.name: experiment.chosen for experiment in comparison.EXPERIMENTS.values()}
    assert {name for name, chosen in of.items() if chosen == "depth"} == {"parallelism", "memory", "decoding"}
    assert {name for name, chosen in of.items() if not chosen} == {"long-range"}


def test_a_models_next_trials_wait_for_its_own_and_for_no_other_models(counting, tmp_path):
    class Beside:
        """Makes all of the first model's trials before any of the second's."""

        number = 2

        def each(self, call, items):
            made = set()
            while left := [item for item in items if item not in made]:
                item = min(left, key=lambda cell: cell.model != "rnn")
                made.add(item)
                order.append(item)
                yield item, call(item)

    order = []
    folder = begin(tmp_path / "both", "lstm", "rnn")
    summary = begun(folder)
    entrants = comparison._planned(folder, summary, comparison.task_of(folder))
    watch = Watch(0.0, Console(file=io.StringIO()))
    trials = comparison._trials(entrants, watch, Beside())
    models = [cell.model for cell in order]
    assert models == sorted(models, reverse=True)
    assert {cell.part.startswith("layers-1-") for cell in order if cell.model == "rnn"} == {True, False}
    assert {*trials} == {*order} == {*comparison.TUNING.cells(entrants)}
    # one after the other they are the same
    other = begin(tmp_path / "one", "lstm", "rnn")
    entrants = comparison._planned(other, begun(other), comparison.task_of(other))
    with Workers(1) as workers:
        again = comparison._trials(entrants, watch, workers)
    assert {cell: one.measured["loss"] for cell, one in again.items()} == {
        cell: one.measured["loss"] for cell, one in trials.items()
    }


def test_why_trials_failed_stands_on_the_page(counting, tmp_path):
    folder = begin(tmp_path / "both", "rnn", "lstm")
    comparison.go_on(folder, Console(file=io.StringIO()))
    summary = read_summary(folder / COMPARISON)
    first, *others = summary.contenders
    refused = first.model_copy(update={"failures": {"it cannot have so few": "rate 0.004, 4 layers"}})
    write(summary.model_copy(update={"contenders": [refused, *others]}), folder / COMPARISON)
    said = f"{first.model}, trials that failed: it cannot have so few (rate 0.004, 4 layers)."
    assert said in draw(folder).read_text()
