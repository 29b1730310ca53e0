"""A comparison begins once, on one task, and loses nothing of what it has measured."""

import io
import json

import pytest
import torch
from rich.console import Console

from s2s.comparison import engine, setup, tuning
from s2s.comparison.report.drawing import draw, kept_comparison
from s2s.comparison.request import Order, extended, order
from s2s.comparison.results import RESULT, read_result, read_summary
from s2s.errors import UserError
from s2s.files import ASKED, COMPARISON
from s2s.recipe.reading import write
from s2s.run.folder import RECIPE, check_is_run
from s2s.run.tasks import read
from s2s.training.precision import PrecisionBenchmark
from tests.compare.counting import TINY, begin


def _go_on(folder, **more):
    told = io.StringIO()
    engine.resume(folder, Console(file=told), **more)
    return told.getvalue()


def test_a_folder_that_is_there_is_not_touched(counting, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "letter.txt").write_text("dear")
    with pytest.raises(UserError, match="already exists"):
        begin(tmp_path / "there", "rnn", "lstm")
    assert [p.name for p in (tmp_path / "there").iterdir()] == ["letter.txt"]
    with pytest.raises(UserError, match=r"letter.txt: already exists"):
        begin(tmp_path / "there/letter.txt", "rnn", "lstm")
    with pytest.raises(UserError, match="is no comparison"):
        engine.resume(tmp_path / "there", Console(file=io.StringIO()))
    folder = begin(tmp_path / "begun", "rnn", "lstm")
    with pytest.raises(UserError, match=f"--resume {folder}"):
        begin(folder, "rnn", "lstm")


def test_a_wrong_setting_leaves_nothing_behind(counting, tmp_path):
    with pytest.raises(UserError, match="layers: unknown key"):
        begin(tmp_path / "wrong", "rnn", "lstm", "rnn.layers=3")
    assert not (tmp_path / "wrong").exists()


def test_a_start_that_was_killed_is_no_comparison_yet_and_can_be_repeated(counting, tmp_path, monkeypatch):
    folder = tmp_path / "killed"

    def interrupt(*_words: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(setup, "write_part", interrupt)
        with pytest.raises(KeyboardInterrupt):
            begin(folder, "rnn", "lstm")
    assert (folder / "recipe.yaml").exists()
    with pytest.raises(UserError, match=r"one that was not started\n.*repeat the command"):
        engine.resume(folder, Console(file=io.StringIO()))
    # somebody's own recipe is not replaced
    with pytest.raises(UserError, match="already exists"):
        begin(folder, "rnn", "lstm", "training.clip=9")
    assert (begin(folder, "rnn", "lstm") / COMPARISON).exists()
    with pytest.raises(UserError, match="resume it with"):
        begin(folder, "rnn", "lstm")


def test_all_models_have_the_precision_in_which_together_they_are_faster(few_trials, tmp_path, monkeypatch):
    # what each takes in fp32 and in bf16
    times, threads = {"rnn": (3.0, 1.0)}, torch.get_num_threads()

    def measured(trainer):
        assert torch.get_num_threads() == 1
        recurrent = any(isinstance(module, torch.nn.RNNBase) for module in trainer.model.modules())
        return PrecisionBenchmark(*times["rnn" if recurrent else "transformer"], threads=1)

    monkeypatch.setattr(setup, "benchmark_precision", measured)
    torch.set_num_threads(2)
    for name, precision, of_transformer in (
        ("one", "bf16", (1.0, 2.0)),
        ("other", "fp32", (1.0, 4.0)),
        # it leaves no room on a GPU in fp32, however fast
        ("large", "bf16", (None, 4.0)),
    ):
        times["transformer"] = of_transformer
        words = [word for word in TINY if not word.startswith("device")]
        order_of_both = Order(("rnn", "transformer", *words), seeds=1, experiments=("memory",), out=tmp_path / name)
        planned = order(order_of_both)
        setup.create(planned.folder, planned.base, planned.summary)
        assert read(planned.folder / RECIPE).device.precision == precision
        assert torch.get_num_threads() == 2
    torch.set_num_threads(threads)


@pytest.fixture
def as_deep_as_they_are(monkeypatch):
    """No trial of another depth."""
    monkeypatch.setattr(tuning, "depths_of", lambda recipe, own: ())


@pytest.mark.usefixtures("as_deep_as_they_are")
def test_a_comparison_takes_on_another_model_and_measures_nothing_again(counting, tmp_path):
    folder, whole = begin(tmp_path / "two", "rnn", "lstm"), begin(tmp_path / "three", "rnn", "lstm", "mingru")
    _go_on(whole)
    wanted, counting.asked = list(counting.asked), []
    _go_on(folder)
    trials = {path.name: path.read_bytes() for path in (folder / "cells/tuning").glob("*.json")}
    # the folder of measurements has copies of plan and recipe, and is no comparison of its own
    for use in (setup.load_summary, kept_comparison):
        with pytest.raises(UserError, match=r"cells: holds the measurements of a comparison\n.*name \S*two$"):
            use(folder / "cells")
    asked = extended(setup.load_summary(folder), Order(("mingru",)))
    assert asked.command == setup.load_summary(whole).command
    assert "memory: 2 measurements" in engine.describe_costs(folder, asked, None)
    _go_on(folder, summary=asked)
    assert sorted(counting.asked) == sorted(wanted)
    assert {name: (folder / "cells/tuning" / name).read_bytes() for name in trials} == trials
    alike = {"tuning_seconds": 0.0}
    two, three = (
        [each.model_copy(update=alike) for each in read_summary(path / COMPARISON).contenders]
        for path in (folder, whole)
    )
    assert two == three
    assert [each.model for each in two] == ["rnn", "lstm", "mingru"]
    assert read_result(folder / "memory" / RESULT).findings == read_result(whole / "memory" / RESULT).findings
    assert "mingru" in draw(folder).read_text(encoding="utf-8")


def test_a_model_that_cannot_be_taken_on_leaves_the_comparison_as_it_is(counting, tmp_path):
    folder = begin(tmp_path / "two", "rnn", "transformer")
    before = (folder / COMPARISON).read_bytes()
    with pytest.raises(UserError, match="transformer and transformer:norm=pre are the same model"):
        _go_on(folder, summary=extended(setup.load_summary(folder), Order(("transformer:norm=pre",))))
    assert (folder / COMPARISON).read_bytes() == before


def _edited(folder, *settings):
    write(read(folder / RECIPE, settings), folder / RECIPE)


@pytest.mark.usefixtures("as_deep_as_they_are")
def test_measurements_are_of_the_task_that_they_were_made_on(counting, tmp_path):
    folder = begin(tmp_path / "both", "rnn", "lstm")
    # nothing is measured yet, so another task may be written into it
    _edited(folder, "training.updates=6")
    _go_on(folder)
    asked = list(counting.asked)
    _edited(folder, "training.updates=7", "batches.tokens=256")
    with pytest.raises(UserError, match=r"recipe.yaml: batches.tokens, training.updates changed(.|\n)*copy \S*cells"):
        _go_on(folder)
    with pytest.raises(UserError, match="changed since the trials were run"):
        engine.describe_costs(folder, setup.load_summary(folder), None)
    (folder / RECIPE).write_text("")
    with pytest.raises(UserError, match=r"recipe.yaml: is empty(.|\n)*→ copy \S*cells/recipe.yaml over it"):
        _go_on(folder)
    # as it says
    (folder / RECIPE).write_bytes((folder / "cells" / RECIPE).read_bytes())
    _edited(folder, "run.dir=elsewhere", "device.threads=2")
    _go_on(folder)
    assert counting.asked == asked
    _edited(folder, "device.precision=bf16")
    with pytest.raises(UserError, match=r"device\.precision changed"):
        _go_on(folder)


@pytest.mark.usefixtures("as_deep_as_they_are")
def test_measurements_are_of_the_texts_that_they_were_made_on(counting, tmp_path):
    folder = begin(tmp_path / "of data", "rnn", "lstm")
    _go_on(folder)
    kept, asked = folder / "cells" / "data.json", (folder / COMPARISON).read_bytes()
    before = json.loads(kept.read_text())
    assert set(before) == {"train", "validation"}
    task = engine.load_task(folder)
    setup.check_data(folder, task)
    other = task.model_copy(update={"data": task.data.model_copy(update={"seed": 2})})
    with pytest.raises(UserError, match="train, validation: the data changed since"):
        setup.check_data(folder, other)
    for wrong in (json.dumps(before | {"test": "x"}), json.dumps(before | {"validation": "x"})):
        kept.write_text(wrong)
        with pytest.raises(UserError, match="the data changed since the trials were run"):
            _go_on(folder)
    kept.write_text("{")
    with pytest.raises(UserError, match=r"data.json:1: not JSON(.|\n)*remove it if the data are still the same"):
        _go_on(folder)
    assert (folder / COMPARISON).read_bytes() == asked
    # one of before they were kept is believed
    kept.unlink()
    _go_on(folder)
    assert json.loads(kept.read_text()) == before


@pytest.mark.usefixtures("as_deep_as_they_are")
def test_a_comparison_that_lost_what_it_was_asked_has_a_copy_beside_its_measurements(counting, tmp_path):
    folder = begin(tmp_path / "both", "rnn", "lstm")
    _go_on(folder)
    asked, before = list(counting.asked), (folder / COMPARISON).read_bytes()
    (folder / COMPARISON).write_text("{")
    with pytest.raises(UserError, match=r"is no summary of a comparison(.|\n)*remove it and go on with"):
        _go_on(folder)
    (folder / COMPARISON).unlink()
    # another one does not take its measurements over
    with pytest.raises(UserError, match=r"already exists\n.*--resume"):
        begin(folder, "rnn", "lstm", "lstm.dropout=0.4")
    assert "total: 0 measurements" in engine.describe_costs(folder, setup.load_summary(folder), None)
    assert not (folder / COMPARISON).exists()
    _go_on(folder)
    assert counting.asked == asked
    again, first = read_summary(folder / COMPARISON), json.loads(before)
    assert [each.model_dump(mode="json") for each in again.contenders] == first["contenders"]


@pytest.mark.usefixtures("as_deep_as_they_are")
def test_a_conclusion_that_fails_is_no_success(counting, tmp_path):
    folder = begin(tmp_path / "edited", "rnn", "lstm")
    _go_on(folder)
    engine.check_concluded(folder)
    cell = folder / "cells/memory/rnn--count--seed1.json"
    kept = cell.read_text()
    cell.write_text(kept.replace('"rate"', '"rat"'))
    assert "memory: FAILED: the analysis failed: KeyError" in _go_on(folder)
    with pytest.raises(
        UserError, match=r"conclusion.txt: memory: the analysis failed(.|\n)*remove it and measure it again"
    ):
        engine.check_concluded(folder)
    cell.unlink()
    _go_on(folder)
    engine.check_concluded(folder)
    assert '"rate"' in cell.read_text()


@pytest.mark.usefixtures("as_deep_as_they_are")
def test_a_comparison_without_its_recipe_goes_on_by_the_copy_and_writes_it_again(counting, tmp_path):
    folder = begin(tmp_path / "both", "rnn", "lstm")
    _go_on(folder)
    asked, text = list(counting.asked), (folder / RECIPE).read_text()
    (folder / RECIPE).unlink()
    _go_on(folder)
    assert counting.asked == asked
    assert (folder / RECIPE).read_text() == text


def test_what_is_damaged_is_told_and_measured_again(counting, tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "depths_of", lambda recipe, own: ())
    folder = begin(tmp_path / "both", "rnn", "lstm")
    _go_on(folder)
    (folder / "cells/memory/rnn--count--seed1.json").write_text("{")
    assert "memory: damaged results are measured again: rnn--count--seed1" in _go_on(folder)


def test_a_folder_that_another_command_made_is_told_as_what_it_is(counting, tmp_path):
    folder, other = begin(tmp_path / "both", "rnn", "lstm"), tmp_path / "other"
    with pytest.raises(UserError, match=rf"is not a run but a comparison\n.*s2s compare --resume {folder}"):
        check_is_run(folder)
    (folder / COMPARISON).unlink()
    (folder / "cells").mkdir()
    (folder / "cells" / COMPARISON).write_text("{}")
    with pytest.raises(UserError, match=rf"is a comparison, but has no comparison.json\n.*--resume {folder}"):
        draw(folder)
    other.mkdir()
    (other / ASKED).write_text("{}")
    told = rf"a reproduction.*\n.*s2s reproduce NAME --out {other}"
    for refuses in (check_is_run, setup.load_summary, draw):
        with pytest.raises(UserError, match=told):
            refuses(other)
