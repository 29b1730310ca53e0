"""Measurements are kept, not repeated, and one that fails leaves the others alone."""

import errno
import io
import json
import os
from types import SimpleNamespace

import pytest
from rich.console import Console

from s2s.comparison import executor
from s2s.comparison.executor import load_result, run_cached
from s2s.comparison.progress import Progress
from s2s.comparison.spec import NoSuchSize, NotForThisModel, Trial
from s2s.errors import UserError
from s2s.files import explain_os_error

TASK = Trial("rnn", "copy", seed=3)


def test_a_measurement_is_made_once(tmp_path):
    made = []

    def measure(cell):
        made.append(cell)
        return {"value": 1.5}

    first = run_cached(tmp_path, measure, TASK)
    again = run_cached(tmp_path, measure, TASK)
    assert made == [TASK]
    assert first == again == load_result(tmp_path, TASK)
    assert json.loads((tmp_path / "rnn--copy--seed3.json").read_text())["measured"] == {"value": 1.5}


def test_a_failure_is_kept_with_its_reason_and_tried_again(tmp_path):
    def fail(cell):
        raise UserError("cannot do that", remedy="leave it")

    def crash(cell):
        return {"value": 1 / 0}

    assert run_cached(tmp_path, fail, TASK).failed == "cannot do that"
    assert load_result(tmp_path, TASK).measured is None
    assert run_cached(tmp_path, crash, TASK).failed == "ZeroDivisionError: division by zero"
    assert "in crash" in (tmp_path / "rnn--copy--seed3.txt").read_text()
    assert run_cached(tmp_path, lambda cell: {"value": 2}, TASK).measured == {"value": 2}
    assert load_result(tmp_path, TASK).failed == ""


@pytest.mark.parametrize("error", [NotForThisModel, NoSuchSize])
def test_what_a_model_cannot_do_it_is_not_asked_again_by_the_same_code(tmp_path, monkeypatch, error):
    asked = []

    def refuse(cell):
        asked.append(cell)
        raise error("it is too small")

    for _ in range(2):
        assert run_cached(tmp_path, refuse, TASK).failed == "it is too small"
    assert len(asked) == 1
    monkeypatch.setattr(executor, "code_version", lambda: "another")
    run_cached(tmp_path, refuse, TASK)
    assert len(asked) == 2


def test_a_file_that_was_copied_over_anothers_counts_as_not_measured(tmp_path):
    run_cached(tmp_path, lambda cell: {"value": 2}, TASK)
    other = Trial("lstm", TASK.part, TASK.seed)
    (tmp_path / f"{other.key}.json").write_bytes((tmp_path / f"{TASK.key}.json").read_bytes())
    assert load_result(tmp_path, TASK)
    assert load_result(tmp_path, other) is None
    assert run_cached(tmp_path, lambda cell: {"value": 3}, other).measured == {"value": 3}


def test_a_damaged_file_counts_as_not_measured(tmp_path):
    path = tmp_path / "rnn--copy--seed3.json"
    whole = '{"measured": {"value": 1}, "failed": "", "seconds": 2.0}'
    path.write_text(whole)
    assert load_result(tmp_path, TASK) is not None
    damaged = [
        whole[:20],
        whole.replace("2.0", "NaN"),
        whole.replace("2.0", '"x"'),
        whole.replace('{"value": 1}', "[]"),
    ]
    for text in damaged:
        path.write_text(text)
        assert load_result(tmp_path, TASK) is None, text


def test_an_interruption_is_not_taken_for_a_failure(tmp_path):
    def stop(cell):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_cached(tmp_path, stop, TASK)
    assert load_result(tmp_path, TASK) is None


def full_disk(path):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def full_disk_in_a_run(path):
    try:
        full_disk(path)
    except OSError as error:
        raise explain_os_error(error) from None


@pytest.mark.parametrize("write", [full_disk, full_disk_in_a_run])
def test_a_full_disk_is_not_taken_for_a_failure_of_what_was_measured(tmp_path, write):
    with pytest.raises(OSError, match="No space left"):
        run_cached(tmp_path, lambda cell: write(tmp_path / "x"), TASK)
    assert load_result(tmp_path, TASK) is None
    # another trouble with a file is one measurement's
    assert "gone" in run_cached(tmp_path, lambda cell: (tmp_path / "gone").read_text(), TASK).failed


def test_keys_of_different_tasks_differ():
    cells = [Trial("a"), Trial("a", "b"), Trial("a", "b", 1), Trial("a", seed=1), Trial("a-b")]
    assert len({cell.key for cell in cells}) == len(cells)


def test_progress_raises_a_stop_signal_that_was_lost():
    class Lost(Exception):
        pass

    def lost():
        raise Lost

    with Progress(8.0, Console(file=io.StringIO()), lost) as progress, pytest.raises(Lost):
        progress.finish("long-range", TASK, 10.0, "", 2.0)


def test_progress_scales_the_remaining_seconds_of_the_table_by_the_observed_speed(monkeypatch):
    clock = iter([100.0, 110.0, 140.0, 170.0])
    monkeypatch.setattr("s2s.comparison.progress.time", SimpleNamespace(perf_counter=lambda: next(clock)))
    text = io.StringIO()
    with Progress(4_000.0, Console(file=text)) as progress:
        progress.start("long-range", [TASK, Trial("gru")])
        progress.finish("long-range", TASK, 10.0, "", 2.0)
        # more trials than were expected
        progress.expect(5_000.0)
        progress.finish("long-range", Trial("gru"), 1.0, "FAILED: ZeroDivisionError: division by zero", 6.0)
        # the first trial ends after a minute that had begun before it, although it needed three seconds
        progress.expect(60.0)
        progress.finish("long-range", TASK, 3.0, "", 1.0)
    # 3,998 s at (10 + 400) / (2 + 400), 4,994 s at (40 + 500.2) / (8 + 500.2), and 59 s at (70 + 30) / (9 + 30)
    assert text.getvalue().splitlines()[:3] == [
        "long-range: rnn, copy, seed 3: 10 s · 1:07:58 left",
        "long-range: gru: FAILED: ZeroDivisionError: division by zero · 1:28:28 left",
        "long-range: rnn, copy, seed 3: 3 s · 2:31 left",
    ]
