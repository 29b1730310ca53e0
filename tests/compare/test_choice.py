"""What trials choose, which measurements depend on it, and what becomes of them when it changes."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from s2s.comparison import engine
from s2s.comparison.progress import Progress
from s2s.comparison.report.drawing import draw
from s2s.comparison.results import read_summary, write
from s2s.comparison.setup import load_summary
from s2s.comparison.workers import Workers
from s2s.errors import UserError
from s2s.files import COMPARISON
from tests.compare.counting import begin


def test_nothing_is_tried_for_measurements_that_do_not_depend_on_it_until_others_are_asked_for(
    counting, tmp_path, monkeypatch
):
    memory = engine.EXPERIMENTS["memory"]
    monkeypatch.setattr(engine, "EXPERIMENTS", {"memory": replace(memory, tuning_level="")})
    folder = begin(tmp_path / "both", "rnn", "lstm")
    assert "tuning" not in engine.describe_costs(folder, load_summary(folder), None)
    engine.resume(folder, Console(file=io.StringIO()))
    assert not (folder / "cells/tuning").exists()
    sizes = [f"{each.parameters:,}" for each in read_summary(folder / COMPARISON).contenders]
    assert len(sizes) == 2
    page = draw(folder).read_text()
    assert "No measurement here depends on a learning rate" in page
    assert "Learning rates are not chosen yet" not in page
    # sizes and recipes are those of what is measured
    assert all(size in page for size in sizes)
    assert page.count('<details class="recipe">') == 2
    assert "lowest validation loss in its trials" not in page
    asked, counting.asked = counting.asked, []
    monkeypatch.setattr(engine, "EXPERIMENTS", {"memory": memory})
    engine.resume(folder, Console(file=io.StringIO()))
    assert "lowest validation loss in its trials" in draw(folder).read_text()
    assert {Path(path).name for path in (folder / "cells/tuning").glob("rnn--*")}
    # what did not depend on the choice stays
    assert asked
    assert not counting.asked


def test_a_depth_that_the_command_gives_needs_no_trials_where_rates_change_nothing(counting, tmp_path, monkeypatch):
    experiment = replace(engine.EXPERIMENTS["memory"], tuning_level="depth")
    monkeypatch.setattr(engine, "EXPERIMENTS", {"memory": experiment})
    layers = ("encoder_layers=2", "decoder_layers=2")
    given = [f"{model}.{each}" for model in ("rnn", "lstm") for each in layers]
    folder = begin(tmp_path / "given", "rnn", "lstm", *given)
    engine.resume(folder, Console(file=io.StringIO()))
    assert not (folder / "cells/tuning").exists()
    assert len(counting.asked) == 4
    # one whose depth is open is enough
    folder = begin(tmp_path / "open", "rnn", "lstm", *given[:2])
    engine.resume(folder, Console(file=io.StringIO()))
    assert {path.name.split("--")[0] for path in (folder / "cells/tuning").iterdir()} == {"rnn", "lstm"}


def test_what_takes_time_is_told_of_models_as_deep_as_chosen_and_what_learns_of_their_rates():
    of = {experiment.name: experiment.tuning_level for experiment in engine.EXPERIMENTS.values()}
    assert {name for name, chosen in of.items() if chosen == "depth"} == {"parallelism", "memory", "decoding"}
    own = {"long-range", "copying", "associative-recall", "capacity", "state-tracking", "initialization"}
    own.add("length-generalization")
    assert {name for name, chosen in of.items() if not chosen} == own


def test_a_models_next_trials_wait_for_its_own_and_for_no_other_models(counting, tmp_path):
    class Beside:
        """Makes all of the first model's trials before any of the second's."""

        number = 2

        def map_unordered(self, call, items):
            made = set()
            while left := [item for item in items if item not in made]:
                item = min(left, key=lambda job: job.trial.model != "rnn")
                made.add(item)
                order.append(item.trial)
                yield item, call(item)

    order = []
    folder = begin(tmp_path / "both", "lstm", "rnn")
    summary = load_summary(folder)
    entrants = engine._comparison(folder, summary, engine.load_task(folder))
    watch = Progress(0.0, Console(file=io.StringIO()))
    trials = engine._run_tuning(entrants, set(), watch, Beside(), 0.0)
    models = [cell.model for cell in order]
    assert models == sorted(models, reverse=True)
    assert {cell.part.startswith("layers-1-") for cell in order if cell.model == "rnn"} == {True, False}
    assert {*trials} == {*order} == {*engine.TUNING.trials(entrants)}
    # one after the other they are the same
    other = begin(tmp_path / "one", "lstm", "rnn")
    entrants = engine._comparison(other, load_summary(other), engine.load_task(other))
    with Workers(1) as workers:
        again = engine._run_tuning(entrants, set(), watch, workers, 0.0)
    assert {cell: one.measured["loss"] for cell, one in again.items()} == {
        cell: one.measured["loss"] for cell, one in trials.items()
    }


def test_why_trials_failed_stands_on_the_page(counting, tmp_path):
    folder = begin(tmp_path / "both", "rnn", "lstm")
    engine.resume(folder, Console(file=io.StringIO()))
    summary = read_summary(folder / COMPARISON)
    first, *others = summary.contenders
    refused = first.model_copy(update={"failures": {"it cannot have so few": "rate 0.004, 4 layers"}})
    write(summary.model_copy(update={"contenders": [refused, *others]}), folder / COMPARISON)
    said = f"Failed trials of {first.model}: it cannot have so few (rate 0.004, 4 layers)."
    assert said in draw(folder).read_text()


def _change_loss(folder, contender, loss):
    """Gives the trial at another rate than the chosen one this loss; returns the rate."""
    other = next(float(rate) for rate in contender.rates if float(rate) != contender.learning_rate)
    for path in (folder / "cells/tuning").glob(f"{contender.model}--*rate-{round(1e6 * other)}.json"):
        kept = json.loads(path.read_text())
        measured, failed = (None, "diverged") if loss is None else (kept["measured"] | {"loss": loss}, "")
        path.write_text(json.dumps(kept | {"measured": measured, "failed": failed}))
    return other


def test_resume_refuses_trials_that_choose_another_rate_than_the_measured_one(counting, tmp_path):
    folder = begin(tmp_path / "both", "rnn", "lstm")
    engine.resume(folder, Console(file=io.StringIO()))
    rnn, _ = read_summary(folder / COMPARISON).contenders
    better = _change_loss(folder, rnn, 0.5)
    message = rf"rnn: the tuning trials now select learning_rate {better} \(was {rnn.learning_rate}\)"
    with pytest.raises(UserError, match=message):
        engine.resume(folder, Console(file=io.StringIO()))
    assert read_summary(folder / COMPARISON).contenders[0] == rnn


def test_resume_does_not_retry_failed_trials_of_a_measured_model(counting, tmp_path):
    folder = begin(tmp_path / "both", "rnn", "lstm")
    engine.resume(folder, Console(file=io.StringIO()))
    _change_loss(folder, read_summary(folder / COMPARISON).contenders[0], None)
    before = {path: path.read_bytes() for path in (folder / "cells/tuning").iterdir()}
    engine.resume(folder, Console(file=io.StringIO()))
    assert {path: path.read_bytes() for path in (folder / "cells/tuning").iterdir()} == before
